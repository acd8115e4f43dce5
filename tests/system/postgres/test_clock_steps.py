"""The wall clock of a node steps by half an hour: the time comes from the database, so no due time changes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import pytest

from tests.support.process import ServiceProcess
from tests.system.client import Client
from tests.system.postgres.conftest import MakeNode
from tests.system.stepped_clock import SteppedClock, build

STEP = 1_800.0
RARE_RENEWALS = "[cluster]\nttl = 60\n"  # the clock of the database is read every 18 s

pytestmark = [pytest.mark.real_loop, pytest.mark.timeout(60)]


@pytest.fixture
def clock(tmp_path: Path) -> SteppedClock:
    return SteppedClock(library=build(tmp_path), file=tmp_path / "off")


@pytest.mark.parametrize("without", [{}, {"STEPPED_CLOCK_NO_TIMERFD": "1"}], ids=["timerfd", "timer"])
@pytest.mark.parametrize("step", [STEP, -STEP], ids=["forward", "back"])
async def test_step_of_the_clock_of_a_node_changes_no_due_time(
    make_node: MakeNode,
    make_client: Callable[[ServiceProcess], Client],
    clock: SteppedClock,
    step: float,
    without: dict[str, str],
) -> None:
    node = make_node(kinds=RARE_RENEWALS, environment=clock.environment | without)
    await asyncio.to_thread(node.start)
    client = make_client(node)
    later = await client.submit(kind="echo", delay=1_200)
    near = await client.submit(kind="echo", delay=1)
    await asyncio.sleep(0.2)

    clock.step(step, node)
    sent = time.time()
    new = await client.submit(kind="echo", delay=1)
    received = time.time()
    ended = [await client.wait_until_final(job["id"], 5.0) for job in (near, new)]
    later = await client.read(later["id"])
    _, ready = await client.ask("GET", "/readyz")

    assert (later["state"], later["attempt"], later["waiting_for"]) == ("scheduled", 0, "time")
    assert sent - 0.1 < _seconds(new["due_at"]) - 1 < received + 0.1
    for job, end in zip((near, new), ended, strict=True):
        assert 0 <= _seconds(end["started_at"]) - _seconds(job["due_at"]) < 0.5
    assert f"{-step:+.1f} s off" in ready["checks"]["clock"]
    assert node.events("clock_jumped") == []
    assert node.errors() == []


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
