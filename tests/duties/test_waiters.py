"""A held request is woken by its keys and frees its slot afterwards."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack

import pytest

from erelong.duties.lifecycle import Lifecycle
from erelong.duties.waiters import Waiters


def make_waiters(limit: int = 10) -> Waiters:
    return Waiters(limit=limit, lifecycle=Lifecycle())


async def test_waiter_is_woken_by_every_change() -> None:
    waiters = make_waiters()

    with waiters.hold(waiters.jobs, (7,)) as waiter:
        for _ in range(3):
            assert not waiter.event.is_set()
            waiters.jobs.wake((7,))
            await asyncio.wait_for(waiter.event.wait(), 1)
            waiter.event.clear()


async def test_all_requests_for_a_job_are_woken_and_no_others() -> None:
    waiters = make_waiters()
    jobs = waiters.jobs

    with (
        waiters.hold(jobs, (7,)) as first,
        waiters.hold(jobs, (7,)) as second,
        waiters.hold(jobs, (8,)) as other,
        waiters.hold(waiters.rooms, ("7",)) as room,
    ):
        jobs.wake((7, 9))

        woken = [waiter.event.is_set() for waiter in (first, second, other, room)]
        assert woken == [True, True, False, False]


async def test_requests_beyond_the_limit_get_no_slot_on_any_topic() -> None:
    waiters = make_waiters(2)

    with (
        waiters.hold(waiters.jobs, (1,)) as first,
        waiters.hold(waiters.rooms, ("q",)) as second,
        waiters.hold(waiters.polls, (("resize", None),)) as third,
    ):
        assert [waiter.has_slot for waiter in (first, second, third)] == [True, True, False]
    with waiters.hold(waiters.jobs, (1,)) as again:
        assert again.has_slot


async def test_no_request_may_wait_when_the_limit_is_zero() -> None:
    waiters = make_waiters(0)

    with waiters.hold(waiters.jobs, (1,)) as waiter:
        assert not waiter.has_slot


async def test_failed_request_frees_its_slot() -> None:
    waiters = make_waiters(1)

    for _ in range(3):
        with pytest.raises(ValueError, match="gone"), waiters.hold(waiters.jobs, (1,)):
            raise ValueError("gone")

    with waiters.hold(waiters.jobs, (1,)) as waiter:
        assert waiter.has_slot


async def test_request_stays_held_when_another_for_the_same_key_ends() -> None:
    waiters = make_waiters(2)

    with waiters.hold(waiters.jobs, (1,)) as staying:
        with waiters.hold(waiters.jobs, (1,)):
            pass
        waiters.jobs.wake((1,))

        assert staying.event.is_set()


async def test_nothing_is_kept_after_requests_end() -> None:
    waiters = make_waiters(1_000)

    with ExitStack() as stack:
        for seq in range(1_000):
            stack.enter_context(waiters.hold(waiters.jobs, (seq % 10, seq % 7 + 100)))
        assert len(waiters.jobs) == 1_000

    assert waiters.jobs.held == {}


async def test_each_of_several_keys_wakes_the_longest_waiting_request() -> None:
    waiters = make_waiters()
    polls = waiters.polls

    with (
        waiters.hold(polls, (("resize", "q"), ("crop", "q"))) as first,
        waiters.hold(polls, (("resize", None),)) as second,
        waiters.hold(polls, (("resize", "other"),)) as third,
    ):
        order = []
        for _ in range(3):
            polls.wake_first(("resize", "q"), ("resize", None))
            order.append([waiter.event.is_set() for waiter in (first, second, third)])

    assert order == [[True, False, False], [True, True, False], [True, True, False]]


async def test_drain_wakes_all_requests_and_gives_no_more_slots() -> None:
    lifecycle = Lifecycle()
    waiters = Waiters(limit=10, lifecycle=lifecycle)

    with waiters.hold(waiters.jobs, (1,)) as first, waiters.hold(waiters.rooms, ("q",)) as second:
        lifecycle.drain()
        waiters.release_all()
        assert (first.event.is_set(), second.event.is_set()) == (True, True)

    with waiters.hold(waiters.jobs, (3,)) as late:
        assert not late.has_slot
