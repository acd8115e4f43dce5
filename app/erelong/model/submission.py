"""Jobs on their way into the store, and the result for each."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from erelong.model.conflict import OnConflict
from erelong.model.extras import join_labels, offset_of, write_extras
from erelong.model.job import NOTHING, SECOND, UNBEGUN, Job, expiry

if TYPE_CHECKING:
    from collections.abc import Sequence

    from erelong.clock.instants import Instant
    from erelong.model.extras import Extras

RECORD_LIFE = 24 * 3600 * SECOND
"""How long an `Idempotency-Key` is kept."""


class NewJob(NamedTuple):
    """A job to add, and the policy for a key that is taken."""

    job: Job
    on_conflict: OnConflict = OnConflict.REJECT


class AddStatus(StrEnum):
    """How the add of one job ended."""

    ADDED = "added"
    EXISTS = "exists"
    CHANGED = "changed"
    CONFLICT = "conflict"


ADDED, CHANGED, CONFLICT = (AddStatus.ADDED, AddStatus.CHANGED, AddStatus.CONFLICT)  # hot: submit


class AddResult(NamedTuple):
    """The result for one job: the job stored under its key (its own, if added), and the job that it superseded."""

    status: AddStatus
    job: Job
    superseded: Job | None = None


class IdempotencyRecord(NamedTuple):
    """A used idempotency key: its caller, the digest of the body, and its life in microseconds."""

    caller: str
    key: str
    digest: bytes
    life: int = RECORD_LIFE


class Receipt(NamedTuple):
    """The results of an add, one for each job. `replayed`: a record of the same request was found, and nothing added.

    In a replayed receipt the entry of a deleted job is None.
    """

    entries: list[AddResult | None]
    replayed: bool = False
    also: Sequence[Job] = ()
    """The further jobs added in the same commit, with their numbers."""


def are_written(entries: Sequence[AddResult], *, is_whole: bool) -> list[bool]:
    """Return for each job whether it was stored. With `is_whole`, one conflict undoes the whole add."""
    if is_whole and any(entry.status is CONFLICT for entry in entries):
        return [False] * len(entries)
    return [entry.status is ADDED or entry.status is CHANGED for entry in entries]


def make_job(
    *,
    kind: str,
    queue: str,
    now: Instant,
    execute_at: Instant,
    timeout: float,
    retry: bytes,
    token: str,
    params: bytes = NOTHING,
    key: str | None = None,
    labels: bytes | None = None,
    extras: Extras | None = None,
    priority: int = 0,
    expires_after: float | None = None,
) -> Job:
    """Make a scheduled job; the store assigns its `seq`, and system labels follow from its extras."""
    text, planned_at = None, execute_at
    if extras:
        labels, text = join_labels(labels, extras), write_extras(extras)
        planned_at += offset_of(extras, token)
    due_at = planned_at if planned_at > now else now
    expires_at = None if expires_after is None else expiry(due_at, expires_after)
    own = (0, token, now, execute_at, key, labels, text, params, due_at, expires_at, 0, 1, None)
    spec = (kind, queue, priority, timeout, retry, expires_after)
    return tuple.__new__(Job, own + spec + UNBEGUN)
