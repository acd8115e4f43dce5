"""Schedules over take-overs: no occurrence gets two jobs, and each that gets none is counted."""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections.abc import Callable

import aiohttp
import pytest

from tests.support.process import ServiceProcess
from tests.system.beats import BEATS, check_beats, put_all
from tests.system.client import Client, looks
from tests.system.postgres.balancer import Balancer
from tests.system.postgres.conftest import MakeNode
from tests.system.trials import sized

pytestmark = [pytest.mark.real_loop, pytest.mark.timeout(sized(90, 1200))]

TAKE_OVERS = sized(4, 50)
ENDS = (signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP)
AROUND = (-0.05, 0.06)  # seconds from an occurrence
BEFORE = (-0.3, -0.1)  # for a stop: the term ends 1.3 s later or more, so two occurrences pass and one is missed


async def test_no_take_over_doubles_or_loses_an_occurrence(
    make_node: MakeNode, session: aiohttp.ClientSession, figure: Callable[[str, object], None]
) -> None:
    nodes = [make_node(), make_node()]
    await asyncio.to_thread(nodes[0].start)
    await asyncio.to_thread(nodes[1].start, is_standby=True)
    balancer = Balancer(nodes)
    probing = asyncio.create_task(balancer.probe())
    client = Client(session=session, service=balancer)
    await put_all(client, BEATS)
    for number in range(TAKE_OVERS):
        end = ENDS[-1 - number % len(ENDS)]
        beat = time.time() // 1 + random.choice([1, 2])
        await asyncio.sleep(beat + random.uniform(*(BEFORE if end is signal.SIGSTOP else AROUND)) - time.time())
        await take_over(balancer, end)

    await asyncio.sleep(2)
    outcomes = await check_beats(client)
    probing.cancel()
    await asyncio.gather(probing, return_exceptions=True)
    figure("occurrences by outcome", dict(outcomes))
    assert outcomes["missed"] > 0, "no occurrence passed while no node led: the trial shows nothing"


async def take_over(balancer: Balancer, end: signal.Signals) -> None:
    """End the leader; wait until another node leads and this one is its standby."""
    leader: ServiceProcess = balancer.leader
    leader.signal(end)
    async for _ in looks(30.0):
        if balancer.leader is not leader:
            break
    if end is signal.SIGSTOP:
        leader.signal(signal.SIGCONT)
    await asyncio.to_thread(leader.wait)
    await asyncio.to_thread(leader.start, is_standby=True)
