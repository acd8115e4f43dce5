"""Many schedules due at once: read ahead, decided in parts, planned in slices."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.support.served import Served

MINUTE = 60.0
HERD = 60
STEADY: dict[str, Any] = {"cron": "*/5 * * * *", "job": {"kind": "echo"}}


async def put_herd(service: Served) -> None:
    await asyncio.gather(*(service.put(f"/v1/schedules/h{number:02}", STEADY) for number in range(HERD)))


async def occurrences(service: Served) -> list[str]:
    listed = (await service.get("/v1/jobs?limit=1000")).json["jobs"]
    return sorted(f"{job['schedule']} {job['occurrence'][11:16]}" for job in listed)


async def test_all_schedules_of_a_herd_are_made_on_time(service: Served) -> None:
    await put_herd(service)
    await asyncio.sleep(11 * MINUTE)

    assert await occurrences(service) == sorted(
        f"h{number:02} {time}" for number in range(HERD) for time in ("00:05", "00:10")
    )
    lates = {job["late_by"] for job in (await service.get("/v1/jobs?limit=1000")).json["jobs"]}
    assert lates == {0.0}


async def test_herd_is_read_before_it_is_due(service: Served) -> None:
    await put_herd(service)
    book = service.node.services.recurrences.book
    await asyncio.sleep(5 * MINUTE - 0.5)

    assert len(book._kept) == HERD


async def test_edit_of_a_schedule_that_was_read_ahead_applies(service: Served) -> None:
    await put_herd(service)
    await asyncio.sleep(5 * MINUTE - 0.5)
    await service.patch("/v1/schedules/h07", {"job": {"params": {"new": True}}})
    await service.post("/v1/schedules/h08/pause")
    await service.delete("/v1/schedules/h09")
    await asyncio.sleep(1)

    jobs = (await service.get("/v1/jobs?limit=1000&view=full")).json["jobs"]
    params = {job["schedule"]: job["params"] for job in jobs}
    assert params["h07"] == {"new": True}
    assert len(params) == HERD - 2
    assert not {"h08", "h09"} & params.keys()


async def test_trigger_of_a_schedule_that_was_read_ahead_is_not_lost(service: Served) -> None:
    await put_herd(service)
    await asyncio.sleep(5 * MINUTE - 0.5)
    await service.post("/v1/schedules/h07/trigger")
    await asyncio.sleep(1)

    schedule = (await service.get("/v1/schedules/h07")).json
    assert schedule["counts"]["made"] == 2


async def test_schedules_with_large_jobs_are_not_kept_in_memory(service: Served) -> None:
    large = {"job": {"kind": "echo", "params": {"text": "x" * 5_000}}}
    await asyncio.gather(*(service.put(f"/v1/schedules/h{number:02}", STEADY | large) for number in range(HERD)))
    await asyncio.sleep(5 * MINUTE - 0.5)
    kept = len(service.node.services.recurrences.book._kept)
    await asyncio.sleep(1)

    assert kept == 0
    assert len(await occurrences(service)) == HERD
    assert service.node.services.schedules._jobs._templates == {}
