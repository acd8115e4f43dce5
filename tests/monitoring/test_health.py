"""`/readyz`: each part is ok, or reports its failure and the remedy."""

from __future__ import annotations

import asyncio

import pytest

from erelong.clock.instants import SECOND
from erelong.errors import StoreUnavailable
from erelong.settings.sections import WorkersSection
from tests.support.builders import make_running, put
from tests.support.engine import Engine, outcomes_of
from tests.support.faults import FaultyStore
from tests.support.virtual import VirtualClock

DUTIES = [
    *("scheduler", "refill", "overdue", "dispatcher", "completer", "reconciler", "leases", "recovery"),
    *("retention", "idempotency_records", "agenda_tidying", "idle_queues", "zones", "recurrences", "operations"),
    "statistics",
]
PARTS = ["service", "store", "outcomes", "loop", "clock", *DUTIES]


async def test_healthy_service_reports_every_part_ok(clock: VirtualClock) -> None:
    engine = Engine(clock=clock)
    assert engine.node.health.checks()["service"] == "starting"

    async with engine:
        rules = engine.node.engine.zone_source.current.version
        assert engine.node.health.checks() == {**dict.fromkeys(PARTS, "ok"), "zones": f"ok, {rules}"}

    assert engine.node.health.checks()["scheduler"] == "stopped"


async def test_drain_is_reported(clock: VirtualClock) -> None:
    async with Engine(clock=clock) as engine:
        engine.node.engine.drain()

        assert engine.node.health.checks()["service"] == "draining"


async def test_idle_scheduler_is_ok(clock: VirtualClock) -> None:
    async with Engine(clock=clock) as engine:
        await engine.submit(delay=100_000)
        await asyncio.sleep(50_000)

        assert engine.node.health.checks()["scheduler"] == "ok"


async def test_hanging_lap_is_reported_until_it_ends(clock: VirtualClock) -> None:
    async with Engine(clock=clock) as engine:
        peek = engine.store.hold("peek")
        await engine.submit()
        await asyncio.sleep(12)
        hung = engine.node.health.checks()["scheduler"]
        peek.set()
        del engine.store.held["peek"]
        await asyncio.sleep(1)

        assert hung.startswith("a lap has been running for 12 s")
        assert engine.node.health.checks()["scheduler"] == "ok"


async def test_failing_laps_are_reported_until_one_succeeds(clock: VirtualClock) -> None:
    async with Engine(clock=clock) as engine:
        engine.store.broken["peek"] = StoreUnavailable("not now")
        await engine.submit()
        await asyncio.sleep(2.4)
        failing = engine.node.health.checks()["scheduler"]
        engine.store.broken.clear()
        await asyncio.sleep(2)

        assert failing == "failed 3 times in a row: not now; see duty_failed in the log"
        assert engine.node.health.checks()["scheduler"] == "ok"


async def test_full_disk_after_a_crash_is_not_a_failure_of_laps(clock: VirtualClock) -> None:
    """A service that starts on a full disk after a crash is ready for reads."""
    store = FaultyStore()
    (lost,) = await put(store, make_running(now=clock.now()))
    store.fill_disk()

    async with Engine(clock=clock, store=store) as engine:
        await asyncio.sleep(5)
        full = engine.node.health.checks()["scheduler"]
        store.broken.clear()
        await asyncio.sleep(2)

        assert full == "ok"
        assert engine.node.metrics.laps_failed.values["recovery",] > 3
        assert outcomes_of(await engine.read(lost))[0] == "lost"


async def test_scheduler_asleep_past_a_due_time_is_reported(clock: VirtualClock) -> None:
    async with Engine(clock=clock) as engine:
        await asyncio.sleep(100)
        engine.node.engine.agenda._earlier = None  # the timer that should wake the scheduler
        engine.node.engine.agenda.add(clock.now() - 7 * SECOND, 1)

        assert engine.node.health.checks()["scheduler"].startswith("asleep although a job has been due for 7 s")


async def test_hanging_commit_is_reported(clock: VirtualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = [100.0]
    monkeypatch.setattr("erelong.telemetry.metrics.time.monotonic", lambda: ticks[0])
    async with Engine(clock=clock) as engine:
        engine.node.metrics.commits.begin()
        ticks[0] += 4.9
        assert engine.node.health.checks()["store"] == "ok"
        ticks[0] += 4.1
        status = engine.node.health.checks()["store"]
        engine.node.metrics.commits.end(1)

        assert status.startswith("a commit has been running for 9 s: check the disk")
        assert engine.node.health.checks()["store"] == "ok"


async def test_unsaved_outcomes_are_reported(clock: VirtualClock) -> None:
    async with Engine(clock=clock, workers=WorkersSection(max_unsaved=1)) as engine:
        engine.store.broken["finish"] = StoreUnavailable("not now")
        await engine.submit()
        await asyncio.sleep(2)

        assert engine.node.health.checks()["outcomes"].startswith("1 unsaved outcomes")


@pytest.mark.parametrize(("step", "effect"), [(60, "due sooner"), (-60, "wait longer")])
async def test_step_of_the_clock_is_shown_for_a_while(clock: VirtualClock, step: float, effect: str) -> None:
    async with Engine(clock=clock) as engine:
        await asyncio.sleep(5)
        clock.step(step)
        await asyncio.sleep(6)  # it is noticed within the first second
        shown = engine.node.health.checks()["clock"]
        await asyncio.sleep(600)

        assert shown.startswith(f"ok, stepped by {step:+.1f} s 5 s ago")
        assert effect in shown
        assert engine.node.health.checks()["clock"] == "ok"
