"""What a kind of work is to the rest of the service: check params, run one attempt, say how it ended."""

from __future__ import annotations

from contextvars import ContextVar
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from erelong.model.job import Job


class Stop(StrEnum):
    """What a timeout or a cancel can do to an attempt of this kind.

    A runner that kills is sure to end what it runs, and keeps the time of its attempts itself: the workers leave to it
    when an attempt has begun, when it is over its timeout, and how long it may take to end then or after a cancel.
    """

    KILL = "kill"
    COOPERATIVE = "cooperative"
    NONE = "none"


current_traceparent: ContextVar[str | None] = ContextVar("current_traceparent", default=None)


class Result(NamedTuple):
    """What an attempt returns that has more to show than JSON: also what it wrote, for people to read."""

    json: bytes | None
    output: str = ""


class AttemptFailed(Exception):
    """Raised by a handler that knows more than an exception says: an error type, whether to retry, and when.

    The types "timeout" and "crashed" (what ran the attempt died of it) are also how the attempt ended. `delay` is the
    least wait before the next attempt, `backoff` a wait in place of the retry policy's, both in seconds. `output` is
    what it wrote until then.
    """

    def __init__(
        self,
        type: str,
        message: str,
        *,
        retryable: bool = True,
        delay: float = 0.0,
        backoff: float | None = None,
        output: str = "",
    ) -> None:
        super().__init__(message)
        self.type = type
        self.message = message
        self.retryable = retryable
        self.delay = delay
        self.backoff = backoff
        self.output = output


class Params(Protocol):
    """Knows which params a kind takes."""

    def check(self, params: bytes) -> None:
        """Refuse what cannot run: raise `errors.Invalid` with faults relative to the params."""
        ...


class Runner(Protocol):
    """Runs attempts. `run` is cancelled at its timeout and may be given up on if it does not end then.

    If its kind can be killed, it is cancelled only for other reasons, and never given up on but at the end of the
    service.
    """

    @property
    def abandoned(self) -> int:
        """Attempts that still run although they were given up on, beside those the workers know of."""
        ...

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def run(self, job: Job) -> bytes | Result | None:
        """Do the work of a running job; return the JSON text of its result, or None. Any exception is a failure."""
        ...


class PlainRunner:
    """What a runner is that has nothing to open and abandons nothing."""

    abandoned = 0

    async def open(self) -> None:
        """There is nothing to open."""

    async def close(self) -> None:
        """There is nothing to close."""
