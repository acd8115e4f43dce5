"""Conflict policy: decides between a new job and the live job that holds its key."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, assert_never

from erelong.model.extras import read_extras, with_times_of
from erelong.model.job import Job, State

if TYPE_CHECKING:
    from erelong.clock.instants import Instant


class OnConflict(StrEnum):
    """The policy of a submit whose key a live job already holds."""

    REJECT = "reject"
    KEEP = "keep"
    REPLACE = "replace"
    RESCHEDULE = "reschedule"


def adds_job(holder: Job | None, on_conflict: OnConflict) -> bool:
    """Return whether the incoming job becomes a job of its own, rather than changing the holder or being rejected."""
    takes_over = on_conflict in (OnConflict.REPLACE, OnConflict.RESCHEDULE)
    return holder is None or (takes_over and holder.state is State.RUNNING)


def settle(holder: Job, incoming: Job, on_conflict: OnConflict, now: Instant) -> Job | None:
    """Return the holder of the key as the incoming job leaves it, or None if the incoming job is rejected.

    A superseded holder has lost the key, and the incoming job is added.
    """
    match on_conflict:
        case OnConflict.KEEP:
            return holder
        case OnConflict.REJECT:
            return None
        case OnConflict.REPLACE | OnConflict.RESCHEDULE if holder.state is not State.SCHEDULED:
            return holder.supersede()
        case OnConflict.RESCHEDULE:
            return _timed_like(holder, incoming).move(incoming.execute_at, now)
        case OnConflict.REPLACE:
            job = incoming._replace(
                seq=holder.seq,
                token=holder.token,
                created_at=holder.created_at,
                attempts=holder.attempts,
                ended_leases=holder.ended_leases,
                version=holder.version + 1,
            )
            if job.extras is not None:  # its spread depends on the token
                job = job.move(job.execute_at, now)._replace(version=job.version)
            return job
        case _:
            assert_never(on_conflict)


def _timed_like(holder: Job, incoming: Job) -> Job:
    extras = read_extras(holder.extras)
    timed = with_times_of(extras, read_extras(incoming.extras))
    return holder if timed == extras else holder.with_extras(timed)
