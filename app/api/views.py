"""What goes out: jobs and queues as JSON, in the names of the contract."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from app.clock import format_instant
from app.job import WORDS

if TYPE_CHECKING:
    from app.clock import Instant
    from app.job import Job
    from app.queues import Queue


def job_view(job: Job, waiting_for: str | None, *, is_full: bool = True) -> dict[str, Any]:
    """Stored JSON text goes out as it is."""
    view: dict[str, Any] = {
        "id": job.id,
        "state": WORDS[job.state],
        "kind": job.kind,
        "queue": job.queue,
        "params": orjson.Fragment(job.params),
        "key": job.key,
        "labels": orjson.Fragment(job.labels) if job.labels else {},
        "priority": job.priority,
        "timeout": job.timeout,
        "execute_at": format_instant(job.execute_at),
        "due_at": _instant(job.due_at),
        "expires_at": _instant(job.expires_at),
        "retry": orjson.Fragment(job.retry),
        "attempt": job.attempt,
        "cancel_requested": job.cancel_requested,
        "created_at": format_instant(job.created_at),
        "started_at": _instant(job.started_at),
        "finished_at": _instant(job.finished_at),
        "late_by": job.late_by,
        "waiting_for": waiting_for,
        "result": _json(job.result),
        "error": _json(job.error),
        "attempts": orjson.Fragment(job.attempts),
        "version": job.version,
    }
    if job.result_truncated:
        view["result_truncated"] = True
    if not is_full:
        del view["params"], view["result"], view["attempts"]
    return view


def ticket_view(job: Job, is_new: bool) -> dict[str, Any]:
    """A job of a batch, in short."""
    return {"id": job.id, "state": WORDS[job.state], "execute_at": format_instant(job.execute_at), "created": is_new}


def queue_view(queue: Queue) -> dict[str, Any]:
    return {
        "name": queue.name,
        "paused": queue.is_paused,
        "settings": queue.settings.model_dump(mode="json"),
        "counts": queue.counts,
        "oldest_due_age": queue.oldest_due_age,
        "late_p99": queue.late_p99,
    }


def _instant(instant: Instant | None) -> str | None:
    return None if instant is None else format_instant(instant)


def _json(text: bytes | None) -> orjson.Fragment | None:
    return None if text is None else orjson.Fragment(text)
