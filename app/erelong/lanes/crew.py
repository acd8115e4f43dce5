"""The interface to a bounded pool that runs claimed jobs."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable

    from erelong.lanes.lane import Slot
    from erelong.model.job import Job


class Reason(StrEnum):
    """Why an attempt is stopped."""

    TIMEOUT = "timeout"
    CANCEL = "cancel"
    DRAIN = "drain"


class Crew(Protocol):
    """Runs claimed jobs, gives each an outcome, and releases its slot."""

    @property
    def free(self) -> int:
        """Return how many more jobs it can take."""
        ...

    def start(self, claimed: Iterable[tuple[Job, Slot]]) -> None: ...

    def stop(self, seq: int, reason: Reason) -> None:
        """Stop a job as its kind allows; a job that has not started never does."""
        ...
