"""The attempt of a leased job, and how its function learns that it is to stop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from erelong.attempt import Attempt, Cancelled
from erelong.client.times import read_instant

if TYPE_CHECKING:
    from collections.abc import Mapping


class LeasedAttempt(Attempt):
    """One attempt at a leased job."""

    job_id: str
    stop_reason: str | None
    worker_ends: bool

    @property
    def id(self) -> str:
        return self.job_id

    @property
    def stopping(self) -> bool:
        """Whether the worker is about to end."""
        return self.worker_ends

    def check(self) -> None:
        if self.stop_reason is not None:
            raise Cancelled(self.stop_reason)


def read_attempt(job: Mapping[str, Any], lease: Mapping[str, Any]) -> LeasedAttempt:
    attempt = LeasedAttempt(
        seq=0,
        token="",
        kind=job["kind"],
        queue=job.get("queue", "default"),
        number=job.get("attempt", 1),
        due_at=_microseconds(job.get("due_at")) or 0,
        started_at=_microseconds(job.get("started_at")) or 0,
        timeout=job.get("timeout", 60.0),
        traceparent=lease.get("traceparent"),
        schedule=job.get("schedule"),
        occurrence=_microseconds(job.get("occurrence")),
    )
    attempt.job_id, attempt.stop_reason, attempt.worker_ends = job["id"], None, False
    return attempt


def _microseconds(text: str | None) -> int | None:
    return None if text is None else round(read_instant(text).timestamp() * 1e6)
