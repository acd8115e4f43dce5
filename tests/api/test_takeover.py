"""Takeovers of a key in batches, in streams, by repeated submits, and in full queues."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from erelong.settings.queues import QueueSettings
from tests.support.served import Serve, Served
from tests.support.takeovers import NEWER, TAKEOVERS, begin, take_over

# batches, streams, and repeated submits


async def test_line_of_a_batch_takes_over_and_the_next_changes_the_new_job(service: Served) -> None:
    holder = await begin(service)
    lines = [NEWER | {"params": {"n": n}} for n in (1, 2)]

    answer = await service.post("/v1/jobs/batch", {"jobs": lines})

    first, second = answer.json["jobs"]
    assert (answer.status, first["created"], second["created"]) == (201, True, False)
    assert holder["id"] != first["id"] == second["id"]
    assert (await service.job(first["id"]))["params"] == {"n": 2}
    assert (await service.job(holder["id"]))["key"] is None


async def test_batch_that_is_refused_leaves_the_running_job_its_key(service: Served) -> None:
    holder = await begin(service)
    taken = await service.submit(key="taken", delay=1_000)

    answer = await service.post("/v1/jobs/batch", {"jobs": [NEWER, NEWER | {"key": "taken", "on_conflict": "reject"}]})

    assert (answer.status, answer.pointers) == (409, ["/jobs/1/key"])
    assert await service.job(holder["id"]) == holder
    assert [job["id"] for job in (await service.get("/v1/jobs")).json["jobs"]] == [taken["id"], holder["id"]]


async def test_lines_of_a_stream_take_over_and_change_the_new_jobs(service: Served) -> None:
    holder = await begin(service)

    answer = await service.stream(
        *(NEWER | {"on_conflict": way} for way in ("reject", "keep", "reschedule", "replace"))
    )

    refused, kept, made, changed = answer.lines
    assert (refused["problem"]["code"], refused["problem"]["job"]["id"]) == ("key_taken", holder["id"])
    assert kept == {"id": holder["id"], "created": False}
    assert (made["created"], changed) == (True, {"id": made["id"], "created": False})
    assert (await service.get("/v1/jobs/~k")).json["id"] == made["id"] != holder["id"]


@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/jobs/batch"])
async def test_repeated_submit_takes_over_once(service: Served, path: str) -> None:
    await begin(service)
    body: Any = NEWER | {"kind": "endless", "delay": 0}
    body = {"jobs": [body]} if path.endswith("batch") else body
    first = await service.post(path, body, headers={"Idempotency-Key": "once"})
    await asyncio.sleep(1)

    second = await service.post(path, body, headers={"Idempotency-Key": "once"})

    ids = [(answer.json["jobs"][0] if "jobs" in answer.json else answer.json)["id"] for answer in (first, second)]
    assert (first.status, second.status, ids[0] == ids[1]) == (201, 200, True)
    assert (await service.get("/v1/jobs/~k")).json["state"] == "running"


# room


async def full(serve: Serve, overflow: str) -> tuple[Served, dict[str, Any], dict[str, Any]]:
    """Return a service whose queue is full with two waiting jobs, the second of them running."""
    settings = QueueSettings.model_validate({"max_backlog": 2, "overflow": overflow})
    service = await serve(queues={"default": settings})
    holder = await begin(service)
    oldest, _ = [await service.submit(delay=delay) for delay in (100, 200)]
    return service, holder, oldest


@pytest.mark.parametrize("on_conflict", TAKEOVERS)
async def test_takeover_needs_room(serve: Serve, on_conflict: str) -> None:
    service, holder, _ = await full(serve, "reject")

    for answer in (
        await service.post("/v1/jobs", NEWER | {"on_conflict": on_conflict}),
        await service.post("/v1/jobs/batch", {"jobs": [NEWER | {"on_conflict": on_conflict}]}),
    ):
        assert (answer.status, answer.code) == (429, "backlog_full")
    (line,) = (await service.stream(NEWER | {"on_conflict": on_conflict})).lines
    assert line["problem"]["code"] == "backlog_full"
    assert await service.job(holder["id"]) == holder


async def test_takeover_by_many_lines_needs_room_for_one_job(serve: Serve) -> None:
    service, holder, oldest = await full(serve, "reject")
    await service.delete(f"/v1/jobs/{oldest['id']}")

    answer = await service.post("/v1/jobs/batch", {"jobs": [NEWER] * 3})

    assert answer.status == 201
    assert (await service.job(holder["id"]))["key"] is None


@pytest.mark.parametrize("on_conflict", ["keep", "reject"])
async def test_submit_without_a_takeover_needs_no_room(serve: Serve, on_conflict: str) -> None:
    service, holder, _ = await full(serve, "reject")

    answer = await service.post("/v1/jobs", NEWER | {"on_conflict": on_conflict})

    assert (answer.status, await service.job(holder["id"])) == ({"keep": 200, "reject": 409}[on_conflict], holder)


async def test_takeover_drops_the_oldest_to_make_room(serve: Serve) -> None:
    service, holder, oldest = await full(serve, "drop_oldest")

    await take_over(service)

    assert (await service.job(oldest["id"]))["error"]["type"] == "dropped"
    assert (await service.job(holder["id"]))["key"] is None


async def test_takeover_waits_for_room(serve: Serve) -> None:
    service, holder, oldest = await full(serve, "wait")
    waiting = asyncio.create_task(service.post("/v1/jobs", NEWER))
    await asyncio.sleep(3)
    assert await service.job(holder["id"]) == holder

    await service.delete(f"/v1/jobs/{oldest['id']}")

    assert (await waiting).status == 201
    assert (await service.job(holder["id"]))["key"] is None
