"""How an attempt ended, and what is said of it."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

import orjson

MAX_MESSAGE = 2_000


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
    """Why an attempt or a job did not succeed, in the words that clients read."""

    type: str
    message: str
    retryable: bool = True

    def to_json(self) -> bytes:
        message = storable(self.message[:MAX_MESSAGE])
        return orjson.dumps({"type": self.type, "message": message, "retryable": self.retryable})


class Outcome(NamedTuple):
    """What came of one attempt. `delay` is the least wait before the next one, `backoff` a wait in place of the retry
    policy's, `output` what the attempt wrote.
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
        """Whether nothing is to be said of it but its result, and that whole."""
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
    """Why a job has expired after so many attempts, of which the last came to this error."""
    message = "it had not begun by its expires_at"
    if attempts:
        made = "1 attempt was" if attempts == 1 else f"{attempts} attempts were"
        message = f"{made} made, and the next had not begun by its expires_at"
    if attempts and error is not None:
        last = orjson.loads(error)
        message += f"; the last error: {last['type']}: {last['message']}"
    return Error("expired", message, retryable=False)


def storable(text: str) -> str:
    """What code raises or prints may hold half a surrogate pair, which is no UTF-8; its outcome must be stored."""
    return text.encode(errors="replace").decode()
