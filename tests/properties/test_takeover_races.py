"""In any race of submits under one key with starts and ends of its jobs, the newest event has a live job.

`ERELONG_EXAMPLES=34` runs more than ten thousand races on virtual time, and as many with the threads of each
durable store.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import orjson
from hypothesis import given, settings
from hypothesis import strategies as st

from erelong.attempt import Attempt
from erelong.clock.instants import Instant
from erelong.model.conflict import OnConflict
from erelong.model.ids import parse_id
from erelong.model.job import Job, State
from erelong.model.outcome import End, Outcome
from erelong.model.submission import AddStatus, NewJob, Receipt
from erelong.settings.sections import WorkersSection
from erelong.stores.base import Claim, Ending, Store, Verdicts
from erelong.stores.memory import MemoryStore
from erelong.stores.postgres.store import PostgresStore
from erelong.stores.sqlite.store import SqliteStore
from tests.support.builders import ALL, NOW, count_both, make_failure, make_job, make_new_job, make_retry
from tests.support.dawdling import DawdlingStore
from tests.support.engine import Engine, error_of, outcomes_of
from tests.support.examples import TIMES, examples
from tests.support.kinds import FakeRunner
from tests.support.postgres import PostgresServer
from tests.support.virtual import VirtualClock, VirtualLoop

RETRY = make_retry(max_attempts=2, delay=0.002, jitter=0)
TAKEOVERS = st.sampled_from([OnConflict.REPLACE, OnConflict.RESCHEDULE])
ROUNDS = 300 * TIMES


class Event(NamedTuple):
    """One submit under the key: seconds after the previous one, the delay of its job and its duration."""

    after: float
    delay: float
    lasts: float
    on_conflict: OnConflict


MILLISECONDS = st.integers(0, 12).map(lambda ms: ms / 1_000)
EVENTS = st.builds(Event, after=MILLISECONDS, delay=MILLISECONDS, lasts=MILLISECONDS, on_conflict=TAKEOVERS)


class WatchedStore(DawdlingStore):
    """Checks the key after each write. `newest` is the job of the newest event, started once it is claimed."""

    def __init__(self, *, chance: random.Random) -> None:
        super().__init__(chance=chance, longest=0.006)
        self.newest = 0
        self.has_started = True
        self.superseded: set[int] = set()
        self.violations: list[str] = []  # a duty would catch an exception

    async def add(self, new_jobs: Sequence[NewJob], *, now: Instant, **options: Any) -> Receipt:
        await self._before("add")
        receipt = await MemoryStore.add(self, new_jobs, now=now, **options)
        if not new_jobs:  # a document alone
            return receipt
        (entry,) = receipt.entries
        assert entry is not None
        assert entry.status in (AddStatus.ADDED, AddStatus.CHANGED), "an event was refused"
        self.newest, self.has_started = entry.job.seq, False
        if entry.superseded is not None:
            self.superseded.add(entry.superseded.seq)
        self.check_key()
        await self._after("add")
        return receipt

    async def claim(self, seqs: Sequence[int], *, now: Instant) -> Claim:
        await self._before("claim", seqs)
        claim = await MemoryStore.claim(self, seqs, now=now)
        started = {job.seq for job in claim.jobs}
        if not started.isdisjoint(self.superseded):
            self.violations.append("a superseded job has another attempt")
        self.has_started = self.has_started or self.newest in started
        self.check_key()
        await self._after("claim")
        return claim

    async def finish(self, endings: Sequence[Ending], **others: Any) -> Verdicts:
        verdicts = await super().finish(endings, **others)
        self.check_key()
        return verdicts

    def check_key(self) -> None:
        newest = self.snapshot(self.newest)
        live = [job for job in self.peek_all() if not job.is_final]
        if newest is None or newest.superseded or (newest.is_final and not self.has_started):
            self.violations.append(f"the newest event has neither a live job nor had an attempt: {newest}")
        elif [job for job in live if job.key == "k"] != ([] if newest.is_final else [newest]):
            self.violations.append(f"others than {newest} hold the key: {live}")
        if not all(job.superseded and job.state is State.RUNNING for job in live if job.key is None):
            self.violations.append(f"a superseded job waits: {live}")


class Race:
    """One run: events for one key, and the attempts they race with."""

    def __init__(self, *, clock: VirtualClock, seed: int, concurrency: int) -> None:
        self.chance = random.Random(seed)
        self.clock = clock
        self.store = WatchedStore(chance=self.chance)
        workers = WorkersSection(concurrency=concurrency)
        self.engine = Engine(clock=clock, handler=FakeRunner(self.work), store=self.store, workers=workers)

    async def run(self, events: list[Event]) -> None:
        async with self.engine:
            for number, event in enumerate(events):
                await asyncio.sleep(event.after)
                await self.submit(number, event)
            await asyncio.sleep(5)
            self.check()

    async def submit(self, number: int, event: Event) -> None:
        now = self.clock.now()
        params = {"n": number, "lasts": event.lasts}
        job = make_job(key="k", params=params, delay=event.delay, retry=RETRY, now=now)
        receipt = await self.engine.node.services.jobs.add([NewJob(job, event.on_conflict)], now=now)
        (entry,) = receipt.entries
        assert entry is not None
        assert (entry.status is AddStatus.CHANGED) <= (entry.superseded is None)

    async def work(self, attempt: Attempt) -> None:
        seq, _ = parse_id(attempt.id) or (0, "")
        job = self.store.snapshot(seq)
        assert job is not None
        await asyncio.sleep(orjson.loads(job.params)["lasts"])
        if self.chance.random() < 0.4:
            raise ValueError("bad luck")

    def check(self) -> None:
        """Check that the newest job has ended normally and the others as superseded jobs."""
        assert self.store.violations == []
        for job in self.store.peek_all():
            assert job.is_final
            outcomes = outcomes_of(job)
            assert job.state is (State.SUCCEEDED if outcomes[-1] == "succeeded" else State.FAILED)
            assert job.attempt <= len(outcomes)  # a replaced waiting job counts from 0
            if job.state is State.FAILED:
                assert error_of(job)["message"] == "ValueError: bad luck"
                assert job.superseded or job.failures == 2
            assert job.superseded == (job.seq in self.store.superseded)
            assert (job.key is None) == job.superseded
        assert self.store.has_started
        self.engine.assert_all_given_back()
        metrics = self.engine.node.metrics
        assert metrics.outdated.values[()] == 0
        assert metrics.laps_failed.values == {}
        ended = Counter(job.state.word for job in self.store.peek_all())
        assert {word: jobs for (_, word), jobs in metrics.finished.values.items()} == ended


@settings(max_examples=examples(300))
@given(
    events=st.lists(EVENTS, min_size=2, max_size=10),
    seed=st.integers(0, 2**32),
    concurrency=st.sampled_from([1, 2, 100]),
)
def test_newest_event_for_a_key_has_a_live_job_in_every_race(events: list[Event], seed: int, concurrency: int) -> None:
    async def race() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        await Race(clock=VirtualClock(loop=loop), seed=seed, concurrency=concurrency).run(events)

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(race())


# the threads of the embedded store

OUTCOMES = (Outcome(End.SUCCEEDED), Outcome(End.SUCCEEDED, b"1"), make_failure(), Outcome(End.RELEASED))


async def _after_some_turns(chance: random.Random, call: Any) -> Any:
    for _ in range(chance.choice([0, 0, 1, 2, 5])):
        await asyncio.sleep(0)
    if chance.random() < 0.3:
        await asyncio.sleep(chance.random() * 0.0005)
    return await call()


async def _finish(store: Store, job: Job, outcome: Outcome) -> Job:
    """End an attempt as the completer does: on top of an earlier change, while the same attempt runs."""
    while True:
        ending = Ending(job, outcome, NOW)
        (verdict,) = await store.finish([ending])
        if verdict.is_saved:
            return ending.after
        assert verdict.job is not None, "it is gone"
        assert (verdict.job.state, verdict.job.superseded) == (State.RUNNING, True)
        job = verdict.job


async def _race_once(store: Store, chance: random.Random, holder: Job) -> Job:
    """Run a claim or an end and one or two events at once; return the job of the newest event."""
    new_jobs = [
        make_new_job(key="k", params={"n": n}, on_conflict=chance.choice([OnConflict.REPLACE, OnConflict.RESCHEDULE]))
        for n in range(chance.choice([1, 1, 2]))
    ]
    outcome = chance.choice(OUTCOMES)

    async def take_over() -> Job:
        for new_job in new_jobs:
            (entry,) = (await store.add([new_job], now=NOW)).entries
            assert entry is not None
            assert entry.status in (AddStatus.ADDED, AddStatus.CHANGED)
        assert entry is not None
        return entry.job

    async def move_on() -> None:
        if holder.state is State.RUNNING:
            await _finish(store, holder, outcome)
            return
        for job in (await store.claim([holder.seq], now=NOW)).jobs:
            if chance.random() < 0.5:
                await _finish(store, job, outcome)

    newest, _ = await asyncio.gather(_after_some_turns(chance, take_over), _after_some_turns(chance, move_on))
    found: Job = newest
    return found


async def _check(store: Store, newest: Job) -> Job | None:
    """Check that the newest job is live under the key, or has had an attempt and ended."""
    job = (await store.get([newest.seq]))[newest.seq]
    assert not job.superseded
    assert await store.holder("default", "k") == (None if job.is_final else job)
    assert not job.is_final or job.attempt > 0
    return None if job.is_final else job


async def _race_on_threads(store: SqliteStore | PostgresStore, rounds: int) -> None:
    chance = random.Random(rounds)
    await store.open()
    holder: Job | None = None
    statuses: Counter[str] = Counter()
    for _ in range(rounds):
        if holder is None:
            (entry,) = (await store.add([make_new_job(key="k", retry=RETRY)], now=NOW)).entries
            assert entry is not None
            holder = entry.job
        before = holder
        holder = await _check(store, await _race_once(store, chance, holder))
        statuses[
            f"{before.state.word}, then {'another' if holder and holder.seq != before.seq else 'the same or none'}"
        ] += 1
    for job in await store.list(ALL):
        assert not (job.superseded and job.state is State.SCHEDULED)
        assert job.key == "k" or job.superseded
    counted, stored = await count_both(store)
    assert counted == stored
    await store.close()
    assert all(statuses[f"{state}, then another"] > rounds / 50 for state in ("scheduled", "running")), statuses


def test_newest_event_has_a_live_job_in_every_race_of_sqlite_threads(tmp_path: Path) -> None:
    with asyncio.Runner() as runner:
        runner.run(_race_on_threads(SqliteStore(path=tmp_path / "erelong.db", durability="normal"), ROUNDS))


def test_newest_event_has_a_live_job_in_every_race_of_postgres_threads(postgres_server: PostgresServer) -> None:
    postgres_server.empty()
    with asyncio.Runner() as runner:
        runner.run(_race_on_threads(PostgresStore(url=postgres_server.url, durability="normal"), ROUNDS))
