"""Jobs on their way into the store: what to do when a key is taken, and what became of each."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from erelong.model.conflict import OnConflict
from erelong.model.job import SECOND, Job

MEMO_LIFE = 24 * 3600 * SECOND
"""How long an idempotency key is good."""


class Offer(NamedTuple):
    """A job to be added, and what to do when its key is taken."""

    job: Job
    on_conflict: OnConflict = OnConflict.REJECT


class Fate(StrEnum):
    """What became of an offer."""

    ADDED = "added"
    EXISTS = "exists"
    CHANGED = "changed"
    CONFLICT = "conflict"


ADDED, CHANGED, CONFLICT = Fate.ADDED, Fate.CHANGED, Fate.CONFLICT  # an enum looks its members up in Python: 50 ns


class Added(NamedTuple):
    """The fate of an offer, with the job now stored under its key (or its own)."""

    fate: Fate
    job: Job


class Memo(NamedTuple):
    """An idempotency key: who used it, for which body, when."""

    caller: str
    key: str
    digest: bytes


class Receipt(NamedTuple):
    """The answer to an add, one entry an offer; `replayed` when a memo found it already made.

    Of a replayed add an entry is None when its job has been deleted since.
    """

    entries: list[Added | None]
    replayed: bool = False
