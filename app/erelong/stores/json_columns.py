"""The JSON columns of the embedded database, and stand-ins for unreadable ones."""

from __future__ import annotations

from functools import lru_cache
from sys import intern
from typing import Any, NamedTuple

import orjson

from erelong.model.ended_leases import NO_LEASES
from erelong.model.history import NO_ATTEMPTS
from erelong.model.json_text import trimmed
from erelong.model.retry import read_policy
from erelong.model.spec import JobSpec
from erelong.stores.base import Pause

MAX_SPECS = 4_096  # how many different `JobSpec` are cached, of some 600 bytes each

# Replaces an unreadable text that affects how the job runs. Clients see an empty object. No other code writes this
# text, so a claim recognizes it: a later change cannot make the job look sound.
LOST = b" {}"
STAND_INS: dict[str, bytes | None] = {
    "params": LOST,
    "labels": LOST,
    "extras": LOST,
    "result": None,
    "error": None,
    "attempts": NO_ATTEMPTS,
    "ended_leases": NO_LEASES,
}


class Progress(NamedTuple):
    """The progress of a job since it was new; stored as one text of the fields that differ."""

    failures: int
    losses: int
    cancel_requested: bool
    superseded: bool
    result_truncated: bool
    lease: str | None
    lease_until: int | None
    ended_leases: bytes


NO_PROGRESS = Progress(0, 0, False, False, False, None, None, NO_LEASES)
_LOST_PROGRESS = NO_PROGRESS._replace(ended_leases=LOST)
_NULL = type(None)
_INITIAL = [*NO_PROGRESS._replace(ended_leases=orjson.loads(NO_LEASES))._asdict().items()]
_PROGRESS_TYPES = [[int, int, bool, bool, bool, *lease] for lease in ((_NULL, _NULL), (str, int))]


@lru_cache(maxsize=MAX_SPECS)
def read_spec(text: bytes) -> JobSpec | None:
    """Return the spec, one object for all jobs that share it; None if it cannot be read."""
    try:
        spec = orjson.loads(text)
        kind, queue, priority = spec["kind"], spec["queue"], spec.get("priority", 0)
        timeout, expires_after = spec["timeout"], spec.get("expires_after")
        policy = trimmed(orjson.dumps(spec["retry"]))
        read_policy(policy)
        job_spec = JobSpec(intern(kind), intern(queue), priority, timeout, policy, expires_after)
    except (ValueError, TypeError, KeyError):
        return None
    is_sound = isinstance(priority, int) and isinstance(timeout, float) and isinstance(expires_after, float | None)
    return job_spec if is_sound else None


@lru_cache(maxsize=MAX_SPECS)
def write_spec(spec: tuple[Any, ...]) -> bytes:
    kind, queue, priority, timeout, retry, expires_after = spec
    policy = None if retry == LOST else orjson.Fragment(retry)
    fields = {"kind": kind, "queue": queue, "timeout": float(timeout), "retry": policy}
    if priority:
        fields["priority"] = priority
    if expires_after is not None:
        fields["expires_after"] = float(expires_after)
    return trimmed(orjson.dumps(fields))


def read_progress(text: bytes) -> Progress:
    try:
        stored = orjson.loads(text)
        *others, ended_leases = [stored.get(name, initial) for name, initial in _INITIAL]
    except (ValueError, AttributeError):
        return _LOST_PROGRESS
    if [*map(type, others)] not in _PROGRESS_TYPES:
        return _LOST_PROGRESS
    return Progress._make((*others, orjson.dumps(ended_leases)))


def write_progress(progress: tuple[Any, ...]) -> bytes:
    different = {
        name: value
        for name, value, initial in zip(Progress._fields, progress, NO_PROGRESS, strict=True)
        if value != initial
    }
    if "ended_leases" in different:
        different["ended_leases"] = orjson.Fragment(different["ended_leases"])
    return orjson.dumps(different)


def sound_labels(labels: bytes | None) -> bytes | None:
    return labels if labels is None or is_readable("labels", labels) else None


def read_labels(labels: bytes | None) -> dict[str, str]:
    """Return stored labels; none if they cannot be read."""
    try:
        value = orjson.loads(labels or b"{}")
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def is_readable(field: str, text: bytes | None) -> bool:
    """Return whether a stored text has the form that this field is written in."""
    if text is None:
        return True
    if text == LOST:
        return False
    try:
        value = orjson.loads(text)
    except ValueError:
        return False
    match field:
        case "labels" | "extras":
            return isinstance(value, dict)
        case "error":
            return isinstance(value, dict) and "type" in value
        case "attempts":
            return isinstance(value, list) and all(isinstance(attempt, dict) for attempt in value)
        case "ended_leases":
            return isinstance(value, list) and all(isinstance(lease, list) and len(lease) == 2 for lease in value)
        case _:
            return True


def write_pause(pause: Pause | None) -> bytes | None:
    return None if pause is None else orjson.dumps(pause._asdict())


def read_pause(text: bytes | None) -> Pause | None:
    """Read a pause; an unreadable one still pauses the queue."""
    if text is None:
        return None
    try:
        pause = orjson.loads(text)
        at, by, reason = int(pause["at"]), pause.get("by"), pause.get("reason")
    except (ValueError, TypeError, KeyError, AttributeError):
        return Pause(0)
    return Pause(at, by, reason)
