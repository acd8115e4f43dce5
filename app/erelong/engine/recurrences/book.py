"""Reads and writes stored schedules, and finds the jobs that they have made."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from erelong.errors import StoreRefused
from erelong.model.document import Document
from erelong.model.extras import label_of, read_extras
from erelong.model.ids import parse_id
from erelong.model.job import State
from erelong.model.query import Query
from erelong.model.schedules.schedule import SORT, Damaged, Overlap, Schedule, as_document, read_schedule
from erelong.model.submission import NewJob
from erelong.stores.base import get_readable
from erelong.telemetry.log import get_logger

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from erelong.clock.instants import Instant
    from erelong.lanes.departures import LiveAgain
    from erelong.model.job import Job
    from erelong.model.submission import IdempotencyRecord, Receipt
    from erelong.stores.base import Store

MAX_LIVE: Final = 1_000  # live jobs of one schedule that are found by their label
PAGE: Final = 100  # schedules that are read at once: each may be large
NEWEST: Final = 50  # jobs of a schedule among which those of its last commit are found after a restart
MAX_KEPT: Final = 1_000  # schedules that were read ahead
MAX_TEXT: Final = 4_096  # bytes of the submission of a schedule that is worth keeping
LIVE: Final = frozenset({State.SCHEDULED, State.RUNNING})
DAMAGE: Final = (ValueError, KeyError, TypeError)

log = get_logger(__name__)


class Book:
    """The stored schedules.

    A job has no number before it is stored, so the schedule that is stored with it can only name its token. `_fresh`
    has the ids of these jobs until the next write of the schedule, and the label of the schedule finds them after a
    restart.

    All writes of schedules pass through the book, so it may keep some in memory.
    """

    def __init__(self, *, store: Store, live_again: LiveAgain) -> None:
        self._store = store
        self.live_again = live_again
        self._kept: dict[str, Schedule] = {}
        self._fresh: dict[str, dict[str, str]] = {}

    async def names(self) -> list[tuple[str, bool]]:
        """Return the name of every schedule, and whether it is paused."""
        found: list[tuple[str, bool]] = []
        after = ""
        while page := await self._store.documents(SORT, after=after, limit=PAGE):
            found += [(document.name, _is_paused(document)) for document in page]
            after = page[-1].name
        return found

    async def read(self, names: Sequence[str]) -> list[Schedule]:
        """Return those of these schedules that exist. Raise `StoreRefused` if one of them is damaged."""
        kept = [self._kept[name] for name in names if name in self._kept] if self._kept else []
        others = [name for name in names if name not in self._kept] if kept else names
        found = await self._store.named(SORT, others) if others else []
        return kept + [self._read(document) for document in found]

    async def find(self, name: str) -> Schedule | Damaged | None:
        """Return a schedule; of a damaged one only its name and its row."""
        document = await self._store.document(SORT, name)
        if document is None:
            return None
        try:
            return self._read(document)
        except StoreRefused:
            return Damaged(name, document.version)

    async def read_ahead(self, names: Sequence[str]) -> None:
        """Read schedules that are due soon, and keep them until they are written. Their caller holds them."""
        if len(self._kept) + len(names) > MAX_KEPT:
            self._kept.clear()
        for schedule in await self.read(names):
            if len(schedule.definition.job) <= MAX_TEXT:
                self._kept[schedule.name] = schedule

    async def page(self, after: str, limit: int) -> tuple[list[Schedule], str | None]:
        """Return one page of schedules by name, without damaged ones, and the name after which the next begins."""
        documents = await self._store.documents(SORT, after=after, limit=limit)
        schedules = []
        for document in documents:
            with suppress(StoreRefused):
                schedules.append(self._read(document))
        return schedules, documents[-1].name if len(documents) == limit else None

    async def write(
        self,
        schedules: Sequence[Schedule],
        jobs: Sequence[tuple[str, Job]] = (),
        *,
        now: Instant,
        record: IdempotencyRecord | None = None,
    ) -> Receipt:
        """Store schedules, and new jobs with the names of theirs, in one commit."""
        documents = [as_document(schedule, now) for schedule in schedules]
        self._forget(schedules)
        receipt = await self._store.add([NewJob(job) for _, job in jobs], now=now, beside=documents, record=record)
        if receipt.replayed:
            return receipt
        for schedule in schedules:
            self._fresh.pop(schedule.name, None)
        for (name, job), entry in zip(jobs, receipt.entries, strict=True):
            if entry is not None:
                self._fresh.setdefault(name, {})[job.token] = entry.job.id
        return receipt

    async def delete(self, schedule: Schedule | Damaged, now: Instant) -> None:
        self._forget([schedule])
        await self._store.add([], now=now, beside=[Document(SORT, schedule.name, schedule.row + 1, now, None)])
        self._fresh.pop(schedule.name, None)
        self.live_again.forget(schedule.name)

    async def resolve(self, schedule: Schedule) -> Schedule:
        """Replace all tokens of jobs by ids; a live job without an id has been deleted."""
        made_for = {line[2]: line[0] for line in schedule.lines}
        wanted = {job for job in (*schedule.live, *made_for) if _is_token(job)}
        if not wanted:
            return schedule
        newest = await self._store.list(Query(labels=dict([label_of("schedule", schedule.name)]), limit=NEWEST))
        found = {job.token: job.id for job in newest if job.token in wanted}
        for token in wanted.intersection(made_for).difference(found):  # a backfill has made many jobs since
            jobs = await self._jobs_of(schedule.name, made_for[token])
            found |= {job.token: job.id for job in jobs if job.token == token}
        after = schedule.with_ids(found)
        return replace(after, live=tuple(job for job in after.live if not _is_token(job)))

    async def live(self, schedules: Iterable[Schedule]) -> tuple[list[Schedule], dict[str, list[Job]]]:
        """Return the schedules with only their live jobs, and these jobs by schedule. An unreadable job is not live."""
        listed = map(self.with_live_again, schedules)
        resolved = [
            await self.resolve(schedule) if any(map(_is_token, schedule.live)) else schedule for schedule in listed
        ]
        seqs = [seq for schedule in resolved for seq in map(_seq_of, schedule.live)]
        jobs = await get_readable(self._store, seqs)
        live = {job.id: job for job in jobs.values() if not job.is_final}
        kept = [
            replace(schedule, live=tuple(id for id in schedule.live if id in live)) if schedule.live else schedule
            for schedule in resolved
        ]
        for schedule in resolved if self.live_again else ():
            self.live_again.remove(schedule.name, [id for id in schedule.live if id not in live])
        return kept, {schedule.name: [live[id] for id in schedule.live] for schedule in kept if schedule.live}

    def with_live_again(self, schedule: Schedule) -> Schedule:
        """Return the schedule with its revived jobs among the live ones."""
        jobs = {*self.live_again.of(schedule.name)}.difference(schedule.live)
        if not jobs or schedule.definition.overlap is Overlap.ALLOW:
            return schedule
        return replace(schedule, live=(*schedule.live, *sorted(jobs)))

    async def find_live(self, name: str) -> list[Job]:
        """Return the live jobs of a schedule, the newest first, also where the schedule does not keep their ids."""
        return await self._store.list(Query(states=LIVE, labels=dict([label_of("schedule", name)]), limit=MAX_LIVE))

    async def live_ids(self, schedule: Schedule) -> list[str]:
        if schedule.definition.overlap is Overlap.ALLOW:
            return [job.id for job in await self.find_live(schedule.name)]
        (after,), _ = await self.live([schedule])
        return [*after.live]

    async def has_job(self, name: str, occurrence: Instant) -> bool:
        """Return whether the job of an occurrence is stored."""
        jobs = await self._jobs_of(name, occurrence)
        return any(is_of(read_extras(job.extras), name, occurrence) for job in jobs)

    async def _jobs_of(self, name: str, occurrence: Instant) -> list[Job]:
        """Return the jobs with this nominal time, among them triggered ones."""
        labels = dict([label_of("occurrence", occurrence), label_of("schedule", name)])
        return await self._store.list(Query(labels=labels, limit=MAX_LIVE))

    def _forget(self, schedules: Sequence[Schedule | Damaged]) -> None:
        for schedule in schedules if self._kept else ():
            self._kept.pop(schedule.name, None)

    def _read(self, document: Document) -> Schedule:
        try:
            schedule = read_schedule(document)
        except DAMAGE as error:
            raise StoreRefused(f"schedule {document.name} cannot be read: {error}") from error
        return schedule.with_ids(self._fresh.get(document.name, {}))


def is_of(extras: Mapping[str, Any], name: str, occurrence: Instant) -> bool:
    """Return whether extras are those of the job of an occurrence. A triggered job is of none."""
    return not extras.get("triggered") and (extras.get("schedule"), extras.get("occurrence")) == (name, occurrence)


def _is_paused(document: Document) -> bool:
    try:
        return read_schedule(document).is_paused
    except DAMAGE as error:
        log.error("schedule_unreadable", schedule=document.name, problem=str(error))
        return True


def _is_token(job: str | None) -> bool:
    return job is not None and parse_id(job) is None


def _seq_of(id: str) -> int:
    parts = parse_id(id)
    assert parts is not None
    return parts[0]
