"""Due jobs that take turns together: those of one queue with one taker and one label value, in their order."""

from __future__ import annotations

from bisect import bisect
from collections import deque
from collections.abc import Iterator, Mapping, MutableMapping
from heapq import heapify, heappop, heappush
from itertools import chain

from erelong.model.ids import MAX_SEQ

SEQ_DIGITS = MAX_SEQ - 1  # a mask: the remainder costs twice as much
MIN_STALE = 64
MANY = 20_000
SHARDS = 64
SHARES = [round(256 * 2 ** (shard / SHARDS)) for shard in range(SHARDS)]
SHARD_OF = bytes(chain.from_iterable([shard] * share for shard, share in enumerate(SHARES)))
DIGITS = len(SHARD_OF)


class Shards(MutableMapping[int, int]):
    """Many dictionaries as one: a single one stops the loop for 40 ms as it grows beyond 700,000 entries.

    They are of unequal sizes, the largest twice the smallest. Equal ones would all double in the same moment.
    """

    def __init__(self, entries: Mapping[int, int]) -> None:
        self._shards: list[dict[int, int]] = [{} for _ in range(SHARDS)]
        self._size = 0
        for seq, packed in entries.items():
            self[seq] = packed

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[int]:
        return chain.from_iterable(self._shards)

    def __contains__(self, seq: object) -> bool:
        return isinstance(seq, int) and seq in self._shards[SHARD_OF[seq % DIGITS]]

    def __getitem__(self, seq: int) -> int:
        return self._shards[SHARD_OF[seq % DIGITS]][seq]

    def __setitem__(self, seq: int, packed: int) -> None:
        shard = self._shards[SHARD_OF[seq % DIGITS]]
        before = len(shard)
        shard[seq] = packed
        self._size += len(shard) - before

    def __delitem__(self, seq: int) -> None:
        del self._shards[SHARD_OF[seq % DIGITS]][seq]
        self._size -= 1


class Sublane:
    """The due jobs of a lane with one taker and one label value, first to start on top; stale entries are skipped.

    When `low` or fewer wait, it is time to read more of them from the store (-1: there are none).

    Most come in their order and stand in `row`, which is sorted: half the cost of the heap, where those stand that rank
    before its end.
    """

    __slots__ = ("has_turn", "heap", "label", "low", "row", "taker", "waiting")

    def __init__(self, taker: str, label: str) -> None:
        self.taker = taker
        self.label = label
        self.row: deque[int] = deque()
        self.heap: list[int] = []
        self.waiting: dict[int, int] | Shards = {}
        self.has_turn = False
        self.low = -1

    def put(self, packed: Mapping[int, int]) -> int:
        """Take in jobs, by `seq` their rank with that in its last digits; how many were not there."""
        waiting = self.waiting
        before = len(waiting)
        if waiting.keys().isdisjoint(packed):  # as nearly always
            fresh = sorted(packed.values())
        else:
            fresh = sorted([entry for seq, entry in packed.items() if waiting.get(seq) != entry])
        waiting.update(packed)
        if len(waiting) > MANY and isinstance(waiting, dict):
            self.waiting = Shards(waiting)
        passing = bisect(fresh, self.row[-1]) if self.row else 0
        for entry in fresh[:passing]:
            heappush(self.heap, entry)
        self.row += fresh[passing:]
        return len(waiting) - before

    def is_last(self, packed: int) -> bool:
        """Whether an entry would start after all that came in their order."""
        return not self.row or packed > self.row[-1]

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
