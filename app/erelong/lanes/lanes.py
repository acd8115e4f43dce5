"""Due jobs of all queues: which may start, in which order, and what keeps the others from it."""

from __future__ import annotations

import math
from collections import Counter, defaultdict, deque
from heapq import heapify, heappop, heappush
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING

from erelong.lanes.departures import Departures
from erelong.lanes.lane import INSIDE, Lane, Slot
from erelong.lanes.order import NONE_AHEAD, count_ahead
from erelong.lanes.recent import lateness
from erelong.lanes.upcoming import NOTHING, Upcoming, read_order
from erelong.model.blocker import Ahead, Flow, Hold
from erelong.model.ids import MAX_SEQ
from erelong.model.job import SECOND
from erelong.model.runs import counted
from erelong.settings.queues import layered

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from erelong.clock.instants import Instant, Tick
    from erelong.duties.signal import Signal
    from erelong.handlers.kinds import Kinds
    from erelong.lanes.lane import Spill
    from erelong.lanes.pollers import Pollers
    from erelong.lanes.recent import Lateness
    from erelong.model.job import Job
    from erelong.model.spec import JobSpec
    from erelong.settings.queues import QueueSettings
    from erelong.stores.base import Peek

_spec_of = attrgetter("spec")
STRICT = 1 << 53  # above any instant: without aging, one point of priority outweighs all waiting


class Lanes:
    """All queues. A job ranks by its due time, and a point of priority counts as `aging` seconds of waiting, so ranks
    never change while jobs wait. `ready` is set when a job may start here; for a job of a pull kind, a poller is woken.
    `low` is set when a lane has room for spilled jobs.
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
        self._configured = {queue: layered(settings, None) for queue, settings in config.items()}
        self._lift = max(1, round(aging * SECOND)) if aging else STRICT
        self._tick = tick
        self._kinds = kinds
        self._pollers = pollers
        self._is_ready = ready
        self._low = low
        self.departures = Departures()
        self._lanes: dict[str, Lane] = {}
        self._ready: deque[Lane] = deque()
        self.rated: set[Lane] = set()
        self._pull_lanes: dict[str, dict[str, Lane]] = {}  # per pull kind: the lanes with due jobs, by queue

    # settings

    def settings(self, queue: str) -> QueueSettings:
        """Return the settings of a queue; queues without any share one object."""
        lane = self._lanes.get(queue)
        return lane.settings if lane is not None else self._configured.get(queue, self._plain)

    def settings_with(self, queue: str, override: QueueSettings | None) -> QueueSettings:
        """Return the settings that a queue has under an override, or without one."""
        if override is None:
            return self._configured.get(queue, self._plain)
        return layered(self._config.get(queue), override)

    def is_paused(self, queue: str) -> bool:
        lane = self._lanes.get(queue)
        return lane is not None and lane.is_paused

    def configure(self, queue: str, override: QueueSettings | None) -> list[int]:
        """Set or drop an override; return the jobs that must be put again."""
        lane = self._lane(queue)
        before = lane.settings
        lane.settings = self.settings_with(queue, override)
        self._note_rate(lane)
        displaced = []
        if before.label_concurrency != lane.settings.label_concurrency:
            displaced = lane.seqs()
            for seq in displaced:
                lane.discard(seq)
        if lane.is_low:
            self._low.set()
        self._announce(lane)
        return displaced

    def pause(self, queue: str, is_paused: bool) -> None:
        lane = self._lane(queue)
        lane.is_paused = is_paused
        lane.held_back.clear()
        lane.recent.begin_again(self._tick())
        self._announce(lane)

    # due jobs

    def put(self, *jobs: Peek) -> None:
        """Add due jobs; a job that is already there only changes its rank."""
        groups: defaultdict[JobSpec, list[Peek]] = defaultdict(list)
        for spec, alike in groupby(jobs, key=_spec_of):
            groups[spec] += alike
        for spec, group in groups.items():
            consumer = spec.kind if self._kinds[spec.kind].is_pull else INSIDE
            lane = self._lane(spec.queue)
            lane.put(consumer, group, spec.priority * self._lift)
            if consumer != INSIDE:
                self._pull_lanes.setdefault(consumer, {})[spec.queue] = lane
            if consumer != INSIDE or not lane.is_listed:
                self._announce(lane)

    def discard(self, queue: str, seq: int) -> bool:
        """Remove a job that no longer waits; return whether it was there."""
        lane = self._lanes.get(queue)
        was_there = lane is not None and lane.discard(seq)
        if lane is not None and lane.is_low:
            self._low.set()
        return was_there

    def take(self, limit: int) -> dict[int, Slot]:
        """Return slots for at most `limit` jobs to run here, by `seq`; queues take turns."""
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
        """Return slots for at most `limit` jobs of pull kinds, by `seq`, by rank over these queues (none: all)."""
        tick = self._tick()
        pairs = [(lane, kind) for kind in kinds for lane in self._lanes_of(kind, queues)]
        firsts = [
            (rank, lane.name, kind) for lane, kind in pairs if (rank := lane.first(kind, tick)) is not None
        ]  # a heap; stale entries are skipped, since a valid one follows each
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
            for other in kinds:  # a start may use the slot, the token or the turn of other kinds
                if (rank_now := lane.first(other, tick)) is not None:
                    heappush(firsts, (rank_now, queue, other))
        return slots

    def take_spilled(self) -> list[tuple[str, Spill]]:
        """Return, per queue, the spilled range that its lane has room for again."""
        low = [lane for lane in self._lanes.values() if lane.is_low and lane.reread is None]
        return [(lane.name, spilled) for lane in low if (spilled := lane.take_spilled()) is not None]

    def end_reread(self, queue: str, rest: Spill | None = None) -> None:
        """End the re-read of a spilled range; `rest` is the part not read."""
        lane = self._lane(queue)
        lane.reread = None
        if rest is not None:
            lane.spill(rest)
        if lane.is_low:
            self._low.set()

    def is_full(self, queue: str) -> bool:
        """Return whether it has no room for later jobs of any label or kind."""
        lane = self._lanes.get(queue)
        return lane is not None and lane.spilled is not None and len(lane.sublanes) == 1

    def occupy(self, job: Job) -> Slot:
        """Count a job that was running before the service started; return its slot."""
        lane = self._lane(job.queue)
        label = lane.label_of(job)
        lane.occupy(label)
        return Slot(job.queue, label)

    def release(self, *slots: Slot) -> None:
        """Release slots: their attempts are over."""
        for (queue, label), number in counted(slots).items():
            lane = self._lanes[queue]
            lane.release(label, number)
            if not lane.is_listed or INSIDE not in lane.due_for or len(lane.due_for) > 1:
                self._announce(lane)

    def release_unused(self, *slots: Slot) -> None:
        """Release slots whose attempts never began, and return the tokens that they took."""
        tick = self._tick()
        for queue, number in Counter(slot.queue for slot in slots).items():
            self._lanes[queue].return_tokens(number, tick)
        self.release(*slots)

    def token_in(self) -> float | None:
        """Return the seconds until a queue held back only by its rate may start a job, here or for a held request."""
        return min(self._token_waits(), default=None)

    def next_token_in(self) -> float | None:
        """Return the same without the tokens that are there."""
        return min((wait for wait in self._token_waits() if wait > 0), default=None)

    def _token_waits(self) -> Iterator[float]:
        tick = self._tick()
        for lane in self.rated:
            if any(self._is_awaited(lane, consumer) for consumer in lane.held_back):
                yield lane.token_in(tick)

    def _is_awaited(self, lane: Lane, consumer: str) -> bool:
        is_asked = self._pollers.is_held(consumer, lane.name) if consumer != INSIDE else not lane.is_listed
        return is_asked and lane.may_start(consumer)

    def wake(self) -> None:
        """Announce the queues that their rate held back."""
        for lane in self.rated:
            if lane.held_back:
                self._announce(lane)

    def wake_next(self, kinds: Collection[str], queues: Collection[str]) -> None:
        """Wake a request for each of these queues (none: all) that has startable jobs of these pull kinds."""
        for kind in kinds:
            for lane in self._lanes_of(kind, queues):
                if lane.may_start(kind):
                    self._pollers.wake(kind, lane.name)

    def forget_idle(self) -> None:
        """Forget idle queues without settings, since clients may invent any number of names."""
        tick = self._tick()
        for name in [name for name, lane in self._lanes.items() if lane.settings is self._plain and lane.is_idle(tick)]:
            del self._lanes[name]
            for lanes_of_kind in self._pull_lanes.values():
                lanes_of_kind.pop(name, None)

    # queries

    def due(self, queue: str) -> int:
        lane = self._lanes.get(queue)
        return _due_of(lane) if lane else 0

    def oldest_due(self, queue: str) -> Instant | None:
        """Return the earliest due instant in the lane; None if it has no job or cannot tell."""
        lane = self._lanes.get(queue)
        return lane.oldest_due() if lane else None

    def all_due(self) -> dict[str, int]:
        return {name: _due_of(lane) for name, lane in self._lanes.items()}

    def note_starts(self, queue: str, *lates: float) -> None:
        self._lane(queue).recent.note(*lates, tick=self._tick())

    def lateness(self, queues: Iterable[str]) -> Lateness:
        """Return how late the jobs of these queues started in the last five minutes."""
        counts: Counter[int] = Counter()
        for lane in map(self._lanes.get, queues):
            if lane is not None:
                counts.update(lane.recent.steps(self._tick()))
        return lateness(counts)

    def started_per_second(self, queue: str) -> float:
        """Return the starts per second over about the last minute."""
        lane = self._lanes.get(queue)
        return lane.recent.per_second(self._tick()) if lane else 0.0

    def find(self, queue: str) -> Lane | None:
        """Return the lane of a queue, to be read only; None if nothing is known of the queue."""
        return self._lanes.get(queue)

    def holds(self, job: Job) -> list[Hold]:
        """Return what keeps a job from starting at this moment, apart from its due time: pause, worker and limits.

        A pull worker that asked a few seconds ago counts as one that asks, unless it is the only thing missing.
        """
        lane = self._lanes.get(job.queue)
        found = [Hold.PAUSE] if lane is not None and lane.is_paused else []
        is_pull = self._kinds[job.kind].is_pull
        if is_pull and not self._pollers.is_polled(job.kind, job.queue):
            found.append(Hold.WORKER)
        if lane is not None:
            found += self._limits_on(lane, job)
        if is_pull and not found and not self._pollers.is_held(job.kind, job.queue):
            found.append(Hold.WORKER)
        return found

    def _limits_on(self, lane: Lane, job: Job) -> list[Hold]:
        found = [Hold.RATE] if lane.token_in(self._tick()) > 0 else []
        if not lane.has_room(lane.label_of(job)):
            found.append(Hold.LABEL)
        if lane.running >= lane.settings.concurrency:
            found.append(Hold.SLOT)
        return found

    async def ahead(self, job: Job) -> Ahead:
        """Count the due jobs of its queue that start before a scheduled job. Jobs of other pull kinds do not count,
        since other workers take them.
        """
        lane = self._lanes.get(job.queue)
        if lane is None or job.due_at is None:
            return NONE_AHEAD
        packed = (job.due_at - job.priority * self._lift) * MAX_SEQ + job.seq
        ahead = await count_ahead(lane, self._consumer_of(job), lane.label_of(job), packed)
        is_partial = bool(lane.spilled or lane.reread) and not lane.has(job.seq)
        return ahead._replace(is_more=ahead.is_more or is_partial)

    async def upcoming(
        self, queue: str, kinds: Collection[str], after: Sequence[int], number: int, *, is_reverse: bool
    ) -> Upcoming:
        """Return the next due jobs of a queue that start with jobs of these kinds (none: all), as `read_order` does."""
        lane = self._lanes.get(queue)
        if lane is None:
            return NOTHING
        consumers = {kind if self._kinds[kind].is_pull else INSIDE for kind in kinds}
        found = await read_order(lane, consumers or lane.due_for.keys(), after, number, is_reverse=is_reverse)
        return found._replace(is_cut=found.is_cut or bool(lane.spilled or lane.reread))

    def flow(self, job: Job) -> Flow:
        """Return how fast jobs of its queue start."""
        lane = self._lanes.get(job.queue)
        if lane is None:
            return Flow()
        tick, consumer = self._tick(), self._consumer_of(job)
        lane.token_in(tick)  # counts the tokens
        since = -math.inf if consumer == INSIDE else self._pollers.served_since(job.kind, job.queue)
        others = [other for other in lane.due_for if other != consumer]
        rate = lane.settings.rate
        return Flow(
            rate=None if rate is None else rate.per_second,
            tokens=lane.tokens,
            starts=lane.recent.pace(tick, since),
            is_shared=any(other == INSIDE or self._pollers.is_polled(other, job.queue) for other in others),
        )

    def _consumer_of(self, job: Job) -> str:
        return job.kind if self._kinds[job.kind].is_pull else INSIDE

    def _lane(self, queue: str) -> Lane:
        lane = self._lanes.get(queue)
        if lane is None:
            lane = self._lanes[queue] = Lane(queue, self.settings(queue))
            self._note_rate(lane)
        return lane

    def _lanes_of(self, kind: str, queues: Collection[str]) -> list[Lane]:
        """Return the lanes with due jobs of a pull kind; forget those without."""
        lanes_of_kind = self._pull_lanes.get(kind, {})
        names = [name for name in queues if name in lanes_of_kind] if queues else list(lanes_of_kind)
        for name in names:
            if kind not in lanes_of_kind[name].due_for:
                del lanes_of_kind[name]
        return [lanes_of_kind[name] for name in names if name in lanes_of_kind]

    def _announce(self, lane: Lane) -> None:
        """Announce startable jobs of a lane to its consumers."""
        for consumer in lane.due_for:
            if not lane.may_start(consumer):
                continue
            if consumer != INSIDE:
                self._pollers.wake(consumer, lane.name)
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
    return lane.due + lane.spilled_jobs
