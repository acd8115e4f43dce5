"""Whether this node leads: it waits for its term, serves what needs the leader, and resigns."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from erelong.duties.lifecycle import Phase

if TYPE_CHECKING:
    from erelong.duties.lifecycle import Lifecycle
    from erelong.duties.waiters import Waiters
    from erelong.stores.base import SharedStore

PAUSE = 0.05
"""Seconds within which held requests learn that another node leads."""
FRESH_LOOKS = 2
"""Of this many reads, at least one began after the first was counted."""


class Leadership:
    """Leads while the term of the store is its own and the engine has loaded its state."""

    def __init__(self, *, store: SharedStore, lifecycle: Lifecycle, waiters: Waiters) -> None:
        self._store = store
        self._lifecycle = lifecycle
        self._waiters = waiters

    @property
    def is_standby(self) -> bool:
        """Whether the term is that of another node, or of none."""
        return self._store.standby() is not None

    def refusal(self) -> str | None:
        """Return why this node cannot serve what needs the leader, or None if it can."""
        reason = self._store.standby()
        if reason is None and self._lifecycle.phase is Phase.STARTING:
            return "this node is taking over"
        return reason

    @property
    def looks(self) -> int:
        """How many times this node has read who leads."""
        return self._store.looks

    def is_open(self, since: int) -> bool:
        """Return whether this node may lead soon: no other one leads, or none has been seen since `looks` was `since`.

        The read that found a leader may have begun before that one resigned.
        """
        is_fresh = self._store.looks >= since + FRESH_LOOKS
        return not self._lifecycle.is_draining and (self._store.is_vacant or not is_fresh)

    async def wait(self) -> None:
        """Wait until the term of the store is that of this node."""
        term = asyncio.ensure_future(self._store.lead())
        try:
            while not (await asyncio.wait((term,), timeout=PAUSE))[0]:
                if not self._store.is_vacant:
                    self.release()
            await term
        finally:
            term.cancel()

    def release(self) -> None:
        """Let held requests check again whether this node leads."""
        self._waiters.leaders.wake_all()

    async def resign(self) -> None:
        """Let another node lead. The store can still be read."""
        await self._store.resign()
