"""POST /v1/jobs/batch as JSON: all or nothing, with every bad job named."""

from __future__ import annotations

from typing import Any

import pytest

from erelong.settings.queues import QueueSettings
from erelong.settings.sections import LimitsSection
from tests.support.served import Serve, Served

JOB = {"kind": "echo", "delay": 1_000}


async def stored(service: Served) -> int:
    return len((await service.get("/v1/jobs?limit=1000")).json["jobs"])


async def test_batch_returns_a_ticket_per_job_in_order(service: Served) -> None:
    lines = [{"kind": "echo", "delay": delay} for delay in (30, 10, 20)]

    answer = await service.post("/v1/jobs/batch", {"jobs": lines})

    assert answer.status == 201
    assert [job["execute_at"] for job in answer.json["jobs"]] == [
        "2026-01-01T00:00:30.000Z",
        "2026-01-01T00:00:10.000Z",
        "2026-01-01T00:00:20.000Z",
    ]
    assert {(job["state"], job["created"]) for job in answer.json["jobs"]} == {("scheduled", True)}
    for job in answer.json["jobs"]:
        assert (await service.job(job["id"]))["execute_at"] == job["execute_at"]


async def test_batch_runs(service: Served) -> None:
    answer = await service.post("/v1/jobs/batch", {"jobs": [{"kind": "echo"}] * 1_200})

    for job in (answer.json["jobs"][0], answer.json["jobs"][-1]):
        assert (await service.until(job["id"], "succeeded"))["attempt"] == 1


async def test_every_bad_line_is_named_and_nothing_is_stored(service: Served) -> None:
    lines = [JOB, {"kind": "nope"}, {**JOB, "priority": 999, "qeue": "x"}, 7, {**JOB, "params": {"sleep": -1}}, {}]

    answer = await service.post("/v1/jobs/batch", {"jobs": lines})

    assert (answer.status, answer.code) == (422, "invalid")
    assert answer.pointers == [
        "/jobs/1/kind",
        "/jobs/2/priority",
        "/jobs/2/qeue",
        "/jobs/3",
        "/jobs/4/params/sleep",
        "/jobs/5/kind",
    ]
    assert await stored(service) == 0


async def test_thousands_of_bad_jobs_are_all_named(service: Served) -> None:
    answer = await service.post("/v1/jobs/batch", {"jobs": [{"kind": "nope"}] * 3_000})

    assert answer.pointers == [f"/jobs/{index}/kind" for index in range(3_000)]


async def test_every_held_key_is_named_with_its_holder(service: Served) -> None:
    holders = [await service.submit(**{**JOB, "key": key}) for key in "ab"]
    lines = [JOB, {**JOB, "key": "b"}, {**JOB, "key": "c"}, {**JOB, "key": "a"}]

    answer = await service.post("/v1/jobs/batch", {"jobs": lines})

    assert (answer.status, answer.code, answer.pointers) == (409, "key_taken", ["/jobs/1/key", "/jobs/3/key"])
    assert answer.json["job"] == holders[1]
    assert [fault["job"] for fault in answer.json["errors"]] == [holders[1]["id"], holders[0]["id"]]
    assert holders[0]["id"] in answer.json["errors"][1]["detail"]
    assert await stored(service) == 2


async def test_jobs_without_room_are_named_and_nothing_is_stored(serve: Serve) -> None:
    service = await serve(queues={"small": QueueSettings(max_backlog=2)})
    lines = [{**JOB, "queue": "small"}, JOB, {**JOB, "queue": "small"}, {**JOB, "queue": "small"}]

    answer = await service.post("/v1/jobs/batch", {"jobs": lines})

    assert (answer.status, answer.code) == (429, "backlog_full")
    assert answer.pointers == ["/jobs/0/queue", "/jobs/2/queue", "/jobs/3/queue"]
    assert answer.headers["Retry-After"] == "5"
    assert await stored(service) == 0


@pytest.mark.parametrize(
    ("body", "pointer"),
    [({}, "/jobs"), ({"jobs": []}, "/jobs"), ({"jobs": {}}, "/jobs"), ({"jobs": [JOB], "x": 1}, "/x")],
)
async def test_body_that_is_not_a_batch_is_refused(service: Served, body: Any, pointer: str) -> None:
    answer = await service.post("/v1/jobs/batch", body)

    assert (answer.status, answer.pointers) == (422, [pointer])


async def test_batch_of_too_many_jobs_names_the_bound_and_the_remedy(serve: Serve) -> None:
    service = await serve(limits=LimitsSection(max_batch_jobs=10))

    answer = await service.post("/v1/jobs/batch", {"jobs": [JOB] * 11})

    assert (answer.status, answer.pointers) == (422, ["/jobs"])
    assert "at most 10" in answer.json["detail"]
    assert "application/x-ndjson" in answer.json["detail"]
    assert (await service.post("/v1/jobs/batch", {"jobs": [JOB] * 10})).status == 201


async def test_batch_that_is_too_large_names_the_remedy(serve: Serve) -> None:
    service = await serve(limits=LimitsSection(max_batch_body=100))

    answer = await service.post("/v1/jobs/batch", {"jobs": [JOB] * 10})
    other = await service.post("/v1/jobs", {**JOB, "params": {"a": "x" * 300_000}})

    assert (answer.status, answer.code) == (413, "too_large")
    assert answer.json["detail"].startswith("the body is larger than 100 bytes; ")
    assert "application/x-ndjson" in answer.json["detail"]
    assert answer.headers["Connection"] == "close"
    assert (other.status, "ndjson" in other.json["detail"]) == (413, False)


async def test_job_that_is_too_large_alone_is_too_large_in_a_batch(serve: Serve) -> None:
    service = await serve(limits=LimitsSection(max_body=100))

    answer = await service.post("/v1/jobs/batch", {"jobs": [JOB, {**JOB, "params": {"a": "x" * 100}}, JOB]})

    assert (answer.status, answer.pointers) == (422, ["/jobs/1"])


async def test_batch_on_a_full_disk_is_all_or_nothing(service: Served) -> None:
    service.store.fill_disk()
    answer = await service.post("/v1/jobs/batch", {"jobs": [JOB, JOB]})
    service.store.broken.clear()

    assert (answer.status, answer.code) == (507, "storage_full")
    assert await stored(service) == 0
