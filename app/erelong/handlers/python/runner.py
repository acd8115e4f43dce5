"""The kinds that are Python functions: imported at start, called on the loop or in a thread."""

from __future__ import annotations

import asyncio
from contextvars import copy_context
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Literal

from pydantic import ValidationError

from erelong.attempt import Attempt, GiveUp
from erelong.handlers.base import AttemptFailed, Stop, current_traceparent
from erelong.handlers.param_errors import find_faults, invalid
from erelong.handlers.python.loading import failure_of, import_function, is_coroutine_function
from erelong.handlers.python.signature import Signature, Unfit, read_signature
from erelong.handlers.python.threads import ThreadPool
from erelong.model.job import NOTHING, PLACES

if TYPE_CHECKING:
    from collections.abc import Callable

    from erelong.errors import Invalid
    from erelong.handlers.base import Handler
    from erelong.model.job import Job

_told_of = itemgetter(
    *[PLACES[name] for name in ("seq", "token", "kind", "queue", "attempt", "due_at", "started_at", "timeout")]
)


def attempt_of(job: Job) -> Attempt:
    """What a function may ask to be told of the running job that it is called for."""
    return Attempt._make((*_told_of(job), current_traceparent.get()))


def make_python_handler(*, name: str, path: str, isolation: Literal["async", "thread"] | None) -> Handler:
    """Import the function `path` ("module:function") and wrap it; raise Unfit when it cannot be a kind."""
    function = import_function(path)
    is_coroutine = is_coroutine_function(function)
    if isolation == "async" and not is_coroutine:
        raise Unfit('isolation = "async" needs an "async def", and this is a plain function: leave isolation out')
    if isolation == "thread" and is_coroutine:
        raise Unfit('isolation = "thread" needs a plain function, and this is an "async def": leave isolation out')
    make = AsyncHandler if is_coroutine else ThreadHandler
    return make(name=name, function=function, signature=read_signature(function))


class FunctionHandler:
    """What functions have in common, wherever they are called."""

    type = "python"

    def __init__(self, *, name: str, function: Callable[..., Any], signature: Signature) -> None:
        self._name = name
        self._function = function
        self._signature = signature

    @property
    def params_schema(self) -> dict[str, Any]:
        return self._signature.params_schema

    @property
    def result_schema(self) -> dict[str, Any] | None:
        return self._signature.result_schema

    def check(self, params: bytes) -> None:
        try:
            self._signature.check(params)
        except ValidationError as error:
            raise self._invalid(error, params) from None

    async def open(self) -> None:
        pass

    def _call(self, job: Job) -> Any:
        if job.params == NOTHING and self._signature.is_bare:
            return self._function()
        try:
            values = self._signature.check(job.params)
        except ValidationError as error:  # the function has changed since the submit
            raise AttemptFailed("exception", self._invalid(error, job.params).detail, retryable=False) from None
        positional, named = self._signature.arguments(values, attempt_of(job))
        return self._function(*positional, **named)

    def _invalid(self, error: ValidationError, params: bytes) -> Invalid:
        known = self._signature.params_schema.get("properties", ())
        return invalid(self._name, find_faults(error, params, known))


class AsyncHandler(FunctionHandler):
    """A coroutine function, awaited on the loop."""

    isolation = "async"
    stop = Stop.COOPERATIVE
    abandoned = 0

    async def close(self) -> None:
        pass

    async def run(self, job: Job) -> bytes | None:
        try:
            value = await self._call(job)
        except (AttemptFailed, GiveUp, GeneratorExit):
            raise
        except Exception as error:
            raise failure_of(error) from error
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError) and _is_being_cancelled():
                raise
            # SystemExit would end the loop, and a CancelledError that nobody asked for is a failure.
            raise AttemptFailed("exception", f"{type(error).__name__}: {error}") from error
        return None if value is None else self._signature.dump(value)


class ThreadHandler(FunctionHandler):
    """A plain function, called in a thread that cannot be stopped."""

    isolation = "thread"
    stop = Stop.NONE

    def __init__(self, *, name: str, function: Callable[..., Any], signature: Signature) -> None:
        super().__init__(name=name, function=function, signature=signature)
        self._threads = ThreadPool(name=f"kind {name}")

    @property
    def abandoned(self) -> int:
        return self._threads.abandoned

    async def close(self) -> None:
        self._threads.close()

    async def run(self, job: Job) -> bytes | None:
        context = copy_context()  # so that what the function logs names its job
        return await self._threads.run(lambda: context.run(self._run, job))

    def _run(self, job: Job) -> bytes | None:
        try:
            value = self._call(job)
        except (AttemptFailed, GiveUp):
            raise
        except Exception as error:
            raise failure_of(error) from error
        return self._signature.dump(value)


def _is_being_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
