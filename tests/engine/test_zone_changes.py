"""When time-zone rules change, waiting jobs move to the instant that their local time has by the new rules."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from erelong.clock.instants import SECOND
from erelong.clock.zones import UNKNOWN_VERSION
from erelong.engine.zone_changes import CHECK_INTERVAL, DOCUMENT, PAGE, SETTLE_TIME
from erelong.errors import StoreUnavailable
from erelong.model.extras import Extras, read_extras
from erelong.model.job import Job, State
from erelong.model.submission import NewJob, Receipt
from erelong.service.factory import Change
from erelong.stores.base import Verdicts
from tests.support.builders import make_retry
from tests.support.engine import Engine
from tests.support.faults import FaultyStore
from tests.support.kinds import FakeRunner, raising
from tests.support.served import Serve
from tests.support.virtual import EPOCH, VirtualClock
from tests.support.zones import HERE, THERE, FakeZones, FakeZoneSource, make_zones

HOUR = 3600 * SECOND
LOCAL = "2026-01-01T02:30:00"
IN_UTC = EPOCH + HOUR * 5 // 2
INTENT: Extras = {"local_time": LOCAL, "zone": HERE}
FIRST_SEARCH = CHECK_INTERVAL + 1
APPLIED = FIRST_SEARCH + SETTLE_TIME
CHANGED = "2026b"
RARE = make_retry(max_attempts=3, delay=1_000_000, max_delay=1_000_000, jitter=0)


class HeldStore(FaultyStore):
    """A store whose adds can wait, and that runs an action just before the next save."""

    def __init__(self) -> None:
        super().__init__()
        self.interrupt: Callable[[], Awaitable[object]] | None = None

    async def add(self, new_jobs: Sequence[NewJob], **others: Any) -> Receipt:
        await self._before("add")
        return await super().add(new_jobs, **others)

    async def save(self, jobs: Sequence[Job], **others: Any) -> Verdicts:
        if jobs and self.interrupt is not None:
            interrupt, self.interrupt = self.interrupt, None
            await interrupt()
        return await super().save(jobs, **others)


class Zoned(Engine):
    """An engine whose rules can change. HERE is one hour ahead of UTC at first."""

    def __init__(self, *, clock: VirtualClock, zones: FakeZones | None = None, **options: Any) -> None:
        self.source = FakeZoneSource(zones)
        options.setdefault("store", HeldStore())
        super().__init__(clock=clock, zone_source=self.source, **options)

    async def submit_local(self, **fields: Any) -> Job:
        """Submit a job for the local time HERE, after the check at the start."""
        await asyncio.sleep(0.1)
        delay = (at(1) - self.clock.now()) / SECOND
        return await self.submit(**{"delay": delay, "extras": INTENT, "labels": {"tenant": "t1"}, **fields})

    async def change_rules(self, here: float | None = 1.25, *, within: float = APPLIED) -> None:
        """Let HERE be another number of hours ahead, or disappear."""
        self.source.newest = make_zones(CHANGED, here)
        await asyncio.sleep(within)


def at(hours: float) -> int:
    """Return the instant of the local time in a zone that is some hours ahead of UTC."""
    return IN_UTC - round(hours * HOUR)


def logged(caplog: pytest.LogCaptureFixture, event: str) -> list[dict[str, Any]]:
    return [record.__dict__["fields"] for record in caplog.records if record.getMessage() == event]


async def test_waiting_job_moves_with_the_rules_of_its_zone(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    async with Zoned(clock=clock) as engine:
        job = await engine.submit_local(expires_after=60)

        await engine.change_rules()

        moved = await engine.read(job)
        assert (moved.execute_at, moved.due_at, moved.expires_at) == (at(1.25), at(1.25), at(1.25) + 60 * SECOND)
        assert (moved.version, moved.extras, moved.labels) == (2, job.extras, job.labels)
    assert logged(caplog, "zones_changed") == [{"version": CHANGED, "before": "2026a", "jobs": 1}]


async def test_job_that_was_moved_to_a_local_time_after_an_attempt_moves(clock: VirtualClock) -> None:
    async with Zoned(clock=clock, handler=FakeRunner(raising(ValueError("boom")))) as engine:
        job = await engine.submit(retry=RARE)
        await asyncio.sleep(1)
        await engine.node.services.jobs.patch(job.id, Change(given=frozenset(INTENT), extras=INTENT), None)

        await engine.change_rules()

        moved = await engine.read(job)
        assert (moved.attempt, moved.due_at) == (1, at(1.25))


@pytest.mark.parametrize("hours", [1.25, 0.5, 1 + 25 / 60])  # the last is within the window of the agenda
async def test_moved_job_starts_at_its_new_time(clock: VirtualClock, hours: float) -> None:
    async with Zoned(clock=clock) as engine:
        job = await engine.submit_local()
        await engine.change_rules(hours, within=FIRST_SEARCH)

        done = await engine.until_final(job, within=20 * 3600)

        assert done.state is State.SUCCEEDED
        assert done.started_at is not None
        assert 0 <= done.started_at - at(hours) < SECOND // 1000


async def test_moved_job_keeps_its_share_of_the_spread(clock: VirtualClock) -> None:
    async with Zoned(clock=clock) as engine:
        job = await engine.submit_local(extras={**INTENT, "spread": 3600.0})

        await engine.change_rules()

        moved = await engine.read(job)
        assert (moved.execute_at, moved.due_at) == (at(1.25), at(1.25) + job.offset)


async def test_due_job_of_a_paused_queue_waits_again_if_its_time_is_later(clock: VirtualClock) -> None:
    async with Zoned(clock=clock) as engine:
        job = await engine.submit_local()
        await engine.node.services.queues.pause("default")
        await asyncio.sleep((at(1) - clock.now()) / SECOND + 1)

        await engine.change_rules(-0.5)
        await engine.node.services.queues.resume("default")

        assert (await engine.until_final(job)).started_at == at(-0.5)


async def test_many_jobs_move_once_each(clock: VirtualClock) -> None:
    async with Zoned(clock=clock) as engine:
        here = await engine.submit_many(2 * PAGE + 5, delay=(at(1) - clock.now()) / SECOND, extras=INTENT)
        elsewhere: Extras = {"local_time": LOCAL, "zone": THERE}
        there = await engine.submit(delay=(at(0.5) - clock.now()) / SECOND, extras=elsewhere)

        await engine.change_rules()

        moved = [await engine.read(job) for job in here]
        assert {(job.execute_at, job.version) for job in moved} == {(at(1.25), 2)}
        assert (await engine.read(there)).version == 1


async def test_zone_that_disappears_leaves_its_jobs_at_their_times(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with Zoned(clock=clock) as engine:
        job = await engine.submit_local()

        await engine.change_rules(None)

        assert await engine.read(job) == job
        assert engine.node.health.checks()["zones"] == f"ok, {CHANGED}"
        assert (await engine.until_final(job, within=20 * 3600)).started_at == at(1)
    assert {fields["zone"] for fields in logged(caplog, "zone_gone")} == {HERE}


# jobs that no longer wait for their local time


async def test_jobs_that_do_not_wait_for_their_local_time_stay(clock: VirtualClock) -> None:
    async with Zoned(clock=clock, handler=FakeRunner(raising(RuntimeError("no luck")))) as engine:
        jobs = engine.node.services.jobs
        plain = await engine.submit(delay=100 * 24 * 3600)
        cancelled = await engine.submit_local()
        await jobs.cancel(cancelled.id, None, None)
        retrying = await engine.submit_local(delay=0, retry=RARE)
        await asyncio.sleep(1)
        before = [await engine.read(job) for job in (plain, cancelled, retrying)]

        await engine.change_rules()

        assert [await engine.read(job) for job in (plain, cancelled, retrying)] == before
        assert (before[2].state, before[2].attempt) == (State.SCHEDULED, 1)


async def test_job_that_a_client_ran_stays_due(clock: VirtualClock) -> None:
    async with Zoned(clock=clock) as engine:
        job = await engine.submit_local()
        await engine.node.services.queues.pause("default")
        ran = await engine.node.services.jobs.run(job.id, None)

        await engine.change_rules()

        assert await engine.read(job) == ran


# races


async def test_submit_under_way_during_the_change_is_resolved_again(clock: VirtualClock) -> None:
    async with Zoned(clock=clock) as engine:
        add = engine.store.hold("add")
        submit = asyncio.create_task(engine.submit_local())
        await engine.change_rules(within=FIRST_SEARCH)
        add.set()
        job = await submit
        assert job.execute_at == at(1)

        await asyncio.sleep(SETTLE_TIME)

        assert (await engine.read(job)).execute_at == at(1.25)


CHANGES = {
    "other content": Change(given=frozenset({"priority"}), priority=7),
    "an instant": Change(given=frozenset({"delay"}), delay=5_000_000.0),
    "another zone": Change(given=frozenset({"zone"}), extras={"zone": THERE}),
    "another local time": Change(given=frozenset({"local_time"}), extras={"local_time": "2026-01-02T02:30:00"}),
}


@pytest.mark.parametrize("name", CHANGES)
async def test_change_that_comes_between_is_kept(clock: VirtualClock, name: str) -> None:
    change, store = CHANGES[name], HeldStore()
    async with Zoned(clock=clock, store=store) as engine:
        job = await engine.submit_local()
        store.interrupt = lambda: engine.node.services.jobs.patch(job.id, change, None)

        await engine.change_rules(within=FIRST_SEARCH)

        after = await engine.read(job)
        expected = {
            "other content": (at(1.25), 7, HERE, 3),
            "an instant": (EPOCH + round((CHECK_INTERVAL + 5_000_000) * SECOND), 0, None, 2),
            "another zone": (at(0.5), 0, THERE, 2),
            "another local time": (at(1.25) + 24 * HOUR, 0, HERE, 2),
        }[name]
        zone = read_extras(after.extras).get("zone")
        assert (after.execute_at, after.priority, zone, after.version) == expected


@pytest.mark.parametrize("name", ["cancel", "run", "delete"])
async def test_step_that_comes_between_is_final(clock: VirtualClock, name: str) -> None:
    store = HeldStore()
    async with Zoned(clock=clock, store=store) as engine:
        jobs = engine.node.services.jobs
        job = await engine.submit_local()
        steps: dict[str, Callable[[], Awaitable[object]]] = {
            "cancel": lambda: jobs.cancel(job.id, None, None),
            "run": lambda: jobs.run(job.id, None),
            "delete": lambda: jobs.delete(job.id, None),
        }
        store.interrupt = steps[name]

        await engine.change_rules()

        left = (await store.get([job.seq])).get(job.seq)
        assert {"cancel": State.CANCELLED, "run": State.SUCCEEDED, "delete": None}[name] == (left and left.state)
        assert left is None or left.execute_at == at(1)


async def test_job_that_starts_between_is_not_moved(clock: VirtualClock) -> None:
    store = HeldStore()
    async with Zoned(clock=clock, store=store) as engine:
        await engine.node.services.queues.pause("default")
        job = await engine.submit_local()
        await asyncio.sleep((at(1) - clock.now()) / SECOND + 1)

        async def start() -> None:
            await engine.node.services.queues.resume("default")
            await asyncio.sleep(0.01)

        store.interrupt = start
        await engine.change_rules(0.0)

        done = await engine.read(job)
        assert (done.state, done.attempt, done.execute_at) == (State.SUCCEEDED, 1, at(1))


# failures


async def test_row_that_cannot_be_written_stops_no_other(clock: VirtualClock) -> None:
    async with Zoned(clock=clock) as engine:
        jobs = [await engine.submit_local() for _ in range(10)]
        engine.store.refuse("save", jobs[3].seq)

        await engine.change_rules()

        assert [(await engine.read(job)).version for job in jobs] == [2, 2, 2, 1, *[2] * 6]
        assert "1 set aside" in engine.node.health.checks()["zones"]

        engine.store.refused.clear()
        await asyncio.sleep(SETTLE_TIME)

        assert (await engine.read(jobs[3])).execute_at == at(1.25)
        assert engine.node.health.checks()["zones"] == f"ok, {CHANGED}"


@pytest.mark.parametrize("method", ["list", "get", "save"])
async def test_search_that_fails_is_repeated(clock: VirtualClock, method: str) -> None:
    async with Zoned(clock=clock) as engine:
        job = await engine.submit_local()
        engine.store.broken[method] = StoreUnavailable("not now")
        await engine.change_rules()
        failing = engine.node.health.checks()["zones"]

        engine.store.broken.clear()
        await asyncio.sleep(2)

        assert failing.startswith("failed ")
        assert (await engine.read(job)).execute_at == at(1.25)
        assert engine.node.health.checks()["zones"] == f"ok, {CHANGED}"


# starts


async def run_once(clock: VirtualClock, store: FaultyStore, version: str, here: float = 1.0) -> list[str]:
    """Start and stop a service with these rules; return the methods of the store that the search called."""
    async with Zoned(clock=clock, store=store, zones=make_zones(version, here)) as engine:
        store.calls.clear()
        await asyncio.sleep(1)
        assert engine.node.health.checks()["zones"] == f"ok, {version}"
    return [call for call in store.calls if call in ("list", "save")]


async def test_start_with_other_rules_moves_jobs_once(clock: VirtualClock) -> None:
    store = HeldStore()
    async with Zoned(clock=clock, store=store) as engine:
        job = await engine.submit_local()

    searched: dict[tuple[int, str], bool] = {}
    for version, here in (("2026a", 1.0), ("2026a", 1.0), ("2026b", 1.25), ("2026b", 1.25), ("2026a", 1.0)):
        calls = await run_once(clock, store, version, here)
        searched[len(searched), version] = "list" in calls
        assert (await store.get([job.seq]))[job.seq].execute_at == at(here)

    # The first start does not know by which rules the jobs are resolved.
    assert [*searched.values()] == [True, False, True, False, True]


async def test_version_is_remembered_without_any_local_time_left(clock: VirtualClock) -> None:
    """Otherwise jobs submitted under newer rules would look resolved after a start with the earlier ones."""
    store = HeldStore()
    async with Zoned(clock=clock, store=store) as engine:
        first = await engine.submit_local()
    await run_once(clock, store, "2026a")
    await store.delete((await store.get([first.seq]))[first.seq])
    async with Zoned(clock=clock, store=store, zones=make_zones("2026b", 1.25)) as engine:
        await asyncio.sleep(1)
        job = await engine.submit_local(delay=(at(1.25) - clock.now()) / SECOND)

    await run_once(clock, store, "2026a")

    assert (await store.get([job.seq]))[job.seq].execute_at == at(1)


async def test_no_version_is_stored_while_jobs_move(clock: VirtualClock) -> None:
    """After a crash in between, a start under either rules must search again."""
    store = HeldStore()
    during: list[bytes | None] = []

    async def note() -> None:
        document = await store.document(*DOCUMENT)
        during.append(document and document.text)

    async with Zoned(clock=clock, store=store) as engine:
        await engine.submit_local()
    await run_once(clock, store, "2026a")
    store.interrupt = note
    await run_once(clock, store, "2026b", 1.25)

    document = await store.document(*DOCUMENT)
    assert during == [b'{"version":""}']
    assert document is not None
    assert document.text == b'{"version":"2026b"}'


async def test_store_without_local_times_gets_no_document(clock: VirtualClock) -> None:
    async with Zoned(clock=clock) as engine:
        await engine.submit(delay=1_000_000)
        await engine.change_rules()

        assert await engine.store.document(*DOCUMENT) is None


# checks


async def test_same_rules_are_not_applied_again(clock: VirtualClock) -> None:
    async with Zoned(clock=clock) as engine:
        await engine.submit_local()
        await asyncio.sleep(1)
        engine.store.calls.clear()

        await asyncio.sleep(5 * CHECK_INTERVAL)

        assert not {"list", "save"} & {*engine.store.calls}


async def test_rules_without_a_version_are_applied_at_each_check(clock: VirtualClock) -> None:
    async with Zoned(clock=clock, zones=make_zones(UNKNOWN_VERSION)) as engine:
        job = await engine.submit_local()
        engine.source.newest = make_zones(UNKNOWN_VERSION, 1.25)

        await asyncio.sleep(APPLIED)

        assert (await engine.read(job)).execute_at == at(1.25)


# schedules


async def test_schedules_follow_the_rules_of_their_zones(serve: Serve) -> None:
    source = FakeZoneSource()
    service = await serve(zone_source=source)

    async def next_times() -> list[str | None]:
        schedules = [(await service.get(f"/v1/schedules/{name}")).json for name in ("here", "there")]
        return [schedule["next_at"] and schedule["next_at"][11:16] for schedule in schedules]

    for name, zone in (("here", HERE), ("there", THERE)):
        await service.put(f"/v1/schedules/{name}", {"cron": "0 12 * * *", "zone": zone, "job": {"kind": "echo"}})
    assert await next_times() == ["11:00", "11:30"]

    source.newest = make_zones("2026b", 1.25)
    await asyncio.sleep(FIRST_SEARCH)
    assert await next_times() == ["10:45", "11:30"]

    source.newest = make_zones("2026c", None)
    await asyncio.sleep(FIRST_SEARCH)
    assert await next_times() == [None, "11:30"]
    here = (await service.get("/v1/schedules/here")).json
    assert (here["paused"], here["reason"]) == (True, "zone_gone")
