"""The timer is never early and wakes on sets and clock steps, both with timerfd and with a timer of the loop."""

from __future__ import annotations

import asyncio
import errno
import math
import os
import sys
from contextlib import closing
from typing import Literal

import pytest

from erelong.clock import instants as real
from erelong.clock.timer import Timer, Wake
from tests.support.virtual import EPOCH, Stuck, VirtualClock, VirtualLoop

Kind = Literal["timerfd", "timer"]

both_loops = pytest.mark.real_loop("asyncio", "uvloop")
both_kinds = pytest.mark.parametrize(
    "kind",
    [
        pytest.param("timerfd", marks=pytest.mark.skipif(sys.platform != "linux", reason="timerfd is a Linux call")),
        "timer",
    ],
)
linux = pytest.mark.skipif(sys.platform != "linux", reason="timerfd is a Linux call")


@both_loops
@both_kinds
async def test_real_sleeper_is_never_woken_early(kind: Kind) -> None:
    timer = Timer(now=real.now, kind=kind)

    for microseconds in range(300, 4_000, 130):
        due_at = real.now() + microseconds
        assert await timer.wait(due_at) is Wake.DUE
        assert real.now() >= due_at

    timer.close()


@both_loops
@both_kinds
async def test_real_sleeper_is_woken_by_set(kind: Kind) -> None:
    timer = Timer(now=real.now, kind=kind)
    asyncio.get_running_loop().call_soon(timer.set)

    assert await timer.wait(None) is Wake.SET

    timer.close()


@both_loops
async def test_timer_that_fires_early_does_not_spin_until_the_instant() -> None:
    reads = 0

    def counted() -> int:
        nonlocal reads
        reads += 1
        return real.now()

    timer = Timer(now=counted, kind="timer")

    for microseconds in range(600, 6_000, 450):
        await timer.wait(real.now() + microseconds)

    assert reads <= 12 * 3 + 1


async def test_sleeper_wakes_at_its_instant_to_the_microsecond(clock: VirtualClock) -> None:
    timer = Timer(now=clock.now)

    wake = await timer.wait(EPOCH + 3_600_000_000)

    assert wake is Wake.DUE
    assert clock.now() == EPOCH + 3_600_000_000


async def test_instant_between_two_milliseconds_is_reached_once_it_is_past(clock: VirtualClock) -> None:
    timer = Timer(now=clock.now)

    await timer.wait(EPOCH + 2_500_001)

    assert EPOCH + 2_500_001 <= clock.now() <= EPOCH + 2_501_001


async def test_instant_in_the_past_is_due_without_sleeping(clock: VirtualClock) -> None:
    timer = Timer(now=clock.now)

    assert await timer.wait(EPOCH - 1) is Wake.DUE
    assert clock.now() == EPOCH


async def test_set_before_the_sleep_wakes_the_next_sleeper_once(clock: VirtualClock) -> None:
    timer = Timer(now=clock.now)
    timer.set()
    timer.set()

    assert await timer.wait(EPOCH + 1_000_000) is Wake.SET
    assert await timer.wait(EPOCH + 1_000_000) is Wake.DUE


async def test_set_ends_a_sleep_without_an_instant(clock: VirtualClock) -> None:
    timer = Timer(now=clock.now)
    asyncio.get_running_loop().call_later(90.0, timer.set)

    assert await timer.wait(None) is Wake.SET
    assert clock.now() == EPOCH + 90_000_000


async def test_set_outlives_a_cancelled_sleep(clock: VirtualClock) -> None:
    timer = Timer(now=clock.now)
    sleeper = asyncio.create_task(timer.wait(None))
    await asyncio.sleep(0)

    timer.set()
    sleeper.cancel()
    await asyncio.wait({sleeper})

    assert sleeper.cancelled()
    assert await timer.wait(None) is Wake.SET


@pytest.mark.parametrize("seconds", [7_200.0, -7_200.0, 1.5, -1.5])
@pytest.mark.parametrize("until", [None, EPOCH + 3_600_000_000])
async def test_step_of_the_wall_clock_is_seen_within_a_second(
    clock: VirtualClock, seconds: float, until: int | None
) -> None:
    loop = asyncio.get_running_loop()
    timer = Timer(now=clock.now)
    loop.call_later(10.25, clock.step, seconds)

    assert await timer.wait(until) is Wake.STEPPED
    assert timer.jump == pytest.approx(seconds)
    assert loop.time() <= 11.25


async def test_sleep_goes_on_to_the_instant_after_a_step(clock: VirtualClock) -> None:
    timer = Timer(now=clock.now)
    asyncio.get_running_loop().call_later(10.0, clock.step, -60.0)
    until = EPOCH + 30_000_000

    wakes = [await timer.wait(until), await timer.wait(until)]

    assert wakes == [Wake.STEPPED, Wake.DUE]
    assert clock.now() == until


async def test_step_without_a_sleeper_is_reported_to_the_next_one(clock: VirtualClock) -> None:
    timer = Timer(now=clock.now)
    await timer.wait(EPOCH + 1_000_000)
    clock.step(3_600.0)

    assert await timer.wait(EPOCH + 2_000_000) is Wake.STEPPED
    assert await timer.wait(EPOCH + 2_000_000) is Wake.DUE


async def test_clock_that_drifts_less_than_a_second_is_not_stepped(clock: VirtualClock) -> None:
    timer = Timer(now=clock.now)
    loop = asyncio.get_running_loop()
    for second in range(1, 20):
        loop.call_later(second, clock.step, 0.2)

    assert await timer.wait(EPOCH + 60_000_000) is Wake.DUE
    assert clock.now() == EPOCH + 60_000_000


async def test_long_sleep_without_step_checks_takes_one_timer(clock: VirtualClock) -> None:
    timer = Timer(now=clock.now, max_sleep=math.inf)
    until = EPOCH + 7 * 86_400_000_000

    assert await timer.wait(until) is Wake.DUE
    assert clock.now() == until


def test_endless_sleep_without_step_checks_takes_no_timer() -> None:
    with closing(VirtualLoop()) as loop:
        timer = Timer(now=VirtualClock(loop=loop).now, max_sleep=math.inf)

        with pytest.raises(Stuck):
            loop.run_until_complete(timer.wait(None))


async def test_second_sleeper_is_refused(clock: VirtualClock) -> None:
    timer = Timer(now=clock.now)
    first = asyncio.create_task(timer.wait(None))
    await asyncio.sleep(0)

    with pytest.raises(RuntimeError, match="its own timer"):
        await timer.wait(None)

    timer.set()
    assert await first is Wake.SET


async def test_closing_ends_the_sleep_with_an_error(clock: VirtualClock) -> None:
    timer = Timer(now=clock.now)
    asyncio.get_running_loop().call_later(1.0, timer.close)

    with pytest.raises(RuntimeError, match="closed"):
        await timer.wait(None)


@linux
@both_loops
async def test_real_clock_on_linux_uses_timerfd() -> None:
    before = _timerfds()
    timer = Timer(now=real.now)
    await timer.wait(real.now() + 500)

    during = _timerfds()
    timer.close()

    assert during == before + 1
    assert _timerfds() == before


@linux
@both_loops
async def test_step_read_from_timerfd_wakes_the_sleeper(monkeypatch: pytest.MonkeyPatch) -> None:
    timer = Timer(now=real.now, kind="timerfd")
    until = real.now() + 50_000  # far enough to be armed in time on a busy machine

    def stepped(fd: int, size: int) -> bytes:
        monkeypatch.undo()
        raise OSError(errno.ECANCELED, os.strerror(errno.ECANCELED))

    monkeypatch.setattr(os, "read", stepped)
    wakes = [await timer.wait(until), await timer.wait(until)]
    timer.close()

    assert wakes == [Wake.STEPPED, Wake.DUE]


@linux
@pytest.mark.real_loop
async def test_step_reported_while_arming_timerfd_wakes_the_sleeper(monkeypatch: pytest.MonkeyPatch) -> None:
    timer = Timer(now=real.now, kind="timerfd")
    until = real.now() + 2_000

    def stepped(fd: int, at: int, *, is_wall: bool) -> None:
        monkeypatch.undo()
        raise OSError(errno.ECANCELED, os.strerror(errno.ECANCELED))

    monkeypatch.setattr("erelong.clock.timer._set", stepped)
    wakes = [await timer.wait(until), await timer.wait(until)]
    timer.close()

    assert wakes == [Wake.STEPPED, Wake.DUE]


@linux
@pytest.mark.real_loop
async def test_readiness_without_data_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    failures: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
    timer = Timer(now=real.now, kind="timerfd")
    until = real.now() + 2_000

    def empty(fd: int, size: int) -> bytes:
        monkeypatch.undo()
        raise BlockingIOError

    monkeypatch.setattr(os, "read", empty)

    assert await timer.wait(until) is Wake.DUE
    assert failures == []
    timer.close()


@pytest.mark.real_loop
async def test_sandbox_without_timerfd_gets_the_timer_of_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(base: int | None) -> int:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr("erelong.clock.timer._create", refused)
    timer = Timer(now=real.now)

    assert await timer.wait(real.now() + 1_000) is Wake.DUE
    with pytest.raises(PermissionError):
        await Timer(now=real.now, kind="timerfd").wait(None)


def _timerfds() -> int:
    links = (f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd"))
    return sum("timerfd" in os.readlink(link) for link in links if os.path.islink(link))
