"""The phase of the service: the single stop state, which every part checks."""

from __future__ import annotations

from enum import Enum, auto

from erelong.errors import Draining


class Phase(Enum):
    """The current phase of the service."""

    STARTING = auto()
    RUNNING = auto()
    DRAINING = auto()
    STOPPED = auto()


class Lifecycle:
    """Goes from starting to stopped, never back. `is_draining` stays true after the drain.

    A service that hands over takes new jobs until the end of the drain: no other one takes them yet, and the next one
    will run them.
    """

    def __init__(self, *, hands_over: bool = False) -> None:
        self.phase = Phase.STARTING
        self.is_draining = False
        self.hands_over = hands_over

    def started(self) -> None:
        self.phase = Phase.RUNNING

    def drain(self) -> None:
        """Refuse new work and start no more attempts."""
        self.is_draining = True
        if self.phase is not Phase.STOPPED:
            self.phase = Phase.DRAINING

    def stopped(self) -> None:
        self.is_draining = True
        self.phase = Phase.STOPPED

    def refuse_work(self) -> None:
        """Raise `Draining` if the service is stopping and takes no new jobs."""
        if not (self.hands_over and self.phase is Phase.DRAINING):
            self.refuse("takes no new work")

    def refuse(self, what: str) -> None:
        """Raise `Draining` if the service is stopping."""
        if self.is_draining:
            raise Draining(f"the service is stopping and {what}")
