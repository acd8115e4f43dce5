"""Readings are made once for all clients, and a costly one is not repeated soon."""

from __future__ import annotations

import asyncio

import pytest

from erelong.service.overview import readings
from erelong.service.overview.readings import LONGEST, SHARE, Readings


class Counted:
    """A reading that takes a while, and tells how often it was made."""

    def __init__(self, *, seconds: float) -> None:
        self.seconds = seconds
        self.made = 0

    async def make(self) -> int:
        await asyncio.sleep(self.seconds)
        self.made += 1
        return self.made


def make_readings() -> Readings[int]:
    return Readings(tick=asyncio.get_running_loop().time, life=1.0)


async def test_clients_of_the_same_moment_share_one_reading() -> None:
    kept, counted = make_readings(), Counted(seconds=0.001)

    found = await asyncio.gather(*(kept.get("a", counted.make) for _ in range(20)))

    assert (set(found), counted.made) == ({1}, 1)


async def test_cheap_reading_is_repeated_after_its_life() -> None:
    kept, counted = make_readings(), Counted(seconds=0.0)

    found = []
    for _ in range(3):
        found.append(await kept.get("a", counted.make))
        await asyncio.sleep(0.6)

    assert found == [1, 1, 2]


@pytest.mark.parametrize(("cost", "rest"), [(0.02, 0.02 * SHARE), (5.0, LONGEST)])
async def test_costly_reading_is_kept_for_a_multiple_of_its_cost_and_a_minute_at_most(cost: float, rest: float) -> None:
    kept, counted = make_readings(), Counted(seconds=cost)
    await kept.get("a", counted.make)

    await asyncio.sleep(rest - 0.1)
    early = await kept.get("a", counted.make)
    await asyncio.sleep(0.2)
    late = await kept.get("a", counted.make)

    assert (early, late) == (1, 2)


async def test_slow_reading_is_kept_for_no_longer_than_its_owner_permits() -> None:
    kept = Readings[int](tick=asyncio.get_running_loop().time, life=1.0, longest=2.0)
    counted = Counted(seconds=5.0)
    await kept.get("a", counted.make)

    await asyncio.sleep(1.9)
    early = await kept.get("a", counted.make)
    await asyncio.sleep(0.2)
    late = await kept.get("a", counted.make)

    assert (early, late) == (1, 2)


async def test_failed_reading_is_tried_again_by_the_next_client() -> None:
    kept, counted = make_readings(), Counted(seconds=0.0)

    async def fail() -> int:
        raise RuntimeError("not now")

    results = await asyncio.gather(kept.get("a", fail), kept.get("a", counted.make), return_exceptions=True)

    assert isinstance(results[0], RuntimeError)
    assert results[1] == 1


async def test_old_readings_are_not_kept_in_memory() -> None:
    kept, counted = make_readings(), Counted(seconds=0.0)

    for number in range(3):
        await kept.get(number, counted.make)
        await asyncio.sleep(1.1)

    assert [*kept._kept] == [2]


async def test_number_of_readings_is_bounded() -> None:
    kept, counted = make_readings(), Counted(seconds=0.0)

    for number in range(3 * readings.MAX_READINGS):
        await kept.get(number, counted.make)

    assert len(kept._kept) <= readings.MAX_READINGS
