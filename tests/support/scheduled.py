"""Builders of schedules."""

from __future__ import annotations

from typing import Any

from erelong.clock.instants import SECOND, Instant
from erelong.model.schedules.edits import job_text
from erelong.model.schedules.schedule import Definition, Schedule
from erelong.model.times.timing import Timing
from tests.support.virtual import EPOCH

MINUTE = 60 * SECOND


def make_definition(*, timing: Timing | None = None, job: dict[str, Any] | None = None, **fields: Any) -> Definition:
    """Return the definition of a schedule that is due every minute."""
    return Definition(timing=timing or Timing(every=60.0), job=job_text(job or {"kind": "echo"}), **fields)


def make_schedule(
    *,
    cursor: Instant = EPOCH,
    definition: Definition | None = None,
    progress: dict[str, Any] | None = None,
    **fields: Any,
) -> Schedule:
    """Return a schedule, created at `EPOCH`; `fields` are those of its definition."""
    return Schedule(
        name="report",
        definition=definition or make_definition(**fields),
        cursor=cursor,
        created_at=EPOCH,
        changed_at=EPOCH,
        **(progress or {}),
    )
