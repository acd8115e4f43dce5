"""The virtual clock: it stands, leaps and flows, and its alarms wake timers whenever it is moved."""

from __future__ import annotations

import asyncio

import pytest

from erelong.clock.timer import Timer, Wake
from erelong.clock.virtual import VirtualClock
from tests.support.virtual import EPOCH

SECOND = 1_000_000


@pytest.fixture
async def virtual() -> VirtualClock:
    return VirtualClock(at=EPOCH, tick=asyncio.get_running_loop().time)


async def test_clock_stands_still(virtual: VirtualClock) -> None:
    await asyncio.sleep(10)

    assert (virtual.now(), virtual.tick(), virtual.is_frozen) == (EPOCH, 0.0, True)


async def test_clock_leaps_and_its_monotonic_clock_follows(virtual: VirtualClock) -> None:
    virtual.move(EPOCH + 3_600 * SECOND)

    assert (virtual.now(), virtual.tick()) == (EPOCH + 3_600 * SECOND, 3_600.0)


async def test_clock_does_not_go_back(virtual: VirtualClock) -> None:
    with pytest.raises(ValueError, match="cannot go back"):
        virtual.move(EPOCH - 1)


async def test_clock_flows_from_where_it_stands(virtual: VirtualClock) -> None:
    virtual.flow()
    await asyncio.sleep(2)
    virtual.move(EPOCH + 100 * SECOND)
    await asyncio.sleep(3)
    assert virtual.now() == EPOCH + 103 * SECOND

    virtual.freeze()
    await asyncio.sleep(5)
    assert virtual.now() == EPOCH + 103 * SECOND


async def test_alarm_rings_once_at_each_move_and_not_after_a_cancel(virtual: VirtualClock) -> None:
    rings: list[str] = []
    virtual.call_later(10.0, lambda: rings.append("kept"))
    virtual.call_later(10.0, lambda: rings.append("cancelled")).cancel()
    await asyncio.sleep(100)
    assert rings == []

    virtual.move(EPOCH + 1)
    virtual.move(EPOCH + 2)

    assert rings == ["kept"]


async def test_alarm_of_a_flowing_clock_rings_in_time(virtual: VirtualClock) -> None:
    rung = asyncio.Event()
    virtual.flow()
    virtual.call_later(10.0, rung.set)

    await asyncio.sleep(9.9)
    assert not rung.is_set()
    await asyncio.sleep(0.2)
    assert rung.is_set()


async def test_frozen_clock_stops_the_alarms_of_a_flowing_one(virtual: VirtualClock) -> None:
    virtual.flow()
    timer = virtual.make_timer()
    sleeping = asyncio.create_task(timer.wait(EPOCH + 10 * SECOND))
    await asyncio.sleep(5)
    virtual.freeze()

    await asyncio.sleep(100)
    assert not sleeping.done()
    virtual.flow()
    await asyncio.sleep(5.1)
    assert await sleeping is Wake.DUE


# timers on it


async def test_timer_sleeps_until_the_clock_reaches_its_instant(virtual: VirtualClock) -> None:
    timer = virtual.make_timer()
    sleeping = asyncio.create_task(timer.wait(EPOCH + 10 * SECOND))

    for at in (1, 9, 9.999999):
        virtual.move(EPOCH + round(at * SECOND))
        await asyncio.sleep(0.01)
        assert not sleeping.done()
    virtual.move(EPOCH + 10 * SECOND)

    assert await sleeping is Wake.DUE


async def test_leap_is_no_step_of_the_clock(virtual: VirtualClock) -> None:
    timer = virtual.make_timer()
    sleeping = asyncio.create_task(timer.wait(None))
    await asyncio.sleep(0)
    virtual.move(EPOCH + 10**9 * SECOND)
    await asyncio.sleep(0)

    timer.set()

    assert await sleeping is Wake.SET
    assert timer.jump == 0.0


async def test_closed_timer_leaves_no_alarm(virtual: VirtualClock) -> None:
    timer: Timer = virtual.make_timer()
    sleeping = asyncio.create_task(timer.wait(EPOCH + SECOND))
    await asyncio.sleep(0)

    timer.close()

    with pytest.raises(RuntimeError, match="closed"):
        await sleeping
    assert not virtual._alarms
