"""The public door for functions that run as jobs: the attempt they receive, and the exceptions they may raise."""

from __future__ import annotations

from typing import NamedTuple


class Attempt(NamedTuple):
    """One attempt at a job, as functions see it. `id` is the same on every attempt. Instants are Unix microseconds.

    `traceparent` is the attempt's span for calls to other services, if tracing is configured.
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

    @property
    def id(self) -> str:
        return f"{self.seq:010x}{self.token}"


class GiveUp(Exception):
    """Raised by a function to fail the job without another attempt."""


class RetryAfter(Exception):
    """Raised by a function to retry after `delay` instead of the delay of the retry policy.

    `delay` is a number of seconds or a duration such as "5m". The attempt counts as failed.
    """

    def __init__(self, delay: float | str, message: str = "") -> None:
        super().__init__(message or f"the function asked to be retried after {delay}")
        self.delay = delay
