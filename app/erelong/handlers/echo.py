"""The echo kind: returns its params, for trials. Params can ask for a sleep or a failure."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Any, Final

import orjson

from erelong.errors import Fault
from erelong.handlers.base import AttemptFailed, PlainRunner, Stop
from erelong.handlers.kinds import Kind, Origin
from erelong.handlers.param_errors import invalid
from erelong.model.faults import shown

if TYPE_CHECKING:
    from erelong.model.job import Job


PARAMS_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "sleep": {"type": ["number", "null"], "minimum": 0, "description": "Seconds to sleep."},
        "fail": {"type": ["string", "null"], "description": "Fail with this message."},
    },
}


def make_echo() -> Kind:
    echo = Echo()
    return Kind(
        name="echo",
        type="echo",
        stop=Stop.COOPERATIVE,
        params_schema=PARAMS_SCHEMA,
        params=echo,
        runner=echo,
        declared=Origin.BUILT_IN,
        example={"hello": "world"},
    )


class Echo(PlainRunner):
    """Returns the params."""

    def check(self, params: bytes) -> None:
        faults = _faults(orjson.loads(params))
        if faults:
            raise invalid("echo", faults)

    async def run(self, job: Job) -> bytes:
        params = orjson.loads(job.params)
        if params.get("sleep"):
            await asyncio.sleep(params["sleep"])
        if params.get("fail") is not None:
            raise AttemptFailed("exception", params["fail"])
        return job.params


def _faults(params: object) -> list[Fault]:
    if not isinstance(params, dict):
        return [Fault("", f"should be an object, not {shown(params)}")]
    faults = []
    sleep, fail = params.get("sleep"), params.get("fail")
    if sleep is not None and not _is_duration(sleep):
        faults.append(Fault("/sleep", f"should be a number of seconds, 0 or more, not {shown(sleep)}"))
    if fail is not None and not isinstance(fail, str):
        faults.append(Fault("/fail", f"should be a message, a string, not {shown(fail)}"))
    return faults


def _is_duration(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < math.inf
