"""The bell of the readers of events: at once after a pause, and then the less often the more readers there are."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest

from erelong.engine.events.bell import PAUSE, Bell
from tests.support.virtual import VirtualClock


@pytest.mark.parametrize(("readers", "wakes"), [(1, 101), (100, 2)])
async def test_many_readers_are_woken_in_groups(clock: VirtualClock, readers: int, wakes: int) -> None:
    bell, woken, loop = Bell(), list[float](), asyncio.get_running_loop()
    for _ in range(readers):
        bell.join()

    async def read() -> None:
        while await bell.sleep(sleeper, 1.0):
            woken.append(loop.time())

    sleeper = asyncio.Event()
    reading = asyncio.create_task(read())
    await asyncio.sleep(0.5)
    began = loop.time()
    for _ in range(101):
        bell.ring()
        await asyncio.sleep(0.001)
    await reading

    assert woken[0] == began
    assert len(woken) == pytest.approx(wakes, abs=1)
    assert min(after - before for before, after in pairwise(woken)) == pytest.approx(readers * PAUSE)


async def test_sleep_ends_when_its_time_is_up(clock: VirtualClock) -> None:
    began = asyncio.get_running_loop().time()

    assert not await Bell().sleep(asyncio.Event(), 15.0)
    assert asyncio.get_running_loop().time() - began == pytest.approx(15.0)
