"""The operations on schedules: put, change, read, list, delete, pause, resume, trigger, preview."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from erelong.engine.recurrences.making import offset_of
from erelong.errors import Fault, Invalid, ScheduleNotFound, StoreRefused, TooMany, VersionMismatch
from erelong.model.caller import ANYBODY, Caller
from erelong.model.schedules import edits
from erelong.model.schedules import occurrences as steps
from erelong.model.schedules.schedule import Damaged, Definition, Overlap, Schedule
from erelong.settings.names import how_to_create
from erelong.telemetry.log import get_logger

if TYPE_CHECKING:
    from erelong.clock.instants import Instant
    from erelong.engine.engine import Engine
    from erelong.engine.recurrences.duty import Found, Recurrences
    from erelong.model.job import Job
    from erelong.model.submission import IdempotencyRecord
    from erelong.model.times.recurrence import Preview, Recurrence
    from erelong.service.schedule_jobs import ScheduleJobs

SHOWN: Final = 5
PAGE: Final = 50
AT_ONCE: Final = 25  # occurrences or schedules that are computed before others use the event loop

Redefine = Callable[[Definition], Definition]

log = get_logger(__name__)


class Expected(NamedTuple):
    """The versions that `If-Match` allows (None: any) and that `If-None-Match` rules out (None: none).

    `is_new`: no schedule of this name may exist. `must_exist`: one must.
    """

    match: frozenset[int] | None = None
    none_match: frozenset[int] | None = None
    is_new: bool = False
    must_exist: bool = False


ANY: Final = Expected()


class Shown(NamedTuple):
    """A schedule with the parts that a read computes."""

    schedule: Schedule
    described: str
    next: tuple[Instant, ...]
    live: tuple[str, ...] = ()


class Filters(NamedTuple):
    """Which schedules are listed; an empty filter matches all."""

    queues: frozenset[str] = frozenset()
    kinds: frozenset[str] = frozenset()
    is_paused: bool | None = None


class Schedules:
    """All operations on schedules. A caller that is limited to queues knows only the schedules of these queues."""

    def __init__(self, *, engine: Engine, recurrences: Recurrences, jobs: ScheduleJobs) -> None:
        self._recurrences = recurrences
        self._jobs = jobs
        self._lifecycle = engine.lifecycle
        self._max = engine.config.schedules.max
        self._now = engine.now

    # reading

    async def get(self, name: str, caller: Caller = ANYBODY) -> Shown:
        schedule = known(name, await self._recurrences.book.find(name), caller)
        schedule = await self._recurrences.book.resolve(schedule)
        return self._show(schedule, tuple(await self._recurrences.book.live_ids(schedule)))

    async def refuse_foreign(self, name: str, caller: Caller) -> None:
        """Raise `ScheduleNotFound` for a schedule whose queue the caller may not use, as for an unknown one."""
        found = await self._recurrences.book.find(name) if caller.queues else None
        if found is not None:
            known(name, found, caller)

    async def preview(self, name: str, start: Instant | None, count: int, caller: Caller) -> tuple[list[Preview], int]:
        """Return the next occurrences, also of a paused schedule, and the offset of its jobs in microseconds."""
        schedule = known(name, await self._recurrences.book.find(name), caller)
        first = (self._now() if start is None else start) - 1
        recurrence = self._recurrence(schedule, "the schedule has no occurrences")
        previews: list[Preview] = []
        upcoming = islice(recurrence.preview(first), count)
        while part := [*islice(upcoming, AT_ONCE)]:
            previews += part
            await asyncio.sleep(0)
        return previews, offset_of(schedule)

    @property
    def tzdb(self) -> str:
        """The version of the time-zone rules."""
        return self._recurrences.rules.zones.version

    async def list(self, filters: Filters, after: str, limit: int, caller: Caller) -> tuple[list[Shown], str | None]:
        """Return schedules by name, and the name after which the next page begins."""
        found: list[Schedule] = []
        position: str | None = after
        while position is not None and len(found) <= limit:
            page, position = await self._recurrences.book.page(position, PAGE)
            found += [schedule for schedule in page if _matches(schedule, filters, caller)]
            await asyncio.sleep(0)
        last = found[limit - 1].name if len(found) > limit else None
        shown: list[Shown] = []
        for start in range(0, len(found[:limit]), AT_ONCE):
            shown += [self._show(schedule, count=1) for schedule in found[start : min(limit, start + AT_ONCE)]]
            await asyncio.sleep(0)
        return shown, last

    # changing

    async def put(
        self, name: str, definition: Definition, expected: Expected, caller: Caller, *, is_dry: bool = False
    ) -> tuple[Shown, bool]:
        """Create or replace a schedule; return it, and whether it is new."""
        self._lifecycle.refuse_work()
        definition = self._checked(definition)

        def step(before: Found, now: Instant) -> Schedule:
            if isinstance(before, Damaged):
                _refuse_damaged(before, expected, caller)
                return edits.restore(before, definition, now, caller.name)
            if before is not None:
                known(name, before, caller)
            _expect(name, before, expected)
            if before is not None:
                return edits.redefine(before, definition, now, caller.name)
            if self._recurrences.count >= self._max:
                raise TooMany(f"{self._max} schedules exist; delete some, or raise [schedules] max")
            return edits.create(name, definition, now, caller.name)

        before, after = await self._recurrences.edit(name, step, is_dry=is_dry)
        assert after is not None
        if after is not before and not is_dry:
            log.info("schedule_created" if before is None else "schedule_changed", schedule=name, by=caller.name)
        schedule = await self._recurrences.book.resolve(after)
        return self._show(schedule, tuple(await self._recurrences.book.live_ids(schedule))), before is None

    async def patch(self, name: str, change: Redefine, expected: Expected, caller: Caller) -> Shown:
        """Change what a function changes in the definition."""
        self._lifecycle.refuse_work()

        def step(schedule: Schedule, now: Instant) -> Schedule:
            return edits.redefine(schedule, self._checked(change(schedule.definition)), now)

        shown, is_changed = await self._edit(name, step, expected, caller)
        if is_changed:
            log.info("schedule_changed", schedule=name, by=caller.name)
        return shown

    async def pause(self, name: str, reason: str | None, expected: Expected, caller: Caller) -> Shown:
        """Make no jobs until the schedule is resumed."""
        shown, is_changed = await self._edit(
            name, lambda schedule, now: edits.pause(schedule, reason, now), expected, caller
        )
        if is_changed:
            log.info("schedule_paused", schedule=name, reason=reason, by=caller.name)
        return shown

    async def resume(self, name: str, expected: Expected, caller: Caller) -> Shown:
        """Make jobs again, for the occurrences after now."""
        self._lifecycle.refuse_work()

        def step(schedule: Schedule, now: Instant) -> Schedule:
            self._recurrence(schedule, "the schedule cannot be resumed")
            return edits.resume(schedule, now)

        shown, is_changed = await self._edit(name, step, expected, caller)
        if is_changed:
            log.info("schedule_resumed", schedule=name, by=caller.name)
        return shown

    async def delete(self, name: str, expected: Expected, caller: Caller) -> None:
        """Forget a schedule; the jobs that it made stay."""

        def step(before: Found, now: Instant) -> None:
            if isinstance(before, Damaged):
                _refuse_damaged(before, expected, caller)
            else:
                _expect(name, known(name, before, caller), expected)

        await self._recurrences.edit(name, step)
        log.info("schedule_deleted", schedule=name, by=caller.name)

    async def trigger(
        self, name: str, overlap: Overlap | None, record: IdempotencyRecord | None, caller: Caller
    ) -> tuple[Job, bool]:
        """Make one job now; return it, and whether an earlier request made it."""
        self._lifecycle.refuse_work()
        job, is_replay = await self._recurrences.trigger(
            name, overlap, record, lambda schedule: known(name, schedule, caller)
        )
        if not is_replay:
            log.info("schedule_triggered", schedule=name, job=job.id, by=caller.name)
        return job, is_replay

    async def _edit(
        self, name: str, step: Callable[[Schedule, Instant], Schedule], expected: Expected, caller: Caller
    ) -> tuple[Shown, bool]:
        """Apply a step to an existing schedule; return it, and whether the step has changed it."""

        def checked(before: Found, now: Instant) -> Schedule:
            schedule = known(name, before, caller)
            _expect(name, schedule, expected)
            return step(schedule, now)

        before, after = await self._recurrences.edit(name, checked)
        assert after is not None
        schedule = await self._recurrences.book.resolve(after)
        return self._show(schedule, tuple(await self._recurrences.book.live_ids(schedule))), after is not before

    def _checked(self, definition: Definition) -> Definition:
        """Check a definition, and its job as a submit would; return it."""
        now = self._now()
        faults = edits.check(definition, self._recurrences.rules.zones, now)
        try:
            self._jobs.check(definition.job, now)
        except Invalid as problem:
            faults += [fault.under("/job") for fault in problem.faults]
        if faults:
            raise Invalid("the schedule is not valid", faults=faults)
        return definition

    def _recurrence(self, schedule: Schedule, what: str) -> Recurrence:
        """Return the recurrence of a schedule, or raise `Invalid` if its zone has gone."""
        try:
            return self._recurrences.rules.recurrence(schedule.definition.timing)
        except ValueError as error:
            raise Invalid(what, faults=[Fault("/zone", str(error))]) from None

    # showing

    def _show(self, schedule: Schedule, live: tuple[str, ...] = (), count: int = SHOWN) -> Shown:
        try:
            recurrence = self._recurrences.rules.recurrence(schedule.definition.timing)
        except ValueError:  # its zone has gone
            return Shown(schedule, "", (), live)
        upcoming = steps.upcoming(schedule, recurrence, self._now(), count)
        return Shown(schedule, recurrence.rhythm.describe(), tuple(upcoming), live)


def known(name: str, schedule: Found, caller: Caller) -> Schedule:
    """Return the schedule, if there is one and the caller may use its queue."""
    if isinstance(schedule, Damaged) and not caller.queues:
        raise StoreRefused(f"the stored schedule {name!r} is damaged and cannot be read; PUT it again, or DELETE it")
    if not isinstance(schedule, Schedule) or not caller.may_use(schedule.definition.queue):
        if caller.queues:  # it may exist
            has = ", ".join(sorted(caller.queues))
            detail = f"API key {caller.name!r} knows no schedule {name!r}: it sees those of its queues, {has}"
            raise ScheduleNotFound(f"{detail}; use another key, or another name for a new one")
        raise ScheduleNotFound(f"no schedule {name!r}{how_to_create(name, 'PUT /v1/schedules/{} creates it')}")
    return schedule


def _refuse_damaged(damaged: Damaged, expected: Expected, caller: Caller) -> None:
    """Refuse to overwrite a damaged schedule on a condition, or by a caller that may not know of it."""
    if caller.queues:
        known(damaged.name, damaged, caller)
    if expected.match is not None or expected.none_match is not None or expected.is_new:
        detail = f"schedule {damaged.name!r} is damaged, so its version is not known"
        raise VersionMismatch(f"{detail}; PUT or DELETE it with If-Match: * or without conditions")


def _expect(name: str, schedule: Schedule | None, expected: Expected) -> None:
    match, none_match, is_new, must_exist = expected
    if schedule is None:
        if must_exist:
            raise VersionMismatch(f"schedule {name!r} does not exist, so no version of If-Match is current")
        return
    version = schedule.version
    if is_new or (none_match is not None and version in none_match):
        raise VersionMismatch(f'schedule {name!r} exists, at version "{version}", which If-None-Match rules out')
    if match is not None and version not in match:
        wanted = ", ".join(f'"{number}"' for number in sorted(match)) or "none"
        raise VersionMismatch(f'schedule {name!r} is at version "{version}", If-Match names {wanted}; read it again')


def _matches(schedule: Schedule, filters: Filters, caller: Caller) -> bool:
    definition = schedule.definition
    queue = definition.queue
    return (
        caller.may_use(queue)
        and (not filters.queues or queue in filters.queues)
        and (not filters.kinds or definition.kind in filters.kinds)
        and (filters.is_paused is None or filters.is_paused is schedule.is_paused)
    )
