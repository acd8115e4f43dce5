"""Full queues over HTTP: reject, drop the oldest or wait. Retries are never refused."""

from __future__ import annotations

import asyncio
from typing import Any, Literal

import pytest

from erelong.settings.queues import QueueSettings
from tests.support.served import Answer, Serve, Served, ServedStore


async def full(serve: Serve, overflow: str, **settings: Any) -> tuple[Served, list[dict[str, Any]]]:
    """Return a service whose queue `default` is full with two waiting jobs."""
    queue = QueueSettings.model_validate({"max_backlog": 2, "overflow": overflow, **settings})
    service = await serve(queues={"default": queue})
    return service, [await service.submit(delay=delay) for delay in (200, 100)]


async def submit(service: Served, **fields: Any) -> Answer:
    return await service.post("/v1/jobs", {"kind": "echo", "delay": 1_000, **fields})


async def states(service: Served, jobs: list[dict[str, Any]]) -> list[str]:
    return [(await service.job(job["id"]))["state"] for job in jobs]


async def test_rejected_submit_gets_a_retry_after(serve: Serve) -> None:
    service, _ = await full(serve, "reject")

    answer = await submit(service)

    assert (answer.status, answer.code, answer.headers["Retry-After"]) == (429, "backlog_full", "5")
    assert "has 2 waiting jobs; at most 2" in answer.json["detail"]
    assert (await submit(service, queue="other")).status == 201


@pytest.mark.parametrize("overflow", ["reject", "drop_oldest", "wait"])
async def test_batch_that_never_has_room_is_told_to_send_fewer(
    serve: Serve, overflow: Literal["reject", "drop_oldest", "wait"]
) -> None:
    service = await serve(queues={"default": QueueSettings(max_backlog=1, overflow=overflow)})

    detail = (await service.post("/v1/jobs/batch", {"jobs": [{"kind": "echo", "delay": 9}] * 2})).json["detail"]
    await submit(service)

    assert detail.startswith("2 new jobs for queue 'default', where at most 1 may wait (max_backlog); send fewer")
    if overflow == "reject":
        assert "has 1 waiting job; at most 1" in (await submit(service)).json["detail"]


@pytest.mark.parametrize("way", ["cancel", "delete", "run"])
async def test_queue_has_room_again_after_a_job_leaves(serve: Serve, way: str) -> None:
    service, (job, _) = await full(serve, "reject")
    if way == "delete":
        await service.delete(f"/v1/jobs/{job['id']}")
    else:
        await service.post(f"/v1/jobs/{job['id']}/{way}")
        await service.until(job["id"], "cancelled", "succeeded")

    assert (await submit(service)).status == 201
    assert (await submit(service)).status == 429


async def test_submit_with_a_held_key_takes_no_room_from_another(serve: Serve) -> None:
    store = ServedStore()
    service = await serve(store=store, queues={"default": QueueSettings(max_backlog=2, overflow="reject")})
    await submit(service, key="k")
    let_go = store.hold("add")
    moving = asyncio.create_task(submit(service, key="k", on_conflict="reschedule"))
    adding = asyncio.create_task(submit(service))
    await asyncio.sleep(0.1)
    let_go.set()

    assert [(await moving).status, (await adding).status] == [200, 201]


async def test_submit_with_a_held_key_needs_no_room(serve: Serve) -> None:
    service, _ = await full(serve, "reject", max_backlog=3)
    await submit(service, key="k")

    assert (await submit(service, key="k", on_conflict="keep")).status == 200
    assert (await submit(service, key="k", on_conflict="replace")).status == 200
    assert (await submit(service, key="k")).status == 409
    assert (await submit(service, key="l")).status == 429


async def test_lines_with_the_same_key_need_room_for_one_job(serve: Serve) -> None:
    service = await serve(queues={"default": QueueSettings(max_backlog=1)})
    line = {"kind": "echo", "delay": 9, "key": "k", "on_conflict": "keep"}

    assert (await service.post("/v1/jobs/batch", {"jobs": [line] * 5})).status == 201


async def test_job_due_first_is_dropped_with_a_reason(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    service, jobs = await full(serve, "drop_oldest")

    answer = await submit(service)

    dropped = await service.job(jobs[1]["id"])
    assert answer.status == 201
    assert await states(service, jobs) == ["scheduled", "cancelled"]
    assert (dropped["error"]["type"], dropped["error"]["retryable"]) == ("dropped", False)
    ((level, fields),) = [(record.levelname, record.__dict__["fields"]) for record in caplog.records]
    assert level == "WARNING"
    assert fields == {
        "job": dropped["id"],
        "kind": "echo",
        "queue": "default",
        "attempt": 0,
        "error": "dropped",
        "message": dropped["error"]["message"],
    }


async def test_batch_drops_as_many_jobs_as_it_adds(serve: Serve) -> None:
    service, jobs = await full(serve, "drop_oldest")

    answers = [await service.post("/v1/jobs/batch", {"jobs": [{"kind": "echo", "delay": 9}] * size}) for size in (2, 3)]

    assert [answer.status for answer in answers] == [201, 429]
    assert await states(service, jobs) == ["cancelled", "cancelled"]
    assert (await service.get("/v1/queues/default")).json["counts"]["scheduled"] == 2


async def test_lowered_bound_drops_jobs_only_for_new_ones(serve: Serve) -> None:
    service, jobs = await full(serve, "drop_oldest", max_backlog=5)
    jobs += [await service.submit(delay=delay) for delay in (400, 300)]

    await service.put("/v1/queues/default", {"max_backlog": 1, "overflow": "drop_oldest"})
    lowered = await states(service, jobs)
    await submit(service)

    assert lowered == ["scheduled"] * 4
    assert await states(service, jobs) == ["scheduled", "cancelled", "scheduled", "scheduled"]


@pytest.mark.parametrize("overflow", ["reject", "drop_oldest", "wait"])
async def test_overfull_queue_accepts_a_submit_that_adds_no_job(serve: Serve, overflow: str) -> None:
    service = await serve()
    held, other = await service.submit(delay=100, key="k"), await service.submit(delay=200)
    await service.put("/v1/queues/default", {"max_backlog": 1, "overflow": overflow})

    answer = await submit(service, key="k", on_conflict="reschedule")

    assert (answer.status, answer.json["id"]) == (200, held["id"])
    assert await states(service, [held, other]) == ["scheduled"] * 2


async def test_submit_waits_for_room(serve: Serve) -> None:
    service, (job, _) = await full(serve, "wait")
    held = asyncio.create_task(submit(service))
    await asyncio.sleep(5)
    was_held = not held.done()

    await service.post(f"/v1/jobs/{job['id']}/cancel")

    assert was_held
    assert (await held).status == 201


async def test_submit_waits_at_most_ten_seconds_for_room(serve: Serve) -> None:
    service, _ = await full(serve, "wait")
    began_at = service.clock.now()

    answer = await submit(service)

    assert (answer.status, answer.code) == (429, "backlog_full")
    assert (service.clock.now() - began_at) / 1e6 == pytest.approx(10, abs=0.1)


async def test_batch_that_can_never_fit_does_not_wait(serve: Serve) -> None:
    service, _ = await full(serve, "wait")
    began_at = service.clock.now()

    answer = await service.post("/v1/jobs/batch", {"jobs": [{"kind": "echo"}] * 3})

    assert answer.status == 429
    assert service.clock.now() - began_at < 1_000_000


async def test_stream_waits_for_room_once_per_group(serve: Serve) -> None:
    service, _ = await full(serve, "wait")
    began_at = service.clock.now()

    answer = await service.stream(*[{"kind": "echo", "delay": 9}] * 20)

    assert [line["problem"]["code"] for line in answer.lines] == ["backlog_full"] * 20
    assert (service.clock.now() - began_at) / 1e6 <= 20.1


async def test_submit_that_waits_for_room_is_refused_when_a_drain_begins(serve: Serve) -> None:
    service, _ = await full(serve, "wait")
    held = asyncio.create_task(submit(service))
    await asyncio.sleep(1)
    began_at = service.clock.now()

    service.node.engine.drain()

    assert (await held).code == "draining"
    assert service.clock.now() - began_at < 1_000_000


@pytest.mark.parametrize("overflow", ["reject", "drop_oldest", "wait"])
async def test_full_backlog_accepts_retries(serve: Serve, overflow: str) -> None:
    service = await serve(queues={"default": QueueSettings.model_validate({"max_backlog": 1, "overflow": overflow})})
    failed = await service.submit_into("failed")
    failing = await service.submit(params={"fail": "boom", "sleep": 5}, retry={"delay": 50})
    await service.until(failing["id"], "running")
    waiting = await service.submit(delay=1_000)

    again = await service.post(f"/v1/jobs/{failed['id']}/retry")
    failing = await service.until(failing["id"], "scheduled")

    assert (again.status, failing["attempt"]) == (200, 1)
    assert (await service.job(waiting["id"]))["state"] == "scheduled"
