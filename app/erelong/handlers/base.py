"""What a kind of work is to the rest of the service: check its params, run one attempt, say how it stops."""

from __future__ import annotations

from contextvars import ContextVar
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from erelong.model.job import Job


class Stop(StrEnum):
    """What a timeout or a cancel can do to an attempt of this kind.

    A handler that kills is sure to end what it runs, and keeps the time of its attempts itself: the workers leave to it
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


class Handler(Protocol):
    """A kind of work. `run` is cancelled at its timeout and may be given up on if it does not end then.

    If it can kill, it is cancelled only for other reasons, and never given up on but at the end of the service.
    """

    @property
    def type(self) -> str: ...

    @property
    def isolation(self) -> str | None: ...

    @property
    def stop(self) -> Stop: ...

    @property
    def params_schema(self) -> dict[str, Any]: ...

    @property
    def result_schema(self) -> dict[str, Any] | None: ...

    @property
    def abandoned(self) -> int:
        """Attempts that still run although they were given up on, beside those the workers know of."""
        ...

    def check(self, params: bytes) -> None:
        """Refuse what cannot run: raises `errors.Invalid` with faults relative to the params."""
        ...

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def run(self, job: Job) -> bytes | Result | None:
        """Do the work of a running job; the JSON text of its result, or None for none. Any exception is a failure."""
        ...
