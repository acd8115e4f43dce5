"""The offsets by which `spread` delays jobs: each is fixed by a name or an id, so intervals stay exact."""

from __future__ import annotations

from hashlib import sha256
from typing import Final

from erelong.clock.instants import SECOND

MAX_SPREAD: Final = 24 * 3600.0
_DIGITS: Final = 16
_SHARES: Final = 1 << 64


def schedule_offset(name: str, spread: float) -> int:
    """Return the offset of all jobs of a schedule in microseconds, less than `spread` seconds, from its name."""
    return _offset(int.from_bytes(sha256(name.encode()).digest()[:8], "big"), spread)


def job_offset(job_id: str, spread: float) -> int:
    """Return the offset of a job in microseconds, less than `spread` seconds, from the random digits of its id."""
    return _offset(int(job_id[-_DIGITS:], 16), spread)


def _offset(number: int, spread: float) -> int:
    return round(spread * SECOND) * number // _SHARES
