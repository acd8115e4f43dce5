"""What jobs have in common that were asked for alike."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from erelong.config import Retry


class Asked(NamedTuple):
    """What was asked for, less what is of one job alone. The retry policy is JSON text."""

    kind: str
    queue: str
    priority: int
    timeout: float
    retry: bytes
    expires_after: float | None


@lru_cache(maxsize=1024)
def read_policy(retry: bytes) -> Retry:
    """Read a stored retry policy; there are few different ones."""
    return Retry.model_validate_json(retry)
