"""What functions that run as jobs import: what they may be told, and what they may raise."""

from __future__ import annotations

from typing import NamedTuple


class Attempt(NamedTuple):
    """One try at a job, as functions see it; `id` is the same on every try. Instants are microseconds since 1970.

    `traceparent` names the span of the attempt for those whom it calls, where traces are configured.
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
    """Raised by a function: this job will never succeed, do not try again."""


class RetryAfter(Exception):
    """Raised by a function: try again after `delay`, in place of the delay of the retry policy.

    `delay` is a number of seconds, or a duration such as "5m". The attempt counts as a failed one.
    """

    def __init__(self, delay: float | str, message: str = "") -> None:
        super().__init__(message or f"the function asked to be retried after {delay}")
        self.delay = delay
