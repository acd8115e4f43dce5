"""The part of a submission that similar jobs share."""

from __future__ import annotations

from typing import Final, NamedTuple

DEFAULT_QUEUE: Final = "default"


class JobSpec(NamedTuple):
    """The submitted fields that similar jobs have in common. The retry policy is JSON text."""

    kind: str
    queue: str
    priority: int
    timeout: float
    retry: bytes
    expires_after: float | None
