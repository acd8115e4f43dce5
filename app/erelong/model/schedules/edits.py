"""Edits of a schedule by its clients. An edit applies to the occurrences strictly after it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import orjson

from erelong.errors import Fault
from erelong.model.schedules.occurrences import drop_kept
from erelong.model.schedules.schedule import Damaged, Definition, Overlap, Reason, Schedule
from erelong.model.times.catchup import check_missed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from erelong.clock.instants import Instant
    from erelong.clock.zones import Zones

_OF_CRON: Final = ("cron", "zone", "gap", "fold")
_OF_INTERVAL: Final = ("every", "anchor")
_DEFAULTS: Final[dict[str, Any]] = {"params": {}, "queue": "default", "priority": 0, "labels": {}}


def check(definition: Definition, zones: Zones, now: Instant) -> list[Fault]:
    """Return the faults of a definition, apart from those of its job."""
    may_overlap = definition.overlap is Overlap.ALLOW
    faults = check_missed(definition.missed, definition.catchup, may_overlap=may_overlap)
    return [*definition.timing.check(zones, now), *faults]


def create(name: str, definition: Definition, now: Instant, by: str = "") -> Schedule:
    """Make a schedule. An earlier one of this name may have made jobs until now."""
    return Schedule(name=name, definition=definition, cursor=now, by=by, created_at=now, changed_at=now, made_until=now)


def restore(damaged: Damaged, definition: Definition, now: Instant, by: str = "") -> Schedule:
    """Make a schedule in place of one that cannot be read, with a version that the other one never had."""
    return replace(create(damaged.name, definition, now, by), row=damaged.row, version=damaged.row + 1)


def redefine(schedule: Schedule, definition: Definition, now: Instant, by: str | None = None) -> Schedule:
    """Apply another definition, of this API key; the same one changes nothing. The history and a pause stay."""
    if _filled(definition) == _filled(schedule.definition):
        return schedule
    after = schedule
    if definition.overlap is not schedule.definition.overlap:
        after = drop_kept(schedule, Reason.EDITED)
    live = () if definition.overlap is Overlap.ALLOW else after.live
    owner = schedule.by if by is None else by
    return _changed(replace(after, definition=definition, live=live, cursor=now, by=owner), now)


def pause(schedule: Schedule, reason: str | None, now: Instant) -> Schedule:
    if schedule.is_paused and schedule.reason == reason:
        return schedule
    return _changed(replace(schedule, is_paused=True, reason=reason), now)


def resume(schedule: Schedule, now: Instant) -> Schedule:
    """Continue with the occurrences after now; those that passed during the pause are left out."""
    if not schedule.is_paused:
        return schedule
    return _changed(replace(schedule, is_paused=False, reason=None, cursor=now), now)


def reserve(schedule: Schedule, until: Instant) -> Schedule:
    """Note that the occurrences before an instant may have jobs, because a backfill makes them."""
    return schedule if schedule.made_until >= until else replace(schedule, made_until=until)


def patched_timing(before: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a timing after a PATCH: a cron takes the place of an interval, and the other way round."""
    cleared: tuple[str, ...] = ()
    if given.get("every") is not None and given.get("cron") is None:
        cleared = _OF_CRON
    elif given.get("cron") is not None and given.get("every") is None:
        cleared = _OF_INTERVAL
    return {**before, **dict.fromkeys(cleared), **given}


def patched_job(before: bytes, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the submission of a schedule after a PATCH: null resets a field, and `retry` is merged."""
    job: dict[str, Any] = orjson.loads(before)
    retry = given.get("retry")
    merged = {"retry": {**(job.get("retry") or {}), **retry}} if isinstance(retry, dict) else {}
    return {**job, **given, **merged}


def job_text(job: Mapping[str, Any]) -> bytes:
    """Return a submission as JSON text, the same for submissions that differ only in spelt-out defaults."""
    given = {name: value for name, value in job.items() if value is not None and value != _DEFAULTS.get(name)}
    retry = given.get("retry")
    if retry is not None:
        given["retry"] = {name: value for name, value in retry.items() if value is not None}
        if not given["retry"]:
            del given["retry"]
    return orjson.dumps(given, option=orjson.OPT_SORT_KEYS)


def _filled(definition: Definition) -> Definition:
    return replace(definition, timing=definition.timing.fill())


def _changed(schedule: Schedule, now: Instant) -> Schedule:
    return replace(schedule, changed_at=now, version=schedule.version + 1)
