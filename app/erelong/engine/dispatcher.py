"""Takes due jobs from the lanes, claims them in the store and hands them to the crew."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from operator import itemgetter
from typing import TYPE_CHECKING

from erelong.lanes.crew import Reason

if TYPE_CHECKING:
    from erelong.clock.system import Clock
    from erelong.clock.timer import Alarm
    from erelong.duties.lifecycle import Lifecycle
    from erelong.duties.signal import Signal
    from erelong.engine.changes import Changes
    from erelong.engine.claimer import Claimer
    from erelong.engine.completer import Completer
    from erelong.lanes.crew import Crew
    from erelong.lanes.lane import Slot
    from erelong.lanes.lanes import Lanes
    from erelong.model.job import Job

MAX_CLAIM = 200
_job_of = itemgetter(0)


class Dispatcher:
    """Claims as many due jobs as the crew can take. `ready` is set when there may be a job to take, or room for one."""

    name = "dispatcher"

    def __init__(
        self,
        *,
        lanes: Lanes,
        claimer: Claimer,
        crew: Crew,
        completer: Completer,
        changes: Changes,
        ready: Signal,
        lifecycle: Lifecycle,
        clock: Clock,
    ) -> None:
        self._lanes = lanes
        self._claimer = claimer
        self._crew = crew
        self._completer = completer
        self._changes = changes
        self._lifecycle = lifecycle
        self._clock = clock
        self._ready = ready
        self.ready = ready.wait
        self.under_way: set[int] = set()  # jobs being claimed
        self._unwanted: set[int] = set()  # cancelled while being claimed
        self._is_idle = asyncio.Event()
        self._is_idle.set()
        self._refill: Alarm | None = None

    async def lap(self) -> None:
        """Claim the jobs that may start, while there is room."""
        taken = wanted = 0
        while taken == wanted and not self._lifecycle.is_draining and (room := self.room) > 0:
            wanted = min(room, MAX_CLAIM)
            slots = self._lanes.take(wanted)
            taken = len(slots)
            if slots:
                await self._claim(slots)
        if self._refill is not None or self._lanes.rated:
            self.arm_refill()

    def arm_refill(self) -> None:
        """Wake when the rate limit of a queue allows its next job, here or for a lease request."""
        self.close()
        self._refill = None
        wait = self._lanes.token_in()
        if wait is not None and not self._lifecycle.is_draining:
            self._refill = self._clock.call_later(wait, self._lanes.wake)

    def is_settled(self) -> bool:
        return not self._ready.is_set

    @property
    def room(self) -> int:
        """Return how many jobs may be claimed: none while too many outcomes are unsaved."""
        return 0 if self._completer.is_full else self._crew.free

    def cancel(self, seq: int) -> None:
        """Stop a job, or keep it from starting."""
        if seq in self.under_way:
            self._unwanted.add(seq)
        else:
            self._crew.stop(seq, Reason.CANCEL)

    async def idle(self, within: float) -> None:
        """Wait until no claim is under way."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within):
                await self._is_idle.wait()

    def close(self) -> None:
        if self._refill is not None:
            self._refill.cancel()

    async def _claim(self, slots: dict[int, Slot]) -> None:
        claimed: list[tuple[Job, Slot]] = []
        self.under_way = set(slots)
        self._is_idle.clear()
        try:
            await self._claimer.claim(slots, claimed)
        finally:
            self.under_way.clear()
            if claimed:
                self._changes.started([*map(_job_of, claimed)])
                self._crew.start(claimed)
            for seq in self._unwanted:
                self._crew.stop(seq, Reason.CANCEL)
            for job, _ in claimed if self._lifecycle.is_draining else ():
                self._crew.stop(job.seq, Reason.DRAIN)
            self._unwanted.clear()
            self._is_idle.set()
