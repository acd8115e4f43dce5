"""The echo kind: gives its params back, after a sleep or as a failure if they say so. For trying things out."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Any

import orjson

from erelong.errors import Fault
from erelong.handlers.base import AttemptFailed, Stop
from erelong.handlers.param_errors import invalid
from erelong.model.faults import shown

if TYPE_CHECKING:
    from erelong.model.job import Job


class EchoHandler:
    type = "echo"
    isolation = None
    stop = Stop.COOPERATIVE
    abandoned = 0
    result_schema = None
    params_schema: dict[str, Any] = {  # noqa: RUF012 - a constant, written so by the Handler protocol
        "type": "object",
        "properties": {
            "sleep": {"type": ["number", "null"], "minimum": 0, "description": "Seconds to take."},
            "fail": {"type": ["string", "null"], "description": "Fail with this message."},
        },
    }

    def check(self, params: bytes) -> None:
        faults = _faults(orjson.loads(params))
        if faults:
            raise invalid("echo", faults)

    async def open(self) -> None:
        pass

    async def close(self) -> None:
        pass

    async def run(self, job: Job) -> bytes:
        wishes = orjson.loads(job.params)
        if wishes.get("sleep"):
            await asyncio.sleep(wishes["sleep"])
        if wishes.get("fail") is not None:
            raise AttemptFailed("exception", wishes["fail"])
        return job.params


def _faults(sent: object) -> list[Fault]:
    if not isinstance(sent, dict):
        return [Fault("", f"should be an object, not {shown(sent)}")]
    faults = []
    sleep, fail = sent.get("sleep"), sent.get("fail")
    if sleep is not None and not _is_length(sleep):
        faults.append(Fault("/sleep", f"should be a number of seconds, 0 or more, not {shown(sleep)}"))
    if fail is not None and not isinstance(fail, str):
        faults.append(Fault("/fail", f"should be a message, a string, not {shown(fail)}"))
    return faults


def _is_length(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < math.inf
