"""Callbacks: the http job that reports the end of a job with `on_finish`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import orjson

from erelong.model.extras import are_lost, own_labels, read_extras, write_extras
from erelong.model.job import WORDS, Job, State
from erelong.model.reports.job_view import job_view
from erelong.model.submission import make_job

if TYPE_CHECKING:
    from collections.abc import Mapping

    from erelong.clock.instants import Instant
    from erelong.model.extras import OnFinish

KIND: Final = "http"
QUEUE: Final = "callbacks"
FINAL_WORDS: Final = tuple(state.word for state in State if state.is_final)
MAX_RESULT: Final = 16_384  # bytes; receivers of larger results read the job


def make_on_finish(given: Mapping[str, Any], before: OnFinish | None) -> OnFinish:
    """Return `on_finish` as it is stored, with defaults for the fields not given, and the latest callback so far."""
    return {
        "url": given["url"],
        "headers": given.get("headers") or {},
        "states": [word for word in FINAL_WORDS if word in (given.get("states") or FINAL_WORDS)],
        "queue": given.get("queue") or QUEUE,
        "job": before["job"] if before else None,
    }


def is_unreadable(job: Job) -> bool:
    """Return whether the stored `on_finish` of a job cannot be read, or may have been lost with all its extras."""
    if job.extras is None:
        return False
    on_finish: Any = read_extras(job.extras).get("on_finish")
    if on_finish is None:
        return are_lost(job.extras)
    types = {"url": str, "headers": dict, "states": list, "queue": str, "job": str | None}
    return not isinstance(on_finish, dict) or not all(
        name in on_finish and isinstance(on_finish[name], type) for name, type in types.items()
    )


def on_finish_of(job: Job) -> OnFinish | None:
    """Return the readable `on_finish` of a job that has ended in one of its states."""
    if job.extras is None or not job.is_final or is_unreadable(job):
        return None
    on_finish = read_extras(job.extras).get("on_finish")
    return on_finish if on_finish is not None and job.state.word in on_finish["states"] else None


def make_callback(job: Job, queue: str, *, timeout: float, retry: bytes, token: str, now: Instant) -> Job:
    """Return the callback of a job that has ended. It has no params until `linked` writes them."""
    labels = own_labels(job.labels)
    return make_job(
        kind=KIND,
        queue=queue,
        now=now,
        execute_at=now,
        timeout=timeout,
        retry=retry,
        token=token,
        labels=orjson.dumps(labels) if labels else None,
        extras={"callback_of": job.id},
    )


def linked(job: Job, added: Job) -> tuple[Job, Job]:
    """Return a job that has ended and its callback, each with the id of the other.

    The callback has its number. Any other job that is added with this one stays as it is, and so does this one.
    """
    extras = read_extras(job.extras)
    if "on_finish" not in extras or read_extras(added.extras).get("callback_of") != job.id:
        return job, added
    extras["on_finish"] = {**extras["on_finish"], "job": added.id}
    job = job._replace(extras=write_extras(extras))
    on_finish = extras["on_finish"]
    params: dict[str, Any] = {"url": on_finish["url"], "json": _report(job)}
    if on_finish["headers"]:
        params["headers"] = on_finish["headers"]
    return job, added._replace(params=orjson.dumps(params))


def _report(job: Job) -> dict[str, Any]:
    view = job_view(job, None)
    del view["params"], view["attempts"]
    if len(job.result or b"") > MAX_RESULT:
        del view["result"]
        view["result_omitted"] = True
    return {"type": f"job.{WORDS[job.state]}", "time": view["finished_at"], "job": view}
