"""`waiting_for`: why a scheduled job does not run, the first reason that holds."""

from __future__ import annotations

from typing import Any

import pytest

from erelong.settings.queues import QueueSettings
from erelong.settings.sections import WorkersSection
from tests.support.served import Serve, Served


async def waiting_for(service: Served, id: str) -> str | None:
    """What the job says a second later, when all that could start has started."""
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


async def test_slot_of_the_queue(serve: Serve) -> None:
    service = await serve_queue(serve, concurrency=1)
    await service.submit_into("running")

    assert await waiting_for(service, (await service.submit())["id"]) == "slot"


async def test_slot_of_the_service(serve: Serve) -> None:
    service = await serve(workers=WorkersSection(concurrency=1))
    await service.submit_into("running", queue="other")

    assert await waiting_for(service, (await service.submit())["id"]) == "slot"


async def test_the_first_reason_that_holds_is_told(serve: Serve) -> None:
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
