"""The ring of events: how many it keeps, by their number and by their size."""

from __future__ import annotations

import tracemalloc
from typing import TYPE_CHECKING, cast

import orjson
import pytest

from erelong.api.events.frames import Frames
from erelong.engine.events.ring import MEAN_SIZE, EventRing, Place
from erelong.model.events.event import EventType
from tests.support.builders import NOW, make_job

if TYPE_CHECKING:
    from erelong.service.blockers import Blockers

TYPES = frozenset({EventType.CHANGED, EventType.FINISHED})


class Unblocked:
    """Knows no reason why a job waits."""

    def waiting_for(self, *_: object) -> None:
        return None


def make_ring(max_events: int = 1_000) -> EventRing:
    ring = EventRing(max_events=max_events, now=lambda: NOW)
    ring.open(TYPES)
    return ring


async def test_ring_keeps_as_many_ordinary_events_as_it_may() -> None:
    ring, job = make_ring(), make_job(labels={"tenant": "t1"}, extras={"submitted_by": "app"})

    for _ in range(1_500):
        ring.tell(EventType.CHANGED, job)

    assert len(ring.after(ring.end.number - 1_000, 2_000)) == 1_000
    assert not ring.covers(Place(ring.end.epoch, ring.end.number - 1_001), TYPES)


async def test_ring_keeps_fewer_large_events() -> None:
    ring = make_ring()
    large = make_job()._replace(extras=orjson.dumps({"on_finish": {"headers": {"X": "x" * 5 * MEAN_SIZE}}}))

    for _ in range(1_000):
        ring.tell(EventType.CHANGED, large)

    epoch, number = ring.end
    kept = next(kept for kept in range(1_000, 0, -1) if ring.covers(Place(epoch, number - kept), TYPES))
    assert 50 < kept < 110
    assert len(ring.after(number - kept, 2_000)) == kept


@pytest.mark.parametrize("size", [500, 3_000, 16_000])
async def test_memory_of_events_with_their_texts_is_bounded(size: int) -> None:
    ring, frames = make_ring(), Frames(blockers=cast("Blockers", Unblocked()))
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()

    for number in range(2_000):
        extras = orjson.dumps({"on_finish": {"headers": {"X": f"{number % 10}" * size}}})
        ring.tell(EventType.CHANGED, make_job(labels={"tenant": f"t{number}"})._replace(seq=number + 1, extras=extras))
        frames.event(ring.end, ring.after(ring.end.number - 1, 1)[0])
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert 0.4 * 1_000 * MEAN_SIZE < after - before < 1.05 * 1_000 * MEAN_SIZE


async def test_events_about_other_things_count_by_their_weight() -> None:
    ring = make_ring()

    for _ in range(100):
        ring.tell_other(EventType.FINISHED, {"operation": {}}, weight=100 * MEAN_SIZE)

    epoch, number = ring.end
    assert ring.covers(Place(epoch, number - 9), TYPES)
    assert not ring.covers(Place(epoch, number - 11), TYPES)


async def test_large_event_is_kept_until_the_next() -> None:
    ring = make_ring()

    ring.tell_other(EventType.FINISHED, {"operation": {}}, weight=2_000 * MEAN_SIZE)

    assert len(ring.after(ring.end.number - 1, 10)) == 1


async def test_small_events_have_their_place_again_after_large_ones() -> None:
    ring = make_ring()
    ring.tell_other(EventType.FINISHED, {"operation": {}}, weight=999 * MEAN_SIZE)
    for _ in range(1_000):
        ring.tell(EventType.CHANGED, make_job())

    epoch, number = ring.end
    assert ring.covers(Place(epoch, number - 1_000), TYPES)
