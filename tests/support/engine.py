"""The service without HTTP, on virtual time, with kinds and a store from the test."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Self

import orjson

from erelong.clock.zones import ZoneSource
from erelong.handlers.kinds import Kind, Kinds
from erelong.model.job import Job, State
from erelong.model.query import Query
from erelong.model.submission import NewJob
from erelong.node import Node
from erelong.settings.queues import QueueSettings
from erelong.settings.sections import Config
from tests.support.builders import make_job, make_retry
from tests.support.faults import FaultyStore
from tests.support.kinds import FakeRunner
from tests.support.virtual import VirtualClock

MANY = 100_000
ONCE = make_retry(max_attempts=1)
STEADY = make_retry(max_attempts=3, delay=10, factor=2, jitter=0)


class Engine:
    """Started and stopped by `async with`; `handler` runs the kind "echo"."""

    def __init__(
        self,
        *,
        clock: VirtualClock,
        handler: FakeRunner | None = None,
        store: FaultyStore | None = None,
        queue: QueueSettings | None = None,
        kinds: Sequence[Kind] = (),
        zone_source: ZoneSource | None = None,
        **sections: Any,
    ) -> None:
        self.clock = clock
        self.store = FaultyStore() if store is None else store
        self.handler = FakeRunner() if handler is None else handler
        queues = {"default": QueueSettings(concurrency=MANY) if queue is None else queue}
        self.node = Node(
            config=Config(queues=queues, **sections),
            store=self.store,
            kinds=Kinds(self.handler.kind("echo"), *kinds),
            now=clock.now,
            zone_source=zone_source,
        )

    async def __aenter__(self) -> Self:
        await self.node.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        for event in (*self.store.held.values(), *self.store.answers_held.values(), self.handler.let_go):
            event.set()
        self.store.broken.clear()
        await self.node.stop()

    async def submit(self, **fields: Any) -> Job:
        (job,) = await self.submit_all([fields])
        return job

    async def submit_many(self, number: int, **fields: Any) -> list[Job]:
        return await self.submit_all([fields] * number)

    async def submit_all(self, submissions: list[dict[str, Any]]) -> list[Job]:
        now = self.clock.now()
        receipt = await self.node.services.jobs.add(
            [NewJob(make_job(now=now, **fields)) for fields in submissions], now=now
        )
        return [entry.job for entry in receipt.entries if entry is not None]

    async def read(self, job: Job) -> Job:
        return (await self.store.get([job.seq]))[job.seq]

    async def states(self) -> dict[State, int]:
        """Return the number of jobs per state."""
        jobs = await self.store.list(Query(limit=MANY))
        states = [job.state for job in jobs]
        return {state: states.count(state) for state in sorted(set(states))}

    async def until(self, condition: Callable[[], bool], *, within: float = 60.0, step: float = 0.001) -> None:
        """Let time pass until a condition holds; with a step of 0 the loop turns but time does not advance."""
        async with asyncio.timeout(within):
            while not condition():  # noqa: ASYNC110 - the condition has no event, and the time is virtual
                await asyncio.sleep(step)

    async def until_final(self, job: Job, *, within: float = 100_000.0) -> Job:
        return await self.node.services.jobs.wait(job.id, within)

    def assert_all_given_back(self) -> None:
        """Check that no slot, worker or label is in use."""
        lanes, workers = self.node.engine.lanes._lanes.values(), self.node.engine.workers
        assert [(lane.running, lane.due, lane.sublanes, lane.keys) for lane in lanes] == [(0, 0, {}, {})] * len(lanes)
        assert workers.running == 0
        assert workers.free == self.node.config.workers.concurrency


def error_of(job: Job) -> dict[str, Any]:
    assert job.error is not None
    error: dict[str, Any] = orjson.loads(job.error)
    return error


def outcomes_of(job: Job) -> list[str]:
    return [attempt["outcome"] for attempt in orjson.loads(job.history)]
