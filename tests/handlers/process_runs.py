"""Kinds that run in processes, and their attempts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import orjson
import pytest

from erelong.handlers.base import AttemptFailed, Result
from erelong.settings.kinds import KindSettings
from tests.handlers.attempts import Handler, make_attempt

PROCESS_FUNCTIONS = "tests.handlers.process_functions"

Handlers = dict[str, Handler]
OpenKinds = Callable[..., Awaitable[Handlers]]
OpenKind = Callable[..., Awaitable[Handler]]


def in_process(function: str, *, module: str = PROCESS_FUNCTIONS, **settings: Any) -> KindSettings:
    return KindSettings(python=f"{module}:{function}", isolation="process", **settings)


async def run(handler: Handler, timeout: float = 60.0, **params: Any) -> Result:
    result = await handler.run(make_attempt(orjson.dumps(params), number=4, timeout=timeout))
    assert isinstance(result, Result)
    return result


async def failure(handler: Handler, timeout: float = 60.0, **params: Any) -> AttemptFailed:
    with pytest.raises(AttemptFailed) as failed:
        await run(handler, timeout, **params)
    return failed.value


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - a process has no event for the loop
        await asyncio.sleep(0.001)
