"""The public door for functions that run as jobs: the attempt they receive, and the exceptions they may raise."""

from __future__ import annotations

from typing import NamedTuple


class Attempt(NamedTuple):
    """One attempt at a job, as functions see it. `id` is the same on every attempt. Instants are Unix microseconds.

    `traceparent` is the attempt's span for calls to other services, if tracing is configured. `schedule` is the name of
    the schedule that made the job, and `occurrence` its nominal time.
    """

    seq: int
    token: str
    kind: str
    queue: str
    number: int
    due_at: int
    started_at: int
    timeout: float
    traceparent: str | None = None
    schedule: str | None = None
    occurrence: int | None = None

    @property
    def id(self) -> str:
        return f"{self.seq:010x}{self.token}"

    @property
    def stopping(self) -> bool:
        """Whether the worker of a pull kind is about to end. Always False inside the service."""
        return False

    def check(self) -> None:
        """Raise Cancelled if the result is no longer wanted. Call it between steps of long work in a pull worker.

        Inside the service it does nothing: the service stops attempts itself.
        """


class GiveUp(Exception):
    """Raised by a function to fail the job without another attempt."""


class Cancelled(Exception):
    """Raised by `Attempt.check` when the job is to stop, its lease is lost, or its worker ends."""


class RetryAfter(Exception):
    """Raised by a function to retry after `delay` instead of the delay of the retry policy.

    `delay` is a number of seconds or a duration such as "5m". The attempt counts as failed.
    """

    def __init__(self, delay: float | str, message: str = "") -> None:
        super().__init__(message or f"the function asked to be retried after {delay}")
        self.delay = delay
