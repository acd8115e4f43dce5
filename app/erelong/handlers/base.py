"""The contract of a kind: check params, run one attempt, report how it ended."""

from __future__ import annotations

from contextvars import ContextVar
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from erelong.model.job import Job


class Stop(StrEnum):
    """How a timeout or a cancel stops an attempt of this kind.

    A runner of `KILL` always ends its attempts, and times them itself. It decides when an attempt begins, when it
    exceeds its timeout, and how long it may take to end after that or after a cancel.
    """

    KILL = "kill"
    COOPERATIVE = "cooperative"
    NONE = "none"


current_traceparent: ContextVar[str | None] = ContextVar("current_traceparent", default=None)


class Result(NamedTuple):
    """The JSON that an attempt returns, together with its text output."""

    json: bytes | None
    output: str = ""


class AttemptFailed(Exception):
    """Raised by a handler to set the error type of an attempt, whether to retry it, and when.

    The types "timeout" and "crashed" (its process died) are outcomes of the attempt too. `delay` is the minimum wait
    before the next attempt and `backoff` replaces the wait of the retry policy, both in seconds. `output` is the text
    that the attempt wrote before it failed.
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
    """Checks the params of a kind."""

    def check(self, params: bytes) -> None:
        """Raise `errors.Invalid`, with pointers relative to the params, when a job with them could not run."""
        ...


class Runner(Protocol):
    """Runs attempts. `run` is cancelled at its timeout and abandoned if it does not end then.

    If its kind can be killed, it is cancelled only for other reasons, and abandoned only when the service stops.
    """

    @property
    def abandoned(self) -> int:
        """Return the number of abandoned attempts that still run and that the workers do not count."""
        ...

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def run(self, job: Job) -> bytes | Result | None:
        """Run one attempt of a job; return its result as JSON text, or None. Any exception is a failure."""
        ...


class PlainRunner:
    """A runner that opens nothing and abandons no attempts."""

    abandoned = 0

    async def open(self) -> None:
        """Do nothing."""

    async def close(self) -> None:
        """Do nothing."""
