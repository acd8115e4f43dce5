"""A schedule as it is stored: what its client defined, and how far it has come."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import orjson

from erelong.model.document import Document
from erelong.model.spec import DEFAULT_QUEUE
from erelong.model.times.catchup import Missed, MissedPolicy
from erelong.model.times.local_time import Fold, Gap
from erelong.model.times.timing import Timing

if TYPE_CHECKING:
    from collections.abc import Mapping

    from erelong.clock.instants import Instant

SORT: Final = "schedule"
"""The sort of the documents that hold schedules."""
MAX_RECENT: Final = 20


class Overlap(StrEnum):
    """What becomes of an occurrence while an earlier job of the schedule is live."""

    SKIP = "skip"
    QUEUE_ONE = "queue_one"
    REPLACE = "replace"
    ALLOW = "allow"


class Fate(StrEnum):
    """What became of an occurrence."""

    MADE = "made"
    SKIPPED = "skipped"
    MISSED = "missed"


class Reason(StrEnum):
    """Why an occurrence has its fate, or why a schedule is paused."""

    TRIGGER = "trigger"  # made by a request
    OVERLAP = "overlap"  # skipped: an earlier job is live
    REPLACED = "replaced"  # skipped: a newer occurrence took its place
    EDITED = "edited"  # skipped: the overlap policy changed while it was kept
    DOWN = "down"  # missed: the service was not running, or could not store jobs
    CLOCK_STEPPED = "clock_stepped"  # missed: the clock was set forward over it
    BACKLOG_FULL = "backlog_full"
    INVALID = "invalid"  # missed: its kind refuses the job
    KIND_GONE = "kind_gone"  # missed: its kind is no longer declared
    ZONE_GONE = "zone_gone"  # paused: the time-zone rules no longer have its zone


Line = list[Any]
"""A record as it is stored. Few are ever read, so they stay as they are until then."""


class Record(NamedTuple):
    """One line of the recent history. `job` is an id, or a bare token while the number of the job is not known."""

    occurrence: Instant
    fate: Fate
    job: str | None = None
    reason: Reason | None = None
    missed: Missed | None = None
    """Set if the line stands for several occurrences; `occurrence` is then the last."""

    def to_line(self) -> Line:
        missed = self.missed
        line: Line = [self.occurrence, self.fate, self.job, self.reason]
        return line if missed is None else [*line, [missed.count, missed.first, missed.last, missed.more]]


class Counts(NamedTuple):
    """How many occurrences had each fate."""

    made: int = 0
    skipped: int = 0
    missed: int = 0


NO_COUNTS: Final = Counts()


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """What the client says. `job` is a submission as JSON text with sorted names.

    The timing has only the fields that were given, since the defaults of some depend on others that a PATCH may change.
    """

    timing: Timing
    spread: float = 0.0
    missed: MissedPolicy = MissedPolicy.ONCE
    catchup: float | None = None
    overlap: Overlap = Overlap.SKIP
    job: bytes

    @property
    def queue(self) -> str:
        """Return the queue of the jobs."""
        queue: str = orjson.loads(self.job).get("queue") or DEFAULT_QUEUE
        return queue

    @property
    def kind(self) -> str:
        """Return the kind of the jobs."""
        kind: str = orjson.loads(self.job)["kind"]
        return kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A definition and its progress. `version` counts changes by clients, `row` all writes of the document."""

    name: str
    definition: Definition
    cursor: Instant
    """All occurrences up to here have been dealt with."""
    made_until: Instant = 0
    """The latest occurrence that may have a stored job."""
    queued: Instant | None = None
    """The occurrence that is kept until the live job has ended."""
    live: tuple[str, ...] = ()
    """Jobs that may be live, as in `Record.job`. Empty if jobs may overlap."""
    is_paused: bool = False
    reason: str | None = None
    by: str = ""
    """The API key that defined it, if any."""
    counts: Counts = NO_COUNTS
    lines: tuple[Line, ...] = ()
    """The latest records, the last first."""
    created_at: Instant
    changed_at: Instant
    version: int = 1
    row: int = 0

    @property
    def recent(self) -> list[Record]:
        """The latest records, the last first."""
        return [read_line(line) for line in self.lines]

    def noted(self, record: Record, number: int = 1, **changes: Any) -> Schedule:
        """Note and count what became of occurrences, with other changes."""
        counts = self.counts._replace(**{record.fate.value: getattr(self.counts, record.fate.value) + number})
        return replace(self, lines=(record.to_line(), *self.lines)[:MAX_RECENT], counts=counts, **changes)

    def with_ids(self, ids: Mapping[str, str]) -> Schedule:
        """Replace the tokens of jobs by their ids, where these are known."""
        if not ids:
            return self
        lines = tuple([line[0], line[1], ids[line[2]], *line[3:]] if line[2] in ids else line for line in self.lines)
        return replace(self, live=tuple(ids.get(job, job) for job in self.live), lines=lines)


class Damaged(NamedTuple):
    """A stored schedule that cannot be read. It can only be replaced or deleted."""

    name: str
    row: int


def as_document(schedule: Schedule, now: Instant) -> Document:
    """Return the next version of the document that holds the schedule."""
    return Document(SORT, schedule.name, schedule.row + 1, now, orjson.dumps(_as_json(schedule)))


def read_schedule(document: Document) -> Schedule:
    """Return the schedule in a document. Raise ValueError, KeyError or TypeError if it is damaged."""
    return _of_json(document.name, document.version, orjson.loads(document.text or b""))


def _as_json(schedule: Schedule) -> dict[str, Any]:
    definition = schedule.definition
    timing = definition.timing
    return {
        "cron": timing.cron,
        "every": timing.every,
        "anchor": timing.anchor,
        "zone": timing.zone,
        "gap": timing.gap,
        "fold": timing.fold,
        "starts_at": timing.starts_at,
        "ends_at": timing.ends_at,
        "spread": definition.spread,
        "missed": definition.missed,
        "catchup": definition.catchup,
        "overlap": definition.overlap,
        "job": orjson.Fragment(definition.job),
        "cursor": schedule.cursor,
        "made_until": schedule.made_until,
        "queued": schedule.queued,
        "live": schedule.live,
        "paused": schedule.is_paused,
        "reason": schedule.reason,
        "by": schedule.by,
        "counts": [*schedule.counts],
        "recent": schedule.lines,
        "created_at": schedule.created_at,
        "changed_at": schedule.changed_at,
        "version": schedule.version,
    }


def _of_json(name: str, row: int, text: dict[str, Any]) -> Schedule:
    timing = Timing(
        cron=text["cron"],
        every=text["every"],
        anchor=text["anchor"],
        zone=text["zone"],
        gap=None if text["gap"] is None else Gap(text["gap"]),
        fold=None if text["fold"] is None else Fold(text["fold"]),
        starts_at=text["starts_at"],
        ends_at=text["ends_at"],
    )
    return Schedule(
        name=name,
        definition=Definition(
            timing=timing,
            spread=text["spread"],
            missed=MissedPolicy(text["missed"]),
            catchup=text["catchup"],
            overlap=Overlap(text["overlap"]),
            job=orjson.dumps(text["job"], option=orjson.OPT_SORT_KEYS),
        ),
        cursor=text["cursor"],
        made_until=text["made_until"],
        queued=text["queued"],
        live=tuple(text["live"]),
        is_paused=text["paused"],
        reason=text["reason"],
        by=text.get("by", ""),
        counts=Counts(*text["counts"]),
        lines=tuple(text["recent"]),
        created_at=text["created_at"],
        changed_at=text["changed_at"],
        version=text["version"],
        row=row,
    )


def read_line(line: Line) -> Record:
    """Return the record that a line holds."""
    occurrence, fate, job, reason, *missed = line
    return Record(
        occurrence, Fate(fate), job, None if reason is None else Reason(reason), Missed(*missed[0]) if missed else None
    )
