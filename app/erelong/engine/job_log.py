"""What the log says of attempts and jobs that end: nothing of a success, unless asked for by the level debug."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import orjson

from erelong.clock.instants import format_instant
from erelong.model.job import State
from erelong.model.outcome import End
from erelong.telemetry.log import get_logger

if TYPE_CHECKING:
    from erelong.model.job import Job
    from erelong.model.outcome import Outcome

MAX_SHOWN: Final = 300  # characters of what a handler raised; the job has it whole
FAILURES: Final = frozenset({End.ERROR, End.TIMEOUT, End.CRASHED, End.LOST})

log = get_logger("erelong.jobs")


def fields_of(job: Job) -> dict[str, Any]:
    """What names an attempt in the log, of its job while it runs."""
    return {"job": job.id, "kind": job.kind, "queue": job.queue, "attempt": job.attempt}


def names_of(job: Job) -> dict[str, Any]:
    """What names a job in the log whose work was not done: also the names that its client gave it."""
    names = fields_of(job)
    if job.key is not None:
        names["key"] = job.key
    if job.labels is not None:
        names["labels"] = orjson.loads(job.labels)
    return names


def report_end(running: Job, outcome: Outcome, after: Job) -> None:
    """Say how an attempt ended, and what becomes of its job."""
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
    """Say whose key a newer job has taken."""
    if log.has_debug:
        log.debug("job_superseded", **fields_of(running), key=newer.key, by=newer.id)


def report_loss(after: Job) -> None:
    """Say that an attempt was lost with the process in which it ran, and if that was once too often for its job."""
    log.warning("attempt_lost", **fields_of(after), state=after.state.word)
    if after.state is State.FAILED:
        log.warning("job_failed", **names_of(after), outcome=End.LOST, **_error_of(after))


def report_expiry(after: Job) -> None:
    """Say that a job has expired, and what its attempts came to if it had any."""
    log.warning("job_expired", **names_of(after), **_error_of(after))


def report_drop(after: Job) -> None:
    """Say that a waiting job was cancelled to make room for others."""
    log.warning("job_dropped", **names_of(after), **_error_of(after))


def _error_of(job: Job) -> dict[str, Any]:
    error = orjson.loads(job.error or b"{}")
    return {"error": error.get("type", ""), "message": error.get("message", "")[:MAX_SHOWN]}
