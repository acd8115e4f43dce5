"""Who waits for a job to change is told of it, and takes no room afterwards."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack

import pytest

from erelong.duties.waiters import Places, Watchers


async def test_watcher_is_told_of_every_change() -> None:
    watchers = Watchers(places=Places(10))

    with watchers.watch(7) as event:
        assert event is not None
        for _ in range(3):
            assert not event.is_set()
            watchers.tell(7)
            await asyncio.wait_for(event.wait(), 1)
            event.clear()


async def test_all_who_watch_a_job_are_told_and_nobody_else() -> None:
    watchers = Watchers(places=Places(10))

    with watchers.watch(7) as first, watchers.watch(7) as second, watchers.watch(8) as other:
        assert first is not None
        assert second is not None
        assert other is not None
        watchers.tell(7)
        watchers.tell(9)

        assert (first.is_set(), second.is_set(), other.is_set()) == (True, True, False)


async def test_too_many_watchers_are_sent_away() -> None:
    watchers = Watchers(places=Places(2))

    with watchers.watch(1), watchers.watch(2), watchers.watch(1) as third:
        assert third is None
    with watchers.watch(1) as again:
        assert again is not None


async def test_nobody_may_watch_when_the_bound_is_zero() -> None:
    with Watchers(places=Places(0)).watch(1) as event:
        assert event is None


async def test_watcher_that_fails_gives_its_place_back() -> None:
    watchers = Watchers(places=Places(1))

    for _ in range(3):
        with pytest.raises(ValueError, match="gone"), watchers.watch(1):
            raise ValueError("gone")

    with watchers.watch(1) as event:
        assert event is not None


async def test_one_who_leaves_does_not_take_another_along() -> None:
    watchers = Watchers(places=Places(2))

    with watchers.watch(1) as staying:
        assert staying is not None
        with watchers.watch(1):
            pass
        watchers.tell(1)

        assert staying.is_set()


async def test_nothing_is_kept_of_those_who_left() -> None:
    watchers = Watchers(places=Places(1_000))

    with ExitStack() as stack:
        for seq in range(1_000):
            stack.enter_context(watchers.watch(seq % 10))

    assert watchers._events == {}


async def test_close_lets_everybody_go_and_nobody_in() -> None:
    watchers = Watchers(places=Places(10))

    with watchers.watch(1) as first, watchers.watch(2) as second:
        assert first is not None
        assert second is not None
        watchers.close()
        assert (first.is_set(), second.is_set()) == (True, True)

    with watchers.watch(3) as late:
        assert late is None
    assert watchers.is_closed
