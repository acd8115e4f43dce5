"""How many due jobs of a queue start before one of them. Counting yields to the loop every millisecond or sooner."""

from __future__ import annotations

import asyncio
from itertools import islice
from typing import TYPE_CHECKING, Final

from erelong.lanes.sublane import MAX_SEEN, SLICE
from erelong.model.blocker import MAX_AHEAD, Ahead

if TYPE_CHECKING:
    from erelong.lanes.lane import Lane
    from erelong.lanes.sublane import Sublane

NONE_AHEAD: Final = Ahead(0, False)


async def count_ahead(lane: Lane, consumer: str, label: str | None, packed: int) -> Ahead:
    """Count the jobs that start before an entry, in its sublane and, if label values take turns, in the others.

    Until the job at position n of a sublane starts, each other sublane starts n jobs, or one more if its turn is first.
    A label value at its limit waits for the end of a job and gets the last turn.
    """
    sublane = lane.sublanes.get((consumer, label))
    own = NONE_AHEAD if sublane is None else await _count_in(sublane, packed)
    if own.is_more or lane.settings.label_concurrency is None:
        return own
    turns = [*islice(lane.turns.get(consumer, ()), MAX_SEEN)]
    number, is_first, is_cut = own.number, True, len(turns) == MAX_SEEN
    for at in range(0, len(turns), SLICE):
        for other in turns[at : at + SLICE]:
            if other is sublane:
                is_first = False
            else:
                number += min(len(other.waiting), own.number + (is_first and lane.has_room(other.label)))
        if not (is_first or own.number):
            is_cut = False  # the others have none that starts before
            break
        if number > MAX_AHEAD:
            break
        await asyncio.sleep(0)
    number += _count_held_back(lane, consumer, own.number, sublane)
    return Ahead(min(number, MAX_AHEAD), is_cut or number > MAX_AHEAD)


async def _count_in(sublane: Sublane, packed: int) -> Ahead:
    number = 0
    for more in sublane.before(packed):
        number += more or 0
        if more is None or number > MAX_AHEAD:
            return Ahead(min(number, MAX_AHEAD), True)
        await asyncio.sleep(0)
    return Ahead(number, False)


def _count_held_back(lane: Lane, consumer: str, rounds: int, own: Sublane | None) -> int:
    """Count the jobs of other label values that have no turn, since they are at their limit."""
    if not rounds:
        return 0
    others = (lane.sublanes.get((consumer, label)) for label in islice(lane.running_by, MAX_AHEAD))
    return sum(min(len(other.waiting), rounds) for other in others if other not in (None, own) and not other.has_turn)
