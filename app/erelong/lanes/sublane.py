"""The due jobs of one queue with one consumer and one label value, in order: they share a turn."""

from __future__ import annotations

from bisect import bisect, bisect_left
from collections import deque
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from heapq import heapify, heappop, heappush
from itertools import chain, islice
from operator import eq

from erelong.model.ids import MAX_SEQ

SEQ_DIGITS = MAX_SEQ - 1  # a mask is twice as fast as the remainder
MIN_STALE = 64
MANY = 20_000
SLICE = 1_000  # entries counted at a time, in a few hundred microseconds
MAX_SEEN = 20_000  # entries counted, of which some may be stale
SHARDS = 64
SHARES = [round(256 * 2 ** (shard / SHARDS)) for shard in range(SHARDS)]
SHARD_OF = bytes(chain.from_iterable([shard] * share for shard, share in enumerate(SHARES)))
DIGITS = len(SHARD_OF)


class Shards(MutableMapping[int, int]):
    """Many dictionaries as one: a single large one blocks the loop for tens of milliseconds when it grows.

    The largest is twice as large as the smallest, because equal ones would all grow at the same moment.
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

    def get_all(self, seqs: Sequence[int]) -> Iterator[int | None]:
        """Return the values of these keys; None for a missing one."""
        shards = [self._shards[SHARD_OF[seq % DIGITS]] for seq in seqs]
        return map(dict.get, shards, seqs)

    def __delitem__(self, seq: int) -> None:
        del self._shards[SHARD_OF[seq % DIGITS]][seq]
        self._size -= 1


class Sublane:
    """The due jobs of a lane with one consumer and one label value, in start order. It skips stale entries.

    When `low` or fewer wait, more should be read from the store (-1: it has none).

    Most jobs come in order and go to the end of `row`, which is sorted and costs half as much as the heap. Jobs that
    rank before its end go to the heap.
    """

    __slots__ = ("consumer", "has_turn", "heap", "label", "low", "row", "waiting")

    def __init__(self, consumer: str, label: str | None) -> None:
        self.consumer = consumer
        self.label = label
        self.row: deque[int] = deque()
        self.heap: list[int] = []
        self.waiting: dict[int, int] | Shards = {}
        self.has_turn = False
        self.low = -1

    def put(self, packed: Mapping[int, int]) -> int:
        """Add jobs, as `seq` to rank with the seq in its last digits; return how many are new."""
        waiting = self.waiting
        before = len(waiting)
        if waiting.keys().isdisjoint(packed):  # nearly always
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
        """Return whether an entry would start after all in `row`."""
        return not self.row or packed > self.row[-1]

    def discard(self, seq: int) -> None:
        if self.waiting.pop(seq, None) is None:
            return
        if len(self.row) + len(self.heap) > 2 * len(self.waiting) + MIN_STALE:
            self.row = deque(filter(self.holds, self.row))
            self.heap = list(filter(self.holds, self.heap))
            heapify(self.heap)

    def first(self) -> int:
        """Return the top entry; there must be one."""
        while True:
            packed = self.heap[0] if self._is_heap_next() else self.row[0]
            if self.holds(packed):
                return packed
            self._take()

    def holds(self, packed: int) -> bool:
        """Return whether an entry is not stale."""
        return self.waiting.get(packed & SEQ_DIGITS) == packed

    def of_row(self, packed: int | None, number: int, *, is_reverse: bool) -> list[int]:
        """Return the next entries of the row beyond one of them, some of which may be stale."""
        row = self.row
        if is_reverse:
            end = len(row) if packed is None else bisect_left(row, packed)
            return [row[place] for place in range(end - 1, max(end - number, 0) - 1, -1)]
        start = 0 if packed is None else bisect(row, packed)
        return [row[place] for place in range(start, min(start + number, len(row)))]

    def before(self, packed: int) -> Iterator[int | None]:
        """Yield how many jobs rank before an entry, in short slices that add up; a final None if there may be more.

        The sublane may be mutated between two slices.
        """
        row = [*islice(self.row, MAX_SEEN)]
        is_cut = len(row) == MAX_SEEN and row[-1] < packed
        del row[bisect_left(row, packed) :]
        seen: set[int] = set()
        for at in range(0, len(row), SLICE):
            yield self._count(row[at : at + SLICE], seen)
        places = [0]
        while places and len(places) < MAX_SEEN:
            part, places = places[-SLICE:], places[:-SLICE]
            earlier = [place for place in part if place < len(self.heap) and self.heap[place] < packed]
            yield self._count([self.heap[place] for place in earlier], seen)
            places += [child for place in earlier for child in (2 * place + 1, 2 * place + 2)]
        if is_cut or places:
            yield None

    def _count(self, entries: Sequence[int], seen: set[int]) -> int:
        """Return how many of these entries are neither stale nor double."""
        waiting = self.waiting
        if len(self.row) + len(self.heap) == len(waiting):
            return len(entries)
        fresh = [*({*entries} - seen)]
        seen.update(fresh)
        seqs = [packed & SEQ_DIGITS for packed in fresh]
        found = map(waiting.get, seqs) if isinstance(waiting, dict) else waiting.get_all(seqs)
        return sum(map(eq, found, fresh))

    def pop(self, number: int) -> list[int]:
        """Remove and return the first `number` jobs."""
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
