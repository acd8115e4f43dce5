"""Says once that a service cannot be reached, so that a program that waits for it does not seem to hang."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from erelong.client.requests import Cut

SILENCE: Final = 1.0  # seconds without a connection, of which nothing is said


class Outage:
    """The time during which no try of any request reaches the service."""

    def __init__(self) -> None:
        self._began_at: float | None = None
        self._is_told = False

    def is_news(self, cut: Cut, now: float) -> bool:
        """Note a failed try; return True once per outage, when it has lasted for a while."""
        if cut.is_sent:
            self.end()
            return False
        if self._began_at is None:
            self._began_at = now
        is_news = now - self._began_at >= SILENCE and not self._is_told
        self._is_told |= is_news
        return is_news

    def end(self) -> None:
        """Note a try that reached the service."""
        self._began_at, self._is_told = None, False
