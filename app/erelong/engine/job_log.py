"""Logs the ends of attempts and jobs; successes only at level debug."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import orjson

from erelong.clock.instants import format_instant
from erelong.model.extras import own_labels
from erelong.model.job import State
from erelong.model.outcome import End
from erelong.telemetry.log import get_logger

if TYPE_CHECKING:
    from erelong.model.job import Job
    from erelong.model.outcome import Outcome

MAX_SHOWN: Final = 300  # characters of an error message; the job keeps all of it
FAILURES: Final = frozenset({End.ERROR, End.TIMEOUT, End.CRASHED, End.LOST})

log = get_logger("erelong.jobs")


def fields_of(job: Job) -> dict[str, Any]:
    """Return the log fields that identify an attempt of a running job."""
    return {"job": job.id, "kind": job.kind, "queue": job.queue, "attempt": job.attempt}


def names_of(job: Job) -> dict[str, Any]:
    """Return the log fields that identify a failed job, with its key and labels."""
    names = fields_of(job)
    if job.key is not None:
        names["key"] = job.key
    if labels := own_labels(job.labels):
        names["labels"] = labels
    return names


def report_end(running: Job, outcome: Outcome, after: Job) -> None:
    """Log how an attempt ended and the new state of its job."""
    end, error = outcome.end, outcome.error
    if end not in FAILURES:
        if log.has_debug:
            log.debug("attempt_ended", **fields_of(running), outcome=end, state=after.state.word)
        return
    about: dict[str, Any] = {
        "outcome": end,
        "error": error.type if error else end,
        "message": error.message[:MAX_SHOWN] if error else "",
    }
    if after.superseded:
        about["superseded"] = True
    if after.state is State.FAILED:
        log.warning("job_failed", **names_of(running), **about)
    elif after.due_at is not None:
        log.info("attempt_failed", **fields_of(running), **about, next_at=format_instant(after.due_at))
    else:
        log.info("attempt_failed", **fields_of(running), **about, state=after.state.word)


def report_superseded(running: Job, newer: Job) -> None:
    """Log that a newer job has taken the key of a running one."""
    if log.has_debug:
        log.debug("job_superseded", **fields_of(running), key=newer.key, by=newer.id)


def report_loss(after: Job) -> None:
    """Log an attempt that was lost with its process, and its job if that has failed."""
    log.warning("attempt_lost", **fields_of(after), state=after.state.word)
    if after.state is State.FAILED:
        log.warning("job_failed", **names_of(after), outcome=End.LOST, **_error_of(after))


def report_expiry(after: Job) -> None:
    """Log that a job has expired, with its last error."""
    log.warning("job_expired", **names_of(after), **_error_of(after))


def report_drop(after: Job) -> None:
    """Log that a waiting job was cancelled to make room for others."""
    log.warning("job_dropped", **names_of(after), **_error_of(after))


def _error_of(job: Job) -> dict[str, Any]:
    error = orjson.loads(job.error or b"{}")
    return {"error": error.get("type", ""), "message": error.get("message", "")[:MAX_SHOWN]}
