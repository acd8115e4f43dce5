"""Jobs on their way into the store: what to do when a key is taken, and what became of each."""

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
    """A job to be added, and what to do when its key is taken."""

    job: Job
    on_conflict: OnConflict = OnConflict.REJECT


class AddStatus(StrEnum):
    """What became of an offer."""

    ADDED = "added"
    EXISTS = "exists"
    CHANGED = "changed"
    CONFLICT = "conflict"


ADDED, CHANGED, CONFLICT = (
    AddStatus.ADDED,
    AddStatus.CHANGED,
    AddStatus.CONFLICT,
)  # an enum looks its members up in Python: 50 ns


class AddResult(NamedTuple):
    """The fate of an offer, with the job now stored under its key (or its own), and the one that it has superseded."""

    status: AddStatus
    job: Job
    superseded: Job | None = None


class IdempotencyRecord(NamedTuple):
    """An idempotency key: who used it, for which body, and for how long it is kept, in microseconds."""

    caller: str
    key: str
    digest: bytes
    life: int = RECORD_LIFE


class Receipt(NamedTuple):
    """The answer to an add, one entry an offer; `replayed` when a memo found it already made.

    Of a replayed add an entry is None when its job has been deleted since.
    """

    entries: list[AddResult | None]
    replayed: bool = False
    also: Sequence[Job] = ()
    """The jobs that were added with them, with their numbers."""


def are_written(entries: Sequence[AddResult], *, is_whole: bool) -> list[bool]:
    """Say of each offer whether it was stored; under `is_whole`, one conflict undoes them all."""
    if is_whole and any(entry.status is CONFLICT for entry in entries):
        return [False] * len(entries)
    return [entry.status is ADDED or entry.status is CHANGED for entry in entries]
