"""Each end of a job makes exactly one callback, whichever write fails, applied or not, and after a crash.

Jobs end in every way. That is repeated, and each time the next write fails, until no write is left to fail.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable
from contextlib import suppress
from typing import Any

import orjson
import pytest

from erelong.attempt import Attempt, GiveUp
from erelong.duties.waiters import NEVER_LEAVES
from erelong.errors import Problem, QueueNotFound
from erelong.handlers.kinds import Kinds
from erelong.handlers.pull.declaration import make_pull_kind
from erelong.lanes.pollers import LeaseRequest
from erelong.model.extras import Extras, read_extras
from erelong.model.job import Job
from erelong.model.reports.callback import make_on_finish
from erelong.node import Node
from erelong.settings.queues import QueueSettings
from erelong.settings.sections import Config, ServerSection
from tests.support.builders import make_new_job, make_retry
from tests.support.kinds import FakeRunner, for_ever, lasting
from tests.support.swept import Fault, SweptStore
from tests.support.virtual import VirtualClock

CALLING: Extras = {"on_finish": make_on_finish({"url": "https://app.example/done"}, None)}
RETRY = make_retry(max_attempts=2, delay=1, factor=1, jitter=0)
QUEUES = {"small": QueueSettings(max_backlog=1, overflow="drop_oldest")}
ASK = LeaseRequest(frozenset({"pull"}), frozenset(), 1, 3.0)
MOST_WRITES = 200


class EndingStore(SweptStore):
    """Counts how often each job has ended in the store."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.ends: Counter[str] = Counter()

    def left_by_a_crash(self) -> EndingStore:
        left = super().left_by_a_crash()
        assert isinstance(left, EndingStore)
        left.ends = self.ends
        return left

    def _put(self, job: Job) -> None:
        stored = self._jobs.get(job.seq)
        if job.is_final and job.kind != "http" and (stored is None or not stored.is_final):
            self.ends[job.id] += 1
        super()._put(job)


class Life:
    """One service on one store; its http jobs succeed."""

    def __init__(self, *, clock: VirtualClock, store: EndingStore) -> None:
        self.clock = clock
        self.store = store
        works: dict[str, Any] = {
            "quick": lasting(0),
            "endless": for_ever,
            "hopeless": self._give_up,
            "http": lasting(0),
        }
        kinds = [FakeRunner(work).kind(name) for name, work in works.items()]
        config = Config(queues=QUEUES, server=ServerSection(drain_timeout=0.5))
        self.node = Node(config=config, store=store, kinds=Kinds(*kinds, make_pull_kind(name="pull")), now=clock.now)
        self.jobs, self.queues, self.leases = (
            self.node.services.jobs,
            self.node.services.queues,
            self.node.services.leases,
        )

    async def _give_up(self, _: Attempt) -> None:
        raise GiveUp("never")

    async def submit(self, kind: str, **fields: Any) -> Job | None:
        new_job = make_new_job(kind=kind, now=self.clock.now(), retry=RETRY, extras=CALLING, **fields)
        with suppress(Problem):
            (entry,) = (await self.jobs.add([new_job], now=self.clock.now())).entries
            return entry and entry.job
        return None

    async def ask(self, call: Awaitable[Any]) -> Any:
        with suppress(Problem):
            return await call
        return None

    async def live(self) -> None:
        """End jobs in every way."""
        await self.submit("quick")
        failed = await self.submit("hopeless")
        waiting, running = await self.submit("quick", delay=500), await self.submit("endless", timeout=1_000.0)
        await self.submit("endless", timeout=1.0)
        await self.submit("quick", queue="purged", delay=500)
        for _ in range(2):
            await self.submit("quick", queue="small", delay=2)
        await self.ask(self.queues.pause("held"))
        await self.submit("quick", queue="held", expires_after=1.0)
        for policy in ("reject", "replace"):
            await self.submit("endless", key="k", timeout=5.0, on_conflict=policy)
            await asyncio.sleep(0.5)
        for job in (waiting, running):
            await self.ask(self.jobs.cancel(job.id, None, None)) if job else None
        await self.ask(self.jobs.retry(failed.id, None)) if failed else None
        await self.ask(self.queues.purge("purged"))
        await self._use_leases()
        await asyncio.sleep(3)

    async def _use_leases(self) -> None:
        for _ in range(3):
            await self.submit("pull")
        for way in ("finish", "release", "run out"):
            leased = await self.ask(self.leases.lease(ASK, 1.0, NEVER_LEAVES))
            if leased and way == "finish":
                await self.ask(self.leases.finish(leased[0].token, None))
            elif leased and way == "release":
                await self.ask(self.leases.release(leased[0].token))

    async def settle(self) -> None:
        """Heal the store and end what still lives."""
        self.store.heal()
        with suppress(QueueNotFound):
            await self.queues.resume("held")
        for _ in range(30):
            for job in self.store.snapshot().values():
                if job.kind != "http" and not job.is_final:
                    await self.ask(self.jobs.cancel(job.id, None, None))
            leased = await self.ask(self.leases.lease(ASK, 0.0, NEVER_LEAVES))
            if leased:
                await self.leases.finish(leased[0].token, None)
            await asyncio.sleep(2)
            if all(job.is_final for job in self.store.snapshot().values()):
                return

    def check(self) -> int:
        """Check the callbacks of all jobs; return their number."""
        jobs = self.store.snapshot()
        callbacks = [job for job in jobs.values() if job.kind == "http"]
        made = Counter(read_extras(callback.extras)["callback_of"] for callback in callbacks)
        assert made == self.store.ends
        versions = {(c["id"], c["version"]) for c in (orjson.loads(job.params)["json"]["job"] for job in callbacks)}
        assert len(versions) == len(callbacks), "an end was reported twice"
        assert [job.state.word for job in callbacks if job.state.word != "succeeded"] == [], "a callback did not run"
        for id, job in jobs.items():
            assert job.is_final, f"{job.kind} stays {job.state.word}"
            if job.kind != "http":
                assert jobs[str(read_extras(job.extras)["on_finish"]["job"])] in callbacks, id
        assert self.node.metrics.outdated.values[()] == 0
        return len(callbacks)


async def _crash_and_restart(clock: VirtualClock, before: Life) -> Life:
    """Kill the service and start another on the same store."""
    after = Life(clock=clock, store=before.store.left_by_a_crash())
    for duty in before.node.engine.duties.values():
        await duty.stop()
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    await after.node.start()
    return after


@pytest.mark.timeout(60)
@pytest.mark.parametrize("is_crashing", [False, True], ids=["goes on", "restarts"])
@pytest.mark.parametrize("fault", Fault)
async def test_every_end_is_reported_once_whichever_write_fails(
    clock: VirtualClock, fault: Fault, is_crashing: bool
) -> None:
    failed: list[str] = []
    name = "none yet"
    while name:
        life = Life(clock=clock, store=EndingStore(nth=len(failed) + 1, fault=fault))
        await life.node.start()
        await life.live()
        name = life.store.failed
        if is_crashing:
            life = await _crash_and_restart(clock, life)
        await life.settle()
        callbacks = life.check()
        await life.node.stop()
        failed += [name] if name else []

    assert {*failed} >= {"add", "claim", "save", "finish"}
    assert 30 < len(failed) < MOST_WRITES
    assert callbacks >= 12
