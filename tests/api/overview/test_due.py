"""`/v1/due`: how many waiting jobs are due when."""

from __future__ import annotations

import asyncio

import pytest

from erelong.clock.instants import format_instant
from tests.support.keyed import Keys, serve_keyed
from tests.support.served import Serve, Served
from tests.support.virtual import EPOCH

SECOND = 1_000_000


async def test_waiting_jobs_are_counted_by_the_minute(service: Served) -> None:
    for delay in (30, 61, 62, 3_600 + 30, 86_400):
        await service.submit(delay=delay)
    await service.submit()
    await service.submit_into("cancelled")

    due = (await service.get("/v1/due")).json

    assert (due["as_of"], due["from"], due["step"]) == (format_instant(EPOCH), format_instant(EPOCH), 60.0)
    assert (due["counts"][:3], sum(due["counts"]), len(due["counts"])) == ([1, 2, 0], 3, 60)
    assert (due["overdue"], due["later"], due["sampled"]) == (0, 2, 1)


async def test_first_bin_begins_with_the_current_step_or_as_asked(service: Served) -> None:
    await service.post("/v1/queues/mail/pause")
    await service.submit(queue="mail")
    await asyncio.sleep(100)
    await service.submit(delay=10)

    due = (await service.get("/v1/due?step=1m&bins=2")).json
    later = (await service.get(f"/v1/due?step=1h&bins=1&from={EPOCH // SECOND + 120}")).json

    assert (due["from"], due["overdue"], due["counts"]) == (format_instant(EPOCH + 60 * SECOND), 1, [1, 0])
    assert (later["overdue"], later["counts"], later["step"]) == (2, [0], 3_600.0)


async def test_filters_select_the_jobs(service: Served) -> None:
    await service.submit(queue="mail", delay=5, labels={"tenant": "t1"})
    await service.submit(queue="sms", delay=5, labels={"tenant": "t1"})
    await service.submit(queue="sms", kind="http", params={"url": "https://app.example"}, delay=5)

    for query, number in {
        "queue=sms": 2,
        "queue=sms&queue=mail": 3,
        "kind=http": 1,
        "label.tenant=t1": 2,
        "label.tenant=t1&queue=mail": 1,
        "queue=none": 0,
    }.items():
        assert sum((await service.get(f"/v1/due?{query}")).json["counts"]) == number, query


async def test_limited_key_sees_its_queues(serve: Serve) -> None:
    keyed = await serve_keyed(serve, Keys().add("root").add("mail", queues=["mail"]))
    with keyed.using("root") as service:
        for queue in ("mail", "other", "other"):
            await service.submit(queue=queue, delay=5)

    with keyed.using("mail") as service:
        counts = [
            sum((await service.get(f"/v1/due{query}")).json["counts"])
            for query in ("", "?queue=mail&queue=other", "?queue=other")
        ]

    assert counts == [1, 1, 0]


async def test_histogram_is_made_once_for_all_clients(service: Served) -> None:
    await service.submit(delay=5)
    first = await service.get("/v1/due")
    await service.submit(delay=5)
    same = await service.get("/v1/due")
    await asyncio.sleep(1)

    assert same.body == first.body
    assert sum((await service.get("/v1/due")).json["counts"]) == 2


@pytest.mark.parametrize(
    "query", ["step=0", "step=32d", "bins=0", "bins=201", "from=soon", "from=2026-01-01T00:00:00", "queue=a%20b", "x=1"]
)
async def test_invalid_query_is_refused(service: Served, query: str) -> None:
    answer = await service.get(f"/v1/due?{query}")

    assert answer.status == 422
    assert answer.pointers[0].startswith(f"/{query.partition('=')[0]}")
