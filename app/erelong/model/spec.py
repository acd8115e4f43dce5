"""What jobs have in common that were asked for alike."""

from __future__ import annotations

from typing import NamedTuple


class JobSpec(NamedTuple):
    """What was asked for, less what is of one job alone. The retry policy is JSON text."""

    kind: str
    queue: str
    priority: int
    timeout: float
    retry: bytes
    expires_after: float | None
