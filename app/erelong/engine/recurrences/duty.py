"""The duty that makes jobs of schedules at their times, and the only door through which schedules change."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from erelong.clock.instants import SECOND
from erelong.clock.timer import Wake
from erelong.duties.duty import in_halves
from erelong.engine.recurrences.book import MAX_KEPT
from erelong.engine.recurrences.holds import Holds
from erelong.engine.recurrences.making import Making
from erelong.engine.recurrences.outages import Outages
from erelong.engine.recurrences.roster import Roster
from erelong.errors import Problem, StoreRefused
from erelong.model.schedules import occurrences as steps
from erelong.model.schedules.edits import pause
from erelong.model.schedules.schedule import Damaged, Overlap, Reason, Schedule
from erelong.telemetry.log import get_logger

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping, Sequence

    from erelong.clock.instants import Instant, Now
    from erelong.clock.timer import Timer
    from erelong.clock.zones import Zones
    from erelong.duties.lifecycle import Lifecycle
    from erelong.duties.waiters import Waiters
    from erelong.engine.recurrences.book import Book
    from erelong.engine.recurrences.rules import Rules
    from erelong.model.job import Job
    from erelong.model.submission import IdempotencyRecord
    from erelong.telemetry.metrics import Metrics

MAX_DUE: Final = 500  # schedules per lap
PART: Final = 250  # schedules whose jobs are stored by one call
SLICE: Final = 25  # next times computed at once
REST: Final = 0.005  # seconds between two slices, for the jobs that start meanwhile
HERD: Final = 20  # schedules due at one instant that are worth reading ahead
AHEAD: Final = SECOND

Found = Schedule | Damaged | None
Step = Callable[[Found, "Instant"], Schedule | None]
Check = Callable[[Found], Schedule]

log = get_logger(__name__)


class Recurrences:
    """Sleeps until a schedule is due, and makes its job. The next time is computed after the commit."""

    name = "recurrences"

    def __init__(
        self,
        *,
        book: Book,
        rules: Rules,
        making: Making,
        waiters: Waiters,
        lifecycle: Lifecycle,
        metrics: Metrics,
        timer: Timer,
        now: Now,
    ) -> None:
        self.book, self.rules, self.making = book, rules, making
        self._roster = Roster(name=self.name, waiters=waiters, wake=timer, metrics=metrics)
        self.aside = self._roster.aside
        self._lifecycle = lifecycle
        self._now = now
        self._timer = timer
        self._outages = Outages(now=now)
        self._holds = Holds()  # schedules in a lap or in an edit
        self._loading = asyncio.Lock()
        self._creating = 0
        self._read_for: Instant | None = None  # the instant whose schedules have been read ahead

    def next_at(self) -> Instant | None:
        """Return the next instant at which a schedule is due; None without one."""
        return self._roster.plan.earliest

    def is_settled(self) -> bool:
        """Return whether no lap or edit is under way, and none is needed at this instant."""
        earliest = self._roster.plan.earliest
        is_due = earliest is not None and earliest <= self._now()
        return not (is_due or self._has_work() or self._holds)

    @property
    def states(self) -> tuple[int, int]:
        """How many schedules are active and how many are paused."""
        paused = sum((self._roster.paused or {}).values())
        return self._roster.count - paused, paused

    @property
    def count(self) -> int:
        """How many schedules there are, with those being created."""
        return self._roster.count + self._creating

    # the duty

    async def ready(self) -> None:
        """Wait until a schedule is due, has to be planned, or may make the job that it keeps."""
        while self._lifecycle.is_draining or not self._has_work():
            due = self._roster.plan.earliest
            is_ahead = due is not None and due != self._read_for
            until = due - AHEAD if due is not None and is_ahead else due
            wake = await self._timer.wait(None if self._lifecycle.is_draining else until)
            if wake is Wake.STEPPED:
                self._note_jump(self._timer.jump)
            elif wake is Wake.DUE and is_ahead:
                self._read_for = due
                await self._read_ahead(self._herd())
            elif wake is Wake.DUE:
                return

    def _herd(self) -> list[str]:
        """Return the schedules that are due next, if they are many."""
        due = self._roster.plan.earliest
        names = [] if due is None else self._roster.plan.due_by(due, MAX_KEPT)
        return names if len(names) >= HERD else []

    async def _read_ahead(self, names: Sequence[str]) -> None:
        """Read schedules before they are due, in slices, so that their jobs are made sooner then."""
        for start in range(0, len(names), SLICE):
            held = [*filter(self._holds.try_hold, names[start : start + SLICE])]
            try:
                with suppress(Problem):  # the lap reads again
                    await self.book.read_ahead(held)
            finally:
                self._release(held)
            await asyncio.sleep(0)

    async def lap(self) -> None:
        """Make the jobs that are due; without any, plan some schedules."""
        await self._load()
        self._roster.unplanned.extend(self.book.live_again.take_noted())
        due = self._take_due()
        try:
            if due:
                await self._make_all(due)
        finally:
            self._release(due)
        if not due:
            await self._plan_some()
        await asyncio.sleep(REST if self._roster.unplanned and not due else 0)

    def close(self) -> None:
        self._timer.close()

    def _has_work(self) -> bool:
        return self._roster.has_work or bool(self.book.live_again.noted)

    def _see(self) -> None:
        """Note what kept jobs from being made until now."""
        self._note_jump(self._timer.take_jump())
        self._outages.extend()

    def _note_jump(self, jump: float) -> None:
        self._outages.stepped(jump)
        if jump <= -1:
            self._roster.plan_again()

    def renew(self, zones: Zones) -> None:
        """Compute all next times by other time-zone rules."""
        self.rules.renew(zones)
        self._roster.plan_again()

    async def _load(self) -> None:
        """Read the names of all schedules, once."""
        if self._roster.paused is not None:
            return
        async with self._loading:
            if self._roster.paused is None:
                self._outages.started()
                paused = dict(await self.book.names())
                self._roster.load(paused)
                self.book.live_again.learn(paused, self._timer)

    def _take_due(self) -> dict[str, Instant | None]:
        if self._lifecycle.is_draining:
            return {}
        self._see()
        due: dict[str, Instant | None] = {}
        for name in self._roster.watches.take(MAX_DUE):
            if self._holds.try_hold(name):
                due[name] = None
            else:
                self._roster.watches.remove(name)  # the next watch wakes it again
        for name, at in self._roster.plan.pop(self._now(), MAX_DUE - len(due)):
            if name in due or self._holds.try_hold(name):
                due[name] = at
        return due

    def _release(self, names: Iterable[str]) -> None:
        for name in self._holds.release(names):
            self._roster.plan_later(name)

    async def _make_all(self, due: Mapping[str, Instant | None]) -> None:
        """Make the jobs of many schedules; one that fails alone is set aside.

        Parts of them overlap: the loop decides on one while the store writes another.
        """

        async def make(names: Sequence[str]) -> None:
            await self._make({name: due[name] for name in names})

        names = [*due]
        parts = [names[start : start + PART] for start in range(0, len(names), PART)]
        try:
            results = await asyncio.gather(*(in_halves(part, make) for part in parts), return_exceptions=True)
        except BaseException:
            self._roster.unplanned.extend(names)
            raise
        for part, result in zip(parts, results, strict=True):
            if isinstance(result, BaseException):
                self._roster.unplanned.extend(part)
            else:
                self._roster.set_aside(part, result)
        for result in results:
            if isinstance(result, BaseException):
                raise result

    async def _make(self, due: Mapping[str, Instant | None]) -> None:
        try:
            draft = await self.making.make(due, self._outages.latest)
        except BaseException as error:
            self._outages.failed(error)
            for name in due:
                self._roster.watches.remove(name)  # the next watch wakes it again
            raise
        self._outages.stored()
        self._roster.unplanned.extend(due)
        for schedule in draft.schedules:
            self._roster.watches.set(schedule)

    async def _plan_some(self) -> None:
        names = [*filter(self._holds.try_hold, self._roster.take_unplanned(SLICE))]
        try:
            failed = await in_halves(names, self._plan_all)
            now = self._now()  # the lap decides on those that are due
            self._roster.set_aside([name for name in names if not self._roster.is_due(name, now)], failed)
        except BaseException:
            self._roster.unplanned.extend(names)
            raise
        finally:
            self._release(names)

    async def _plan_all(self, names: Sequence[str]) -> list[Schedule]:
        """Compute the next times of schedules, and store what a clock, zone rules or revived jobs make necessary."""
        now = self._now()
        schedules = await self.book.read(names)
        changed = [after for schedule in schedules if (after := self._adapted(schedule, now)) is not schedule]
        if changed:
            await self.book.write(changed, now=now)
            schedules = await self.book.read(names)
        for name in {*names}.difference(schedule.name for schedule in schedules):
            self._roster.forget(name)
        for schedule in schedules:
            self._plan_one(schedule, now)
        return schedules

    def _adapted(self, schedule: Schedule, now: Instant) -> Schedule:
        """Bring back a cursor that lies ahead, list revived jobs, and pause a schedule whose zone has gone."""
        schedule = self.book.with_live_again(steps.set_back(schedule, now))
        if schedule.is_paused:
            return schedule
        try:
            self.rules.recurrence(schedule.definition.timing)
        except ValueError as error:
            log.error("schedule_paused", schedule=schedule.name, reason=Reason.ZONE_GONE, detail=str(error))
            return pause(schedule, Reason.ZONE_GONE, now)
        return schedule

    def _plan_one(self, schedule: Schedule, now: Instant) -> None:
        at = None
        if not schedule.is_paused:
            at = steps.next_occurrence(schedule, self.rules.recurrence(schedule.definition.timing), now)
        self._roster.set(schedule, at)

    # edits

    async def edit(self, name: str, step: Step, *, is_dry: bool = False) -> tuple[Found, Schedule | None]:
        """Apply a step to a schedule (None: there is none) after its due occurrences; return it before and after.

        A dry edit stores nothing.
        """
        async with self._holding(name):
            before = await self.book.find(name) if is_dry else await self._settle(name)
            now = self._now()
            after = step(before, now)
            if after is not None and isinstance(before, Schedule):
                after = await self._with_live(before, after)
            if after is before or is_dry:
                return before, after
            try:
                await self._write(before, after, now)
            except BaseException:
                self._roster.plan_later(name)  # it may be stored nevertheless
                raise
            return before, after

    async def trigger(
        self, name: str, overlap: Overlap | None, record: IdempotencyRecord | None, check: Check
    ) -> tuple[Job, bool]:
        """Make one job of a schedule now; return it, and whether it is a replay."""
        async with self._holding(name):
            schedule = check(await self._settle(name))
            triggered = await self.making.trigger(schedule, overlap, record)
            self._roster.watches.set(schedule)
            return triggered

    @asynccontextmanager
    async def _holding(self, name: str) -> AsyncIterator[None]:
        await self._load()
        await self._holds.hold(name)
        try:
            yield
        finally:
            self._release([name])

    async def _settle(self, name: str) -> Found:
        """Deal with the occurrences of a schedule that are due, and return it."""
        while True:
            try:
                schedules = await self._plan_all([name])
            except StoreRefused:
                if isinstance(found := await self.book.find(name), Damaged):
                    return found
                raise
            due = self._roster.plan.next_of(name)
            if self._lifecycle.is_draining or due is None or due > self._now():
                return schedules[0] if schedules else None
            self._see()
            await self._make({name: due})

    async def _with_live(self, before: Schedule, after: Schedule) -> Schedule:
        """Find the live jobs of a schedule whose jobs may no longer overlap; until then it kept no list of them."""
        overlaps = before.definition.overlap is Overlap.ALLOW, after.definition.overlap is Overlap.ALLOW
        if overlaps != (True, False):
            return after
        return replace(after, live=tuple(job.id for job in await self.book.find_live(after.name)))

    async def _write(self, before: Found, after: Schedule | None, now: Instant) -> None:
        if after is None:
            assert before is not None
            await self.book.delete(before, now)
            self._roster.forget(before.name)
        else:
            self._creating += before is None
            try:
                await self.book.write([after], now=now)
            finally:
                self._creating -= before is None
            self._plan_one(after, now)
            self.aside.remove([after.name])
        if isinstance(before, Schedule):
            self.making.count(before.counts, (after or steps.drop_kept(before, Reason.EDITED)).counts)
