"""Random ends, some refused, some failing and some of unknown result: one callback for each end, on every store."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar, cast

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from erelong.engine.callbacks import Callbacks
from erelong.engine.changes import Changes
from erelong.engine.unknown_writes import EngineStore, UnknownWrites
from erelong.errors import Problem, StorageFull, StoreRefused, StoreUnavailable, WrongState
from erelong.model.extras import Extras, read_extras
from erelong.model.job import SECOND, Job, State
from erelong.model.outcome import End, Outcome
from erelong.model.reports.callback import make_on_finish
from erelong.model.submission import AddResult, NewJob
from erelong.settings.defaults import Defaults
from erelong.settings.queues import QueueSettings
from erelong.settings.sections import Config
from erelong.stores.base import Ending, Saved, Store
from erelong.stores.memory import MemoryStore
from erelong.stores.postgres.store import PostgresStore
from erelong.stores.sqlite.store import SqliteStore
from tests.support.builders import ALL, NOW, count_both, make_failure, make_job, make_retry
from tests.support.examples import examples
from tests.support.lives import empty
from tests.support.postgres import PostgresServer

T = TypeVar("T")

RETRY = make_retry(max_attempts=2)
STATES: list[list[str] | None] = [None, ["failed"], ["cancelled", "expired"]]
OUTCOMES = (
    Outcome(End.SUCCEEDED),
    Outcome(End.SUCCEEDED, result=b"1"),
    make_failure(),
    make_failure(retryable=False),
    Outcome(End.LOST),
    Outcome(End.RELEASED),
    Outcome(End.CANCELLED),
)
CHANGES: dict[str, Callable[[Job, int], Job]] = {
    "cancel": lambda job, now: job.cancel(now),
    "expire": lambda job, now: job.expire(now),
    "drop": lambda job, now: job.drop(now),
    "lose": lambda job, now: job.finish(Outcome(End.LOST), now),
    "retry": lambda job, now: job.revive(now),
    "run": lambda job, now: job.run_now(now),
    "clear": lambda job, _: job.with_extras({})._replace(version=job.version + 1),
}


class Fault(StrEnum):
    """How a write fails."""

    NONE = "none"
    FULL = "full disk"
    BEFORE = "not done"
    AFTER = "done"
    REFUSED = "refused, as one of its jobs is damaged"


FAULTS = st.sampled_from([Fault.NONE, Fault.NONE, *Fault])


class FlakyStore:
    """Passes calls on to a store; `fault` is that of the next save or finish."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.fault = Fault.NONE

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def save(self, jobs: Sequence[Job], **others: Any) -> list[Saved]:
        return await self._write(self._store.save(jobs, **others))

    async def finish(self, endings: Sequence[Ending], **others: Any) -> list[Saved]:
        return await self._write(self._store.finish(endings, **others))

    async def _write(self, work: Awaitable[T]) -> T:
        fault, self.fault = self.fault, Fault.NONE
        if fault not in (Fault.NONE, Fault.AFTER):
            work.close()  # type: ignore[attr-defined]  # a coroutine warns if it is never awaited
            raise {Fault.FULL: StorageFull, Fault.BEFORE: StoreUnavailable, Fault.REFUSED: StoreRefused}[fault](fault)
        answer = await work
        if fault is Fault.AFTER:
            raise StoreUnavailable("written, and then the disk failed")
        return answer


class Announced:
    """Records the jobs that the store announces, as `Changes` would apply them."""

    def __init__(self) -> None:
        self.seqs: set[int] = set()

    def added(self, entries: Sequence[AddResult]) -> None:
        assert self.seqs.isdisjoint(entry.job.seq for entry in entries)
        self.seqs |= {entry.job.seq for entry in entries}


class PlainQueues:
    """The settings of queues without any."""

    def settings(self, _: str) -> QueueSettings:
        return QueueSettings()


@dataclass
class World:
    """A store as the engine uses it, and the ends that its jobs should report, by id and version."""

    stored: Store
    now: int = NOW
    running: list[Job] = field(default_factory=list)
    ends: set[tuple[str, int]] = field(default_factory=set)
    seen: dict[int, Job] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.flaky, self.announced, self.unknown = FlakyStore(self.stored), Announced(), UnknownWrites()
        lanes: Any = PlainQueues()
        self.store = EngineStore(
            store=cast("Store", self.flaky),
            unknown_writes=self.unknown,
            callbacks=Callbacks(lanes=lanes, defaults=Defaults(config=Config(), kinds={}), now=lambda: self.now),
            changes=cast("Changes", self.announced),
        )

    async def write(self, fault: Fault, call: Callable[[], Awaitable[object]]) -> None:
        """Write under a fault; then note the ends that are stored."""
        self.now += SECOND
        self.flaky.fault = fault
        with suppress(Problem):
            await call()
        self.flaky.fault = Fault.NONE
        for job in await self.stored.list(ALL):
            before = self.seen.get(job.seq)
            on_finish = read_extras(job.extras).get("on_finish")
            is_end = job.is_final and (before is None or not before.is_final)
            if is_end and on_finish is not None and job.state.word in on_finish["states"]:
                self.ends.add((job.id, job.version))
            self.seen[job.seq] = job

    async def pick(self, pick: int) -> Job | None:
        jobs = [job for job in await self.stored.list(ALL) if job.kind != "http"]
        return jobs[pick % len(jobs)] if jobs else None


Step = Callable[[World], Awaitable[None]]


def add(states: list[list[str] | None]) -> Step:
    async def step(world: World) -> None:
        extras: list[Extras | None] = [
            {"on_finish": make_on_finish({"url": "https://app.example", "states": given}, None)} for given in states
        ]
        jobs = [make_job(now=world.now, retry=RETRY, extras=each) for each in [*extras, None]]
        await world.store.add([NewJob(job) for job in jobs], now=world.now)

    return step


def claim(picks: list[int]) -> Step:
    async def step(world: World) -> None:
        jobs = [await world.pick(pick) for pick in picks]
        world.running += (await world.store.claim([job.seq for job in jobs if job], now=world.now)).jobs

    return step


def finish(ends: list[tuple[int, Outcome]], fault: Fault, is_repeated: bool) -> Step:
    async def step(world: World) -> None:
        jobs = world.running[::-1]
        endings = [Ending(jobs[pick % len(jobs)], outcome, world.now, 1.0) for pick, outcome in ends if jobs]
        await world.write(fault, lambda: world.store.finish(endings))
        if is_repeated:
            await world.write(Fault.NONE, lambda: world.store.finish(endings))

    return step


def save(changes: list[tuple[int, str]], fault: Fault, is_repeated: bool) -> Step:
    async def step(world: World) -> None:
        changed = []
        for pick, name in changes:
            job = await world.pick(pick)
            try:
                changed += [CHANGES[name](job, world.now)] if job else []
            except WrongState:
                continue
        changed = [job for job in changed if world.seen.get(job.seq) != job]  # a repeated cancel changes nothing
        await world.write(fault, lambda: world.store.save(changed))
        if is_repeated:
            await world.write(Fault.NONE, lambda: world.store.save(changed))

    return step


PICKS = st.integers(0, 5)
STEPS = st.one_of(
    st.builds(add, st.lists(st.sampled_from(STATES), min_size=1, max_size=3)),
    *(st.builds(claim, st.lists(PICKS, max_size=4)) for _ in range(2)),
    *(
        st.builds(finish, st.lists(st.tuples(PICKS, st.sampled_from(OUTCOMES)), max_size=4), FAULTS, st.booleans())
        for _ in range(3)
    ),
    *(
        st.builds(save, st.lists(st.tuples(PICKS, st.sampled_from([*CHANGES])), max_size=3), FAULTS, st.booleans())
        for _ in range(3)
    ),
)


async def check(store: Store, steps: list[Step]) -> None:
    world = World(stored=store)
    for step in [add([None]), *steps]:
        await step(world)
    jobs = await store.list(ALL)
    callbacks = [job for job in jobs if job.kind == "http"]
    reported = Counter((r["id"], r["version"]) for r in (orjson.loads(job.params)["json"]["job"] for job in callbacks))
    assert reported == Counter(world.ends)
    since = world.unknown.doubts.since
    forgotten = {callback.seq for callback in callbacks} - world.announced.seqs
    assert all(since is not None and seq > since for seq in forgotten), "nobody would run these callbacks"
    latest = {read_extras(callback.extras)["callback_of"]: callback.id for callback in reversed(callbacks)}
    for job in jobs:
        if (on_finish := read_extras(job.extras).get("on_finish")) is not None:
            assert on_finish["job"] == latest.get(job.id)
    assert {job.state for job in callbacks} <= {State.SCHEDULED}
    counted, stored = await count_both(store)
    assert counted == stored


def _empty(store: SqliteStore) -> None:
    for table in ("jobs", "labels", "counts"):
        store._file.write.execute(f"DELETE FROM {table}")
    store._counters.last_seq = 0
    store._running.load(store._file.write)
    store._counters.load(store._file.write, last_seq=0)
    store._running.renew()


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", ["memory", "sqlite", "postgres"])
def test_each_end_that_is_stored_has_one_callback(name: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    store: SqliteStore | PostgresStore = SqliteStore(path=tmp_path / "erelong.db", durability="normal")
    if name == "postgres":
        server: PostgresServer = request.getfixturevalue("postgres_server")
        server.empty()
        store = PostgresStore(url=server.url, durability="normal")

    with asyncio.Runner() as runner:
        runner.run(store.open())

        async def run(steps: list[Step]) -> None:
            if name == "memory":
                await check(MemoryStore(), steps)
                return
            if isinstance(store, PostgresStore):
                await store._lister.call(empty, store)
            else:
                await store._writer.call(_empty, store)
                store._cache.drop_all()
            await check(store, steps)

        @given(st.lists(STEPS, min_size=5, max_size=25))
        @settings(
            max_examples=examples(40 if name == "postgres" else 150),
            deadline=None,
            suppress_health_check=[HealthCheck.nested_given],
        )
        def walk(steps: list[Step]) -> None:
            runner.run(run(steps))

        walk()
        runner.run(store.close())
