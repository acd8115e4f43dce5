"""The ended leases of a job, as JSON text: the last twenty tokens, each with the answer that ended the lease."""

from __future__ import annotations

import orjson

MAX_ENDED_LEASES = 20
NO_LEASES = b"[]"


def read_ended_leases(ended_leases: bytes) -> list[list[str]]:
    """Return pairs of a token and the answer that ended its lease, latest last."""
    ended: list[list[str]] = orjson.loads(ended_leases) if ended_leases != NO_LEASES else []
    return ended


def with_ended_lease(ended_leases: bytes, token: str, answer: str) -> bytes:
    return orjson.dumps([*read_ended_leases(ended_leases), [token, answer]][-MAX_ENDED_LEASES:])
