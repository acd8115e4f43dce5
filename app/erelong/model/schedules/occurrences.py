"""What becomes of an occurrence: its job is made, or it is kept, skipped or missed."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, assert_never

from erelong.model.schedules.schedule import Fate, Overlap, Reason, Record, Schedule
from erelong.model.times.catchup import catch_up

if TYPE_CHECKING:
    from erelong.clock.instants import Instant
    from erelong.model.times.catchup import Deciding, Missed
    from erelong.model.times.recurrence import Recurrence


def next_occurrence(schedule: Schedule, recurrence: Recurrence, now: Instant) -> Instant | None:
    """Return the next occurrence to deal with; None if the schedule is paused or none is left.

    A cursor that lies ahead is from a clock that was set back since: it counts as now.
    """
    if schedule.is_paused:
        return None
    return next(recurrence.after(min(schedule.cursor, now)), None)


def pass_downtime(schedule: Schedule, recurrence: Recurrence, until: Instant) -> Deciding:
    """Decide in steps which of the occurrences up to an instant are made late, and which were missed."""
    definition = schedule.definition
    return catch_up(recurrence, definition.missed, definition.catchup, cursor=schedule.cursor, now=until)


def arrive(schedule: Schedule, occurrence: Instant, *, has_live: bool) -> tuple[Schedule, bool]:
    """Decide on an occurrence; return the schedule after it, and whether its job is to be made now."""
    match schedule.definition.overlap:
        case Overlap.ALLOW:
            return schedule, True
        case _ if not has_live and schedule.queued is None:
            return schedule, True
        case Overlap.QUEUE_ONE if schedule.queued is None:
            return replace(pass_over(schedule, occurrence), queued=occurrence), False
        case Overlap.SKIP | Overlap.QUEUE_ONE:
            return pass_over(skip(schedule, occurrence, Reason.OVERLAP), occurrence), False
        case Overlap.REPLACE:
            after = drop_kept(schedule, Reason.REPLACED)
            return replace(pass_over(after, occurrence), queued=occurrence), False
        case overlap:
            assert_never(overlap)


def make(schedule: Schedule, occurrence: Instant, token: str) -> Schedule:
    """Note that the job of an occurrence is made, in the commit that stores the job."""
    return schedule.noted(
        Record(occurrence, Fate.MADE, token),
        live=_with_job(schedule, token),
        queued=None if schedule.queued == occurrence else schedule.queued,
        cursor=max(schedule.cursor, occurrence),
        made_until=max(schedule.made_until, occurrence),
    )


def trigger(schedule: Schedule, now: Instant, token: str) -> Schedule:
    """Note a job that a request made. It stands for no occurrence, so the schedule does not move."""
    return schedule.noted(Record(now, Fate.MADE, token, Reason.TRIGGER), live=_with_job(schedule, token))


def miss(schedule: Schedule, occurrence: Instant, reason: Reason) -> Schedule:
    """Note that the job of an occurrence could not be made."""
    queued = None if schedule.queued == occurrence else schedule.queued
    cursor = max(schedule.cursor, occurrence)
    return schedule.noted(Record(occurrence, Fate.MISSED, reason=reason), queued=queued, cursor=cursor)


def miss_all(schedule: Schedule, missed: Missed, reason: Reason) -> Schedule:
    """Note occurrences that passed while no job could be made of them."""
    record = Record(missed.last, Fate.MISSED, reason=reason, missed=missed)
    return schedule.noted(record, missed.count, cursor=max(schedule.cursor, missed.last))


def skip(schedule: Schedule, occurrence: Instant, reason: Reason) -> Schedule:
    return schedule.noted(Record(occurrence, Fate.SKIPPED, reason=reason))


def drop_kept(schedule: Schedule, reason: Reason) -> Schedule:
    """Skip the occurrence that is kept, if there is one."""
    if schedule.queued is None:
        return schedule
    return replace(skip(schedule, schedule.queued, reason), queued=None)


def pass_over(schedule: Schedule, until: Instant) -> Schedule:
    """Note that all occurrences up to an instant have been dealt with."""
    return schedule if until <= schedule.cursor else replace(schedule, cursor=until)


def set_back(schedule: Schedule, now: Instant) -> Schedule:
    """Bring a cursor that lies ahead back to now, because the clock was set back."""
    return replace(schedule, cursor=now) if schedule.cursor > now else schedule


def upcoming(schedule: Schedule, recurrence: Recurrence, now: Instant, count: int) -> list[Instant]:
    """Return the next occurrences; none of a schedule that is paused."""
    return [] if schedule.is_paused else [*islice(recurrence.after(min(schedule.cursor, now)), count)]


def _with_job(schedule: Schedule, token: str) -> tuple[str, ...]:
    """Return the jobs that may be live once another is made. Jobs that may overlap are not listed."""
    return schedule.live if schedule.definition.overlap is Overlap.ALLOW else (*schedule.live, token)
