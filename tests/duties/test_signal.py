"""A signal ends exactly one wait, whether it is set before or during it."""

from __future__ import annotations

import asyncio

from erelong.duties.signal import Signal


async def test_wait_ends_when_it_is_set() -> None:
    signal = Signal()
    waiting = asyncio.create_task(signal.wait())
    await asyncio.sleep(1)
    assert not waiting.done()

    signal.set()
    signal.set()

    await waiting
    assert not signal.is_set


async def test_signal_set_before_a_wait_ends_that_wait_only() -> None:
    signal = Signal()
    signal.set()
    await asyncio.wait_for(signal.wait(), 1)

    assert not signal.is_set
    second = asyncio.create_task(signal.wait())
    await asyncio.sleep(1)

    assert not second.done()
    second.cancel()


async def test_cancelled_wait_leaves_the_signal_for_the_next() -> None:
    signal = Signal()
    waiting = asyncio.create_task(signal.wait())
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.sleep(0)

    signal.set()
    await asyncio.wait_for(signal.wait(), 1)

    assert not signal.is_set
