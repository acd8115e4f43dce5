"""One queue: its settings, its due jobs in their order, what runs of it."""

from __future__ import annotations

import math
from bisect import bisect
from collections import Counter, deque
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, NamedTuple

import orjson

from erelong.model.ids import MAX_SEQ
from erelong.model.runs import counted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from erelong.model.job import Job
    from erelong.settings.queues import QueueSettings
    from erelong.stores.base import Glance

NO_LABEL = ""
INSIDE = ""  # who takes jobs that are run here; jobs of a pull kind are taken by those who ask for the kind
PLAIN = (INSIDE, NO_LABEL)
SEQ_DIGITS = MAX_SEQ - 1  # a mask: the remainder costs twice as much
NEARLY = 1e-9  # of a token: what sums of floats may lack
MIN_STALE = 64
MANY_STRANDS = 1_000  # to look at each takes as long as to ask the store
CARRY = 1 - 1e-6  # less than a token: what a late timer would lose, but never one job more at once
RECENT_MINUTES = 5
RECENT_FLOOR = 0.0001
RECENT_STEP = math.log(1.25)


class Slot(NamedTuple):
    """Leave to start one job, to be given back; those taken of a strand together are one object."""

    queue: str
    label: str


class Recent:
    """How late starts were over the last five minutes: a count for each step of 25 %, a row for each minute."""

    def __init__(self) -> None:
        self._minutes: deque[tuple[int, Counter[int]]] = deque(maxlen=RECENT_MINUTES)

    def note(self, *lates: float, tick: float) -> None:
        minute = int(tick // 60)
        if not self._minutes or self._minutes[-1][0] != minute:
            self._minutes.append((minute, Counter()))
        steps = self._minutes[-1][1]
        for late_by, starts in counted(lates).items():  # what was due together and starts together is as late
            step = int(math.log(late_by / RECENT_FLOOR) / RECENT_STEP) + 1 if late_by > RECENT_FLOOR else 0
            steps[step] += starts

    def is_over(self, tick: float) -> bool:
        """Whether the last start was longer ago."""
        return not self._minutes or self._minutes[-1][0] <= int(tick // 60) - RECENT_MINUTES

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
    """The due jobs of a lane with one taker and one label value, first to start on top; stale entries are skipped.

    Most come in their order and stand in `row`, which is sorted: half the cost of the heap, where those stand that rank
    before its end.
    """

    __slots__ = ("has_turn", "heap", "label", "row", "taker", "waiting")

    def __init__(self, taker: str, label: str) -> None:
        self.taker = taker
        self.label = label
        self.row: deque[int] = deque()
        self.heap: list[int] = []
        self.waiting: dict[int, int] = {}
        self.has_turn = False

    def put(self, packed: Mapping[int, int]) -> int:
        """Take in jobs, by `seq` their rank with that in its last digits; how many were not there."""
        waiting = self.waiting
        before = len(waiting)
        if waiting.keys().isdisjoint(packed):  # as nearly always
            fresh = sorted(packed.values())
        else:
            fresh = sorted([entry for seq, entry in packed.items() if waiting.get(seq) != entry])
        waiting.update(packed)
        passing = bisect(fresh, self.row[-1]) if self.row else 0
        for entry in fresh[:passing]:
            heappush(self.heap, entry)
        self.row += fresh[passing:]
        return len(waiting) - before

    def discard(self, seq: int) -> None:
        if self.waiting.pop(seq, None) is None:
            return
        if len(self.row) + len(self.heap) > 2 * len(self.waiting) + MIN_STALE:
            self.row = deque(filter(self._is_true, self.row))
            self.heap = list(filter(self._is_true, self.heap))
            heapify(self.heap)

    def first(self) -> int:
        """The entry on top; there must be one."""
        while True:
            packed = self.heap[0] if self._is_heap_next() else self.row[0]
            if self._is_true(packed):
                return packed
            self._take()

    def pop(self, number: int) -> list[int]:
        """Take off the first so many."""
        seqs: list[int] = []
        waiting = self.waiting
        while waiting and len(seqs) < number:
            packed = self._take() if self.heap else self.row.popleft()
            seq = packed & SEQ_DIGITS
            if waiting.get(seq) == packed:
                del waiting[seq]
                seqs.append(seq)
        return seqs

    def _take(self) -> int:
        return heappop(self.heap) if self._is_heap_next() else self.row.popleft()

    def _is_heap_next(self) -> bool:
        return bool(self.heap) and not (self.row and self.row[0] < self.heap[0])

    def _is_true(self, packed: int) -> bool:
        return self.waiting.get(packed & SEQ_DIGITS) == packed


class Lane:
    """Knows which job of its queue may start next, for each taker, and what keeps the others."""

    def __init__(self, name: str, settings: QueueSettings) -> None:
        self.name = name
        self.settings = settings
        self.is_paused = False
        self.is_listed = False
        self.strands: dict[tuple[str, str], Strand] = {}
        self.turns: dict[str, deque[Strand]] = {}
        self.places: dict[int, tuple[str, str]] = {}  # of waiting jobs that have a taker outside or a label
        self.running = 0
        self.running_by: Counter[str] = Counter()  # label value
        self.due = 0
        self.due_for: dict[str, int] = {}  # taker
        self.is_lifted = False  # since it was empty last, jobs came of which the rank is not their time
        self.tokens = math.inf
        self.filled_at = 0.0
        self.is_dry = False  # its next job was refused for want of a token
        self.recent = Recent()

    def put(self, taker: str, jobs: Sequence[Glance], lift: int) -> None:
        """Take in due jobs of one taker, which are lifted by so many microseconds."""
        by_label: dict[str, dict[int, int]] = {}
        if self.settings.label_concurrency is None:
            by_label[NO_LABEL] = {seq: (due_at - lift) * MAX_SEQ + seq for seq, due_at, _, _, _ in jobs}
        else:
            for job in jobs:
                by_label.setdefault(self.label_of(job), {})[job.seq] = (job.due_at - lift) * MAX_SEQ + job.seq
        for label, ranked in by_label.items():
            self._put((taker, label), ranked)
        self.is_lifted = self.is_lifted or lift != 0

    def _put(self, place: tuple[str, str], packed: Mapping[int, int]) -> None:
        if place != PLAIN or self.places:
            for seq in packed:
                if self._place(seq) != place:
                    self.discard(seq)
        strand = self.strands.get(place)
        if strand is None:
            strand = self.strands[place] = Strand(*place)
        self._count(strand.taker, strand.put(packed))
        if place != PLAIN:
            self.places.update(dict.fromkeys(packed, place))
        if not strand.has_turn:
            self._give_turn(strand)

    def discard(self, seq: int) -> bool:
        strand = self.strands.get(self._place(seq))
        if strand is None or seq not in strand.waiting:
            return False
        strand.discard(seq)
        self.places.pop(seq, None)
        self._count(strand.taker, -1)
        self.is_dry = self.is_dry and self.due > 0
        self._tidy(strand)
        return True

    def first(self, taker: str, tick: float) -> int | None:
        """The rank of the next job that a taker may have."""
        strand = self._next(taker, tick)
        return None if strand is None else strand.first() // MAX_SEQ

    def pop(self, taker: str, tick: float, limit: int) -> dict[int, Slot]:
        """Leave for the next jobs that may start, by `seq`, at most so many, counted as running from now on."""
        slots: dict[int, Slot] = {}
        while len(slots) < limit and (strand := self._next(taker, tick)) is not None:
            turns = self.turns[taker]
            turns.popleft()
            strand.has_turn = False
            seqs = strand.pop(1 if turns else min(limit - len(slots), self._room(strand.label)))
            slots |= dict.fromkeys(seqs, Slot(self.name, strand.label))
            self._start(strand, seqs)
        return slots

    def _start(self, strand: Strand, seqs: list[int]) -> None:
        for seq in seqs if self.places else ():
            self.places.pop(seq, None)
        self._count(strand.taker, -len(seqs))
        self.tokens -= len(seqs)
        self.occupy(strand.label, len(seqs))
        self._give_turn(strand)
        self._tidy(strand)

    def occupy(self, label: str, number: int = 1) -> None:
        """Count so many more as running."""
        self.running += number
        if label:
            self.running_by[label] += number

    def release(self, label: str, number: int) -> None:
        """Count so many less as running."""
        self.running -= number
        if label:
            self.running_by[label] -= number
            if not self.running_by[label]:
                del self.running_by[label]
        for taker in self.due_for:
            strand = self.strands.get((taker, label))
            if strand is not None:
                self._give_turn(strand)

    def oldest_due(self) -> int | None:
        """When the job due first was due; None if that is not known here, or not at once."""
        if self.is_lifted or not self.due or len(self.strands) > MANY_STRANDS:
            return None
        return min(strand.first() // MAX_SEQ for strand in self.strands.values() if strand.waiting)

    def seqs(self) -> list[int]:
        return [seq for strand in self.strands.values() for seq in strand.waiting]

    def may_start(self, taker: str = INSIDE) -> bool:
        """Whether nothing but the rate or a label can keep it from starting a job."""
        return taker in self.due_for and not self.is_paused and self.running < self.settings.concurrency

    def is_idle(self, tick: float) -> bool:
        """Whether nothing waits or runs in it and nothing is known of it."""
        return not (self.due or self.running or self.is_paused or self.is_listed) and self.recent.is_over(tick)

    def token_in(self, tick: float) -> float:
        """Seconds until the rate allows a start."""
        rate = self.settings.rate
        if rate is None or self._has_token(tick):
            return 0.0
        return (1 - self.tokens) / rate.per_second

    def is_label_full(self, seq: int) -> bool:
        return not self._has_room(self._place(seq)[1])

    def label_of(self, job: Job | Glance) -> str:
        limit = self.settings.label_concurrency
        if limit is None or job.labels is None:
            return NO_LABEL
        value: str = orjson.loads(job.labels).get(limit.label, NO_LABEL)
        return value

    def _next(self, taker: str, tick: float) -> Strand | None:
        """The strand whose turn it is and that may start a job."""
        if not self.may_start(taker):
            return None
        self.is_dry = not self._has_token(tick)
        if self.is_dry:
            return None
        turns = self.turns.setdefault(taker, deque())
        while turns:
            strand = turns[0]
            if strand.waiting and self._has_room(strand.label):
                return strand
            turns.popleft()
            strand.has_turn = False
            self._tidy(strand)
        return None

    def _has_token(self, tick: float) -> bool:
        rate = self.settings.rate
        if rate is None:
            self.tokens = math.inf
            return True
        most = rate.burst + CARRY if self.is_dry else rate.burst
        self.tokens = min(most, self.tokens + (tick - self.filled_at) * rate.per_second)
        self.filled_at = tick
        return self.tokens >= 1 - NEARLY

    def _has_room(self, label: str) -> bool:
        limit = self.settings.label_concurrency
        return limit is None or not label or self.running_by[label] < limit.limit

    def _room(self, label: str) -> int:
        """How many of a strand may start at once; there is room and a token for one."""
        room = self.settings.concurrency - self.running
        if self.settings.rate is not None:
            room = min(room, int(self.tokens + NEARLY))
        limit = self.settings.label_concurrency
        return room if limit is None or not label else min(room, limit.limit - self.running_by[label])

    def _give_turn(self, strand: Strand) -> None:
        if strand.waiting and not strand.has_turn and self._has_room(strand.label):
            strand.has_turn = True
            self.turns.setdefault(strand.taker, deque()).append(strand)

    def _tidy(self, strand: Strand) -> None:
        """Forget a strand that is of no use; turns given to jobs that left without one are forgotten in bulk."""
        turns = self.turns.get(strand.taker)
        due = self.due_for.get(strand.taker, 0)
        if turns and (not due or len(turns) > 2 * due + MIN_STALE):
            self.turns[strand.taker] = deque()
            for other in turns:
                other.has_turn = False
                self._give_turn(other)
                self._forget_idle(other)
        self._forget_idle(strand)

    def _forget_idle(self, strand: Strand) -> None:
        if not (strand.waiting or strand.has_turn):
            self.strands.pop((strand.taker, strand.label), None)

    def _place(self, seq: int) -> tuple[str, str]:
        return self.places.get(seq, PLAIN)

    def _count(self, taker: str, number: int) -> None:
        self.due += number
        self.is_lifted = self.is_lifted and self.due > 0
        left = self.due_for.get(taker, 0) + number
        if left:
            self.due_for[taker] = left
        else:
            self.due_for.pop(taker, None)
