"""`/v1/stats`: what the service does now, and lines of the last hour and day."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from erelong.clock.instants import format_instant
from erelong.model.job import Job
from erelong.model.query import Query
from erelong.settings.queues import QueueSettings, Retention
from erelong.settings.sections import WorkersSection
from tests.support.keyed import Keys, serve_keyed
from tests.support.served import Serve, Served
from tests.support.virtual import EPOCH

SECOND = 1_000_000


async def stats(service: Served, query: str = "") -> dict[str, Any]:
    answer = await service.get(f"/v1/stats{query}")
    assert answer.status == 200
    found: dict[str, Any] = answer.json
    return found


async def test_brief_statistics_have_only_the_checks_that_say_something(service: Served) -> None:
    full = await stats(service)
    brief = await stats(service, "?view=brief")

    assert set(full) - set(brief) == {"host", "notes"}
    assert brief["checks"] == {name: state for name, state in full["checks"].items() if state != "ok"}
    assert 0 < len(brief["checks"]) < len(full["checks"])
    assert {**brief, "checks": full["checks"]} == {name: value for name, value in full.items() if name in brief}


async def test_quiet_service_has_nothing_to_show(service: Served) -> None:
    found = await stats(service)

    assert found["jobs"] == dict.fromkeys(
        ("scheduled", "due", "running", "succeeded", "failed", "cancelled", "expired"), 0
    )
    assert (found["ready"], found["next_due_at"], found["oldest_due_age"]) == (True, None, None)
    assert found["late"] == {"p50": None, "p99": None, "max": None}
    assert set(found["rates"].values()) == {0.0}
    assert found["started_at"] == format_instant(EPOCH)
    assert [note["event"] for note in found["notes"]] == ["started"]
    assert found["checks"]["store"] == "ok"
    assert "series" not in found


async def test_jobs_are_counted_by_state(service: Served) -> None:
    for state in ("scheduled", "running", "succeeded", "failed", "cancelled", "expired"):
        await service.submit_into(state, queue=state)
    await service.post("/v1/queues/mail/pause")
    await service.submit(queue="mail")
    soon = await service.submit(delay=30)
    await asyncio.sleep(5)

    found = await stats(service)

    assert found["jobs"] == {
        "scheduled": 3,
        "due": 1,
        "running": 1,
        "succeeded": 1,
        "failed": 1,
        "cancelled": 1,
        "expired": 1,
    }
    assert found["next_due_at"] == soon["due_at"]
    assert found["oldest_due_age"] == pytest.approx(5, abs=0.2)
    assert found["workers"] == {"running": 1, "of": WorkersSection().concurrency}


async def test_rates_are_those_of_the_last_ten_seconds(service: Served) -> None:
    await asyncio.sleep(25)
    for _ in range(50):
        await service.submit()
    await service.submit(params={"fail": "boom"}, retry={"max_attempts": 2, "delay": 1, "jitter": 0})
    await asyncio.sleep(5)

    rates = (await stats(service))["rates"]
    await asyncio.sleep(30)
    later = (await stats(service))["rates"]

    assert rates["submitted"] * 10 == pytest.approx(51, abs=0.1)
    assert rates["started"] * 10 == pytest.approx(52, abs=0.1)
    assert rates["succeeded"] * 10 == pytest.approx(50, abs=0.1)
    assert (rates["failed"] * 10, rates["retried"] * 10) == (pytest.approx(1, abs=0.1), pytest.approx(1, abs=0.1))
    assert set(later.values()) == {0.0}


async def test_all_clients_get_the_same_bytes_for_a_second(service: Served) -> None:
    one, other = await asyncio.gather(service.get("/v1/stats"), service.get("/v1/stats"))
    same = await service.get("/v1/stats", headers={"If-None-Match": one.headers["ETag"]})
    await asyncio.sleep(1)
    new = await service.get("/v1/stats", headers={"If-None-Match": one.headers["ETag"]})

    assert one.body == other.body
    assert (same.status, same.body, same.headers["ETag"]) == (304, b"", one.headers["ETag"])
    assert (new.status, new.headers["ETag"] == one.headers["ETag"]) == (200, False)


async def test_clock_goes_on_while_the_numbers_are_kept(service: Served) -> None:
    first = await service.get("/v1/stats")
    await asyncio.sleep(0.4)
    second = await service.get("/v1/stats")

    assert first.headers["ETag"] == second.headers["ETag"]
    assert (first.json["now"], second.json["now"]) == (format_instant(EPOCH), format_instant(EPOCH + 400_000))


async def test_slow_reading_is_kept_for_two_seconds(service: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = service.node.services.jobs.list

    async def list_slowly(query: Query) -> Sequence[Job]:
        await asyncio.sleep(0.5)
        return await listed(query)

    monkeypatch.setattr(service.node.services.jobs, "list", list_slowly)
    await stats(service)
    await service.submit(delay=60)
    await asyncio.sleep(2)

    assert (await stats(service))["jobs"]["scheduled"] == 1


async def test_series_of_an_hour_has_whole_points_of_ten_seconds(service: Served) -> None:
    await asyncio.sleep(21)
    for _ in range(30):
        await service.submit()
    await asyncio.sleep(24)

    series = (await stats(service, "?span=1h"))["series"]

    assert (series["step"], {len(line) for name, line in series.items() if name not in ("from", "step")}) == (10, {360})
    assert series["from"] == format_instant(EPOCH + (40 - 3_600) * SECOND)
    assert series["submitted"][-4:] == [None, 0.0, 3.0, 0.0]
    assert series["succeeded"][-4:] == [None, 0.0, 3.0, 0.0]
    assert series["late_max"][-2] is not None
    assert series["late_max"][-1] is None


async def test_series_of_a_day_has_points_of_five_minutes(service: Served) -> None:
    await asyncio.sleep(310)
    for _ in range(30):
        await service.submit()
    await asyncio.sleep(300)

    series = (await stats(service, "?span=24h"))["series"]

    assert (series["step"], len(series["due"])) == (300, 288)
    assert series["submitted"][-3:] == [None, 0.0, 0.1]


async def test_series_has_a_gap_where_the_clock_was_stepped(service: Served) -> None:
    await asyncio.sleep(25)
    service.clock.step(100)
    await service.submit()
    await asyncio.sleep(40)

    found = await stats(service, "?span=1h")

    assert found["series"]["submitted"][-15:-3] == [0.0, *[None] * 11]
    assert found["series"]["due"][-1] == 0
    assert [note["event"] for note in found["notes"]] == ["started", "clock_stepped"]
    assert found["notes"][1]["detail"].startswith("+100.0")


async def test_notes_tell_what_people_did(serve: Serve) -> None:
    keyed = await serve_keyed(serve, Keys().add("ops"))

    with keyed.using("ops") as service:
        await service.put("/v1/queues/mail", {"concurrency": 7})
        await service.post("/v1/queues/mail/pause", {"reason": "stocktaking"})
        await service.post("/v1/queues/mail/resume")
        await service.post("/v1/queues/mail/purge")
        _, *notes = (await stats(service))["notes"]

    assert [(note["event"], note.get("detail")) for note in notes] == [
        ("configured", "concurrency"),
        ("paused", "stocktaking"),
        ("resumed", None),
        ("purged", "0 cancelled"),
    ]
    assert {(note["queue"], note["by"]) for note in notes} == {("mail", "ops")}


async def test_limited_key_sees_the_sums_of_its_queues(serve: Serve) -> None:
    keyed = await serve_keyed(serve, Keys().add("root").add("mail", queues=["mail", "sms"]))
    await asyncio.sleep(35)
    with keyed.using("root") as service:
        for queue, jobs in {"mail": 10, "sms": 5, "other": 50}.items():
            for _ in range(jobs):
                await service.submit(queue=queue)
        await service.submit(queue="other", delay=5)
        last = await service.submit(queue="mail", delay=50)
        await service.post("/v1/queues/other/pause")
        await service.post("/v1/queues/mail/pause")
        await asyncio.sleep(30)

    with keyed.using("mail") as service:
        found = await stats(service, "?span=1h")
        sms = await stats(service, "?queue=sms&queue=other")
        none = await stats(service, "?queue=other")

    assert (found["jobs"]["scheduled"], found["jobs"]["succeeded"]) == (1, 15)
    assert found["next_due_at"] == last["due_at"]
    assert {note.get("queue") for note in found["notes"]} == {None, "mail"}
    assert not {"host", "checks", "series"} & found.keys()
    assert found["rates"]["submitted"] * 65 == pytest.approx(16, rel=0.1)
    assert found["rates"]["succeeded"] * 65 == pytest.approx(15, rel=0.1)
    assert found["rates"]["started"] > 0
    assert found["late"]["p99"] is not None
    assert (sms["jobs"]["succeeded"], none["jobs"]["succeeded"]) == (5, 0)
    assert b"other" not in (await keyed.service.get("/v1/me")).body


async def test_purged_and_revived_jobs_still_count_as_come(serve: Serve) -> None:
    service = await serve()
    await asyncio.sleep(35)
    ids = [(await service.submit())["id"] for _ in range(10)]
    failed = await service.submit_into("failed")
    await asyncio.sleep(1)
    for id in ids:
        await service.delete(f"/v1/jobs/{id}")
    await service.post(f"/v1/jobs/{failed['id']}/retry")
    await asyncio.sleep(1)

    found = await stats(service, "?queue=default")

    seconds = 11 / found["rates"]["submitted"]
    assert found["rates"]["succeeded"] * seconds == pytest.approx(10, abs=0.2)
    assert found["rates"]["failed"] * seconds == pytest.approx(2, abs=0.2)


async def test_job_deleted_by_retention_still_counts_as_come(serve: Serve) -> None:
    service = await serve(queues={"mail": QueueSettings(retention=Retention(succeeded=1.0))})
    await asyncio.sleep(50)
    for _ in range(10):
        await service.submit(queue="mail")
    await asyncio.sleep(20)

    found = await stats(service, "?queue=mail")

    assert found["jobs"]["succeeded"] == 0
    assert found["rates"]["succeeded"] == found["rates"]["submitted"] > 0


@pytest.mark.parametrize("query", ["span=2h", "span=", "queue=a%20b", "x=1"])
async def test_invalid_query_is_refused(service: Served, query: str) -> None:
    assert (await service.get(f"/v1/stats?{query}")).status == 422
