"""Names of jobs: `key` with its four `on_conflict` modes, and `Idempotency-Key`."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.support.served import Served

SAME = {"Idempotency-Key": "once"}
JOB = {"kind": "echo", "delay": 1_000}


async def submit(service: Served, on_conflict: str | None, **fields: Any) -> Any:
    return await service.post("/v1/jobs", {**JOB, "key": "k", "on_conflict": on_conflict, **fields})


# key


@pytest.mark.parametrize("on_conflict", [None, "reject"])
@pytest.mark.parametrize("state", ["scheduled", "running"])
async def test_key_of_a_live_job_is_taken(service: Served, state: str, on_conflict: str | None) -> None:
    holder = await service.submit_into(state, key="k")

    answer = await submit(service, on_conflict)

    assert (answer.status, answer.code, answer.json["job"]) == (409, "key_taken", holder)
    assert answer.json["job"]["waiting_for"] == ("time" if state == "scheduled" else None)


@pytest.mark.parametrize("state", ["succeeded", "failed", "cancelled", "expired"])
async def test_key_of_a_final_job_is_free_again(service: Served, state: str) -> None:
    await service.submit_into(state, key="k")

    assert (await submit(service, None)).status == 201


async def test_key_of_a_deleted_job_is_free_again(service: Served) -> None:
    holder = await service.submit_into("scheduled", key="k")
    await service.delete(f"/v1/jobs/{holder['id']}")

    assert (await submit(service, None)).status == 201


async def test_key_is_unique_per_queue(service: Served) -> None:
    await submit(service, None, queue="a")

    assert (await submit(service, None, queue="b")).status == 201
    assert (await submit(service, None, queue="a")).status == 409


@pytest.mark.parametrize("state", ["scheduled", "running"])
async def test_keep_returns_the_existing_job(service: Served, state: str) -> None:
    holder = await service.submit_into(state, key="k")

    answer = await submit(service, "keep", priority=9)

    assert (answer.status, answer.json) == (200, holder)
    assert answer.headers["Location"] == f"/v1/jobs/{holder['id']}"


async def test_replace_gives_the_waiting_job_all_the_new_content(service: Served) -> None:
    holder = (await submit(service, None, params={"a": 1}, priority=9, labels={"x": "1"}, timeout=5)).json

    answer = await submit(service, "replace", params={"b": 2}, delay=2_000)

    job = answer.json
    assert (answer.status, job["id"], job["version"]) == (200, holder["id"], 2)
    assert (job["params"], job["priority"], job["labels"], job["timeout"]) == ({"b": 2}, 0, {}, 60.0)
    assert (job["due_at"], job["attempt"]) == ("2026-01-01T00:33:20.000Z", 0)
    assert len((await service.get("/v1/jobs")).json["jobs"]) == 1


async def test_reschedule_moves_only_the_time(service: Served) -> None:
    holder = (await submit(service, None, params={"a": 1}, priority=9)).json

    answer = await submit(service, "reschedule", params={"b": 2}, delay=5)

    job = answer.json
    assert (answer.status, job["id"], job["params"], job["priority"]) == (200, holder["id"], {"a": 1}, 9)
    assert job["due_at"].startswith("2026-01-01T00:00:05")
    assert (await service.until(job["id"], "succeeded"))["result"] == {"a": 1}


@pytest.mark.parametrize(
    ("on_conflict", "created", "delays"),
    [("keep", [True, False], [1_000]), ("replace", [True, False], [2_000]), ("reschedule", [True, False], [2_000])],
)
async def test_lines_of_one_batch_with_the_same_key_follow_on_conflict(
    service: Served, on_conflict: str, created: list[bool], delays: list[int]
) -> None:
    lines = [{**JOB, "key": "k"}, {**JOB, "delay": 2_000, "key": "k", "on_conflict": on_conflict}]

    tickets = (await service.post("/v1/jobs/batch", {"jobs": lines})).json["jobs"]

    assert [ticket["created"] for ticket in tickets] == created
    assert len({ticket["id"] for ticket in tickets}) == 1
    due = [job["due_at"] for job in (await service.get("/v1/jobs")).json["jobs"]]
    assert due == [f"2026-01-01T00:{delay // 60:02}:{delay % 60:02}.000Z" for delay in delays]


async def test_lines_of_one_batch_with_the_same_key_are_refused_and_name_each_other(service: Served) -> None:
    answer = await service.post("/v1/jobs/batch", {"jobs": [JOB, {**JOB, "key": "k"}, {**JOB, "key": "k"}]})

    assert (answer.status, answer.code, answer.pointers) == (409, "key_taken", ["/jobs/2/key"])
    assert answer.json["errors"][0]["detail"] == "/jobs/1 has the job key 'k' as well"
    assert "job" not in answer.json
    assert (await service.get("/v1/jobs")).json["jobs"] == []


# Idempotency-Key


async def test_repeated_submit_returns_the_current_job(service: Served) -> None:
    first = await service.post("/v1/jobs", {"kind": "echo", "params": {"a": 1, "b": 2}}, headers=SAME)
    done = await service.until(first.json["id"], "succeeded")

    second = await service.post("/v1/jobs", data=b'{"params":{"b":2,\n"a":1},"kind":"echo"}', headers=SAME)

    assert (second.status, second.headers["Idempotency-Replayed"], second.json) == (200, "true", done)
    assert (first.status, "Idempotency-Replayed" in first.headers) == (201, False)
    assert len((await service.get("/v1/jobs")).json["jobs"]) == 1


async def test_another_body_under_the_same_key_is_a_mismatch(service: Served) -> None:
    await service.post("/v1/jobs", JOB, headers=SAME)

    answer = await service.post("/v1/jobs", {**JOB, "priority": 1}, headers=SAME)

    assert (answer.status, answer.code) == (409, "idempotency_mismatch")


async def test_same_body_to_another_path_is_a_mismatch(service: Served) -> None:
    await service.post("/v1/jobs/batch", {"jobs": [JOB]}, headers=SAME)

    assert (await service.post("/v1/jobs", JOB, headers=SAME)).code == "idempotency_mismatch"


async def test_replayed_batch_returns_its_jobs_in_order(service: Served) -> None:
    batch = {"jobs": [{**JOB, "priority": priority} for priority in (3, 1, 2)]}
    first = await service.post("/v1/jobs/batch", batch, headers=SAME)

    second = await service.post("/v1/jobs/batch", batch, headers=SAME)

    assert (first.status, second.status, second.headers["Idempotency-Replayed"]) == (201, 200, "true")
    assert [job["id"] for job in second.json["jobs"]] == [job["id"] for job in first.json["jobs"]]
    assert [job["created"] for job in second.json["jobs"]] == [False] * 3


@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/jobs/batch"])
async def test_replay_of_a_deleted_job_is_not_found(service: Served, path: str) -> None:
    body = JOB if path == "/v1/jobs" else {"jobs": [JOB, JOB]}
    made = (await service.post(path, body, headers=SAME)).json
    await service.delete(f"/v1/jobs/{made['id'] if path == '/v1/jobs' else made['jobs'][1]['id']}")

    answer = await service.post(path, body, headers=SAME)

    assert (answer.status, answer.code) == (404, "job_not_found")
    assert "Idempotency-Key" in answer.json["detail"]


async def test_repeat_waits_for_the_request_in_flight(service: Served) -> None:
    gate = service.store.hold("add")
    both = [asyncio.create_task(service.post("/v1/jobs", JOB, headers=SAME)) for _ in range(2)]
    await asyncio.sleep(1)

    gate.set()
    answers = await asyncio.gather(*both)

    assert sorted(answer.status for answer in answers) == [200, 201]
    assert len({answer.json["id"] for answer in answers}) == 1


async def test_refused_requests_are_not_remembered(service: Served) -> None:
    holder = await service.submit_into("scheduled", key="k")
    statuses = [(await service.post("/v1/jobs", {**JOB, "key": "k"}, headers=SAME)).status]
    statuses.append((await service.post("/v1/jobs", {"kind": "nope"}, headers=SAME)).status)
    await service.delete(f"/v1/jobs/{holder['id']}")

    statuses.append((await service.post("/v1/jobs", {**JOB, "key": "k"}, headers=SAME)).status)

    assert statuses == [409, 422, 201]


async def test_key_is_forgotten_after_a_day(service: Served) -> None:
    first = await service.post("/v1/jobs", JOB, headers=SAME)
    service.clock.step(24 * 3_600 - 60)
    almost = await service.post("/v1/jobs", JOB, headers=SAME)

    service.clock.step(120)
    second = await service.post("/v1/jobs", JOB, headers=SAME)

    assert (first.status, almost.status, second.status) == (201, 200, 201)


@pytest.mark.parametrize("key", ["", "k" * 256, "k\tk", "é"])
async def test_invalid_idempotency_key_is_a_bad_header(service: Served, key: str) -> None:
    answer = await service.post("/v1/jobs", JOB, headers={"Idempotency-Key": key})

    assert (answer.status, answer.code) == (400, "bad_header")
    assert (await service.get("/v1/jobs")).json["jobs"] == []


async def test_longest_key_is_accepted(service: Served) -> None:
    assert (await service.post("/v1/jobs", JOB, headers={"Idempotency-Key": "~" * 255})).status == 201
