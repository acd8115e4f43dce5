"""One attempt as its handler sees it, and as the service judges it when it is over."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, assert_never

import orjson

from app.handlers.base import Attempt
from app.job import End, Error, Outcome

if TYPE_CHECKING:
    from app.job import Job


class Reason(StrEnum):
    """Why an attempt is told to stop."""

    TIMEOUT = "timeout"
    CANCEL = "cancel"
    DRAIN = "drain"


def attempt_of(job: Job) -> Attempt:
    """What the handler of a running job is told."""
    return Attempt(
        id=job.id,
        kind=job.kind,
        queue=job.queue,
        number=job.attempt,
        due_at=job.due_at or 0,
        started_at=job.started_at or 0,
        timeout=job.timeout,
    )


def succeeded(result: bytes | None, max_result: int) -> Outcome:
    """A result that is too long is kept as text, cut off."""
    if result is None or len(result) <= max_result:
        return Outcome(End.SUCCEEDED, result)
    text = result[:max_result].decode(errors="ignore")
    return Outcome(End.SUCCEEDED, orjson.dumps(text), result_truncated=True)


def failed(type: str, message: str, *, retryable: bool = True, delay: float = 0.0) -> Outcome:
    return Outcome(End.ERROR, error=Error(type, message, retryable), delay=delay)


def stopped(reason: Reason | None, job: Job) -> Outcome:
    """What a stopped attempt comes to, by why it was stopped; None: by nobody but its handler."""
    match reason:
        case Reason.TIMEOUT:
            return Outcome(End.TIMEOUT, error=Error("timeout", f"it did not end within {job.timeout:g} s"))
        case Reason.CANCEL:
            return Outcome(End.CANCELLED, error=Error("cancelled", "cancelled while it ran", retryable=False))
        case Reason.DRAIN:
            return Outcome(End.RELEASED)
        case None:
            return failed("exception", "CancelledError: the handler cancelled itself")
        case _:
            assert_never(reason)
