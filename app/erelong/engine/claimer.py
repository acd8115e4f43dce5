"""Claims due jobs that have a slot. A job that cannot be claimed frees its slot and is due again."""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING

from erelong.clock.instants import SECOND
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

STORE_PAUSE = 0.5

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
        self.aside: SetAside[int] = SetAside(name="dispatcher", metrics=metrics)

    async def claim(self, slots: dict[int, Slot], claimed: list[tuple[Job, Slot]]) -> None:
        """Claim jobs, append each claimed one with its slot to `claimed`, and empty `slots`.

        Raise if the store fails; `claimed` then has the jobs claimed before.
        """
        now, pauses = self._now(), dict.fromkeys(slots, STORE_PAUSE)

        async def claim_some(seqs: Sequence[int]) -> None:
            claim = await self._store.claim(seqs, now=self._now())
            claimed.extend(zip(claim.jobs, map(slots.pop, map(_seq_of, claim.jobs)), strict=True))
            if len(claim.jobs) < len(seqs):
                self._lanes.release(*[slots.pop(seq) for seq in seqs if seq in slots])
                self._changes.not_claimed(claim)
            if self.aside.failures:
                self.aside.remove(seqs)

        try:
            for seq, error in await in_halves([*slots], claim_some):
                pauses[seq] = self.aside.add(seq, error)
        finally:
            if slots:
                self._rechecks.extend([(now + round(pauses[seq] * SECOND), seq) for seq in slots])
                self._lanes.release(*slots.values())
                slots.clear()
