"""Schedules of a real process: many due in the same second, and kills around their occurrences."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable

import pytest

from tests.support.process import ServiceProcess
from tests.system.beats import BEATS, check_beats, put_all
from tests.system.client import Client
from tests.system.trials import percentile, sized

HERD = sized(200, 1_000)
KILLS = sized(3, 100)
CONFIG = "[queues.default]\nconcurrency = 10000\n"

pytestmark = [pytest.mark.real_loop, pytest.mark.timeout(sized(60, 900))]


async def test_many_schedules_due_in_the_same_second_are_on_time(
    make_service: Callable[..., ServiceProcess],
    make_client: Callable[[ServiceProcess], Client],
    figure: Callable[[str, object], None],
) -> None:
    service = make_service(config=CONFIG)
    service.start()
    client = make_client(service)
    at = int(time.time()) + sized(4, 12)
    minute, second = time.gmtime(at)[4:6]
    cron = f"{second} {minute} * * * *"
    await put_all(client, {f"herd-{number:04}": {"cron": cron, "job": {"kind": "echo"}} for number in range(HERD)})
    assert time.time() < at - 0.2, "the machine is too slow to put so many schedules before they are due"

    await asyncio.sleep(at + 0.5 - time.time())
    await client.wait_until_done()
    jobs = await client.list_all()
    late = [job["late_by"] * 1000 for job in jobs]

    figure("schedules due in the same second", HERD)
    figure("ms late: p50, p99, max", " ".join(f"{percentile(late, share):.1f}" for share in (0.5, 0.99, 1.0)))
    assert len(jobs) == HERD
    assert {job["schedule"] for job in jobs} == {f"herd-{number:04}" for number in range(HERD)}
    assert percentile(late, 0.99) < sized(1_000, 50)  # the bound of the design holds on a quiet machine


# kills


async def test_no_kill_around_an_occurrence_doubles_or_loses_it(
    make_service: Callable[..., ServiceProcess],
    make_client: Callable[[ServiceProcess], Client],
    figure: Callable[[str, object], None],
) -> None:
    """Schedules beat every second. At the end each beat has one job, or is counted as missed or skipped."""
    service = make_service()
    service.start()
    client = make_client(service)
    await put_all(client, BEATS)
    for kill in range(KILLS):
        await asyncio.sleep(random.choice([0, 1]))
        beat = time.time() // 1 + 1
        await asyncio.sleep(beat + random.uniform(-0.01, 0.06) - time.time())
        service.kill()
        await asyncio.sleep(random.choice([0, 0, 2.5]) if kill else 2.5)
        await asyncio.to_thread(service.start)

    await asyncio.sleep(2)
    outcomes = await check_beats(client)
    figure("kills", KILLS)
    figure("occurrences by outcome", dict(outcomes))
    assert outcomes["missed"] > 0, "no occurrence passed while the service was down: the trial shows nothing"
