"""Schedules of a real process: many due in the same second, and kills around their occurrences."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from erelong.clock.instants import parse_instant
from tests.support.process import ServiceProcess
from tests.system.client import Client
from tests.system.trials import percentile, sized

HERD = sized(200, 1_000)
KILLS = sized(3, 100)
BEATS = 5
CONFIG = "[queues.default]\nconcurrency = 10000\n"
SECOND = 1_000_000
YEARS = 10 * 365 * 86400

pytestmark = [pytest.mark.real_loop, pytest.mark.timeout(sized(60, 900))]


async def put_all(client: Client, schedules: dict[str, dict[str, Any]]) -> None:
    async def put(name: str, schedule: dict[str, Any]) -> None:
        status, answer = await client.ask("PUT", f"/v1/schedules/{name}", schedule)
        assert status in (200, 201), answer

    names = [*schedules]
    for start in range(0, len(names), 50):
        await asyncio.gather(*(put(name, schedules[name]) for name in names[start : start + 50]))


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
    policies: dict[str, dict[str, Any]] = {
        "all": {"missed": "all", "catchup": "1h", "overlap": "allow"},
        "once": {"missed": "once", "overlap": "allow"},
        "skip": {"missed": "skip", "overlap": "skip", "job": {"kind": "echo", "params": {"sleep": 1.5}}},
        "queue": {"overlap": "queue_one", "job": {"kind": "echo", "params": {"sleep": 1.5}}},
        "replace": {"overlap": "replace", "job": {"kind": "echo", "params": {"sleep": 1.5}}},
    }
    beats = {
        f"{name}-{number}": {"every": 1, "job": {"kind": "echo"}} | policy
        for name, policy in policies.items()
        for number in range(BEATS)
    }
    await put_all(client, beats)
    for kill in range(KILLS):
        await asyncio.sleep(random.choice([0, 1]))
        beat = time.time() // 1 + 1
        await asyncio.sleep(beat + random.uniform(-0.01, 0.06) - time.time())
        service.kill()
        await asyncio.sleep(random.choice([0, 0, 2.5]) if kill else 2.5)
        await asyncio.to_thread(service.start)

    await asyncio.sleep(2)
    jobs = await client.list_all()
    made = Counter((job["schedule"], job["occurrence"]) for job in jobs)
    outcomes: Counter[str] = Counter()
    assert set(made.values()) == {1}
    for name in beats:
        status, paused = await client.ask("POST", f"/v1/schedules/{name}/pause", {})
        assert status == 200
        counts = paused["counts"]
        outcomes.update(counts)
        beaten = _seconds(paused["changed_at"]) - _seconds(paused["created_at"])
        kept = paused["queued"] is not None
        assert sum(counts.values()) + kept == beaten, paused
        stored = await client.list_all(f"schedule={name}")
        assert len(stored) == counts["made"], paused
        if name.startswith("all"):
            assert counts == {"made": beaten, "skipped": 0, "missed": 0}, paused
    figure("kills", KILLS)
    figure("occurrences by outcome", dict(outcomes))
    assert outcomes["missed"] > 0, "no occurrence passed while the service was down: the trial shows nothing"


def _seconds(text: str) -> int:
    """Return how many whole seconds have passed at an instant."""
    return parse_instant(text, round(time.time() * SECOND), YEARS) // SECOND
