"""`/v1/jobs/errors`: failed jobs by the cause of their error."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from erelong.api.overview import reports
from erelong.service.overview import causes
from tests.support.keyed import Keys, serve_keyed
from tests.support.served import Serve, Served


async def fail(service: Served, message: str, **fields: Any) -> str:
    job = await service.submit(params={"fail": message}, retry={"max_attempts": 1}, **fields)
    id: str = job["id"]
    await service.until(id, "failed")
    return id


async def test_errors_are_grouped_by_cause(service: Served) -> None:
    ids = [await fail(service, f"order {number} is gone") for number in range(5)]
    await asyncio.sleep(2 * 3_600)
    other = await fail(service, "no such user")
    await service.submit_into("succeeded")

    found = (await service.get("/v1/jobs/errors")).json

    gone, user = found["causes"]
    assert (found["scanned"], found["of"]) == (6, 6)
    assert (gone["kind"], gone["type"], gone["message"], gone["count"]) == ("echo", "exception", "order 4 is gone", 5)
    assert gone["sample"] == ids[:-4:-1]
    assert gone["by_hour"][-3:] == [5, 0, 0]
    assert (user["count"], user["sample"], user["by_hour"][-3:]) == (1, [other], [0, 0, 1])
    assert gone["first_at"] <= gone["last_at"] < user["first_at"] == user["last_at"]


async def test_last_bounds_the_jobs_that_are_read(service: Served) -> None:
    for number in range(5):
        await fail(service, f"order {number} is gone")

    found = (await service.get("/v1/jobs/errors?last=2")).json

    assert (found["scanned"], found["of"], found["causes"][0]["count"]) == (2, 5, 2)


async def test_many_jobs_are_read_page_by_page(service: Served) -> None:
    for _ in range(250):
        await service.submit(params={"fail": "boom"}, retry={"max_attempts": 1})
    await asyncio.sleep(5)

    found = (await service.get("/v1/jobs/errors")).json

    assert (found["scanned"], [cause["count"] for cause in found["causes"]]) == (250, [250])


async def test_most_frequent_causes_are_shown(service: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(causes, "MAX_CAUSES", 2)
    monkeypatch.setattr(causes, "MANY", 2)
    for message, number in (("a", 1), ("b", 3), ("c", 1), ("d", 2), ("e", 1)):
        for _ in range(number):
            await fail(service, message)

    found = (await service.get("/v1/jobs/errors")).json

    assert [(cause["message"], cause["count"]) for cause in found["causes"]] == [("b", 3), ("d", 2)]
    assert found["scanned"] == 8


async def test_clients_share_one_text(service: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    await fail(service, "a")
    first = await service.get("/v1/jobs/errors")
    monkeypatch.delattr(reports, "_render_causes")

    assert (await service.get("/v1/jobs/errors")).body == first.body


async def test_filters_select_the_jobs(service: Served) -> None:
    await fail(service, "a", queue="mail", labels={"tenant": "t1"})
    await fail(service, "b", queue="sms", key="k")
    await service.submit_into("cancelled", queue="sms")

    for query, number in {
        "queue=mail": 1,
        "queue=none": 0,
        "kind=echo": 2,
        "kind=http": 0,
        "label.tenant=t1": 1,
        "key=k": 1,
        "state=cancelled": 1,
        "state=failed&state=cancelled": 3,
        "state=succeeded": 0,
        "error=exception": 2,
        "error=timeout": 0,
        "attempt_min=1": 2,
        "attempt_min=2": 0,
        "finished_before=2026-01-01T00:00:00Z": 0,
        "created_after=2026-01-01T00:00:00Z&error=exception": 2,
        "schedule=none": 0,
    }.items():
        found = (await service.get(f"/v1/jobs/errors?{query}")).json["causes"]
        assert sum(cause["count"] for cause in found) == number, query


async def test_limited_key_sees_the_errors_of_its_queues(serve: Serve) -> None:
    keyed = await serve_keyed(serve, Keys().add("root").add("mail", queues=["mail"]))
    with keyed.using("root") as service:
        await fail(service, "a", queue="mail")
        await fail(service, "b", queue="other")

    with keyed.using("mail") as service:
        found = [(await service.get(f"/v1/jobs/errors{query}")).json for query in ("", "?queue=mail&queue=other")]
        none = (await service.get("/v1/jobs/errors?queue=other")).json

    assert [(some["of"], [cause["message"] for cause in some["causes"]]) for some in found] == [(1, ["a"])] * 2
    assert none == {"scanned": 0, "of": 0, "causes": []}


@pytest.mark.parametrize("query", ["last=0", "last=50001", "state=lost", "x=1"])
async def test_invalid_query_is_refused(service: Served, query: str) -> None:
    assert (await service.get(f"/v1/jobs/errors?{query}")).status == 422
