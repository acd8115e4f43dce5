"""Who runs jobs that have been claimed: a bounded number of them, until told to stop."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable

    from erelong.lanes.lane import Slot
    from erelong.model.job import Job


class Reason(StrEnum):
    """Why an attempt is told to stop."""

    TIMEOUT = "timeout"
    CANCEL = "cancel"
    DRAIN = "drain"


class Crew(Protocol):
    """Takes claimed jobs with their slots and sees to it that each comes to an outcome and gives its slot back."""

    @property
    def free(self) -> int:
        """How many more jobs it can take."""
        ...

    def start(self, claimed: Iterable[tuple[Job, Slot]]) -> None: ...

    def stop(self, seq: int, reason: Reason) -> None:
        """Stop a job as its kind allows; one that has not begun never begins."""
        ...
