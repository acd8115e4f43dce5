"""Outcomes of attempts, and the errors that explain them."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

import orjson

MAX_MESSAGE = 2_000
MAX_OUTPUT = 65_536  # bytes


class End(StrEnum):
    """How an attempt ended."""

    SUCCEEDED = "succeeded"
    ERROR = "error"
    TIMEOUT = "timeout"
    CRASHED = "crashed"
    LOST = "lost"
    CANCELLED = "cancelled"
    RELEASED = "released"


class Error(NamedTuple):
    """Why an attempt or a job did not succeed, as clients read it."""

    type: str
    message: str
    retryable: bool = True

    def to_json(self) -> bytes:
        message = storable(self.message[:MAX_MESSAGE])
        return orjson.dumps({"type": self.type, "message": message, "retryable": self.retryable})


class Outcome(NamedTuple):
    """The outcome of one attempt.

    `delay` is the minimum wait before the next attempt, `backoff` replaces the wait of the retry policy, and `output`
    is the text that the attempt wrote.
    """

    end: End
    result: bytes | None = None
    result_truncated: bool = False
    error: Error | None = None
    delay: float = 0.0
    output: str = ""
    backoff: float | None = None

    @property
    def is_plain(self) -> bool:
        """Whether this is a success without output whose result is complete."""
        return self.end is End.SUCCEEDED and not self.output and not self.result_truncated


UNEXPLAINED = {
    End.ERROR: Error("exception", "the attempt failed and gave no reason"),
    End.TIMEOUT: Error("timeout", "the attempt took longer than its timeout"),
    End.CRASHED: Error("crashed", "the process that ran the attempt ended"),
    End.LOST: Error("lost", "the service stopped while this attempt ran"),
}

DROPPED = Error("dropped", "the queue was full and this was the job due first (overflow: drop_oldest)", retryable=False)
SUPERSEDED = Error("superseded", "a newer job has taken its key, so it is not run again", retryable=False)


def expired(attempts: int, error: bytes | None) -> Error:
    """Return the error of a job that expired after this many attempts; `error` is the error of the last one."""
    message = "it had not begun by its expires_at"
    if attempts:
        made = "1 attempt was" if attempts == 1 else f"{attempts} attempts were"
        message = f"{made} made, and the next had not begun by its expires_at"
    if attempts and error is not None:
        last = orjson.loads(error)
        message += f"; the last error: {last['type']}: {last['message']}"
    return Error("expired", message, retryable=False)


def last_of(output: str) -> str:
    """Return the last `MAX_OUTPUT` bytes of an output, without a partial first character."""
    return output.encode(errors="replace")[-MAX_OUTPUT:].decode(errors="ignore")


def storable(text: str) -> str:
    """Replace lone surrogates, which user code may raise or print and UTF-8 cannot encode."""
    return text.encode(errors="replace").decode()
