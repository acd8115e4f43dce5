"""The last notable events, such as a pause or a step of the clock, for people at a screen."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from erelong.clock.instants import Instant, Now

MAX_NOTES = 100
EVENTS = ("started", "clock_stepped", "paused", "resumed", "configured", "purged")


class Note(NamedTuple):
    """One event. Without a queue it concerns all."""

    at: Instant
    event: str
    queue: str | None = None
    by: str | None = None
    detail: str | None = None


class Notes:
    """A ring: code that does something notable adds to it, and others read it."""

    def __init__(self, *, now: Now) -> None:
        self._now = now
        self._notes: deque[Note] = deque(maxlen=MAX_NOTES)

    def add(self, event: str, *, queue: str | None = None, by: str | None = None, detail: str | None = None) -> None:
        self._notes.append(Note(self._now(), event, queue, by or None, detail))

    def seed(self, event: str, instants: Sequence[Instant]) -> None:
        """Put events from before this start before the others; `instants` are sorted."""
        self._notes.extendleft(Note(at, event) for at in reversed(instants))

    def latest(self) -> list[Note]:
        """Return all notes, the oldest first."""
        return [*self._notes]
