"""Due jobs per queue: who may start now, in which order, and why the others may not."""

from __future__ import annotations

import math
from collections import Counter, deque
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, NamedTuple

import orjson

from app.config import layered
from app.job import MAX_SEQ, SECOND

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from app.config import QueueSettings
    from app.job import Job

NO_LABEL = ""
STRICT = 1 << 53  # more than any instant: without aging a point of priority outweighs all waiting
MIN_STALE = 64
CARRY = 1 - 1e-6  # less than a token: what a late timer would lose, but never one job more at once
RECENT_MINUTES = 5
RECENT_FLOOR = 0.0001
RECENT_STEP = math.log(1.25)


class Slot(NamedTuple):
    """Leave to start one job; given back by `Lanes.release`."""

    queue: str
    label: str
    seq: int


class Recent:
    """How late starts were over the last five minutes: a count for each step of 25 %, a row for each minute."""

    def __init__(self) -> None:
        self._minutes: deque[tuple[int, Counter[int]]] = deque(maxlen=RECENT_MINUTES)

    def note(self, late_by: float, tick: float) -> None:
        minute = int(tick // 60)
        if not self._minutes or self._minutes[-1][0] != minute:
            self._minutes.append((minute, Counter()))
        step = int(math.log(late_by / RECENT_FLOOR) / RECENT_STEP) + 1 if late_by > RECENT_FLOOR else 0
        self._minutes[-1][1][step] += 1

    def p99(self, tick: float) -> float | None:
        """The upper edge of the step in which the 99th percentile falls."""
        oldest = int(tick // 60) - RECENT_MINUTES
        counts: Counter[int] = Counter()
        for minute, steps in self._minutes:
            if minute > oldest:
                counts.update(steps)
        left = math.ceil(counts.total() * 0.99)
        for step in sorted(counts):
            left -= counts[step]
            if left <= 0:
                return round(RECENT_FLOOR * math.exp(step * RECENT_STEP), 6)
        return None


class Strand:
    """The due jobs of a lane that share a label value, first to start on top; stale entries are skipped."""

    __slots__ = ("has_turn", "heap", "label", "running", "waiting")

    def __init__(self, label: str) -> None:
        self.label = label
        self.heap: list[int] = []
        self.waiting: dict[int, int] = {}
        self.running = 0
        self.has_turn = False

    def put(self, rank: int, seq: int) -> None:
        packed = rank * MAX_SEQ + seq
        if self.waiting.get(seq) != packed:
            self.waiting[seq] = packed
            heappush(self.heap, packed)

    def discard(self, seq: int) -> None:
        if self.waiting.pop(seq, None) is not None and len(self.heap) > 2 * len(self.waiting) + MIN_STALE:
            self.heap = list(self.waiting.values())
            heapify(self.heap)

    def pop(self) -> int:
        while True:
            packed = heappop(self.heap)
            seq = packed % MAX_SEQ
            if self.waiting.get(seq) == packed:
                del self.waiting[seq]
                return seq


class Lane:
    """One queue: its settings, its due jobs, what runs of it."""

    def __init__(self, name: str, settings: QueueSettings) -> None:
        self.name = name
        self.settings = settings
        self.is_paused = False
        self.is_listed = False
        self.strands: dict[str, Strand] = {}
        self.turns: deque[Strand] = deque()
        self.labels: dict[int, str] = {}  # of waiting jobs, where the queue counts by label
        self.running = 0
        self.due = 0
        self.tokens = math.inf
        self.filled_at = 0.0
        self.is_dry = False  # its next job was refused for want of a token
        self.recent = Recent()

    def put(self, rank: int, job: Job) -> None:
        label = self._label_of(job)
        if self.labels.get(job.seq, NO_LABEL) != label:
            self.discard(job.seq)
        strand = self.strands.get(label)
        if strand is None:
            strand = self.strands[label] = Strand(label)
        before = len(strand.waiting)
        strand.put(rank, job.seq)
        self.due += len(strand.waiting) - before
        if label:
            self.labels[job.seq] = label
        self._give_turn(strand)

    def discard(self, seq: int) -> None:
        strand = self.strands.get(self.labels.get(seq, NO_LABEL))
        if strand is not None and seq in strand.waiting:
            strand.discard(seq)
            self.labels.pop(seq, None)
            self.due -= 1
            self.is_dry = self.is_dry and self.due > 0
            self._tidy(strand)

    def pop(self, tick: float) -> Slot | None:
        """Leave for the next job that may start, counted as running from now on."""
        if not self.may_start():
            return None
        self.is_dry = not self._has_token(tick)
        if self.is_dry:
            return None
        while self.turns:
            strand = self.turns.popleft()
            strand.has_turn = False
            if not strand.waiting or not self._has_room(strand):
                self._tidy(strand)
                continue
            seq = strand.pop()
            self.labels.pop(seq, None)
            strand.running += 1
            self.running += 1
            self.due -= 1
            self.tokens -= 1
            self._give_turn(strand)
            return Slot(self.name, strand.label, seq)
        return None

    def release(self, slot: Slot) -> None:
        strand = self.strands[slot.label]
        strand.running -= 1
        self.running -= 1
        self._give_turn(strand)
        self._tidy(strand)

    def seqs(self) -> list[int]:
        return [seq for strand in self.strands.values() for seq in strand.waiting]

    def may_start(self) -> bool:
        """Whether nothing but the rate or a label can keep it from starting a job."""
        return bool(self.due) and not self.is_paused and self.running < self.settings.concurrency

    def token_in(self, tick: float) -> float:
        """Seconds until the rate allows a start."""
        rate = self.settings.rate
        if rate is None or self._has_token(tick):
            return 0.0
        return (1 - self.tokens) / rate.per_second

    def is_label_full(self, seq: int) -> bool:
        strand = self.strands.get(self.labels.get(seq, NO_LABEL))
        return strand is not None and not self._has_room(strand)

    def _has_token(self, tick: float) -> bool:
        rate = self.settings.rate
        if rate is None:
            self.tokens = math.inf
            return True
        most = rate.burst + CARRY if self.is_dry else rate.burst
        self.tokens = min(most, self.tokens + (tick - self.filled_at) * rate.per_second)
        self.filled_at = tick
        return self.tokens >= 1 - 1e-9

    def _has_room(self, strand: Strand) -> bool:
        limit = self.settings.label_concurrency
        return limit is None or not strand.label or strand.running < limit.limit

    def _give_turn(self, strand: Strand) -> None:
        if strand.waiting and not strand.has_turn and self._has_room(strand):
            strand.has_turn = True
            self.turns.append(strand)

    def _tidy(self, strand: Strand) -> None:
        """Forget a strand that is of no use; turns given to jobs that left without one are forgotten in bulk."""
        if self.turns and (not self.due or len(self.turns) > 2 * self.due + MIN_STALE):
            turns, self.turns = self.turns, deque()
            for other in turns:
                other.has_turn = False
                self._give_turn(other)
                self._forget_idle(other)
        self._forget_idle(strand)

    def _forget_idle(self, strand: Strand) -> None:
        if not (strand.running or strand.waiting or strand.has_turn):
            self.strands.pop(strand.label, None)

    def _label_of(self, job: Job) -> str:
        limit = self.settings.label_concurrency
        if limit is None or job.labels is None:
            return NO_LABEL
        value: str = orjson.loads(job.labels).get(limit.label, NO_LABEL)
        return value


class Lanes:
    """All queues. A job ranks by its time, lifted by its priority: a point is worth `aging` seconds of waiting,
    so ranks never change while jobs wait. `tick` is the monotonic clock; `on_ready` is called when a job may start.
    """

    def __init__(self, *, config: Mapping[str, QueueSettings], aging: float, tick: Callable[[], float]) -> None:
        self._config = config
        self._lift = max(1, round(aging * SECOND)) if aging else STRICT
        self._tick = tick
        self._lanes: dict[str, Lane] = {}
        self._plain = layered(None, None)
        self._ready: deque[Lane] = deque()
        self._rated: set[Lane] = set()
        self.on_ready: Callable[[], None] = lambda: None

    # settings

    def settings(self, queue: str) -> QueueSettings:
        """What holds for a queue; all that nobody has set anything for share one object."""
        lane = self._lanes.get(queue)
        if lane is not None:
            return lane.settings
        return layered(self._config[queue], None) if queue in self._config else self._plain

    def is_paused(self, queue: str) -> bool:
        lane = self._lanes.get(queue)
        return lane is not None and lane.is_paused

    def configure(self, queue: str, override: QueueSettings | None) -> list[int]:
        """Set or drop what overrides the configuration; the jobs that must be put again come back."""
        lane = self._lane(queue)
        given = self._config.get(queue)
        before, lane.settings = lane.settings, layered(given, override) if given or override else self._plain
        self._note_rate(lane)
        displaced = []
        if before.label_concurrency != lane.settings.label_concurrency:
            displaced = lane.seqs()
            for seq in displaced:
                lane.discard(seq)
        self._list(lane)
        return displaced

    def pause(self, queue: str, is_paused: bool) -> None:
        lane = self._lane(queue)
        lane.is_paused = is_paused
        lane.is_dry = False
        self._list(lane)

    # due jobs

    def put(self, job: Job) -> None:
        """Take in a due job; one that is there already only changes its rank."""
        lane = self._lane(job.queue)
        assert job.due_at is not None
        lane.put(job.due_at - job.priority * self._lift, job)
        self._list(lane)

    def discard(self, queue: str, seq: int) -> None:
        """Forget a job that does not wait any more."""
        lane = self._lanes.get(queue)
        if lane is not None:
            lane.discard(seq)

    def take(self, limit: int) -> list[Slot]:
        """Leave for at most `limit` jobs to start, the queues in turn."""
        tick = self._tick()
        slots: list[Slot] = []
        while self._ready and len(slots) < limit:
            lane = self._ready.popleft()
            slot = lane.pop(tick)
            if slot is None:
                lane.is_listed = False
            else:
                slots.append(slot)
                self._ready.append(lane)
        return slots

    def release(self, slot: Slot) -> None:
        """Give leave back: the attempt is over, or never began."""
        lane = self._lanes[slot.queue]
        lane.release(slot)
        self._list(lane)

    def token_in(self) -> float | None:
        """Seconds until the next queue that only its rate holds back may start a job."""
        tick = self._tick()
        waits = [lane.token_in(tick) for lane in self._rated if _is_thirsty(lane)]
        return min(waits, default=None)

    def wake(self) -> None:
        """Look again at the queues that their rate held back."""
        for lane in self._rated:
            if _is_thirsty(lane):
                self._list(lane)

    # questions

    def due(self, queue: str) -> int:
        lane = self._lanes.get(queue)
        return lane.due if lane else 0

    def all_due(self) -> dict[str, int]:
        return {name: lane.due for name, lane in self._lanes.items()}

    def note_start(self, queue: str, late_by: float) -> None:
        self._lane(queue).recent.note(late_by, self._tick())

    def late_p99(self, queue: str) -> float | None:
        lane = self._lanes.get(queue)
        return lane.recent.p99(self._tick()) if lane else None

    def waiting_for(self, job: Job) -> str | None:
        """Why a due job does not start: the first that holds of pause, rate, label and slot."""
        lane = self._lanes.get(job.queue)
        if lane is None:
            return None
        if lane.is_paused:
            return "pause"
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

    def _list(self, lane: Lane) -> None:
        if lane.may_start() and not lane.is_listed:
            lane.is_listed = True
            self._ready.append(lane)
            self.on_ready()

    def _note_rate(self, lane: Lane) -> None:
        if lane.settings.rate is None:
            self._rated.discard(lane)
        else:
            self._rated.add(lane)


def _is_thirsty(lane: Lane) -> bool:
    return lane.is_dry and lane.may_start() and not lane.is_listed
