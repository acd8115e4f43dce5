"""The extras of a job: fields that few jobs have, stored as one JSON object, and the system labels made of them.

To add an extra: a field of `Extras`, its schema in `api/views.py`, a row in `docs/jobs.md`. If a PATCH may change it,
also `PATCHED` and a field of `schemas.PatchIn`; if jobs are to be found by it, also `_LABELS`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, TypedDict, cast

import orjson

from erelong.clock.instants import format_instant
from erelong.model.times.spread import job_offset

if TYPE_CHECKING:
    from collections.abc import Mapping

    from erelong.clock.instants import Instant

SYSTEM: Final = "@"
"""The first character of a system label. Clients can neither write nor see system labels."""


class OnFinish(TypedDict):
    """The callback that the end of a job in one of `states` makes; `job` is the id of the latest."""

    url: str
    headers: dict[str, str]
    states: list[str]
    queue: str
    job: str | None


class Extras(TypedDict, total=False):
    """The extras of a job as stored. A field that the job does not have is absent, never None.

    Until its lease ends, a leased job has the name of its `worker`, and `lease_seconds` if its length is not usual.
    """

    schedule: str
    occurrence: Instant
    triggered: bool
    on_finish: OnFinish
    callback_of: str
    local_time: str
    zone: str
    spread: float
    submitted_by: str
    worker: str
    lease_seconds: float


FIELDS: Final = frozenset(Extras.__annotations__)
HIDDEN: Final = frozenset({"triggered", "lease_seconds"})
"""The extras that no view shows. A triggered job stands for no occurrence of its schedule."""
PATCHED: Final = ("on_finish", "local_time", "zone", "spread")
"""The extras that a client may set, and change with a PATCH."""

LOCAL: Final = frozenset({"local_time", "zone"})
"""The intent of a job that is due at a local time, so that newer rules can move it."""

_TIMES: Final = (*LOCAL, "spread")
_INERT: Final = frozenset({"submitted_by", "worker", "lease_seconds"})
_LABELS: Final = ("schedule", "occurrence", "zone")
ZONE_LABEL: Final = f"{SYSTEM}zone"
_NONE: Final[Extras] = {}
MAX_KEYS: Final = 1_024
USUAL_LEASE: Final = 30.0  # seconds


def read_extras(text: bytes | None) -> Extras:
    """Return the extras of a job from `Job.extras`."""
    if text is None:
        return _NONE
    extras: Extras = orjson.loads(text)
    return extras


def are_lost(text: bytes | None) -> bool:
    """Return whether a job had extras that cannot be read any more. Stores give such a job empty ones."""
    return text is not None and not read_extras(text)


def write_extras(extras: Extras) -> bytes | None:
    """Return extras as the text of `Job.extras`."""
    return orjson.dumps(extras) if extras else None


def rewritten(text: bytes | None, labels: bytes | None, extras: Extras) -> dict[str, bytes | None]:
    """Return the extras and labels of a job after a change. Where extras are lost, others would make it look sound."""
    if are_lost(text):
        return {}
    return {"extras": write_extras(extras), "labels": join_labels(labels, extras)}


@lru_cache(maxsize=MAX_KEYS)
def extras_of(caller: str) -> bytes | None:
    """Return the extras of a job that a caller submits without any other, one object for all of them."""
    return write_extras({"submitted_by": caller}) if caller else None


@lru_cache(maxsize=MAX_KEYS)
def end_plainly(text: bytes | None) -> bool:
    """Whether nothing follows from the end of a job with these extras."""
    return text is None or (bool(names := read_extras(text).keys()) and names <= _INERT)


def patched(extras: Extras, changes: Mapping[str, Any]) -> Extras:
    """Return extras after changes; None removes a field."""
    merged: dict[str, Any] = {**extras, **changes}
    return cast("Extras", {name: value for name, value in merged.items() if value is not None})


def with_lease(text: bytes | None, seconds: float | None, worker: str | None = None) -> bytes | None:
    """Return the text of extras with the length of a lease if it is not usual, and the name of its worker."""
    if are_lost(text):
        return text
    before = read_extras(text)
    lease = {"lease_seconds": None if seconds == USUAL_LEASE else seconds, "worker": worker or before.get("worker")}
    extras = patched(before, lease)
    return text if extras == before else write_extras(extras)


def lease_length(text: bytes | None) -> float:
    """Return the seconds for which a job was leased, or its lease was last extended."""
    return read_extras(text).get("lease_seconds", USUAL_LEASE)


def pop_lease(text: bytes | None) -> tuple[str | None, bytes | None]:
    """Return the name of the worker that has leased a job, and the text of the extras without its lease."""
    extras = read_extras(text)
    rest = patched(extras, {"worker": None, "lease_seconds": None})
    return extras.get("worker"), text if rest == extras else write_extras(rest)


def with_times_of(extras: Extras, others: Extras) -> Extras:
    """Return extras with the fields of another job that determine its time."""
    return patched(extras, {name: others.get(name) for name in _TIMES})


def offset_of(extras: Extras, token: str) -> int:
    """Return by how many microseconds `spread` delays the job with this token."""
    spread = extras.get("spread")
    return 0 if spread is None else job_offset(token, spread)


def label_of(name: str, value: str | Instant) -> tuple[str, str]:
    """Return the system label by which `Query.labels` finds the jobs with this extra."""
    return f"{SYSTEM}{name}", value if isinstance(value, str) else format_instant(value)


def join_labels(labels: bytes | None, extras: Extras) -> bytes | None:
    """Return the labels of a client together with the system labels of these extras, in place of any others."""
    joined = own_labels(labels) | dict(label_of(name, extras[name]) for name in _LABELS if name in extras)
    return orjson.dumps(joined) if joined else None


def own_labels(labels: bytes | None) -> dict[str, str]:
    """Return labels as clients see them, without system labels."""
    every: dict[str, str] = orjson.loads(labels) if labels else {}
    return {name: value for name, value in every.items() if not name.startswith(SYSTEM)}
