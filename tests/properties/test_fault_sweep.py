"""A failed write, applied or not, loses no acknowledged job and leaves none stuck.

A day of the service uses every kind of write. It is repeated, and each time the next write fails, until a day has no
write left to fail.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any, NamedTuple

import orjson
import pytest

from erelong.attempt import Attempt, GiveUp
from erelong.clock.instants import format_instant
from erelong.errors import Problem, QueueNotFound, StorageFull, StoreUnavailable
from erelong.handlers.kinds import Kinds
from erelong.handlers.pull.declaration import make_pull_kind
from erelong.lanes.pollers import LeaseRequest
from erelong.model.job import Job, State
from erelong.model.outcome import Error
from erelong.model.submission import IdempotencyRecord, NewJob
from erelong.node import Node
from erelong.service.factory import Change
from erelong.service.leases import Leased
from erelong.settings.queues import QueueSettings, Retention
from erelong.settings.sections import Config, ServerSection
from tests.support.builders import make_new_job, make_retry
from tests.support.kinds import FakeRunner, for_ever, lasting
from tests.support.swept import Fault, SweptStore
from tests.support.virtual import VirtualClock

RETRY = make_retry(max_attempts=3, delay=1, factor=1, jitter=0)
QUEUES = {
    "small": QueueSettings(max_backlog=1, overflow="drop_oldest"),
    "short": QueueSettings(retention=Retention(succeeded=0.5, other=0.5)),
}
ASK = LeaseRequest(frozenset({"pull"}), frozenset(), 1, 5.0)
FORGETTING = {"short"}
MOST_WRITES = 200


class Patient:
    """A client that stays until it has its response."""

    is_gone = False

    def wakes(self, _: asyncio.Event) -> AbstractContextManager[None]:
        return nullcontext()


class Run(NamedTuple):
    """An attempt that a handler has seen, and whether it succeeded."""

    id: str
    started_at: int
    has_succeeded: bool


class Life:
    """One service on one store, and its clients; `promised` has the acknowledged states, by job id."""

    def __init__(
        self, *, clock: VirtualClock, store: SweptStore, promised: dict[str, set[State]] | None = None
    ) -> None:
        self.clock = clock
        self.store = store
        self.promised: dict[str, set[State]] = {} if promised is None else promised
        self.runs: list[Run] = []
        self.failures: set[str] = set()
        works = {"quick": lasting(0), "slow": lasting(0.3), "endless": for_ever}
        works |= {"flaky": self._fail_once, "hopeless": self._give_up}
        kinds = [FakeRunner(self._noted(work)).kind(name) for name, work in works.items()]
        kinds.append(make_pull_kind(name="pull"))
        config = Config(queues=QUEUES, server=ServerSection(drain_timeout=1.0))
        self.node = Node(config=config, store=store, kinds=Kinds(*kinds), now=clock.now)

    def _noted(self, work: Any) -> Any:
        async def noted(attempt: Attempt) -> None:
            self.runs.append(Run(attempt.id, attempt.started_at, False))
            index = len(self.runs) - 1
            await work(attempt)
            self.runs[index] = self.runs[index]._replace(has_succeeded=True)

        return noted

    async def _fail_once(self, attempt: Attempt) -> None:
        if attempt.id not in self.failures:
            self.failures.add(attempt.id)
            raise ValueError("the first attempt fails")

    async def _give_up(self, _: Attempt) -> None:
        raise GiveUp("never")

    # what clients do

    async def submit(self, *new_jobs: NewJob, record: IdempotencyRecord | None = None) -> list[Job]:
        """Submit jobs, note the acknowledged ones in `promised` and return them."""
        with suppress(Problem):  # a refused client continues with other calls
            receipt = await self.node.services.jobs.add(new_jobs, now=self.clock.now(), is_whole=True, record=record)
            jobs = [entry.job for entry in receipt.entries if entry is not None]
            self.promised |= {job.id: set() for job in jobs if job.queue not in FORGETTING | {"small"}}
            return jobs
        return []

    def new_job(self, kind: str = "quick", **fields: Any) -> NewJob:
        return make_new_job(kind=kind, now=self.clock.now(), retry=RETRY, **fields)

    async def ask(self, call: Awaitable[Job]) -> Job | None:
        with suppress(Problem):
            return await call
        return None

    async def cancel(self, job: Job) -> None:
        after = await self.ask(self.node.services.jobs.cancel(job.id, None, None))
        if after is not None:
            self.promised[job.id] = {State.CANCELLED}

    async def lease_out(self) -> Leased | None:
        with suppress(Problem):
            leased = await self.node.services.leases.lease(ASK, 1.0, Patient())
            return leased[0] if leased else None
        return None

    # the day

    async def live(self) -> None:
        service = self.node.services.jobs
        await self._submit_all_variants()
        waiting = [job for delay in range(6) for job in await self.submit(self.new_job(delay=30 + delay))]
        calls: list[Callable[[str], Awaitable[Job]]] = [
            lambda id: service.patch(id, Change(given=frozenset({"delay"}), delay=60), None),
            lambda id: service.patch(id, Change(given=frozenset({"delay", "priority"}), delay=2, priority=3), None),
            lambda id: service.run(id, None),
        ]
        for job, call in zip(waiting, calls, strict=False):
            await self.ask(call(job.id))
        for job in waiting[3:4]:
            await self.cancel(job)
        for job in waiting[4:5]:
            self.promised.pop(job.id)  # from here on it may be gone
            with suppress(Problem):
                await service.delete(job.id, None)
        await self._cancel_running_jobs()
        await self._take_over_running_jobs()
        await self._retry_failed_jobs()
        await self._set_queues()
        await self._cancel_paused_jobs()
        await self._use_leases()
        with suppress(Problem):
            await self.node.engine.retention.sweep(self.clock.now())
            await self.node.engine.records.sweep(self.clock.now())

    async def _submit_all_variants(self) -> None:
        await self.submit(self.new_job())
        await self.submit(*[self.new_job(labels={"a": "b"}, delay=delay) for delay in range(3)])
        await self.submit(self.new_job("flaky"))
        await self.submit(self.new_job("slow", expires_after=5.0))
        for policy in ("reject", "keep", "reschedule", "replace"):
            await self.submit(self.new_job(key="k", delay=20, on_conflict=policy))
        record = IdempotencyRecord("anybody", "once", b"digest")
        for _ in range(2):
            await self.submit(self.new_job(delay=3, labels={"memo": "yes"}), record=record)
        for _ in range(2):
            await self.submit(self.new_job(queue="small", delay=5))
        await self.submit(self.new_job(queue="short"))

    async def _cancel_running_jobs(self) -> None:
        for job in await self.submit(self.new_job("endless", timeout=1_000.0)):
            self.promised[job.id] = {State.CANCELLED}  # as a client does in the end
            await asyncio.sleep(0.7)
            await self.ask(self.node.services.jobs.cancel(job.id, "enough", None))

    async def _take_over_running_jobs(self) -> None:
        """Supersede one running holder by a job that is due at once, another by one that is due later."""
        for delay in (0, 1):
            holders = await self.submit(self.new_job("endless", key="busy", timeout=1_000.0, on_conflict="replace"))
            await asyncio.sleep(0.7)
            newer = await self.submit(self.new_job(key="busy", delay=delay, on_conflict="replace"))
            if {job.id for job in newer}.isdisjoint(job.id for job in holders):
                self.promised |= {job.id: {State.CANCELLED} for job in holders}
            self.promised |= {job.id: {State.SUCCEEDED} for job in newer}
            await asyncio.sleep(2)

    async def _retry_failed_jobs(self) -> None:
        for job in await self.submit(self.new_job("hopeless")):
            await asyncio.sleep(0.7)
            await self.ask(self.node.services.jobs.retry(job.id, None))

    async def _set_queues(self) -> None:
        queues = self.node.services.queues
        await self.submit(self.new_job(queue="side", delay=1), self.new_job("slow", queue="side", expires_after=1.5))
        calls: list[Callable[[], Awaitable[object]]] = [
            lambda: queues.put("side", QueueSettings(concurrency=1)),
            lambda: queues.pause("side"),
            lambda: asyncio.sleep(2),  # one of its jobs expires
            lambda: queues.resume("side"),
            lambda: queues.drop("unused"),
            lambda: queues.pause("unused"),
            lambda: queues.drop("unused"),
        ]
        for call in calls:
            with suppress(Problem):
                await call()
        for job in await self.submit(self.new_job(queue="purged", delay=40), self.new_job(queue="purged", delay=41)):
            self.promised[job.id] = {State.CANCELLED, State.SUCCEEDED}
        with suppress(Problem):
            await queues.purge("purged")

    async def _cancel_paused_jobs(self) -> None:
        with suppress(Problem):
            await self.node.services.queues.pause("held")
        for job in await self.submit(self.new_job(queue="held")):
            await asyncio.sleep(0.1)
            await self.ask(self.node.services.jobs.cancel(job.id, None, None))

    async def _use_leases(self) -> None:
        """End each lease in another way; the last one expires."""
        leases = self.node.services.leases
        await self.submit(*[self.new_job("pull") for _ in range(6)])
        calls: list[Callable[[str], Awaitable[object]]] = [
            lambda token: leases.finish(token, None),
            lambda token: leases.extend(token, 9.0),
            lambda token: leases.fail(token, Error("exception", "no"), None),
            lambda token: leases.release(token),
            lambda _: asyncio.sleep(6),
        ]
        for call in calls:
            lease = await self.lease_out()
            if lease is not None:
                with suppress(Problem):
                    await call(lease.token)

    # the evening

    async def settle(self) -> None:
        """Heal the store, wait for the remaining jobs, and stop the endless ones."""
        self.store.heal()
        if any(job.queue == "held" and not job.is_final for job in self.store.snapshot().values()):
            await self.node.services.queues.resume("held")
        with suppress(QueueNotFound):
            await self.node.services.queues.resume("side")
        await asyncio.sleep(10)  # longer than a lease and any pause after a failure
        for _ in range(60):
            if all(job.is_final for job in self.store.snapshot().values()):
                return
            lease = await self.lease_out()
            if lease is not None:
                await self.node.services.leases.finish(lease.token, None)
            for id, job in self.store.snapshot().items():
                if job.kind == "endless" and not job.is_final:
                    with suppress(StorageFull, StoreUnavailable):
                        await self.node.services.jobs.cancel(id, None, None)
            await asyncio.sleep(2)

    def check(self, *, has_crashed: bool) -> None:
        self._check_jobs()
        self._check_runs(has_crashed=has_crashed)
        self._check_memory()

    def _check_jobs(self) -> None:
        jobs = self.store.snapshot()
        for job in jobs.values():
            assert job.is_final, f"{job.id}, {job.kind} in {job.queue}, stays {job.state.word}"
        for id, states in self.promised.items():
            assert id in jobs, f"{id} was acknowledged and is lost"
            assert not states or jobs[id].state in states, f"{id} was to be {states} and is {jobs[id].state}"
        assert sum(job.labels == b'{"memo":"yes"}' for job in jobs.values()) <= 1, "a job was made twice"
        assert sum(job.key == "k" for job in jobs.values()) <= 1, "a key was held twice"
        for job in jobs.values():
            assert not job.superseded or (job.key, job.kind) == (None, "endless"), f"{job} is superseded"

    def _check_runs(self, *, has_crashed: bool) -> None:
        """Check that each run is an attempt on record, and none follows a success."""
        jobs = self.store.snapshot()
        done: set[str] = set()
        for run in self.runs:
            if run.id not in jobs:
                continue
            record = [attempt["started_at"] for attempt in orjson.loads(jobs[run.id].history)]
            assert format_instant(run.started_at) in record, f"a run of {run.id} was not counted"
            assert run.id not in done or has_crashed, f"{run.id} ran again after it had succeeded"
            if run.has_succeeded:
                done.add(run.id)

    def _check_memory(self) -> None:
        node = self.node
        assert node.metrics.outdated.values[()] == 0
        assert (node.engine.workers.running, len(node.engine.leases), len(node.engine.completer)) == (0, 0, 0)
        lanes = node.engine.lanes._lanes.values()
        assert [(lane.name, lane.running, lane.due) for lane in lanes] == [(lane.name, 0, 0) for lane in lanes]
        for queue, override in self.store._overrides.items():
            assert node.engine.lanes.is_paused(queue) == (override.pause is not None), (
                f"queue {queue} is not as it is stored"
            )
        assert node.engine.lanes.settings("side").concurrency == (1 if self._has_settings("side") else 100)

    def _has_settings(self, queue: str) -> bool:
        override = self.store._overrides.get(queue)
        return override is not None and override.settings is not None


async def _crash_and_restart(clock: VirtualClock, before: Life) -> Life:
    """Kill the service and start another on the same store."""
    after = Life(clock=clock, store=before.store.left_by_a_crash())
    after.promised, after.runs, after.failures = before.promised, before.runs, before.failures
    for duty in before.node.engine.duties.values():
        await duty.stop()
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    await after.node.start()
    return after


async def _sweep(clock: VirtualClock, fault: Fault, *, is_crashing: bool) -> list[str]:
    """Fail each write once; return their names in order."""
    failed: list[str] = []
    for nth in range(1, MOST_WRITES):
        life = Life(clock=clock, store=SweptStore(nth=nth, fault=fault))
        await life.node.start()
        await life.live()
        name = life.store.failed
        if is_crashing:
            life = await _crash_and_restart(clock, life)
        await life.settle()
        try:
            life.check(has_crashed=is_crashing)
        except AssertionError as error:
            raise AssertionError(f"write {nth}, {name}: {error}") from error
        await life.node.stop()
        if not name:
            return failed
        failed.append(name)
    raise AssertionError(f"a day has more than {MOST_WRITES} writes")


@pytest.mark.timeout(60)
@pytest.mark.parametrize("is_crashing", [False, True], ids=["goes on", "restarts"])
@pytest.mark.parametrize("fault", Fault)
async def test_failed_write_loses_no_job_and_stops_no_duty(
    clock: VirtualClock, fault: Fault, is_crashing: bool
) -> None:
    failed = await _sweep(clock, fault, is_crashing=is_crashing)

    assert {*failed} == {"add", "claim", "save", "finish", "delete", "purge", "forget_records", "override"}
    assert len(failed) > 50


@pytest.mark.parametrize("fault", Fault)
async def test_drain_with_any_failed_write_leaves_the_rest_to_the_next_start(clock: VirtualClock, fault: Fault) -> None:
    failed = []
    for nth in range(1, MOST_WRITES):
        life = Life(clock=clock, store=SweptStore(nth=nth, fault=fault))
        await life.node.start()
        await life.submit(life.new_job("endless", timeout=1_000.0), life.new_job("slow"), life.new_job(delay=1))
        await asyncio.sleep(0.1)
        await life.node.stop()
        name = life.store.failed

        life = await _crash_and_restart(clock, life)
        await life.settle()
        life._check_jobs()
        await life.node.stop()

        if not name:
            break
        failed.append(name)
    assert {*failed} == {"add", "claim", "finish"}
