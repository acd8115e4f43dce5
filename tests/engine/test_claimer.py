"""A claim that does not begin costs its queue nothing: neither a slot nor a token of the rate."""

from __future__ import annotations

import asyncio

import pytest

from erelong.errors import StoreUnavailable
from erelong.settings.queues import QueueSettings, Rate
from tests.support.engine import Engine
from tests.support.virtual import VirtualClock

ONE_PER_MINUTE = QueueSettings(rate=Rate(per_second=1 / 60, burst=1))


async def test_cancel_during_a_claim_leaves_the_token_to_the_next_job(clock: VirtualClock) -> None:
    async with Engine(clock=clock, queue=ONE_PER_MINUTE) as engine:
        first, second = await engine.submit_many(2, delay=5)
        claim = engine.store.hold("claim")
        await asyncio.sleep(5.001)

        await engine.node.services.jobs.cancel(first.id, None, None)
        claim.set()

        assert (await engine.until_final(second)).late_by == pytest.approx(0, abs=1)


async def test_failed_claim_returns_its_token(clock: VirtualClock) -> None:
    async with Engine(clock=clock, queue=ONE_PER_MINUTE) as engine:
        job = await engine.submit(delay=5)
        engine.store.broken["claim"] = StoreUnavailable("it fails")
        await asyncio.sleep(6)

        engine.store.broken.clear()

        assert (await engine.until_final(job)).late_by == pytest.approx(0, abs=5)


async def test_row_that_can_never_be_claimed_takes_no_tokens(clock: VirtualClock) -> None:
    async with Engine(clock=clock, queue=ONE_PER_MINUTE) as engine:
        damaged, sound = await engine.submit_many(2, delay=5)
        engine.store.refuse("claim", damaged.seq)

        assert (await engine.until_final(sound)).late_by == pytest.approx(0, abs=5)
