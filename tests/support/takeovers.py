"""Jobs that take over the key of a running job, over HTTP."""

from __future__ import annotations

from typing import Any

from tests.support.served import Served

TAKEOVERS = ["replace", "reschedule"]
NEWER = {"kind": "echo", "key": "k", "on_conflict": "replace", "delay": 1_000}


async def begin(service: Served, **fields: Any) -> dict[str, Any]:
    """Start a job and return it as the running holder of the key `k`."""
    return await service.submit_into("running", key="k", **fields)


async def take_over(service: Served, **fields: Any) -> dict[str, Any]:
    answer = await service.post("/v1/jobs", NEWER | fields)
    assert answer.status == 201, answer.body
    newer: dict[str, Any] = answer.json
    return newer
