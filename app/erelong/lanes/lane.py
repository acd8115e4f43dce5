"""One queue: its settings, its due jobs in order, and the count of its running jobs."""

from __future__ import annotations

import math
from collections import Counter, deque
from typing import TYPE_CHECKING, NamedTuple

import orjson

from erelong.lanes.recent import Recent
from erelong.lanes.sublane import MIN_STALE, Sublane
from erelong.model.ids import MAX_SEQ

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from erelong.model.job import Job
    from erelong.settings.queues import QueueSettings
    from erelong.stores.base import Peek

NO_LABEL = None  # of jobs that label_concurrency does not limit; a label may have the value ""
INSIDE = ""  # the consumer of jobs that run here; that of a pull kind has the name of the kind
PLAIN = (INSIDE, NO_LABEL)
NEARLY = 1e-9  # of a token: the rounding error of float sums
MAX_DUE = 1_000_000  # in memory; more wait in the store
SHARE = 8  # a sublane may hold this many times the free room, so at most 8/9 of all
MANY_SUBLANES = 1_000  # to check each takes as long as a read of the store
CARRY = 1 - 1e-6  # tokens above the burst that a late timer may add: below 1, so never one job more


SublaneKey = tuple[str, str | None]
"""A consumer and a label value."""


class Slot(NamedTuple):
    """A permit to run one job, to be released; slots taken together from a sublane are one object."""

    queue: str
    label: str | None


class Spill(NamedTuple):
    """Due jobs that a lane had no room for: a range of (due, seq) in the store, and an estimate of their number."""

    first: tuple[int, int]
    last: tuple[int, int]
    jobs: int

    def __add__(self, other: Spill) -> Spill:  # type: ignore[override]  # a tuple concatenates
        return Spill(min(self.first, other.first), max(self.last, other.last), self.jobs + other.jobs)


class Lane:
    """Knows which job of its queue may start next for each consumer, and which limit holds the others back.

    It holds at most `MAX_DUE` jobs. Jobs beyond that are `spilled`, and read again once `is_low` is set.
    """

    def __init__(self, name: str, settings: QueueSettings) -> None:
        self.name = name
        self.settings = settings
        self.is_paused = False
        self.is_listed = False
        self.sublanes: dict[SublaneKey, Sublane] = {}
        self.turns: dict[str, deque[Sublane]] = {}
        self.keys: dict[int, SublaneKey] = {}  # of waiting jobs of pull kinds or with a label
        self.running = 0
        self.running_by: Counter[str | None] = Counter()  # by label value
        self.due = 0
        self.due_for: dict[str, int] = {}  # by consumer
        self.spilled: Spill | None = None
        self.reread: Spill | None = None
        self.is_low = False
        self.is_lifted = False  # whether jobs with a priority have come since it was last empty
        self.tokens = math.inf
        self.filled_at = 0.0
        self.held_back: set[str] = set()  # consumers whose next job lacked a token
        self.recent = Recent()

    def put(self, consumer: str, jobs: Sequence[Peek], lift: int) -> None:
        """Add due jobs of one consumer, ranked `lift` microseconds earlier than due."""
        if self.spilled is not None or self.due + len(jobs) > MAX_DUE // 2:
            jobs = self._admit(consumer, jobs, lift)
        by_label: dict[str | None, dict[int, int]] = {}
        if self.settings.label_concurrency is None:
            by_label[NO_LABEL] = {seq: (due_at - lift) * MAX_SEQ + seq for seq, due_at, _, _, _ in jobs}
        else:
            for job in jobs:
                by_label.setdefault(self.label_of(job), {})[job.seq] = (job.due_at - lift) * MAX_SEQ + job.seq
        for label, ranked in by_label.items():
            self._put((consumer, label), ranked)
        self.is_lifted = self.is_lifted or lift != 0

    def _admit(self, consumer: str, jobs: Sequence[Peek], lift: int) -> list[Peek]:
        """Return the jobs that fit; if a sublane has spilled, only those that start before others of it."""
        admitted: list[Peek] = []
        free, taken = MAX_DUE - self.due, Counter[str | None]()
        for job in jobs:
            label = self.label_of(job)
            sublane = self.sublanes.get((consumer, label))
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
        """Return the spilled range to read again; its jobs may spill again."""
        self.reread, self.spilled, self.is_low = self.spilled, None, False
        for sublane in self.sublanes.values():
            sublane.low = -1
        return self.reread

    @property
    def spilled_jobs(self) -> int:
        """Return an estimate of the due jobs that are only in the store."""
        return sum(spill.jobs for spill in (self.spilled, self.reread) if spill is not None)

    def _put(self, key: SublaneKey, packed: Mapping[int, int]) -> None:
        if key != PLAIN or self.keys:
            for seq in packed:
                if self._key_of(seq) != key:
                    self.discard(seq)
        sublane = self.sublanes.get(key)
        if sublane is None:
            sublane = self.sublanes[key] = Sublane(*key)
        self._count(sublane.consumer, sublane.put(packed))
        if key != PLAIN:
            self.keys.update(dict.fromkeys(packed, key))
        if not sublane.has_turn:
            self._give_turn(sublane)

    def discard(self, seq: int) -> bool:
        sublane = self.sublanes.get(self._key_of(seq))
        if sublane is None or seq not in sublane.waiting:
            return False
        sublane.discard(seq)
        self.keys.pop(seq, None)
        self._count(sublane.consumer, -1)
        if self.spilled is not None:
            self.is_low = self.is_low or self.due <= MAX_DUE // 2 or len(sublane.waiting) <= sublane.low
        self._tidy(sublane)
        return True

    def first(self, consumer: str, tick: float) -> int | None:
        """Return the rank of the next job that may start for a consumer."""
        sublane = self._next(consumer, tick)
        return None if sublane is None else sublane.first() // MAX_SEQ

    def pop(self, consumer: str, tick: float, limit: int) -> dict[int, Slot]:
        """Return slots for the next jobs that may start, at most `limit`, by `seq`; count them as running."""
        slots: dict[int, Slot] = {}
        while len(slots) < limit and (sublane := self._next(consumer, tick)) is not None:
            turns = self.turns[consumer]
            turns.popleft()
            sublane.has_turn = False
            seqs = sublane.pop(1 if turns else min(limit - len(slots), self._room(sublane.label)))
            slots |= dict.fromkeys(seqs, Slot(self.name, sublane.label))
            self._start(sublane, seqs)
        return slots

    def _start(self, sublane: Sublane, seqs: list[int]) -> None:
        for seq in seqs if self.keys else ():
            self.keys.pop(seq, None)
        self._count(sublane.consumer, -len(seqs))
        if len(self.due_for) > 1 and (left := self.due_for.pop(sublane.consumer, 0)):
            self.due_for[sublane.consumer] = left  # the others are announced first, so none takes all tokens
        self.tokens -= len(seqs)
        self.occupy(sublane.label, len(seqs))
        if self.spilled is not None:
            self.is_low = self.is_low or self.due <= MAX_DUE // 2 or len(sublane.waiting) <= sublane.low
        self._give_turn(sublane)
        self._tidy(sublane)

    def occupy(self, label: str | None, number: int = 1) -> None:
        """Count `number` more jobs as running."""
        self.running += number
        if label is not None:
            self.running_by[label] += number

    def release(self, label: str | None, number: int) -> None:
        """Count `number` fewer jobs as running."""
        self.running -= number
        if label is not None:
            self.running_by[label] -= number
            if not self.running_by[label]:
                del self.running_by[label]
        for consumer in self.due_for:
            sublane = self.sublanes.get((consumer, label))
            if sublane is not None:
                self._give_turn(sublane)

    def return_tokens(self, number: int, tick: float) -> None:
        """Return the tokens of jobs that did not start."""
        if self.settings.rate is not None:
            self._has_token(tick)
            self.tokens = min(self.settings.rate.burst, self.tokens + number)

    def oldest_due(self) -> int | None:
        """Return the earliest due instant; None if it is unknown here or slow to find."""
        if self.is_lifted or self.spilled or self.reread or not self.due or len(self.sublanes) > MANY_SUBLANES:
            return None
        return min(sublane.first() // MAX_SEQ for sublane in self.sublanes.values() if sublane.waiting)

    def has(self, seq: int) -> bool:
        """Return whether a due job waits here; otherwise it may be spilled, or on its way."""
        sublane = self.sublanes.get(self._key_of(seq))
        return sublane is not None and seq in sublane.waiting

    def has_entry(self, packed: int) -> bool:
        """Return whether a due job waits here with this rank."""
        sublane = self.sublanes.get(self._key_of(packed % MAX_SEQ))
        return sublane is not None and sublane.holds(packed)

    def seqs(self) -> list[int]:
        return [seq for sublane in self.sublanes.values() for seq in sublane.waiting]

    def may_start(self, consumer: str = INSIDE) -> bool:
        """Return whether only the rate or a label can hold its jobs back."""
        return consumer in self.due_for and not self.is_paused and self.running < self.settings.concurrency

    def is_idle(self, tick: float) -> bool:
        """Return whether it has no jobs, no pause and no recent starts."""
        is_used = self.due or self.running or self.is_paused or self.is_listed or self.spilled or self.reread
        return not is_used and self.recent.is_over(tick)

    def token_in(self, tick: float) -> float:
        """Return the seconds until the rate allows a start."""
        rate = self.settings.rate
        if rate is None or self._has_token(tick):
            return 0.0
        return (1 - self.tokens) / rate.per_second

    def label_of(self, job: Job | Peek) -> str | None:
        limit = self.settings.label_concurrency
        if limit is None or job.labels is None:
            return NO_LABEL
        value: str | None = orjson.loads(job.labels).get(limit.label, NO_LABEL)
        return value

    def _next(self, consumer: str, tick: float) -> Sublane | None:
        """Return the next sublane in turn that may start a job."""
        if not self.may_start(consumer):
            return None
        if not self._has_token(tick):
            self.held_back.add(consumer)
            return None
        self.held_back.discard(consumer)
        turns = self.turns.setdefault(consumer, deque())
        while turns:
            sublane = turns[0]
            if sublane.waiting and self.has_room(sublane.label):
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
        most = rate.burst + CARRY if self.held_back else rate.burst
        self.tokens = min(most, self.tokens + (tick - self.filled_at) * rate.per_second)
        self.filled_at = tick
        return self.tokens >= 1 - NEARLY

    def has_room(self, label: str | None) -> bool:
        limit = self.settings.label_concurrency
        return limit is None or label is None or self.running_by[label] < limit.limit

    def _room(self, label: str | None) -> int:
        """Return how many jobs of a sublane may start; the caller has checked that one may."""
        room = self.settings.concurrency - self.running
        if self.settings.rate is not None:
            room = min(room, int(self.tokens + NEARLY))
        limit = self.settings.label_concurrency
        return room if limit is None or label is None else min(room, limit.limit - self.running_by[label])

    def _give_turn(self, sublane: Sublane) -> None:
        if sublane.waiting and not sublane.has_turn and self.has_room(sublane.label):
            sublane.has_turn = True
            self.turns.setdefault(sublane.consumer, deque()).append(sublane)

    def _tidy(self, sublane: Sublane) -> None:
        """Forget an empty sublane; drop turns of emptied sublanes in bulk."""
        turns = self.turns.get(sublane.consumer)
        due = self.due_for.get(sublane.consumer, 0)
        if turns and (not due or len(turns) > 2 * due + MIN_STALE):
            self.turns[sublane.consumer] = deque()
            for other in turns:
                other.has_turn = False
                self._give_turn(other)
                self._forget_idle(other)
        self._forget_idle(sublane)

    def _forget_idle(self, sublane: Sublane) -> None:
        if not (sublane.waiting or sublane.has_turn):
            self.sublanes.pop((sublane.consumer, sublane.label), None)

    def _key_of(self, seq: int) -> SublaneKey:
        return self.keys.get(seq, PLAIN)

    def _count(self, consumer: str, number: int) -> None:
        self.due += number
        self.is_lifted = self.is_lifted and self.due > 0
        left = self.due_for.get(consumer, 0) + number
        if left:
            self.due_for[consumer] = left
        else:
            self.due_for.pop(consumer, None)
            self.held_back.discard(consumer)
