"""The SQLite and PostgreSQL stores return the same as the memory store for any sequence of calls."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from erelong.errors import DocumentChanged, IdempotencyMismatch, WrongState
from erelong.model.conflict import OnConflict
from erelong.model.document import Document
from erelong.model.job import SECOND, Job, State
from erelong.model.matching.cause import cause_of
from erelong.model.matching.residue import BOUNDS, NO_RESIDUE, Residue
from erelong.model.outcome import End, Outcome
from erelong.model.query import Order, Query
from erelong.model.reports.callback import make_callback, make_on_finish
from erelong.model.submission import RECORD_LIFE, IdempotencyRecord, NewJob
from erelong.stores.base import Claim, Ending, Override, Pause, Saved, Store
from erelong.stores.memory import MemoryStore
from erelong.stores.postgres.listing import walks as postgres_walks
from erelong.stores.postgres.store import PostgresStore
from erelong.stores.sqlite.claims import waiting_still
from erelong.stores.sqlite.listing import walks
from erelong.stores.sqlite.store import SqliteStore
from tests.support.builders import ALL, NOW, count_both, make_failure, make_job, make_retry
from tests.support.examples import examples
from tests.support.lives import empty
from tests.support.postgres import PostgresServer

# Few values of each, so that they collide.
QUEUES = st.sampled_from("aab")
KINDS = st.sampled_from("xy")
KEYS = st.sampled_from([None, "k"])
LABELS = st.sampled_from([{}, {"env": "1"}, {"env": "2"}, {"env": "1", "tenant": "1"}])
SECONDS = st.integers(0, 5)
PICKS = st.integers(0, 5)
RETRY = make_retry(max_attempts=2)


@dataclass
class Twins:
    """Two stores that get the same calls, and the time of the calls."""

    memory: Store
    other: SqliteStore | PostgresStore
    now: int = NOW
    claimed: list[Job] = field(default_factory=list)  # the same objects, which the SQLite store recognizes

    async def compare(self, call: Callable[[Store], Awaitable[object]]) -> None:
        expected, answer = await _answer(call, self.memory), await _answer(call, self.other)
        assert answer == expected

    async def pick(self, pick: int) -> Job | None:
        """Return one of the stored jobs; 0 is the newest."""
        jobs = await self.memory.list(ALL)
        return jobs[pick % len(jobs)] if jobs else None


Step = Callable[[Twins], Awaitable[None]]


def wait(seconds: int) -> Step:
    async def step(twins: Twins) -> None:
        twins.now += seconds * SECOND

    return step


class More(NamedTuple):
    """Additional writes of a call: documents, and new jobs with the items that they follow, some of them callbacks."""

    documents: list[Document]
    items: list[int]

    def arguments(self, jobs: Sequence[Job], now: int) -> dict[str, Any]:
        """Return the arguments of a call that writes these jobs."""
        followed = [(item % len(jobs), jobs[item % len(jobs)]) for item in self.items if jobs]
        return {"beside": self.documents, "also": [(item, _follow(job, now)) for item, job in followed]}


def _follow(job: Job, now: int) -> Job:
    if job.extras is None or not job.is_final:
        return make_job(now=now, labels={"env": "1"})
    return make_callback(job, "b", timeout=1.0, retry=RETRY, token=job.token, now=now)


def add(new_jobs: list[dict[str, Any]], is_whole: bool, record: IdempotencyRecord | None, more: More) -> Step:
    async def step(twins: Twins) -> None:
        made = [
            NewJob(make_job(now=twins.now, retry=RETRY, **fields), on_conflict)
            for fields, on_conflict in ((new_job["job"], new_job["on_conflict"]) for new_job in new_jobs)
        ]
        others = more.arguments([job for job, _ in made], twins.now)
        await twins.compare(lambda store: store.add(made, now=twins.now, is_whole=is_whole, record=record, **others))

    return step


def claim(picks: list[int]) -> Step:
    async def step(twins: Twins) -> None:
        jobs = [await twins.pick(pick) for pick in picks]
        seqs = [job.seq for job in jobs if job] + [1_000]

        async def take(store: Store) -> Claim:
            claim = await store.claim(seqs, now=twins.now)
            twins.claimed += claim.jobs if store is twins.other else []
            return claim

        await twins.compare(take)

    return step


OUTCOMES = (
    Outcome(End.SUCCEEDED),
    Outcome(End.SUCCEEDED, result=b"1"),
    Outcome(End.SUCCEEDED, output="words"),
    make_failure(),
    Outcome(End.LOST),
    Outcome(End.RELEASED),
)


def finish(ends: list[tuple[int, Outcome]], more: More) -> Step:
    """Finish claimed attempts, the latest first; they may be over, and their jobs changed or deleted."""

    async def step(twins: Twins) -> None:
        jobs = twins.claimed[::-1]
        endings = [Ending(jobs[pick % len(jobs)], outcome, twins.now, 1.0) for pick, outcome in ends if jobs]
        others = more.arguments([ending.after for ending in endings], twins.now)
        await twins.compare(lambda store: _verdicts(store, endings, **others))

    return step


async def _verdicts(store: Store, endings: list[Ending], **others: Any) -> list[Saved]:
    verdicts = await store.finish(endings, **others)
    return [verdict._replace(job=None) if verdict.is_saved else verdict for verdict in verdicts]


CHANGES: dict[str, Callable[[Job, int], Job]] = {
    "succeed": lambda job, now: job.finish(Outcome(End.SUCCEEDED, result=b"1"), now),
    "fail": lambda job, now: job.finish(make_failure(), now, backoff=1),
    "lose": lambda job, now: job.finish(Outcome(End.LOST), now),
    "release": lambda job, now: job.finish(Outcome(End.RELEASED), now),
    "start": lambda job, now: job.start(now),
    "move": lambda job, now: job.move(now + 2 * SECOND, now),
    "expire_after": lambda job, now: job.expire_after(1, now),
    "rewrite": lambda job, _: job.rewrite(
        params=b'{"n":1}', labels=b'{"env":"2"}', priority=1, timeout=2.0, retry=RETRY
    ),
    "run": lambda job, now: job.run_now(now),
    "cancel": lambda job, now: job.cancel(now),
    "expire": lambda job, now: job.expire(now),
    "retry": lambda job, now: job.revive(now),
}


def save(changes: list[tuple[int, str]], is_repeated: bool, more: More) -> Step:
    async def step(twins: Twins) -> None:
        changed = []
        for pick, name in changes:
            job = await twins.pick(pick)
            try:
                changed += [CHANGES[name](job, twins.now)] if job else []
            except WrongState:
                continue
        others = more.arguments(changed, twins.now)
        await twins.compare(lambda store: store.save(changed, **others))
        if is_repeated:
            await twins.compare(lambda store: store.save(changed))

    return step


def delete(pick: int, is_repeated: bool, more: More) -> Step:
    async def step(twins: Twins) -> None:
        job = await twins.pick(pick)
        for _ in range(1 + is_repeated):
            if job is not None:
                others = more.arguments([job], twins.now)
                await twins.compare(lambda store, others=others: store.delete(job, **others))  # type: ignore[misc]

    return step


def ended(queue: str, state: State, after: tuple[int, int], age: int, limit: int) -> Step:
    async def step(twins: Twins) -> None:
        before = twins.now - age * SECOND
        await twins.compare(lambda store: store.ended(queue, state, after=after, before=before, limit=limit))

    return step


def purge(picks: list[int], age: int) -> Step:
    async def step(twins: Twins) -> None:
        jobs = [await twins.pick(pick) for pick in picks]
        seqs = [job.seq for job in jobs if job] + [1_000]
        await twins.compare(lambda store: store.purge(seqs, before=twins.now - age * SECOND))

    return step


def forget_records(age: int, limit: int) -> Step:
    async def step(twins: Twins) -> None:
        await twins.compare(lambda store: store.forget_records(now=twins.now + RECORD_LIFE - age * SECOND, limit=limit))

    return step


def override(queue: str, given: Override | None) -> Step:
    async def step(twins: Twins) -> None:
        await twins.compare(lambda store: store.override(queue, given))
        await twins.compare(lambda store: store.overrides())

    return step


def listing(query: Query) -> Step:
    async def step(twins: Twins) -> None:
        await twins.compare(lambda store: store.list(query))

    return step


def searching(query: Query, within: int) -> Step:
    """Compare the pages and the number of matches, which a search and a count reach in several calls."""

    async def search(store: Store) -> list[Job]:
        jobs: list[Job] = []
        rest = query
        while True:
            found = await store.search(rest, within)
            assert found.scanned <= within
            jobs += found.jobs
            if found.after is None:
                return jobs
            rest = replace(rest, after=found.after)

    async def tally(store: Store) -> int:
        matches, rest = 0, query
        while True:
            tally = await store.tally(rest, within)
            matches += tally.matches
            if tally.after is None:
                return matches
            rest = replace(rest, after=tally.after)

    async def step(twins: Twins) -> None:
        await twins.compare(search)
        await twins.compare(tally)

    return step


def due(after: tuple[int, int], before: int, limit: int) -> Step:
    async def step(twins: Twins) -> None:
        await twins.compare(lambda store: store.due(after, before, limit))

    return step


def restart() -> Step:
    """Drop the claims that a store has in memory and load them again, as after a kill."""

    async def step(twins: Twins) -> None:
        if isinstance(twins.other, SqliteStore):
            await twins.other._writer.call(_load, twins.other)
        else:
            await twins.other._lister.call(twins.other._writes.load)

    return step


CHANGE = st.sampled_from([*CHANGES])
INSTANTS = SECONDS.map(lambda seconds: NOW + seconds * SECOND)
RECORDS = st.builds(
    IdempotencyRecord,
    st.just("caller"),
    st.sampled_from("mn"),
    st.sampled_from([b"1", b"2"]),
    st.sampled_from([RECORD_LIFE, SECOND]),
)
NEW_JOBS = st.fixed_dictionaries(
    {
        "on_conflict": st.sampled_from(OnConflict),
        "job": st.fixed_dictionaries(
            {
                "queue": QUEUES,
                "kind": KINDS,
                "key": KEYS,
                "labels": st.none() | LABELS,
                "extras": st.none() | st.just({"on_finish": make_on_finish({"url": "https://app.example"}, None)}),
                "delay": SECONDS,
                "expires_after": st.none() | SECONDS,
            }
        ),
    }
)
PAUSES = st.sampled_from([None, Pause(1, "ops"), Pause(2, None, "deploy")])
DOCUMENTS = st.builds(
    Document, st.just("s"), st.sampled_from("xy"), st.integers(1, 2), st.just(NOW), st.sampled_from([b"{}", None])
)
MORE = st.builds(More, st.lists(DOCUMENTS, max_size=2), st.lists(PICKS, max_size=2)) | st.just(More([], []))
CAUSES = [cause_of("x", b'{"type":"exception","message":"boom"}'), cause_of("y", None)]
RESIDUES = st.builds(
    Residue,
    bounds=st.dictionaries(st.sampled_from(BOUNDS), INSTANTS, max_size=2),
    errors=st.frozensets(st.sampled_from(["exception", "cancelled", "lost"]), max_size=2),
    cause=st.sampled_from([None, *CAUSES]),
    attempt_min=st.integers(0, 2),
)
QUERIES = st.builds(
    Query,
    states=st.frozensets(st.sampled_from(State), max_size=2),
    queues=st.frozensets(QUEUES | st.just("c"), max_size=2),
    kinds=st.frozensets(KINDS, max_size=1),
    key=KEYS,
    labels=LABELS,
    due_after=st.none() | INSTANTS,
    due_before=st.none() | INSTANTS,
    residue=st.just(NO_RESIDUE) | RESIDUES,
    order=st.sampled_from(Order),
    after=st.none() | st.tuples(INSTANTS, PICKS),
    limit=st.integers(1, 5),
    is_full=st.booleans(),
)
STEPS = st.one_of(
    *(st.builds(add, st.lists(NEW_JOBS, max_size=4), st.booleans(), st.none() | RECORDS, MORE) for _ in range(2)),
    *(st.builds(save, st.lists(st.tuples(PICKS, CHANGE), max_size=4), st.booleans(), MORE) for _ in range(3)),
    st.builds(wait, SECONDS | st.just(24 * 3600)),
    *(st.builds(claim, st.lists(PICKS, max_size=4)) for _ in range(2)),
    *(st.builds(finish, st.lists(st.tuples(PICKS, st.sampled_from(OUTCOMES)), max_size=4), MORE) for _ in range(2)),
    st.builds(delete, PICKS, st.booleans(), MORE),
    st.builds(ended, QUEUES, st.sampled_from(State), st.tuples(INSTANTS, PICKS), SECONDS, st.integers(1, 2)),
    st.builds(purge, st.lists(PICKS, max_size=3), SECONDS),
    st.builds(forget_records, SECONDS, st.integers(1, 2)),
    st.builds(restart),
    st.builds(override, QUEUES, st.none() | st.builds(Override, st.none() | st.just(b"{}"), PAUSES)),
    st.builds(listing, QUERIES),
    st.builds(searching, QUERIES, st.integers(1, 4)),
    st.builds(due, st.tuples(INSTANTS, PICKS), INSTANTS, st.integers(1, 5)),
)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("few_jobs", [20_000, 0], ids=["taken for few", "taken for many"])
def test_sqlite_store_behaves_like_the_memory_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few_jobs: int
) -> None:
    monkeypatch.setattr(walks, "FEW_JOBS", few_jobs)
    sqlite = SqliteStore(path=tmp_path / "erelong.db", durability="normal")

    with asyncio.Runner() as runner:
        runner.run(sqlite.open())

        @given(st.lists(STEPS, min_size=10, max_size=40))
        @settings(max_examples=examples(300), deadline=None, suppress_health_check=[HealthCheck.nested_given])
        def check(steps: list[Step]) -> None:
            runner.run(_walk(sqlite, steps))

        check()
        runner.run(sqlite.close())


@pytest.mark.parametrize("few_jobs", [20_000, 0], ids=["taken for few", "taken for many"])
def test_postgres_store_behaves_like_the_memory_store(
    postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch, few_jobs: int
) -> None:
    monkeypatch.setattr(postgres_walks, "FEW_JOBS", few_jobs)
    postgres_server.empty()
    postgres = PostgresStore(url=postgres_server.url, durability="normal")

    with asyncio.Runner() as runner:
        runner.run(postgres.open())

        @given(st.lists(STEPS, min_size=10, max_size=40))
        @settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.nested_given])
        def check(steps: list[Step]) -> None:
            runner.run(_walk_postgres(postgres, steps))

        check()
        runner.run(postgres.close())


async def _walk(sqlite: SqliteStore, steps: list[Step]) -> None:
    await sqlite._writer.call(_empty, sqlite)  # opening the store is the slowest part
    await _walk_both(sqlite, steps)
    running = sqlite._running.all()
    assert waiting_still(sqlite._file.write, running) == running


async def _walk_postgres(postgres: PostgresStore, steps: list[Step]) -> None:
    await postgres._lister.call(empty, postgres)
    await _walk_both(postgres, steps)
    running, counts = postgres._writes.running.copy(), {**postgres.counts()}
    await postgres._lister.call(postgres._writes.load)
    assert postgres._writes.running == running
    assert {group: jobs for group, jobs in postgres.counts().items() if jobs} == {
        group: jobs for group, jobs in counts.items() if jobs
    }


async def _walk_both(other: SqliteStore | PostgresStore, steps: list[Step]) -> None:
    twins = Twins(memory=MemoryStore(), other=other)
    for step in steps:
        await step(twins)
    await compare_contents(twins)


async def compare_contents(twins: Twins) -> None:
    """Compare all that two stores hold."""
    await twins.compare(lambda store: store.list(ALL))
    await twins.compare(lambda store: store.list(Query(order=Order.DUE, limit=1_000)))
    await twins.compare(lambda store: store.list(Query(labels={"env": "1"}, limit=1_000)))
    for state in State:
        await twins.compare(lambda store, state=state: store.list(Query(states=frozenset({state}), limit=1_000)))  # type: ignore[misc]
    await twins.compare(lambda store: store.due((-1, -1), 1 << 62, 1_000))
    await twins.compare(lambda store: store.documents("s", limit=10))
    await twins.compare(count_both)
    counted, stored = await count_both(twins.other)
    assert counted == stored


def _empty(store: SqliteStore) -> None:
    for table in ("jobs", "labels", "counts", "idempotency_records", "overrides", "documents"):
        store._file.write.execute(f"DELETE FROM {table}")
    store._counters.last_seq = 0
    _load(store)
    store._running.renew()  # as the seqs restart


def _load(store: SqliteStore) -> None:
    store._running.load(store._file.write)
    store._counters.load(store._file.write, last_seq=store._counters.last_seq)


async def _answer(call: Callable[[Store], Awaitable[object]], store: Store) -> object:
    try:
        return await call(store)
    except (IdempotencyMismatch, DocumentChanged) as problem:
        return problem.detail
