"""The due jobs of a queue in the order in which they would start. Reading them yields to the loop every millisecond."""

from __future__ import annotations

import asyncio
import math
from collections import defaultdict
from itertools import chain, islice
from typing import TYPE_CHECKING, Final, NamedTuple

from erelong.lanes.lane import INSIDE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection, Sequence

    from erelong.lanes.lane import Lane
    from erelong.lanes.sublane import Sublane

MAX_PLACES: Final = 10_000
"""How far from either end the order is known where label values take turns."""
MAX_VALUES: Final = 50_000
"""How many label values may take turns for the order to be known from its end."""
ROW_STEP: Final = 100  # entries at a time: each takes some microseconds in the middle of a long row
HEAP_STEP: Final = 2_000
STEP: Final = 1_000
FEW: Final = 16


class Upcoming(NamedTuple):
    """Due jobs in order, as the entries of a lane, and whether more follow.

    `is_cut` if due jobs are missing: those beyond the reach of this, or those that the lane does not hold.
    """

    entries: Sequence[int]
    has_more: bool
    is_cut: bool = False


NOTHING: Final = Upcoming((), False)


async def read_order(
    lane: Lane, consumers: Collection[str], after: Sequence[int], number: int, *, is_reverse: bool
) -> Upcoming:
    """Return the next entries after the last one of `after` that still waits; with `is_reverse`, from the other end.

    It is the order in which the jobs of each consumer start. Those of several consumers are merged by rank or, where
    label values take turns, by turn.
    """
    if lane.settings.label_concurrency is None:
        sublanes = [sublane for sublane in lane.sublanes.values() if sublane.consumer in consumers]
        found = await _by_rank(sublanes, after[-1] if after else None, number + 1, is_reverse=is_reverse)
        return Upcoming(found[:number], len(found) > number)
    return await _by_turn(lane, consumers, after, number, is_reverse=is_reverse)


# by rank


async def _by_rank(sublanes: Collection[Sublane], after: int | None, number: int, *, is_reverse: bool) -> list[int]:
    """Return the next entries of these sublanes beyond one of them."""
    found: list[int] = []
    for sublane in sublanes:
        found += await _of_row(sublane, after, number, is_reverse=is_reverse)
        found += await _of_heap(sublane, after, number, is_reverse=is_reverse)
    return sorted({*found}, reverse=is_reverse)[:number]


async def _of_row(sublane: Sublane, after: int | None, number: int, *, is_reverse: bool) -> list[int]:
    found: list[int] = []
    while len(found) < number and (part := sublane.of_row(after, ROW_STEP, is_reverse=is_reverse)):
        found += dict.fromkeys(filter(sublane.holds, part))
        after = part[-1]
        await asyncio.sleep(0)
    return found


async def _of_heap(sublane: Sublane, after: int | None, number: int, *, is_reverse: bool) -> list[int]:
    """Return the next entries of the heap. It is read from its end, since starts move entries towards its front."""
    found: list[int] = []
    low, high = (-math.inf, _or(after, math.inf)) if is_reverse else (_or(after, -math.inf), math.inf)
    for end in range(len(sublane.heap), 0, -HEAP_STEP):
        part = [entry for entry in sublane.heap[max(0, end - HEAP_STEP) : end] if low < entry < high]
        found = sorted({*found, *filter(sublane.holds, part)}, reverse=is_reverse)[:number]
        if len(found) == number and is_reverse:
            low = found[-1]
        elif len(found) == number:
            high = found[-1]
        await asyncio.sleep(0)
    return found


def _or(entry: int | None, default: float) -> float:
    return default if entry is None else entry


# by turn


async def _by_turn(
    lane: Lane, consumers: Collection[str], after: Sequence[int], number: int, *, is_reverse: bool
) -> Upcoming:
    """Read from the end that is asked for, since turns change with each start."""
    limit = MAX_VALUES if is_reverse else MAX_PLACES
    cycle = await _cycle(lane, consumers, limit)
    if is_reverse and len(cycle) == limit:
        return NOTHING._replace(is_cut=True)
    last = next((entry for entry in reversed(after) if lane.has_entry(entry)), None)
    found: list[int] = []
    places, is_beyond = 0, last is None
    async for entry in _turns(cycle, is_reverse=is_reverse):
        if is_beyond:
            found.append(entry)
        if len(found) > number:
            return Upcoming(found[:number], True)
        is_beyond = is_beyond or entry == last
        places += 1
        if places == MAX_PLACES:
            return Upcoming(found, False, is_cut=True)
    return Upcoming(found, False)


async def _cycle(lane: Lane, consumers: Collection[str], limit: int) -> list[Sublane]:
    """Return sublanes, at most `limit`, in the order of their turns.

    A label value at its limit waits for the end of a job and gets the last turn.
    """
    cycle: dict[Sublane, None] = {}
    for consumer in sorted(consumers, key=lambda consumer: (consumer != INSIDE, consumer)):
        turns, labels = [*islice(lane.turns.get(consumer, ()), limit)], [*islice(lane.running_by, limit)]
        for at in range(0, len(turns), STEP):
            cycle.update((sublane, None) for sublane in turns[at : at + STEP] if lane.has_room(sublane.label))
            await asyncio.sleep(0)
        for at in range(0, len(labels), STEP):
            held = [lane.sublanes.get((consumer, label)) for label in labels[at : at + STEP]]
            cycle.update((sublane, None) for sublane in held if sublane and not lane.has_room(sublane.label))
            await asyncio.sleep(0)
    return [*islice(cycle, limit)]


async def _turns(cycle: Sequence[Sublane], *, is_reverse: bool) -> AsyncIterator[int]:
    """Yield the entries of sublanes that take turns: the first of each, then the second."""
    columns: dict[Sublane, _Column] = {}
    work = 0
    async for sublanes in _rounds(cycle, is_reverse=is_reverse):
        for sublane in sublanes:
            column = columns.get(sublane)
            if column is None:
                column = columns[sublane] = _Column(sublane, is_reverse=is_reverse)
            work += 1 + await column.fill()
            if work >= STEP:
                work = 0
                await asyncio.sleep(0)
            if column.entries:
                yield column.entries.pop()


async def _rounds(cycle: Sequence[Sublane], *, is_reverse: bool) -> AsyncIterator[Sequence[Sublane]]:
    """Yield the sublanes that have a job in each round; with `is_reverse`, the last one first."""
    if not is_reverse:
        number = 0
        while cycle := [sublane for sublane in cycle if len(sublane.waiting) > number]:
            yield cycle
            number += 1
        return
    by_length: defaultdict[int, list[int]] = defaultdict(list)
    for at in range(0, len(cycle), STEP):
        for place in range(at, min(at + STEP, len(cycle))):
            by_length[len(cycle[place].waiting)].append(place)
        await asyncio.sleep(0)
    places: list[int] = []
    for length in range(max(by_length, default=0), 0, -1):
        if length in by_length:
            places = sorted(places + by_length[length], reverse=True)[:MAX_PLACES]
        yield [cycle[place] for place in places]


class _Column:
    """The next entries of a sublane, the first one last."""

    def __init__(self, sublane: Sublane, *, is_reverse: bool) -> None:
        self.entries: list[int] = []
        self._sublane = sublane
        self._is_reverse = is_reverse
        self._after: int | None = None
        self._number = FEW

    async def fill(self) -> int:
        """If there is no entry, read the next ones; return how many were read without a pause."""
        if self.entries:
            return 0
        sublane, reverse = self._sublane, self._is_reverse
        size = len(sublane.row) + len(sublane.heap)
        if size <= STEP and self._after is None:
            self.entries = sorted({*filter(sublane.holds, chain(sublane.row, sublane.heap))}, reverse=not reverse)
        else:
            self.entries = (await _by_rank([sublane], self._after, self._number, is_reverse=reverse))[::-1]
            self._number *= 2
            size = 0
        self._after = self.entries[0] if self.entries else self._after
        return size
