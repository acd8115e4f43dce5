"""The heap of due times: which job is next, and when. It holds a limited number of entries."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from operator import itemgetter, le
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from erelong.duties.signal import Settable

_PIECES = 16  # per overfull slot: fewer move each entry more often, more make slots too small
_LEAST_SLOT = 2
NEVER = 2**63 - 1
NO_EDGE = (NEVER, NEVER)  # no entry lies beyond it

_due, _seq = itemgetter(0), itemgetter(1)


class Agenda:
    """Pairs of (due, seq), the earliest due first. Entries due at the same instant leave in the order they came.

    It ignores entries beyond `edge`: the store has them. Above `limit` entries it drops the latest and moves the edge
    back to the first dropped one. It sets `low` when `refill_at` or fewer entries are left. `Refill` moves the edge
    forward and reads the entries before it from the store.

    There is no cancel: the scheduler drops stale entries when it pops them. If they become many, `snapshots` and
    `retain` remove them, a few thousand entries at a time.

    A pending entry is 16 bytes in the columns of a slot. A heap of Python objects would take ten times the memory and
    stall the loop at every full garbage collection. Only the front is sorted, as pairs:

        front             slots[0]             slots[1]             slots[-1]
        sorted            unsorted             unsorted             unsorted
                   starts[0]            starts[1]            starts[-1]             (no end)

    Invariants between two calls:

    * The front is due at or before `starts[0]`, and `slots[i]` from `starts[i]` to `starts[i + 1]`, both included. Of
      entries due at one instant, those further left came first. A flood due at a single instant needs no special
      case: it fills several slots with the same start.
    * The front and each slot hold at most `slot_size` entries, so a call sorts or splits at most that many. There is
      always a slot, and only the last may be empty.
    * `earliest` is the lowest due instant.
    """

    def __init__(
        self, *, earlier: Settable | None = None, low: Settable | None = None, limit: int = NEVER, slot_size: int = 4096
    ) -> None:
        """Start empty; set `earlier` when a new entry is due before all others."""
        self.edge = NO_EDGE
        self.refill_at = -1
        self._earlier = earlier
        self._low = low
        self._limit = limit
        self._slot_size = min(slot_size, max(_LEAST_SLOT, limit // _PIECES))
        self._front: list[tuple[int, int]] = []
        self._starts = [0]
        self._slots = [_Slot()]
        self.earliest = NEVER
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def next_due(self) -> int | None:
        """Return the earliest due instant, None when nothing is pending."""
        return None if self.earliest == NEVER else self.earliest

    def next_entries(self, limit: int) -> list[tuple[int, int]]:
        """Return the entries due at the earliest instant, at most `limit`, in the order in which they leave."""
        if not self._front and self._size:
            self._open()
        return self._front[: min(limit, bisect_right(self._front, self.earliest, key=_due))]

    def add(self, due: int, seq: int) -> None:
        """Add one entry; its due instant may be in the past."""
        if (due, seq) > self.edge:
            return
        index = bisect_right(self._starts, due) - 1
        if index < 0:
            self._insert(due, seq)
        else:
            slot = self._slots[index]
            slot.dues.append(due)
            slot.seqs.append(seq)
            if len(slot.dues) > self._slot_size:
                self._split(index)
        self._size += 1
        if self._size > self._limit:
            self._trim()
        if due < self.earliest:
            self.earliest = due
            if self._earlier is not None:
                self._earlier.set()

    def extend(self, pairs: Iterable[tuple[int, int]]) -> None:
        """Add many entries, faster than one by one unless they are sparse; set `earlier` at most once."""
        batch = sorted(pairs, key=_due)
        if batch and batch[-1][0] >= self.edge[0]:
            batch = [pair for pair in batch if pair <= self.edge]
        dues, seqs = array("q", map(_due, batch)), array("q", map(_seq, batch))
        done = 0
        while done < len(batch):
            done = self._put_run(dues, seqs, done)
        self._size += len(batch)
        if self._size > self._limit:
            self._trim()
        if batch and dues[0] < self.earliest:
            self.earliest = dues[0]
            if self._earlier is not None:
                self._earlier.set()

    def pop(self, now: int, limit: int) -> list[tuple[int, int]]:
        """Remove and return the entries due at or before `now`, the earliest first, at most `limit`."""
        limit = min(limit, self._size)
        taken: list[tuple[int, int]] = []
        while self.earliest <= now and len(taken) < limit:
            if not self._front:
                self._open()
            end = bisect_right(self._front, now, hi=min(limit - len(taken), len(self._front)), key=_due)
            taken += self._front[:end]
            del self._front[:end]
            self.earliest = self._front[0][0] if self._front else min(self._slots[0].dues, default=NEVER)
        self._size -= len(taken)
        if self._size <= self.refill_at and self._low is not None:
            self._low.set()
        return taken

    def snapshots(self, after: int) -> Iterator[Snapshot]:
        """Yield the entries due after an instant, and some before it, in parts of at most `slot_size`.

        The agenda may change between two parts.
        """
        for slot in self._slots[max(0, bisect_right(self._starts, after) - 1) :]:
            yield Snapshot(slot, list(zip(slot.dues, slot.seqs, strict=True)))

    def retain(self, snapshot: Snapshot, kept: Iterable[tuple[int, int]]) -> None:
        """Drop the entries of a snapshot that are not in `kept`; entries added since then stay."""
        index = next((index for index, slot in enumerate(self._slots) if slot is snapshot.slot), None)
        if index is None:
            return  # the slot was split or opened meanwhile
        slot, old = snapshot.slot, len(snapshot.entries)
        pairs = list(kept)
        self._size -= old - len(pairs)
        slot.dues = array("q", map(_due, pairs)) + slot.dues[old:]
        slot.seqs = array("q", map(_seq, pairs)) + slot.seqs[old:]
        if not slot.dues and len(self._slots) > 1:
            del self._slots[index], self._starts[index]
        if not self._front:
            self.earliest = min(self._slots[0].dues, default=NEVER)

    def _trim(self) -> None:
        """Drop the latest slots, an eighth of the limit at once, so that this is rare.

        Kept entries due exactly at the edge are read again later.
        """
        kept = self._limit - self._limit // 8
        while self._size > kept and len(self._slots) > 1:
            self._size -= len(self._slots.pop().dues)
            self.edge = min(self.edge, (self._starts.pop(), -1))
        self.refill_at = self._limit // 2

    def _insert(self, due: int, seq: int) -> None:
        """Add an entry to the front; if that is too long, make its later half the first slot."""
        self._front.insert(bisect_right(self._front, due, key=_due), (due, seq))
        if len(self._front) > self._slot_size:
            half = self._slot_size // 2
            later = self._front[half:]
            del self._front[half:]
            self._starts.insert(0, later[0][0])
            self._slots.insert(0, _Slot(array("q", map(_due, later)), array("q", map(_seq, later))))

    def _put_run(self, dues: array[int], seqs: array[int], begin: int) -> int:
        """Add as many of these sorted entries as fit one slot; return the index of the rest."""
        index = bisect_right(self._starts, dues[begin]) - 1
        if index < 0:
            self._insert(dues[begin], seqs[begin])
            return begin + 1
        slot = self._slots[index]
        end = min(len(dues), begin + self._slot_size + 1 - len(slot.dues))
        if index + 1 < len(self._starts):
            end = bisect_left(dues, self._starts[index + 1], begin, end)
        slot.dues += dues[begin:end]
        slot.seqs += seqs[begin:end]
        if len(slot.dues) > self._slot_size:
            self._split(index)
        return end

    def _split(self, index: int) -> None:
        """Replace an overfull slot with smaller ones."""
        slot = self._slots[index]
        in_order = all(
            map(le, slot.dues, islice(slot.dues, 1, None))
        )  # typical of a constant delay or a single instant
        pieces = slot.cut(self._slot_size) if in_order else slot.share_out()
        self._slots[index : index + 1] = pieces
        self._starts[index + 1 : index + 1] = [min(piece.dues) for piece in pieces[1:]]

    def _open(self) -> None:
        """Sort the first slot into the front, which is empty."""
        slot = self._slots.pop(0)
        del self._starts[0]
        self._front = sorted(zip(slot.dues, slot.seqs, strict=True), key=_due)
        if not self._slots:
            self._starts.append(self._front[-1][0])
            self._slots.append(_Slot())


class Snapshot(NamedTuple):
    """The entries of one slot at one moment."""

    slot: _Slot
    entries: list[tuple[int, int]]


@dataclass(slots=True, eq=False)
class _Slot:
    """Entries in the order they came, in two columns."""

    dues: array[int] = field(default_factory=lambda: array("q"))
    seqs: array[int] = field(default_factory=lambda: array("q"))

    def cut(self, at: int) -> list[_Slot]:
        return [_Slot(self.dues[:at], self.seqs[:at]), _Slot(self.dues[at:], self.seqs[at:])]

    def share_out(self) -> list[_Slot]:
        """Return slots of equal time spans, none empty: at least two, since the due instants differ."""
        low = min(self.dues)
        span = (max(self.dues) - low) // _PIECES + 1
        pieces = [_Slot() for _ in range(_PIECES)]
        for due, seq in zip(self.dues, self.seqs, strict=True):
            piece = pieces[(due - low) // span]
            piece.dues.append(due)
            piece.seqs.append(seq)
        return [piece for piece in pieces if piece.dues]
