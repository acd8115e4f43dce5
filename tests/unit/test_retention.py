"""What has ended is kept for a while, and then forgotten."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from app.config import QueueSettings, Retention
from app.errors import StoreUnavailable
from app.job import SECOND, State
from app.stores.base import Memo, Offer
from tests.support.builders import make_ended, make_job, make_running, put
from tests.support.desk import HOUR, RETRY, Desk
from tests.support.virtual import VirtualClock

# retention

KEPT = QueueSettings(retention=Retention(succeeded=10.0, other=100.0))
ALL_ENDS = frozenset({State.SUCCEEDED, State.FAILED, State.CANCELLED, State.EXPIRED})


@pytest.mark.parametrize(
    ("age", "left"),
    [
        (9, set(ALL_ENDS)),
        (11, set(ALL_ENDS) - {State.SUCCEEDED}),
        (99, set(ALL_ENDS) - {State.SUCCEEDED}),
        (101, set()),
    ],
    ids=str,
)
async def test_what_has_ended_is_kept_as_long_as_its_queue_says(
    clock: VirtualClock, age: int, left: frozenset[State]
) -> None:
    desk = Desk(clock=clock, default=KEPT)
    jobs = await put(desk.store, *[make_ended(state) for state in ALL_ENDS], make_job(), make_running())

    purged = await desk.scheduler.purge_once(clock.now() + age * SECOND)

    kept = await desk.store.get([job.seq for job in jobs])
    assert {job.state for job in kept.values()} == left | {State.SCHEDULED, State.RUNNING}
    assert (purged, desk.metrics.purged.values[()]) == (4 - len(left), 4 - len(left))


async def test_many_are_forgotten_in_one_sweep(clock: VirtualClock) -> None:
    desk = Desk(clock=clock, default=KEPT)
    await put(desk.store, *[make_ended(State.SUCCEEDED, retry=RETRY) for _ in range(1_700)])

    assert await desk.scheduler.purge_once(clock.now() + 60 * SECOND) == 1_700


async def test_idempotency_keys_are_forgotten_after_a_day(clock: VirtualClock) -> None:
    desk = Desk(clock=clock)
    memo = Memo("somebody", "key", b"digest")
    await desk.store.add([Offer(make_job())], now=clock.now(), memo=memo)

    await desk.scheduler.purge_once(clock.now() + round(23.9 * HOUR * SECOND))
    assert await desk.store.forget_memos(before=clock.now() + 1, limit=10) == 1
    await desk.store.add([Offer(make_job())], now=clock.now(), memo=memo)
    await desk.scheduler.purge_once(clock.now() + round(24.1 * HOUR * SECOND))

    assert await desk.store.forget_memos(before=clock.now() + 1, limit=10) == 0


async def test_many_idempotency_keys_are_forgotten_in_one_sweep(clock: VirtualClock) -> None:
    desk = Desk(clock=clock)
    for number in range(1_100):
        await desk.store.add([], now=clock.now(), memo=Memo("somebody", str(number), b"digest"))

    await desk.scheduler.purge_once(clock.now() + round(24.1 * HOUR * SECOND))

    assert await desk.store.forget_memos(before=clock.now() + 1, limit=10) == 0


async def test_sweep_that_fails_is_repeated_at_the_next_interval(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = Desk(clock=clock, default=KEPT)
    await put(desk.store, make_ended(State.SUCCEEDED))
    counts, broken = desk.store.counts, True

    def fail_once() -> Any:
        nonlocal broken
        if broken:
            broken = False
            raise StoreUnavailable("not now")
        return counts()

    monkeypatch.setattr(desk.store, "counts", fail_once)
    sweeps = asyncio.create_task(desk.scheduler.retain(60.0))
    await asyncio.sleep(61)
    assert (desk.metrics.laps_failed.values, desk.metrics.purged.values[()]) == ({("retain",): 1}, 0)
    await asyncio.sleep(60)
    sweeps.cancel()

    assert desk.metrics.purged.values[()] == 1
