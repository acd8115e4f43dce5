"""The starts of the service are kept over restarts, so that people can see restarts in a row."""

from __future__ import annotations

from erelong.model.document import Document
from erelong.monitoring.starts import MOST, NAME, SORT, record_start
from erelong.stores.memory import MemoryStore
from tests.support.engine import Engine
from tests.support.faults import FaultyStore
from tests.support.virtual import VirtualClock


async def test_earlier_starts_are_noted_at_a_start(clock: VirtualClock) -> None:
    store = FaultyStore()
    for _ in range(3):
        async with Engine(clock=clock, store=store) as engine:
            notes = engine.node.engine.notes.latest()
        clock.step(60.0)

    assert [note.event for note in notes] == ["started"] * 3
    assert len({note.at for note in notes}) == 3


async def test_only_the_last_starts_are_kept() -> None:
    store = MemoryStore()
    for start in range(1, MOST + 6):
        earlier = await record_start(store, start)

    assert earlier == [*range(5, MOST + 5)]


async def test_full_disk_stops_no_start() -> None:
    store = FaultyStore()
    store.fill_disk()

    assert await record_start(store, 1) == []


async def test_damaged_record_is_replaced() -> None:
    store = MemoryStore()
    await store.add([], now=1, beside=[Document(SORT, NAME, 1, 1, b'{"starts": "x"}')])

    assert await record_start(store, 2) == []
    assert await record_start(store, 3) == [2]
