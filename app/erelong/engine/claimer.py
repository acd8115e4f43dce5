"""Claims due jobs that have a slot. A job that cannot be claimed frees its slot and is due again."""

from __future__ import annotations

import asyncio
from operator import itemgetter
from typing import TYPE_CHECKING

from erelong.duties.duty import SetAside, in_halves
from erelong.model.job import PLACES, Job

if TYPE_CHECKING:
    from collections.abc import Sequence

    from erelong.clock.instants import Now
    from erelong.engine.agenda import Agenda
    from erelong.engine.changes import Changes
    from erelong.lanes.lane import Slot
    from erelong.lanes.lanes import Lanes
    from erelong.stores.base import Store
    from erelong.telemetry.metrics import Metrics

STORE_PAUSE = 0.5  # seconds, in real time as all pauses after a failure

_seq_of = itemgetter(PLACES["seq"])


class Claimer:
    """Claims jobs for the dispatcher and, if they are of pull kinds, for leases."""

    def __init__(
        self, *, store: Store, rechecks: Agenda, lanes: Lanes, changes: Changes, metrics: Metrics, now: Now
    ) -> None:
        self._store = store
        self._rechecks = rechecks
        self._lanes = lanes
        self._changes = changes
        self._now = now
        self._paused: set[int] = set()
        self.aside: SetAside[int] = SetAside(name="dispatcher", metrics=metrics)
        self.refusal: str | None = None  # why the store refused the last claim

    def is_settled(self) -> bool:
        """Return whether no job waits for the store to work again. Damaged rows do not count."""
        return self._paused <= self.aside.failures.keys()

    async def claim(self, slots: dict[int, Slot], claimed: list[tuple[Job, Slot]]) -> None:
        """Claim jobs, append each claimed one with its slot to `claimed`, and empty `slots`.

        Raise if the store fails; `claimed` then has the jobs claimed before.
        """
        pauses = dict.fromkeys(slots, STORE_PAUSE)

        async def claim_some(seqs: Sequence[int]) -> None:
            claim = await self._store.claim(seqs, now=self._now())
            self.refusal = None
            if self._changes.events.types:
                self._changes.claimed(claim.jobs)
            claimed.extend(zip(claim.jobs, map(slots.pop, map(_seq_of, claim.jobs)), strict=True))
            if len(claim.jobs) < len(seqs):
                self._lanes.release_unused(*[slots.pop(seq) for seq in seqs if seq in slots])
                self._changes.not_claimed(claim)
            if self.aside.failures:
                self.aside.remove(seqs)

        try:
            for seq, error in await in_halves([*slots], claim_some):
                pauses[seq] = self.aside.add(seq, error)
        except Exception as error:
            self.refusal = str(error)
            raise
        finally:
            if slots:
                for seq in slots:
                    asyncio.get_running_loop().call_later(pauses[seq], self._try_again, seq)
                self._paused.update(slots)
                self._lanes.release_unused(*slots.values())
                slots.clear()

    def _try_again(self, seq: int) -> None:
        self._paused.discard(seq)
        self._rechecks.add(self._now(), seq)
