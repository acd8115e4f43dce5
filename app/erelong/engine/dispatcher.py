"""Due jobs on their way to a worker: taken from the lanes, claimed in the store, in line until one is free."""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING

from erelong.duties.duty import SetAside, in_halves
from erelong.engine.verdicts import Reason
from erelong.model.job import PLACES, SECOND

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from erelong.clock.instants import Instant, Now
    from erelong.engine.agenda import Agenda
    from erelong.lanes.lane import Slot
    from erelong.lanes.lanes import Lanes
    from erelong.model.job import Job
    from erelong.stores.base import Claim, Store
    from erelong.telemetry.metrics import Metrics

MAX_CLAIM = 200
STORE_PAUSE = 0.5

_seq_of, _late_by_of = itemgetter(PLACES["seq"]), itemgetter(PLACES["late_by"])
_kind_and_queue_of = itemgetter(PLACES["kind"], PLACES["queue"])


class Claims:
    """Claims as many due jobs as there is `room` for and puts them in `line`; `on_line` is called when some are there.

    `on_unwanted` hears of each that is claimed and must not begin: somebody cancelled it meanwhile, or nothing begins
    any more. `on_change` hears of every job that was stored differently.
    """

    name = "dispatcher"

    def __init__(
        self,
        *,
        store: Store,
        lanes: Lanes,
        agenda: Agenda,
        metrics: Metrics,
        now: Now,
        room: Callable[[], int],
        on_line: Callable[[], None],
        on_unwanted: Callable[[Job, Slot, Reason], None],
        on_change: Callable[[*tuple[Job, ...]], None],
    ) -> None:
        self._store = store
        self._lanes = lanes
        self._agenda = agenda
        self._metrics = metrics
        self._now = now
        self._room = room
        self._on_line = on_line
        self._on_unwanted = on_unwanted
        self._on_change = on_change
        self.line: deque[tuple[Job, Slot]] = deque()
        self._under_way: dict[int, Slot] = {}
        self._unwanted: set[int] = set()  # of those that are being claimed
        self._has_ended = False
        self._is_ready = True
        self._waiter: asyncio.Future[None] | None = None
        self._thaw: asyncio.TimerHandle | None = None
        self.aside: SetAside[int] = SetAside(name=self.name, metrics=metrics)
        lanes.on_ready = self.look

    def __len__(self) -> int:
        """How many are claimed, or about to be, and have not begun."""
        return len(self.line) + len(self._under_way)

    def look(self) -> None:
        """There may be something to take, or room for it."""
        self._is_ready = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def ready(self) -> None:
        """As an `asyncio.Event` would, which asks the system for the process in each wait: 3 µs."""
        if not self._is_ready:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter

    def end(self) -> None:
        """Let nothing begin any more; what is in line is unwanted."""
        self._has_ended = True
        self._disarm_thaw()
        while self.line:
            self._on_unwanted(*self.line.popleft(), Reason.DRAIN)

    def withdraw(self, seq: int) -> None:
        """See to it that a job does not begin that is not running yet."""
        if seq in self._under_way:
            self._unwanted.add(seq)
            return
        for entry in [entry for entry in self.line if entry[0].seq == seq]:
            self.line.remove(entry)
            self._on_unwanted(*entry, Reason.CANCEL)

    async def lap(self) -> None:
        """Claim what may start, as long as there is room."""
        self._is_ready = False
        while not self._has_ended and (limit := min(self._room(), MAX_CLAIM)) > 0:
            slots = self._lanes.take(limit)
            if not slots:
                break
            await self._claim(slots)
        self._arm_thaw()

    async def _claim(self, slots: dict[int, Slot]) -> None:
        """Claim jobs; those that could not be claimed are due again after a pause."""
        self._under_way, self._unwanted = slots, set()
        now, pauses = self._now(), dict.fromkeys(slots, STORE_PAUSE)
        try:
            failed = await in_halves(list(slots), self._claim_some)
            pauses = {seq: self.aside.add(seq, error) for seq, error in failed}
        finally:
            self._put_back({seq: now + round(pauses[seq] * SECOND) for seq in self._under_way})

    async def _claim_some(self, seqs: Sequence[int]) -> None:
        claim = await self._store.claim(seqs, now=self._now())
        slots = self._under_way
        if len(seqs) == len(slots):  # nearly always
            self._under_way = {}
        else:
            slots = {seq: self._under_way.pop(seq) for seq in seqs}
        self._take_in(claim, slots)
        self.aside.remove(seqs)

    def _put_back(self, instants: Mapping[int, Instant]) -> None:
        """Let the scheduler look again at what could not be claimed."""
        if instants:
            self._agenda.extend([(due_at, seq) for seq, due_at in instants.items()])
            self._lanes.release(*map(self._under_way.pop, instants))
            self._on_line()

    def _take_in(self, claim: Claim, slots: dict[int, Slot]) -> None:
        """Put in line what was claimed; what was not gives its slot back."""
        self.line += zip(claim.jobs, map(slots.pop, map(_seq_of, claim.jobs)), strict=True)
        if slots:
            self._lanes.release(*slots.values())
        self._note_starts(claim.jobs)
        for seq in self._unwanted:
            self.withdraw(seq)
        if self._has_ended:
            self.end()
        self._agenda.extend(claim.early)
        for job in claim.spoiled:
            self._metrics.finished.values[job.kind, job.state.word] += 1
        self._on_change(*claim.jobs, *claim.spoiled)
        self._on_line()

    def _note_starts(self, jobs: list[Job]) -> None:
        groups: defaultdict[tuple[str, str], list[Job]] = defaultdict(list)
        for kind_and_queue, alike in groupby(jobs, key=_kind_and_queue_of):
            groups[kind_and_queue] += alike
        for (kind, queue), group in groups.items():
            lates = [*map(_late_by_of, group)]
            self._metrics.started.values[kind,] += len(lates)
            self._metrics.late.note(kind, *lates)
            self._lanes.note_starts(queue, *lates)

    def _arm_thaw(self) -> None:
        """Come back when a queue's rate allows its next job; late by a millisecond, since timers may be early."""
        self._disarm_thaw()
        wait = self._lanes.token_in()
        if wait is not None and not self._has_ended:
            self._thaw = asyncio.get_running_loop().call_later(wait + 0.001, self._lanes.wake)

    def _disarm_thaw(self) -> None:
        if self._thaw is not None:
            self._thaw.cancel()
            self._thaw = None
