"""The clock of another machine: never later than it, followed evenly, and at once after a step."""

from __future__ import annotations

import asyncio
import random
import sys
import time
from contextlib import closing
from functools import partial
from typing import Literal

import pytest

from erelong.clock import instants, remote
from erelong.clock import timer as timers
from erelong.clock.instants import SECOND
from erelong.clock.remote import RemoteClock, uptime
from erelong.clock.timer import Timer, Wake
from tests.support.virtual import EPOCH

AHEAD = 30 * SECOND

linux = pytest.mark.skipif(sys.platform != "linux", reason="timerfd is a Linux call")
KINDS = [pytest.param("timerfd", marks=linux), "timer"]
Kind = Literal["timerfd", "timer"]


def round_trip(clock: RemoteClock, *, sent: int, ahead: int, there: int, back: int) -> None:
    """Note a request that took `there` and an answer that took `back` microseconds."""
    clock.note(sent=sent, theirs=sent + there + ahead, received=sent + there + back)


def test_clock_without_a_round_trip_is_that_of_this_machine() -> None:
    clock = RemoteClock()

    assert abs(clock.now() - instants.now()) < SECOND
    assert abs(clock.shift) < SECOND


def test_first_round_trip_is_followed_at_once() -> None:
    clock = RemoteClock()

    sent = uptime()
    clock.note(sent=sent, theirs=EPOCH, received=sent)

    assert EPOCH <= clock.now() < EPOCH + SECOND


@pytest.mark.parametrize("step", [1_800, -1_800])
def test_step_of_the_wall_clock_of_this_machine_changes_only_the_shift(
    monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    clock = RemoteClock()
    sent = uptime()
    clock.note(sent=sent, theirs=EPOCH, received=sent)
    shift, real = clock.shift, time.time_ns

    monkeypatch.setattr(time, "time_ns", lambda: real() + step * 10**9)

    assert EPOCH <= clock.now() < EPOCH + SECOND
    assert clock.shift == pytest.approx(shift - step * SECOND, abs=SECOND)


def test_base_is_not_the_wall_clock() -> None:
    assert remote.BASE != time.CLOCK_REALTIME
    assert abs(uptime() - time.clock_gettime_ns(RemoteClock.base) // 1000) < SECOND


@pytest.mark.parametrize("ahead", [AHEAD, -AHEAD, 3_000])
def test_offset_is_never_beyond_the_other_clock(ahead: int) -> None:
    chance, clock = random.Random(1), RemoteClock()

    for second in range(200):
        there, back = chance.randrange(50, 20_000), chance.randrange(50, 20_000)
        round_trip(clock, sent=second * SECOND, ahead=ahead, there=there, back=back)
        assert clock.offset <= ahead

    assert clock.offset > ahead - 5_000


def test_small_difference_is_evened_out_slowly() -> None:
    clock = RemoteClock()
    round_trip(clock, sent=0, ahead=0, there=0, back=0)

    for second in range(1, 20):
        round_trip(clock, sent=second * SECOND, ahead=50_000, there=0, back=0)
        assert clock.offset <= second * remote.SLEW

    assert clock.offset > 0


def test_step_is_followed_at_once() -> None:
    clock = RemoteClock()
    for second in range(10):
        round_trip(clock, sent=second * SECOND, ahead=0, there=100, back=100)

    round_trip(clock, sent=11 * SECOND, ahead=-AHEAD, there=400, back=400)
    assert -AHEAD - 1_000 < clock.offset <= -AHEAD
    round_trip(clock, sent=12 * SECOND, ahead=AHEAD, there=400, back=400)
    assert AHEAD - 1_000 < clock.offset <= AHEAD


@pytest.mark.real_loop("asyncio", "uvloop")
async def test_timer_wakes_by_the_other_clock() -> None:
    clock = RemoteClock()
    clock.offset += AHEAD
    with closing(Timer(now=clock.now, remote=clock)) as timer:
        due_at = instants.now() + AHEAD + 20_000

        assert await timer.wait(due_at) is Wake.DUE

        assert 0 <= clock.now() - due_at < SECOND // 2


@pytest.mark.real_loop("asyncio", "uvloop")
@pytest.mark.parametrize("kind", KINDS)
async def test_timer_does_not_see_a_step_of_the_wall_clock_of_this_machine(
    monkeypatch: pytest.MonkeyPatch, kind: Kind
) -> None:
    clock, real = RemoteClock(), time.time_ns
    with closing(Timer(now=clock.now, kind=kind, remote=clock)) as timer:
        due_at = clock.now() + 50_000
        step = partial(monkeypatch.setattr, time, "time_ns", lambda: real() + 1_800 * 10**9)
        asyncio.get_running_loop().call_later(0.01, step)

        assert await timer.wait(due_at) is Wake.DUE

        assert 0 <= clock.now() - due_at < SECOND // 2
        assert timer.take_jump() == 0.0


@pytest.mark.real_loop("asyncio", "uvloop")
@pytest.mark.parametrize("kind", KINDS)
async def test_timer_sees_a_step_of_the_other_clock_within_a_second(kind: Kind) -> None:
    clock = RemoteClock()
    with closing(Timer(now=clock.now, kind=kind, remote=clock)) as timer:
        sleeping = asyncio.create_task(timer.wait(clock.now() + 600 * SECOND))
        await asyncio.sleep(0)
        clock.offset += AHEAD
        before = time.monotonic()

        assert await sleeping is Wake.STEPPED

        assert timer.jump == pytest.approx(AHEAD / SECOND, abs=0.5)
        assert time.monotonic() - before < 1.5


@linux
@pytest.mark.real_loop
async def test_timerfd_follows_the_base_and_is_not_cancelled_by_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    bases: list[int | None] = []
    armed: list[tuple[int, bool]] = []
    really_create, really_set = timers._create, timers._set

    def create(base: int | None) -> int:
        bases.append(base)
        return really_create(base)

    def arm(fd: int, at: int, *, is_wall: bool) -> None:
        armed.append((at, is_wall))
        really_set(fd, at, is_wall=is_wall)

    monkeypatch.setattr(timers, "_create", create)
    monkeypatch.setattr(timers, "_set", arm)
    clock = RemoteClock()
    with closing(Timer(now=clock.now, kind="timerfd", remote=clock)) as timer:
        until = clock.now() + 20_000

        await timer.wait(until)

    assert bases == [time.CLOCK_BOOTTIME]
    assert armed[0] == (until - clock.offset, False)


@linux
@pytest.mark.real_loop
async def test_step_of_the_other_clock_before_the_timer_is_armed_is_seen() -> None:
    clock = RemoteClock()
    steps = [0, 10**9 * SECOND]  # the second is between the check for steps and the sleep

    def now() -> int:
        read = clock.now()
        clock.offset += steps.pop(0) if steps else 0
        return read

    with closing(Timer(now=now, kind="timerfd", remote=clock)) as timer:
        assert await timer.wait(clock.now() + SECOND) is Wake.STEPPED
