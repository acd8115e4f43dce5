"""Moves waiting jobs that are due at a local time when the rules of their time zones change."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import TYPE_CHECKING, Protocol

import orjson

from erelong.clock.zones import UNKNOWN_VERSION
from erelong.duties.duty import SetAside, in_halves
from erelong.model.document import Document
from erelong.model.extras import ZONE_LABEL, read_extras
from erelong.model.ids import MAX_SEQ
from erelong.model.job import Job, State
from erelong.model.query import Query
from erelong.model.times.local_time import instant_of
from erelong.telemetry.log import get_logger

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import tzinfo

    from erelong.clock.instants import Instant, Now
    from erelong.clock.zones import Zones, ZoneSource
    from erelong.engine.changes import Changes
    from erelong.stores.base import Store
    from erelong.telemetry.metrics import Metrics

CHECK_INTERVAL = 3600.0
SETTLE_TIME = 60.0  # by then all submits and changes that used the earlier rules are stored
PAGE = 100
DOCUMENT = ("zones", "resolved")  # the version of the rules by which the stored jobs are resolved
WAITING = frozenset({State.SCHEDULED})

log = get_logger(__name__)


class Follower(Protocol):
    """A part that keeps times computed by the rules of zones."""

    def renew(self, zones: Zones) -> None:
        """Note that other rules apply, and compute the times again later."""
        ...


class ZoneChanges:
    """Checks the version of the rules at the start and each hour, and resolves local times again when it changes.

    The jobs are searched twice, since a request may resolve a local time just before a change and store it after the
    first search.
    """

    name = "zones"

    def __init__(self, *, source: ZoneSource, store: Store, changes: Changes, metrics: Metrics, now: Now) -> None:
        self._source = source
        self._store = store
        self._changes = changes
        self._now = now
        self.followers: list[Follower] = []
        self._is_started = False
        self._searches = 0  # still to do
        self._document: Document | None = None
        self._failed: set[int] = set()  # in the current search
        self._before = ""  # the version of the rules before the latest change
        self.aside: SetAside[int] = SetAside(name=self.name, metrics=metrics)

    def is_settled(self) -> bool:
        """Return whether the stored jobs have been compared with the rules."""
        return self._is_started

    async def ready(self) -> None:
        """Wait for the next check; the first is at once."""
        if self._is_started:
            await asyncio.sleep(SETTLE_TIME if self._searches else CHECK_INTERVAL)

    async def lap(self) -> None:
        if not self._is_started:
            await self._start()
        else:
            self._renew()
        if not self._searches:
            return
        await self._note("")  # a crash from here on leaves jobs of both rules
        moved = await self._search()
        if moved or self._before:
            log.info("zones_changed", version=self._source.current.version, before=self._before, jobs=moved)
            self._before = ""
        if self._searches > 1 or not self.aside.failures:
            self._searches -= 1
        if not self._searches:
            await self._note(self._source.current.version)

    async def _start(self) -> None:
        """Find out by which rules the stored jobs are resolved."""
        version = self._source.current.version
        self._document = await self._store.document(*DOCUMENT)
        self._is_started = True
        if self._noted != version or version == UNKNOWN_VERSION:
            self._searches, self._before = 1, self._noted

    def _renew(self) -> None:
        before = self._source.current.version
        if self._source.renew():
            self._searches, self._before = 2, "" if before == self._source.current.version else before
            for follower in self.followers:
                follower.renew(self._source.current)

    async def _search(self) -> int:
        """Resolve the waiting jobs of all zones again; return how many moved."""
        moved = 0
        self._failed = set()
        for name in await self._store.label_values(ZONE_LABEL):
            try:
                zone = self._source.current.find(name)
            except ValueError as error:
                if await self._store.list(Query(states=WAITING, labels={ZONE_LABEL: name}, limit=1)):
                    log.warning("zone_gone", zone=name, error=str(error), effect="its jobs keep their times")
            else:
                moved += await self._search_zone(name, zone)
        self.aside.remove(self.aside.failures.keys() - self._failed)
        return moved

    async def _search_zone(self, name: str, zone: tzinfo) -> int:
        """Resolve the waiting jobs of a zone, newest first. A job that joins it meanwhile used the current rules."""
        moved, after = 0, (0, MAX_SEQ)
        while jobs := await self._store.list(Query(states=WAITING, labels={ZONE_LABEL: name}, after=after, limit=PAGE)):
            after = (0, jobs[-1].seq)
            stale = [job.seq for job in jobs if resolved(job, name, zone, self._now()) is not job]
            moved += await self._move(stale, name, zone)
        return moved

    async def _move(self, seqs: Sequence[int], name: str, zone: tzinfo) -> int:
        moved = 0

        async def move(seqs: Sequence[int]) -> None:
            nonlocal moved
            moved += await self._save(seqs, name, zone)

        for seq, error in await in_halves(seqs, move):
            self.aside.add(seq, error)
            self._failed.add(seq)
        return moved

    async def _save(self, seqs: Sequence[int], name: str, zone: tzinfo) -> int:
        """Save jobs at their new times. Read those again that a client or an attempt changed first."""
        moved = 0
        while seqs:
            now = self._now()
            pairs = [
                (job, after)
                for job in (await self._store.get(seqs)).values()
                if (after := resolved(job, name, zone, now)) is not job
            ]
            verdicts = await self._store.save([after for _, after in pairs]) if pairs else []
            for (before, _), verdict in zip(pairs, verdicts, strict=True):
                if verdict.is_saved:
                    moved += 1
                    self._changes.changed(before, verdict)
            seqs = [after.seq for (_, after), verdict in zip(pairs, verdicts, strict=True) if not verdict.is_saved]
        return moved

    @property
    def _noted(self) -> str:
        """The version of the rules by which all stored jobs are resolved; "" if it is not known."""
        return "" if self._document is None else str(orjson.loads(self._document.text or b"{}").get("version", ""))

    async def _note(self, version: str) -> None:
        """Store the version by which all jobs are resolved, unless the store has never had a local time."""
        last = self._document
        if self._noted == version or (last is None and not await self._store.label_values(ZONE_LABEL)):
            return
        text = orjson.dumps({"version": version})
        document = Document(*DOCUMENT, 1 if last is None else last.version + 1, self._now(), text)
        await self._store.save([], beside=[document])
        self._document = document


def resolved(job: Job, name: str, zone: tzinfo, now: Instant) -> Job:
    """Return the job at the instant that its local time has in this zone.

    Return the same job if nothing changes, or if it does not wait for its local time: it has begun, waits for a retry,
    was run by a client, or was changed to another zone.
    """
    extras = read_extras(job.extras)
    local_time = extras.get("local_time")
    if local_time is None or extras.get("zone") != name or job.state is not State.SCHEDULED:
        return job
    if job.due_at != job.execute_at + job.offset:
        return job
    execute_at = instant_of(datetime.fromisoformat(local_time), zone)
    return job if execute_at == job.execute_at else job.move(execute_at, now)
