"""The kinds that are Python functions: imported at start, called on the loop or in a thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import copy_context
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from pydantic import ValidationError

from erelong.attempt import Attempt, GiveUp
from erelong.handlers.base import AttemptFailed, PlainRunner, Stop, current_traceparent
from erelong.handlers.kinds import Kind
from erelong.handlers.param_errors import find_faults, invalid
from erelong.handlers.python.loading import failure_of, import_function, is_coroutine_function
from erelong.handlers.python.signature import InvalidKind, Signature, read_signature
from erelong.handlers.python.threads import ThreadPool
from erelong.model.extras import read_extras
from erelong.model.job import NOTHING, PLACES

if TYPE_CHECKING:
    from erelong.errors import Invalid
    from erelong.model.job import Job

_attempt_fields = itemgetter(
    *[PLACES[name] for name in ("seq", "token", "kind", "queue", "attempt", "due_at", "started_at", "timeout")]
)


def attempt_of(job: Job) -> Attempt:
    """Return the `Attempt` that a function may take as a parameter."""
    if job.extras is None:
        return Attempt._make((*_attempt_fields(job), current_traceparent.get(), None, None))
    extras = read_extras(job.extras)
    names = extras.get("schedule"), extras.get("occurrence")
    return Attempt._make((*_attempt_fields(job), current_traceparent.get(), *names))


def make_python_kind(*, name: str, path: str, isolation: Literal["async", "thread"] | None) -> Kind:
    """Make a kind of the function `path` ("module:function"); raise InvalidKind when it cannot be one."""
    function = import_function(path)
    is_coroutine = is_coroutine_function(function)
    if isolation == "async" and not is_coroutine:
        raise InvalidKind('isolation = "async" needs an "async def", and this is a plain function: leave isolation out')
    if isolation == "thread" and is_coroutine:
        raise InvalidKind(
            'isolation = "thread" needs a plain function, and this is an "async def": leave isolation out'
        )
    known = Function(function, read_signature(function))
    runner = CoroutineRunner(name=name, function=known) if is_coroutine else ThreadRunner(name=name, function=known)
    return Kind(
        name=name,
        type="python",
        isolation="async" if is_coroutine else "thread",
        stop=Stop.COOPERATIVE if is_coroutine else Stop.NONE,
        params_schema=known.signature.params_schema,
        result_schema=known.signature.result_schema,
        params=runner,
        runner=runner,
    )


class Function(NamedTuple):
    """A user's function and its signature."""

    call: Callable[..., Any]
    signature: Signature


class FunctionRunner(PlainRunner):
    """A runner of functions, on the loop, in threads or in processes."""

    def __init__(self, *, name: str, function: Function) -> None:
        self._name = name
        self._function, self._signature = function

    def check(self, params: bytes) -> None:
        try:
            self._signature.check(params)
        except ValidationError as error:
            raise self._invalid(error, params) from None

    def _call(self, job: Job) -> Any:
        if job.params == NOTHING and self._signature.has_no_parameters:
            return self._function()
        try:
            values = self._signature.check(job.params)
        except ValidationError as error:  # the function changed after the submit
            raise AttemptFailed("exception", self._invalid(error, job.params).detail, retryable=False) from None
        positional, named = self._signature.arguments(values, attempt_of(job))
        return self._function(*positional, **named)

    def _invalid(self, error: ValidationError, params: bytes) -> Invalid:
        known = self._signature.params_schema.get("properties", ())
        return invalid(self._name, find_faults(error, params, known))


class CoroutineRunner(FunctionRunner):
    """A coroutine function, awaited on the loop."""

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
            # SystemExit would end the loop. A CancelledError without a cancel is a failure.
            raise AttemptFailed("exception", f"{type(error).__name__}: {error}") from error
        return None if value is None else self._signature.dump(value)


class ThreadRunner(FunctionRunner):
    """A plain function, called in a thread that cannot be stopped."""

    def __init__(self, *, name: str, function: Function) -> None:
        super().__init__(name=name, function=function)
        self._threads = ThreadPool(name=f"kind {name}")

    @property
    def abandoned(self) -> int:  # type: ignore[override]  # a constant in the base class
        return self._threads.abandoned

    async def close(self) -> None:
        self._threads.close()

    async def run(self, job: Job) -> bytes | None:
        context = copy_context()  # so that log lines of the function name its job
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
