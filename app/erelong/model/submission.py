"""Jobs on their way into the store, and the result for each."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from erelong.model.conflict import OnConflict
from erelong.model.job import SECOND, Job

if TYPE_CHECKING:
    from collections.abc import Sequence

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


ADDED, CHANGED, CONFLICT = (AddStatus.ADDED, AddStatus.CHANGED, AddStatus.CONFLICT)  # by its class a member costs 50 ns


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
