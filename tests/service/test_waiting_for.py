"""`waiting_for` gives the first reason why a scheduled job does not run."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from erelong.settings.kinds import KindSettings
from erelong.settings.queues import QueueSettings
from erelong.settings.sections import WorkersSection
from tests.support.served import Serve, Served


async def waiting_for(service: Served, id: str) -> str | None:
    """Return `waiting_for` of the job a second later, when every job that may start has started."""
    job: dict[str, Any] = (await service.get(f"/v1/jobs/{id}?wait=1")).json
    assert job["state"] == "scheduled"
    listed = (await service.get("/v1/jobs?state=scheduled&limit=1000")).json["jobs"]
    reason: str | None = job["waiting_for"]
    assert reason in [other["waiting_for"] for other in listed if other["id"] == id]
    return reason


async def serve_queue(serve: Serve, **settings: Any) -> Served:
    return await serve(queues={"default": QueueSettings.model_validate(settings)})


async def test_time(service: Served) -> None:
    assert await waiting_for(service, (await service.submit(delay=60))["id"]) == "time"


async def test_pause(service: Served) -> None:
    await service.post("/v1/queues/default/pause")

    assert await waiting_for(service, (await service.submit())["id"]) == "pause"


async def test_rate(serve: Serve) -> None:
    service = await serve_queue(serve, rate={"per_second": 0.01})
    await service.until((await service.submit())["id"], "succeeded")

    assert await waiting_for(service, (await service.submit())["id"]) == "rate"


async def test_label(serve: Serve) -> None:
    service = await serve_queue(serve, label_concurrency={"label": "tenant", "limit": 1})
    await service.submit_into("running", labels={"tenant": "1"})

    assert await waiting_for(service, (await service.submit(labels={"tenant": "1"}))["id"]) == "label"
    await service.until((await service.submit(labels={"tenant": "2"}))["id"], "succeeded")


async def serve_pulled(serve: Serve, **options: Any) -> Served:
    return await serve(declared={"resize": KindSettings(pull=True)}, **options)


async def test_pull_job_waits_for_a_worker_at_once(serve: Serve) -> None:
    service = await serve_pulled(serve)

    job = await service.submit(kind="resize", queue="new")

    assert job["waiting_for"] == "worker"


async def test_released_job_waits_for_a_worker_at_once(serve: Serve) -> None:
    service = await serve_pulled(serve)
    await service.submit(kind="resize")
    (lease,) = (await service.post("/v1/leases", {"kinds": ["resize"]})).json["leases"]

    released = (await service.post(f"/v1/leases/{lease['token']}/release")).json

    assert released["waiting_for"] == "worker"
    assert await waiting_for(service, released["id"]) == "worker"


async def test_poll_of_another_queue_does_not_count(serve: Serve) -> None:
    service = await serve_pulled(serve)
    polling = asyncio.create_task(service.post("/v1/leases", {"kinds": ["resize"], "queues": ["other"], "wait": 20}))
    await asyncio.sleep(1)

    assert await waiting_for(service, (await service.submit(kind="resize"))["id"]) == "worker"
    assert (await polling).json["leases"] == []


async def test_worker_that_polls_every_few_seconds_does_not_hide_a_limit(serve: Serve) -> None:
    service = await serve_pulled(serve, queues={"default": QueueSettings(concurrency=1)})
    first, second = [await service.submit(kind="resize") for _ in range(2)]
    (lease,) = (await service.post("/v1/leases", {"kinds": ["resize"]})).json["leases"]
    assert lease["job"]["id"] == first["id"]

    assert await waiting_for(service, second["id"]) == "slot"
    await asyncio.sleep(10)
    assert await waiting_for(service, second["id"]) == "worker"


async def test_pull_worker_needs_no_slot_of_the_service(serve: Serve) -> None:
    service = await serve_pulled(serve, workers=WorkersSection(concurrency=1))
    await service.submit_into("running")
    polling = asyncio.create_task(service.post("/v1/leases", {"kinds": ["resize"], "wait": 20}))
    await asyncio.sleep(1)

    assert (await service.submit(kind="resize"))["waiting_for"] is None
    assert len((await polling).json["leases"]) == 1


async def test_slot_of_the_queue(serve: Serve) -> None:
    service = await serve_queue(serve, concurrency=1)
    await service.submit_into("running")

    assert await waiting_for(service, (await service.submit())["id"]) == "slot"


async def test_slot_of_the_service(serve: Serve) -> None:
    service = await serve(workers=WorkersSection(concurrency=1))
    await service.submit_into("running", queue="other")

    assert await waiting_for(service, (await service.submit())["id"]) == "slot"


async def test_first_reason_is_reported(serve: Serve) -> None:
    limits = {"rate": {"per_second": 0.01}, "concurrency": 1, "label_concurrency": {"label": "t", "limit": 1}}
    service = await serve_queue(serve, **limits)
    await service.submit_into("running", labels={"t": "1"})
    job = await service.submit(delay=5, labels={"t": "1"})

    reasons = [await waiting_for(service, job["id"])]
    for method, path, body in (
        ("POST", "default/pause", None),
        ("POST", "default/resume", None),
        ("PUT", "default", {"rate": None}),
        ("PUT", "default", {"rate": None, "label_concurrency": None}),
    ):
        await service.call(method, f"/v1/queues/{path}", body)
        await service.get(f"/v1/jobs/{job['id']}?wait=5")
        reasons.append(await waiting_for(service, job["id"]))

    assert reasons == ["time", "pause", "rate", "label", "slot"]


@pytest.mark.parametrize("state", ["running", "succeeded", "failed", "cancelled", "expired"])
async def test_job_that_does_not_wait_has_no_reason(service: Served, state: str) -> None:
    assert (await service.submit_into(state))["waiting_for"] is None


async def test_job_that_is_about_to_start_has_no_reason(service: Served) -> None:
    assert (await service.submit())["waiting_for"] is None
