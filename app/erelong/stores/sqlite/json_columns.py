"""The JSON texts in a row of the embedded database: written, read, and known for what they are where they cannot be."""

from __future__ import annotations

from functools import lru_cache
from sys import intern
from typing import Any, NamedTuple

import orjson

from erelong.model.history import NO_ATTEMPTS
from erelong.model.job import NO_LEASES
from erelong.model.retry import read_policy
from erelong.model.spec import Asked

MANY_ALIKE = 4_096  # how many different `Asked` are remembered, of some 600 bytes each

# Stands in for what cannot be read and would change what is run. Clients see an empty object; nothing else writes it
# so, and a claim knows it again: a change saved on top cannot make the job look sound.
LOST = b" {}"
STAND_INS: dict[str, bytes | None] = {
    "params": LOST,
    "labels": LOST,
    "result": None,
    "error": None,
    "attempts": NO_ATTEMPTS,
    "ended_leases": NO_LEASES,
}


class Past(NamedTuple):
    """What few jobs have, as one text; of one that has neither that nor an error or attempts there is none."""

    failures: int
    losses: int
    cancel_requested: bool
    result_truncated: bool
    lease: str | None
    lease_until: int | None
    ended_leases: bytes


NO_PAST = Past(0, 0, False, False, None, None, NO_LEASES)
_LOST_PAST = NO_PAST._replace(ended_leases=LOST)
_NULL = type(None)
_PAST_TYPES = [[int, int, bool, bool, *lease] for lease in ((_NULL, _NULL), (str, int))]


@lru_cache(maxsize=MANY_ALIKE)
def read_asked(text: bytes) -> Asked | None:
    """What jobs that are alike have in common, made once for all of them; None if it cannot be read."""
    try:
        kind, queue, priority, timeout, retry, expires_after = orjson.loads(text)
        policy = orjson.dumps(retry)
        read_policy(policy)
        asked = Asked(intern(kind), intern(queue), priority, timeout, policy, expires_after)
    except (ValueError, TypeError):
        return None
    is_sound = isinstance(priority, int) and isinstance(timeout, float) and isinstance(expires_after, float | None)
    return asked if is_sound else None


@lru_cache(maxsize=MANY_ALIKE)
def write_asked(asked: tuple[Any, ...]) -> bytes:
    kind, queue, priority, timeout, retry, expires_after = asked
    policy = None if retry == LOST else orjson.Fragment(retry)
    lasting = None if expires_after is None else float(expires_after)
    return orjson.dumps([kind, queue, priority, float(timeout), policy, lasting])


def read_past(text: bytes) -> Past:
    try:
        *others, ended_leases = orjson.loads(text)
    except (ValueError, TypeError):
        return _LOST_PAST
    is_sound = [*map(type, others)] in _PAST_TYPES
    return Past._make((*others, orjson.dumps(ended_leases))) if is_sound else _LOST_PAST


def write_past(past: tuple[Any, ...]) -> bytes:
    *others, ended_leases = past
    return orjson.dumps([*others, orjson.Fragment(ended_leases)])


def sound_labels(labels: bytes | None) -> bytes | None:
    return labels if labels is None or is_readable("labels", labels) else None


def read_labels(labels: bytes | None) -> dict[str, str]:
    return orjson.loads(labels) if labels and is_readable("labels", labels) else {}


def is_readable(field: str, text: bytes | None) -> bool:
    """Whether the text of a field is what is written there."""
    if text is None:
        return True
    if text == LOST:
        return False
    try:
        value = orjson.loads(text)
    except ValueError:
        return False
    match field:
        case "labels":
            return isinstance(value, dict)
        case "error":
            return isinstance(value, dict) and "type" in value
        case "attempts":
            return isinstance(value, list) and all(isinstance(attempt, dict) for attempt in value)
        case "ended_leases":
            return isinstance(value, list) and all(isinstance(lease, list) and len(lease) == 2 for lease in value)
        case _:
            return True
