"""The clock of another machine: never later than it, followed evenly, and at once after a step."""

from __future__ import annotations

import random
from contextlib import closing

import pytest

from erelong.clock import instants, remote
from erelong.clock.instants import SECOND
from erelong.clock.remote import RemoteClock
from erelong.clock.timer import Timer, Wake

AHEAD = 30 * SECOND


def round_trip(clock: RemoteClock, *, sent: int, ahead: int, there: int, back: int) -> None:
    """Note a request that took `there` and an answer that took `back` microseconds."""
    clock.note(sent=sent, theirs=sent + there + ahead, received=sent + there + back)


def test_clock_without_a_round_trip_is_that_of_this_machine() -> None:
    before = instants.now()

    assert before <= RemoteClock().now() <= instants.now()


@pytest.mark.parametrize("ahead", [AHEAD, -AHEAD, 3_000])
def test_shift_is_never_beyond_the_other_clock(ahead: int) -> None:
    chance, clock = random.Random(1), RemoteClock()

    for second in range(200):
        there, back = chance.randrange(50, 20_000), chance.randrange(50, 20_000)
        round_trip(clock, sent=second * SECOND, ahead=ahead, there=there, back=back)
        assert clock.shift <= ahead

    assert clock.shift > ahead - 5_000


def test_small_difference_is_evened_out_slowly() -> None:
    clock = RemoteClock()
    round_trip(clock, sent=0, ahead=0, there=0, back=0)

    for second in range(1, 20):
        round_trip(clock, sent=second * SECOND, ahead=50_000, there=0, back=0)
        assert clock.shift <= second * remote.SLEW

    assert clock.shift > 0


def test_step_is_followed_at_once() -> None:
    clock = RemoteClock()
    for second in range(10):
        round_trip(clock, sent=second * SECOND, ahead=0, there=100, back=100)

    round_trip(clock, sent=11 * SECOND, ahead=-AHEAD, there=400, back=400)
    assert -AHEAD - 1_000 < clock.shift <= -AHEAD
    round_trip(clock, sent=12 * SECOND, ahead=AHEAD, there=400, back=400)
    assert AHEAD - 1_000 < clock.shift <= AHEAD


@pytest.mark.real_loop("asyncio", "uvloop")
async def test_timer_wakes_by_the_other_clock() -> None:
    clock = RemoteClock()
    clock.shift = AHEAD
    with closing(Timer(now=clock.now, remote=clock)) as timer:
        due_at = instants.now() + AHEAD + 20_000

        assert await timer.wait(due_at) is Wake.DUE

        assert 0 <= clock.now() - due_at < SECOND // 2
