"""Where the service is in its life: the one state that everything that stops goes by."""

from __future__ import annotations

from enum import Enum, auto

from erelong.errors import Draining


class Phase(Enum):
    """What the service does just now."""

    STARTING = auto()
    RUNNING = auto()
    DRAINING = auto()
    STOPPED = auto()


class Lifecycle:
    """Goes from starting to stopped, never back. `is_draining` holds from the drain on, also when it is over."""

    def __init__(self) -> None:
        self.phase = Phase.STARTING
        self.is_draining = False

    def started(self) -> None:
        self.phase = Phase.RUNNING

    def drain(self) -> None:
        """Take no new work and start nothing more."""
        self.is_draining = True
        if self.phase is not Phase.STOPPED:
            self.phase = Phase.DRAINING

    def stopped(self) -> None:
        self.is_draining = True
        self.phase = Phase.STOPPED

    def refuse_work(self, what: str = "takes no new work") -> None:
        """Raise `Draining` if the service is stopping."""
        if self.is_draining:
            raise Draining(f"the service is stopping and {what}")
