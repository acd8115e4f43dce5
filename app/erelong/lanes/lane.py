"""One queue: its settings, its due jobs in their order, what runs of it."""

from __future__ import annotations

import math
from collections import Counter, deque
from typing import TYPE_CHECKING, NamedTuple

import orjson

from erelong.lanes.sublane import MIN_STALE, Sublane
from erelong.model.ids import MAX_SEQ
from erelong.model.runs import counted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from erelong.model.job import Job
    from erelong.settings.queues import QueueSettings
    from erelong.stores.base import Peek

NO_LABEL = ""
INSIDE = ""  # who takes jobs that are run here; jobs of a pull kind are taken by those who ask for the kind
PLAIN = (INSIDE, NO_LABEL)
NEARLY = 1e-9  # of a token: what sums of floats may lack
MAX_DUE = 1_000_000  # in memory; others wait in the store
SHARE = 8  # a strand may hold so many times what is free: so one has at most 8/9, and there is room for others
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


class Spill(NamedTuple):
    """Due jobs that a lane had no room for: the store has them between two pairs of (due, seq), so many about."""

    first: tuple[int, int]
    last: tuple[int, int]
    jobs: int

    def __add__(self, other: Spill) -> Spill:  # type: ignore[override]  # not that of tuples
        return Spill(min(self.first, other.first), max(self.last, other.last), self.jobs + other.jobs)


class Lane:
    """Knows which job of its queue may start next, for each taker, and what keeps the others.

    It holds `MAX_DUE` jobs at most. What it has no room for is `spilled`, and `reread` when `is_low` said it was time.
    """

    def __init__(self, name: str, settings: QueueSettings) -> None:
        self.name = name
        self.settings = settings
        self.is_paused = False
        self.is_listed = False
        self.sublanes: dict[tuple[str, str], Sublane] = {}
        self.turns: dict[str, deque[Sublane]] = {}
        self.places: dict[int, tuple[str, str]] = {}  # of waiting jobs that have a taker outside or a label
        self.running = 0
        self.running_by: Counter[str] = Counter()  # label value
        self.due = 0
        self.due_for: dict[str, int] = {}  # taker
        self.spilled: Spill | None = None
        self.reread: Spill | None = None
        self.is_low = False
        self.is_lifted = False  # since it was empty last, jobs came of which the rank is not their time
        self.tokens = math.inf
        self.filled_at = 0.0
        self.is_dry = False  # its next job was refused for want of a token
        self.recent = Recent()

    def put(self, taker: str, jobs: Sequence[Peek], lift: int) -> None:
        """Take in due jobs of one taker, which are lifted by so many microseconds."""
        if self.spilled is not None or self.due + len(jobs) > MAX_DUE // 2:
            jobs = self._admit(taker, jobs, lift)
        by_label: dict[str, dict[int, int]] = {}
        if self.settings.label_concurrency is None:
            by_label[NO_LABEL] = {seq: (due_at - lift) * MAX_SEQ + seq for seq, due_at, _, _, _ in jobs}
        else:
            for job in jobs:
                by_label.setdefault(self.label_of(job), {})[job.seq] = (job.due_at - lift) * MAX_SEQ + job.seq
        for label, ranked in by_label.items():
            self._put((taker, label), ranked)
        self.is_lifted = self.is_lifted or lift != 0

    def _admit(self, taker: str, jobs: Sequence[Peek], lift: int) -> list[Peek]:
        """Return those there is room for: of a strand that has spilled some, those that start before others of it."""
        admitted: list[Peek] = []
        free, taken = MAX_DUE - self.due, Counter[str]()
        for job in jobs:
            label = self.label_of(job)
            sublane = self.sublanes.get((taker, label))
            held = taken[label] + (0 if sublane is None else len(sublane.waiting))
            is_here = sublane is not None and job.seq in sublane.waiting
            if is_here or (free and self._has_share(sublane, held, free, (job.due_at - lift) * MAX_SEQ + job.seq)):
                admitted.append(job)
                taken[label] += not is_here
                free -= not is_here
                continue
            at = (job.due_at, job.seq)
            self.spill(Spill(at, at, 1))
            if sublane is not None:
                sublane.low = held // 2
        return admitted

    def _has_share(self, sublane: Sublane | None, held: int, free: int, packed: int) -> bool:
        if sublane is not None and not sublane.is_last(packed):
            return True
        return held < SHARE * free and (sublane is None or sublane.low < 0)

    def spill(self, more: Spill) -> None:
        """Note that the store has more due jobs."""
        self.spilled = more if self.spilled is None else self.spilled + more

    def take_spilled(self) -> Spill | None:
        """Return what is to be read and put here again, where it may be spilled once more."""
        self.reread, self.spilled, self.is_low = self.spilled, None, False
        for sublane in self.sublanes.values():
            sublane.low = -1
        return self.reread

    @property
    def elsewhere(self) -> int:
        """How many due jobs are not here, about."""
        return sum(spill.jobs for spill in (self.spilled, self.reread) if spill is not None)

    def _put(self, place: tuple[str, str], packed: Mapping[int, int]) -> None:
        if place != PLAIN or self.places:
            for seq in packed:
                if self._place(seq) != place:
                    self.discard(seq)
        sublane = self.sublanes.get(place)
        if sublane is None:
            sublane = self.sublanes[place] = Sublane(*place)
        self._count(sublane.taker, sublane.put(packed))
        if place != PLAIN:
            self.places.update(dict.fromkeys(packed, place))
        if not sublane.has_turn:
            self._give_turn(sublane)

    def discard(self, seq: int) -> bool:
        sublane = self.sublanes.get(self._place(seq))
        if sublane is None or seq not in sublane.waiting:
            return False
        sublane.discard(seq)
        self.places.pop(seq, None)
        self._count(sublane.taker, -1)
        self.is_dry = self.is_dry and self.due > 0
        if self.spilled is not None:
            self.is_low = self.is_low or self.due <= MAX_DUE // 2 or len(sublane.waiting) <= sublane.low
        self._tidy(sublane)
        return True

    def first(self, taker: str, tick: float) -> int | None:
        """The rank of the next job that a taker may have."""
        sublane = self._next(taker, tick)
        return None if sublane is None else sublane.first() // MAX_SEQ

    def pop(self, taker: str, tick: float, limit: int) -> dict[int, Slot]:
        """Leave for the next jobs that may start, by `seq`, at most so many, counted as running from now on."""
        slots: dict[int, Slot] = {}
        while len(slots) < limit and (sublane := self._next(taker, tick)) is not None:
            turns = self.turns[taker]
            turns.popleft()
            sublane.has_turn = False
            seqs = sublane.pop(1 if turns else min(limit - len(slots), self._room(sublane.label)))
            slots |= dict.fromkeys(seqs, Slot(self.name, sublane.label))
            self._start(sublane, seqs)
        return slots

    def _start(self, sublane: Sublane, seqs: list[int]) -> None:
        for seq in seqs if self.places else ():
            self.places.pop(seq, None)
        self._count(sublane.taker, -len(seqs))
        self.tokens -= len(seqs)
        self.occupy(sublane.label, len(seqs))
        if self.spilled is not None:
            self.is_low = self.is_low or self.due <= MAX_DUE // 2 or len(sublane.waiting) <= sublane.low
        self._give_turn(sublane)
        self._tidy(sublane)

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
            sublane = self.sublanes.get((taker, label))
            if sublane is not None:
                self._give_turn(sublane)

    def oldest_due(self) -> int | None:
        """When the job due first was due; None if that is not known here, or not at once."""
        if self.is_lifted or self.spilled or self.reread or not self.due or len(self.sublanes) > MANY_STRANDS:
            return None
        return min(sublane.first() // MAX_SEQ for sublane in self.sublanes.values() if sublane.waiting)

    def seqs(self) -> list[int]:
        return [seq for sublane in self.sublanes.values() for seq in sublane.waiting]

    def may_start(self, taker: str = INSIDE) -> bool:
        """Whether nothing but the rate or a label can keep it from starting a job."""
        return taker in self.due_for and not self.is_paused and self.running < self.settings.concurrency

    def is_idle(self, tick: float) -> bool:
        """Whether nothing waits or runs in it and nothing is known of it."""
        is_used = self.due or self.running or self.is_paused or self.is_listed or self.spilled or self.reread
        return not is_used and self.recent.is_over(tick)

    def token_in(self, tick: float) -> float:
        """Seconds until the rate allows a start."""
        rate = self.settings.rate
        if rate is None or self._has_token(tick):
            return 0.0
        return (1 - self.tokens) / rate.per_second

    def is_label_full(self, seq: int) -> bool:
        return not self._has_room(self._place(seq)[1])

    def label_of(self, job: Job | Peek) -> str:
        limit = self.settings.label_concurrency
        if limit is None or job.labels is None:
            return NO_LABEL
        value: str = orjson.loads(job.labels).get(limit.label, NO_LABEL)
        return value

    def _next(self, taker: str, tick: float) -> Sublane | None:
        """The strand whose turn it is and that may start a job."""
        if not self.may_start(taker):
            return None
        self.is_dry = not self._has_token(tick)
        if self.is_dry:
            return None
        turns = self.turns.setdefault(taker, deque())
        while turns:
            sublane = turns[0]
            if sublane.waiting and self._has_room(sublane.label):
                return sublane
            turns.popleft()
            sublane.has_turn = False
            self._tidy(sublane)
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

    def _give_turn(self, sublane: Sublane) -> None:
        if sublane.waiting and not sublane.has_turn and self._has_room(sublane.label):
            sublane.has_turn = True
            self.turns.setdefault(sublane.taker, deque()).append(sublane)

    def _tidy(self, sublane: Sublane) -> None:
        """Forget a strand that is of no use; turns given to jobs that left without one are forgotten in bulk."""
        turns = self.turns.get(sublane.taker)
        due = self.due_for.get(sublane.taker, 0)
        if turns and (not due or len(turns) > 2 * due + MIN_STALE):
            self.turns[sublane.taker] = deque()
            for other in turns:
                other.has_turn = False
                self._give_turn(other)
                self._forget_idle(other)
        self._forget_idle(sublane)

    def _forget_idle(self, sublane: Sublane) -> None:
        if not (sublane.waiting or sublane.has_turn):
            self.sublanes.pop((sublane.taker, sublane.label), None)

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
