"""Due jobs of all queues: who may start now, in which order, and why the others may not."""

from __future__ import annotations

from collections import defaultdict, deque
from heapq import heapify, heappop, heappush
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING

from erelong.lanes.lane import INSIDE, Lane, Slot
from erelong.model.job import SECOND
from erelong.model.runs import counted
from erelong.settings.queues import layered

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from erelong.clock.instants import Instant, Tick
    from erelong.duties.signal import Signal
    from erelong.handlers.kinds import Kinds
    from erelong.lanes.lane import Spill
    from erelong.lanes.pollers import Pollers
    from erelong.model.job import Job
    from erelong.model.spec import JobSpec
    from erelong.settings.queues import QueueSettings
    from erelong.stores.base import Peek

_spec_of = attrgetter("spec")
STRICT = 1 << 53  # more than any instant: without aging a point of priority outweighs all waiting


class Lanes:
    """All queues. A job ranks by its time, lifted by its priority: a point is worth `aging` seconds of waiting,
    so ranks never change while jobs wait. `ready` is set when a job may start here, and a poller is woken when one of a
    pull kind may. `low` is set when a lane can take in jobs that it had no room for.
    """

    def __init__(
        self,
        *,
        config: Mapping[str, QueueSettings],
        aging: float,
        kinds: Kinds,
        pollers: Pollers,
        ready: Signal,
        low: Signal,
        tick: Tick,
    ) -> None:
        self._plain = layered(None, None)
        self._config = config
        self._given = {queue: layered(settings, None) for queue, settings in config.items()}
        self._lift = max(1, round(aging * SECOND)) if aging else STRICT
        self._tick = tick
        self._kinds = kinds
        self._pollers = pollers
        self._is_ready = ready
        self._low = low
        self._lanes: dict[str, Lane] = {}
        self._ready: deque[Lane] = deque()
        self.rated: set[Lane] = set()
        self._lent: dict[str, dict[str, Lane]] = {}  # lanes with due jobs of each pull kind, by queue

    # settings

    def settings(self, queue: str) -> QueueSettings:
        """What holds for a queue; all that nobody has set anything for share one object."""
        lane = self._lanes.get(queue)
        return lane.settings if lane is not None else self._given.get(queue, self._plain)

    def is_paused(self, queue: str) -> bool:
        lane = self._lanes.get(queue)
        return lane is not None and lane.is_paused

    def configure(self, queue: str, override: QueueSettings | None) -> list[int]:
        """Set or drop what overrides the configuration; the jobs that must be put again come back."""
        lane = self._lane(queue)
        before = lane.settings
        if override is None:
            lane.settings = self._given.get(queue, self._plain)
        else:
            lane.settings = layered(self._config.get(queue), override)
        self._note_rate(lane)
        displaced = []
        if before.label_concurrency != lane.settings.label_concurrency:
            displaced = lane.seqs()
            for seq in displaced:
                lane.discard(seq)
        if lane.is_low:
            self._low.set()
        self._list(lane)
        return displaced

    def pause(self, queue: str, is_paused: bool) -> None:
        lane = self._lane(queue)
        lane.is_paused = is_paused
        lane.is_dry = False
        self._list(lane)

    # due jobs

    def put(self, *jobs: Peek) -> None:
        """Take in due jobs; one that is there already only changes its rank."""
        groups: defaultdict[JobSpec, list[Peek]] = defaultdict(list)
        for spec, alike in groupby(jobs, key=_spec_of):
            groups[spec] += alike
        for spec, group in groups.items():
            taker = spec.kind if self._kinds[spec.kind].is_pull else INSIDE
            lane = self._lane(spec.queue)
            lane.put(taker, group, spec.priority * self._lift)
            if taker != INSIDE:
                self._lent.setdefault(taker, {})[spec.queue] = lane
            if taker != INSIDE or not lane.is_listed:
                self._list(lane)

    def discard(self, queue: str, seq: int) -> bool:
        """Forget a job that does not wait any more; whether it was there."""
        lane = self._lanes.get(queue)
        was_there = lane is not None and lane.discard(seq)
        if lane is not None and lane.is_low:
            self._low.set()
        return was_there

    def take(self, limit: int) -> dict[int, Slot]:
        """Leave for at most `limit` jobs to start here, by `seq`, the queues in turn."""
        tick = self._tick()
        slots: dict[int, Slot] = {}
        while self._ready and len(slots) < limit:
            lane = self._ready.popleft()
            wanted = 1 if self._ready else limit - len(slots)
            taken = lane.pop(INSIDE, tick, wanted)
            slots |= taken
            if lane.is_low:
                self._low.set()
            if len(taken) < wanted:
                lane.is_listed = False
            else:
                self._ready.append(lane)
        return slots

    def take_for(self, kinds: Collection[str], queues: Collection[str], limit: int) -> dict[int, Slot]:
        """Leave for at most `limit` jobs of pull kinds, by `seq`, first in rank over all these queues (none: all)."""
        tick = self._tick()
        lent = [(lane, kind) for kind in kinds for lane in self._lenders(kind, queues)]
        firsts = [
            (rank, lane.name, kind) for lane, kind in lent if (rank := lane.first(kind, tick)) is not None
        ]  # a heap; an entry that is not true any more is skipped, a true one has been put in since
        heapify(firsts)
        slots: dict[int, Slot] = {}
        while firsts and len(slots) < limit:
            rank, queue, kind = heappop(firsts)
            lane = self._lanes[queue]
            if lane.first(kind, tick) != rank:
                continue
            slots |= lane.pop(kind, tick, 1)
            if lane.is_low:
                self._low.set()
            for other in kinds:  # one that starts may take the room, the token or the turn of the lane's others
                if (rank_now := lane.first(other, tick)) is not None:
                    heappush(firsts, (rank_now, queue, other))
        return slots

    def take_spilled(self) -> list[tuple[str, Spill]]:
        """Return what lanes had no room for and can take in now, to be read from the store and put again."""
        low = [lane for lane in self._lanes.values() if lane.is_low and lane.reread is None]
        return [(lane.name, spilled) for lane in low if (spilled := lane.take_spilled()) is not None]

    def end_reread(self, queue: str, rest: Spill | None = None) -> None:
        """Note that what was taken was put again, but for the rest."""
        lane = self._lane(queue)
        lane.reread = None
        if rest is not None:
            lane.spill(rest)
        if lane.is_low:
            self._low.set()

    def is_full(self, queue: str) -> bool:
        """Whether none but the first of all jobs would find room, whatever their label or kind."""
        lane = self._lanes.get(queue)
        return lane is not None and lane.spilled is not None and len(lane.sublanes) == 1

    def occupy(self, job: Job) -> Slot:
        """Count a job as running that was running already when the service started."""
        lane = self._lane(job.queue)
        label = lane.label_of(job)
        lane.occupy(label)
        return Slot(job.queue, label)

    def release(self, *slots: Slot) -> None:
        """Give leave back: the attempts are over, or never began."""
        for (queue, label), number in counted(slots).items():
            lane = self._lanes[queue]
            lane.release(label, number)
            if not lane.is_listed or INSIDE not in lane.due_for or len(lane.due_for) > 1:
                self._list(lane)

    def token_in(self) -> float | None:
        """Seconds until the next queue that only its rate holds back may start a job."""
        tick = self._tick()
        waits = [lane.token_in(tick) for lane in self.rated if _is_thirsty(lane)]
        return min(waits, default=None)

    def token_in_for(self, kinds: Collection[str], queues: Collection[str]) -> float | None:
        """The same for jobs of pull kinds in these queues (none named: in all)."""
        tick = self._tick()
        lanes = {lane.name: lane for kind in kinds for lane in self._lenders(kind, queues)}
        waits = [lane.token_in(tick) for lane in lanes.values() if lane in self.rated and _is_thirsty(lane)]
        return min(waits, default=None)

    def wake(self) -> None:
        """Look again at the queues that their rate held back."""
        for lane in self.rated:
            if _is_thirsty(lane):
                self._list(lane)

    def forget_idle(self) -> None:
        """Let go of queues that nothing was set for and nobody has used of late: there is no end of their names."""
        tick = self._tick()
        for name in [name for name, lane in self._lanes.items() if lane.settings is self._plain and lane.is_idle(tick)]:
            del self._lanes[name]
            for lent in self._lent.values():
                lent.pop(name, None)

    # questions

    def due(self, queue: str) -> int:
        lane = self._lanes.get(queue)
        return _due_of(lane) if lane else 0

    def oldest_due(self, queue: str) -> Instant | None:
        """When the job due first was due, of those that are here; None if none is or priorities hide it."""
        lane = self._lanes.get(queue)
        return lane.oldest_due() if lane else None

    def due_queues(self, kind: str, queues: Collection[str]) -> list[str]:
        """The queues, of these (none named: of all), in which jobs of a pull kind are due."""
        return [lane.name for lane in self._lenders(kind, queues)]

    def all_due(self) -> dict[str, int]:
        return {name: _due_of(lane) for name, lane in self._lanes.items()}

    def note_starts(self, queue: str, *lates: float) -> None:
        self._lane(queue).recent.note(*lates, tick=self._tick())

    def late_p99(self, queue: str) -> float | None:
        lane = self._lanes.get(queue)
        return lane.recent.p99(self._tick()) if lane else None

    def waiting_for(self, job: Job) -> str | None:
        """Return why a due job does not start: the first that holds of pause, worker, rate, label and slot."""
        lane = self._lanes.get(job.queue)
        if lane is not None and lane.is_paused:
            return "pause"
        is_pull = self._kinds[job.kind].is_pull
        if is_pull and not self._pollers.is_polled(job.kind, job.queue):
            return "worker"
        if lane is not None and (limit := self._limit_on(lane, job)) is not None:
            return limit
        return "worker" if is_pull and not self._pollers.is_held(job.kind, job.queue) else None

    def _limit_on(self, lane: Lane, job: Job) -> str | None:
        if lane.token_in(self._tick()) > 0:
            return "rate"
        if lane.is_label_full(job.seq):
            return "label"
        return "slot" if lane.running >= lane.settings.concurrency else None

    def _lane(self, queue: str) -> Lane:
        lane = self._lanes.get(queue)
        if lane is None:
            lane = self._lanes[queue] = Lane(queue, self.settings(queue))
            self._note_rate(lane)
        return lane

    def _lenders(self, kind: str, queues: Collection[str]) -> list[Lane]:
        """The lanes that have due jobs of a pull kind; those that have none left are forgotten here."""
        lent = self._lent.get(kind, {})
        names = [name for name in queues if name in lent] if queues else list(lent)
        for name in names:
            if kind not in lent[name].due_for:
                del lent[name]
        return [lent[name] for name in names if name in lent]

    def _list(self, lane: Lane) -> None:
        """Tell those who may take of a lane that there is something to take."""
        for taker in lane.due_for:
            if not lane.may_start(taker):
                continue
            if taker != INSIDE:
                self._pollers.wake(taker, lane.name)
            elif not lane.is_listed:
                lane.is_listed = True
                self._ready.append(lane)
                self._is_ready.set()

    def _note_rate(self, lane: Lane) -> None:
        if lane.settings.rate is None:
            self.rated.discard(lane)
        else:
            self.rated.add(lane)


def _due_of(lane: Lane) -> int:
    return lane.due + lane.elsewhere


def _is_thirsty(lane: Lane) -> bool:
    return lane.is_dry and not lane.is_listed and any(lane.may_start(taker) for taker in lane.due_for)
