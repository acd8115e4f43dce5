"""Turns the result, error or stop of an attempt into its outcome."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, assert_never

import orjson

from erelong.attempt import GiveUp
from erelong.handlers.base import AttemptFailed, Result
from erelong.lanes.crew import Reason
from erelong.model.outcome import End, Error, Outcome, storable

if TYPE_CHECKING:
    from erelong.model.job import Job

MAX_DELAY = 86_400.0  # seconds a handler may postpone the next attempt
_NO_RESULT = Outcome(End.SUCCEEDED)
ENDS = {"timeout": End.TIMEOUT, "crashed": End.CRASHED}


def succeeded(result: bytes | Result | None, max_result: int) -> Outcome:
    """Return the outcome of a success; a result that is too long becomes truncated text."""
    if result is None:
        return _NO_RESULT
    if isinstance(result, Result):
        return succeeded(result.json, max_result)._replace(output=result.output)
    if len(result) <= max_result:
        return Outcome(End.SUCCEEDED, result)
    text = result[:max_result].decode(errors="ignore")
    return Outcome(End.SUCCEEDED, orjson.dumps(text), result_truncated=True)


def raised(error: BaseException) -> Outcome:
    """Return the outcome of an attempt whose handler raised `error`."""
    match error:
        case AttemptFailed():
            return _reported(error)
        case GiveUp():
            return _failed("give_up", _text(error) or "the handler gave up", retryable=False)
        case asyncio.CancelledError():
            return _failed("exception", "CancelledError: the handler cancelled itself")
        case _:
            return _failed("exception", f"{type(error).__name__}: {_text(error)}")


def _reported(error: AttemptFailed) -> Outcome:
    """Return the outcome a handler describes, with its fields converted: a function may have set any type."""
    try:
        delay = _bounded(error.delay)
        backoff = None if error.backoff is None else _bounded(error.backoff)
        type_, message = storable(str(error.type)), str(error.message)
        outcome = _failed(type_, message, retryable=bool(error.retryable), delay=delay)
        return outcome._replace(end=ENDS.get(error.type, End.ERROR), output=str(error.output), backoff=backoff)
    except Exception as broken:  # noqa: BLE001 - around a handler: its error may have fields of any type
        return _failed("exception", f"AttemptFailed: (it cannot be read: {type(broken).__name__})")


def _bounded(delay: float) -> float:
    return min(float(delay), MAX_DELAY) if delay > 0 else 0.0


def stopped(reason: Reason, job: Job) -> Outcome:
    """Return the outcome of a stopped attempt, whatever its handler returned or raised."""
    match reason:
        case Reason.TIMEOUT:
            return Outcome(End.TIMEOUT, error=Error("timeout", f"it did not end within {job.timeout:.12g} s"))
        case Reason.CANCEL:
            return Outcome(End.CANCELLED, error=Error("cancelled", "cancelled while it ran", retryable=False))
        case Reason.DRAIN:
            return Outcome(End.RELEASED)
        case _:
            assert_never(reason)


def _failed(type: str, message: str, *, retryable: bool = True, delay: float = 0.0) -> Outcome:
    return Outcome(End.ERROR, error=Error(type, message, retryable), delay=delay)


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as broken:  # noqa: BLE001 - around a handler: its error may fail in __str__
        return f"(its text could not be made: {type(broken).__name__})"
