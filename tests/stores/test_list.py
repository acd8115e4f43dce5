"""Listings: filters, orders and cursors give the same pages for few and for many jobs."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from itertools import count, product
from typing import Any

import orjson
import pytest
import pytest_asyncio

from erelong.model.job import SECOND, Job, State
from erelong.model.matching.cause import cause_of
from erelong.model.matching.residue import Residue
from erelong.model.outcome import End, Outcome
from erelong.model.query import ORDERED, Order, Query
from erelong.stores.base import Ending, Store
from erelong.stores.postgres.listing import walks as postgres_walks
from erelong.stores.sqlite.listing import ends, merging, walks
from tests.support.builders import NOW, make_ended, make_failure, make_job, make_running, put, put_one

pytestmark = [
    pytest.mark.real_loop,
    pytest.mark.timeout(30),
    pytest.mark.parametrize("store", ["memory", "sqlite", "postgres"], indirect=True),  # listings are not cached
]

WAITING = frozenset({State.SCHEDULED})
SOME_STATES = frozenset({State.SCHEDULED, State.FAILED})
LABELS = [
    None,
    {"tenant": "t1", "@schedule": "s1"},
    {"tenant": "t2"},
    {"tenant": "t1", "env": "prod", "@schedule": "s2"},
]
FEW, MANY = 20_000, -1

FILTERS = {
    "nothing": Query(),
    "a state": Query(states=WAITING),
    "states": Query(states=SOME_STATES),
    "a queue": Query(queues=frozenset({"a"})),
    "queues": Query(queues=frozenset({"a", "b"})),
    "an unknown queue": Query(queues=frozenset({"nowhere"})),
    "a kind": Query(kinds=frozenset({"x"})),
    "state, queue and kind": Query(
        states=SOME_STATES | {State.RUNNING}, queues=frozenset({"a", "c"}), kinds=frozenset({"x", "y"})
    ),
    "states of jobs that do not wait": Query(
        states=frozenset({State.RUNNING, State.FAILED}), queues=frozenset({"c"}), kinds=frozenset({"x"})
    ),
    "a key": Query(key="k1"),
    "an unknown key": Query(key="nobody"),
    "key and queue": Query(key="k1", queues=frozenset({"b"})),
    "key and label": Query(key="k1", labels={"tenant": "t1"}),
    "a label": Query(labels={"tenant": "t1"}),
    "labels": Query(labels={"tenant": "t1", "env": "prod"}),
    "labels that no job has together": Query(labels={"tenant": "t2", "env": "prod"}),
    "label and state": Query(labels={"tenant": "t1"}, states=SOME_STATES, queues=frozenset({"a", "b"})),
    "due after": Query(due_after=NOW + 3 * SECOND),
    "due before": Query(due_before=NOW + 3 * SECOND),
    "due between": Query(due_after=NOW + 2 * SECOND, due_before=NOW + 4 * SECOND),
    "due and state": Query(due_after=NOW + SECOND, states=frozenset({State.RUNNING, State.FAILED})),
    "due and queue": Query(due_after=NOW + SECOND, queues=frozenset({"b"}), kinds=frozenset({"y"})),
    "due and label": Query(due_before=NOW + 4 * SECOND, labels={"tenant": "t1"}),
    "created after": Query(residue=Residue(bounds={"created_after": NOW + 3 * SECOND})),
    "created between": Query(
        residue=Residue(bounds={"created_after": NOW + SECOND, "created_before": NOW + 4 * SECOND})
    ),
    "created and due before": Query(
        residue=Residue(bounds={"created_before": NOW + 4 * SECOND, "due_before": NOW + 5 * SECOND})
    ),
    "finished between": Query(
        residue=Residue(bounds={"finished_after": NOW + 2 * SECOND, "finished_before": NOW + 6 * SECOND})
    ),
    "finished and queue": Query(queues=frozenset({"a"}), residue=Residue(bounds={"finished_after": NOW + 3 * SECOND})),
    "an error": Query(residue=Residue(errors=frozenset({"timeout"}))),
    "errors": Query(residue=Residue(errors=frozenset({"exception", 'odd "type"', "nothing"}))),
    "a cause": Query(residue=Residue(cause=cause_of("x", b'{"type":"timeout","message":"no answer"}'))),
    "cause and label": Query(
        labels={"tenant": "t1"}, residue=Residue(cause=cause_of("y", b'{"type":"exception","message":"boom"}'))
    ),
    "second attempts": Query(residue=Residue(attempt_min=2)),
    "attempts and key": Query(key="k1", residue=Residue(attempt_min=1)),
    "schedules": Query(residue=Residue(schedules=frozenset({"s1", "s2"}))),
    "schedule and error": Query(
        states=frozenset({State.FAILED}), residue=Residue(schedules=frozenset({"s1"}), errors=frozenset({"timeout"}))
    ),
}


@pytest_asyncio.fixture
async def jobs(store: Store) -> list[Job]:
    """Return jobs in all states, of three queues, with ties in their times."""
    number = count()
    stored = await put(store, *(_make(state, next(number)) for _ in range(12) for state in (*State, State.SCHEDULED)))
    claimed = [job.seq for job in stored if job.state is State.SCHEDULED and job.due_at == NOW][::2]
    started = {job.seq: job for job in (await store.claim(claimed, now=NOW + 5 * SECOND)).jobs}
    return [started.get(job.seq, job) for job in stored]


@pytest.mark.parametrize("query", FILTERS.values(), ids=FILTERS.keys())
async def test_newest_jobs_come_first(
    store: Store, jobs: list[Job], query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = [_brief(job) for job in reversed(jobs) if _matches(job, query)]

    await _assert_pages(store, query, wanted, monkeypatch)


@pytest.mark.parametrize("query", FILTERS.values(), ids=FILTERS.keys())
async def test_waiting_jobs_are_ordered_by_due_time(
    store: Store, jobs: list[Job], query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = [_brief(job) for job in jobs if _matches(job, query) and job.state is State.SCHEDULED]
    wanted.sort(key=lambda job: job.due_at or 0)

    await _assert_pages(store, replace(query, order=Order.DUE), wanted, monkeypatch)


@pytest.mark.parametrize("query", FILTERS.values(), ids=FILTERS.keys())
async def test_running_jobs_are_ordered_by_their_start(
    store: Store, jobs: list[Job], query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = [_brief(job) for job in jobs if _matches(job, query) and job.state is State.RUNNING]
    wanted.sort(key=lambda job: job.started_at or 0)

    await _assert_pages(store, replace(query, order=Order.STARTED), wanted, monkeypatch)


@pytest.mark.parametrize("query", FILTERS.values(), ids=FILTERS.keys())
async def test_final_jobs_are_ordered_by_their_end(
    store: Store, jobs: list[Job], query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = [_brief(job) for job in reversed(jobs) if _matches(job, query) and job.is_final]
    wanted.sort(key=lambda job: -(job.finished_at or 0))

    for many_ranges in (FEW, 2):
        monkeypatch.setattr(ends, "MAX_RANGES", many_ranges)
        await _assert_pages(store, replace(query, order=Order.FINISHED), wanted, monkeypatch)


@pytest.mark.parametrize("order", Order)
@pytest.mark.parametrize("query", FILTERS.values(), ids=FILTERS.keys())
async def test_number_of_jobs_behind_a_position_is_counted(
    store: Store, jobs: list[Job], query: Query, order: Order, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = sum(_matches(job, query) and job.state in ORDERED[order] for job in jobs)
    query = replace(query, order=order, limit=3)

    for few_jobs, within in ((FEW, 1_000), (MANY, 5)):
        monkeypatch.setattr(walks, "FEW_JOBS", few_jobs)
        assert await _count(store, query, within) == wanted
        if page := await store.list(query):
            behind = await _count(store, replace(query, after=query.position(page[-1])), within)
            assert behind == wanted - len(page)


async def _count(store: Store, query: Query, within: int) -> int:
    matches = 0
    while True:
        tally = await store.tally(query, within)
        assert tally.scanned <= within
        matches += tally.matches
        if tally.after is None:
            return matches
        query = replace(query, after=tally.after)


@pytest.mark.parametrize("order", Order)
async def test_full_listing_has_params_result_and_attempts(store: Store, order: Order) -> None:
    (job,) = await put(
        store,
        make_running(params={"a": 1})
        .finish(Outcome(End.SUCCEEDED, result=b"1"), NOW)
        ._replace(state=min(ORDERED[order]), due_at=NOW, started_at=NOW, finished_at=NOW),
    )

    assert await store.list(Query(is_full=True, order=order)) == [job]
    assert await store.list(Query(order=order)) == [_brief(job)]


async def test_empty_store_lists_nothing(store: Store) -> None:
    assert await store.list(Query()) == []
    assert await store.list(Query(order=Order.DUE, labels={"a": "b"}, queues=frozenset({"q"}))) == []


async def test_job_added_between_pages_does_not_shift_them(store: Store) -> None:
    first, second = await put(store, make_job(), make_job())
    (page,) = await store.list(Query(limit=1))
    await put(store, make_job())

    (rest,) = await store.list(Query(after=(page.due_at or 0, page.seq)))

    assert (page.seq, rest.seq) == (second.seq, first.seq)


async def test_every_filter_excludes_some_jobs_and_most_include_some(store: Store, jobs: list[Job]) -> None:
    found = {name: sum(_matches(job, query) for job in jobs) for name, query in FILTERS.items()}

    assert {name for name, number in found.items() if number == 0} == {
        "an unknown queue",
        "an unknown key",
        "labels that no job has together",
    }
    assert {name for name, number in found.items() if number == len(jobs)} == {"nothing"}


ERRORS = [("timeout", "no answer"), ("exception", "boom"), ('odd "type"', "ü")]


def _make(state: State, number: int) -> Job:
    now = NOW + number // 12 * SECOND
    fields: dict[str, Any] = {
        "now": now,
        "queue": "abc"[number % 3],
        "kind": "xyz"[number % 5 % 3],
        "labels": LABELS[number % 4],
        "delay": number % 6,
        "params": {"number": number},
    }
    match state:
        case State.SCHEDULED if number % 4 == 0:
            return make_job(**fields, key=f"k{number // 12}" if number % 24 == 0 else None)
        case State.SCHEDULED:
            return make_running(**fields).finish(_failure(number), now, backoff=number % 6)
        case State.RUNNING if number % 2:
            return make_running(**fields).finish(_failure(number), now).start(now + number % 4 * SECOND)
        case State.RUNNING:
            return make_running(**fields)
        case State.FAILED:
            return make_running(**fields).finish(_failure(number, retryable=False), now + number % 6 * SECOND)
        case _:
            return make_ended(state, **fields, key="k1" if number % 3 else None)


def _failure(number: int, *, retryable: bool = True) -> Outcome:
    type, message = ERRORS[number % 3]
    return make_failure(type=type, message=message, retryable=retryable)


def _matches(job: Job, query: Query) -> bool:
    labels = orjson.loads(job.labels or b"{}")
    is_within = query.due_after is None and query.due_before is None
    if job.due_at is not None:
        is_within = (query.due_after or 0) <= job.due_at < (query.due_before or 1 << 62)
    return (
        job.state in (query.states or State)
        and job.queue in (query.queues or job.queue)
        and job.kind in (query.kinds or job.kind)
        and query.key in (None, job.key)
        and query.labels.items() <= labels.items()
        and is_within
        and _matches_residue(job, query.residue, labels)
    )


def _matches_residue(job: Job, residue: Residue, labels: dict[str, str]) -> bool:
    for name, bound in residue.bounds.items():
        at = getattr(job, f"{name.partition('_')[0]}_at")
        if at is None or (at < bound) is name.endswith("_after"):
            return False
    error = orjson.loads(job.error) if job.error else {}
    return (
        job.attempt >= residue.attempt_min
        and (not residue.schedules or labels.get("@schedule") in residue.schedules)
        and (not residue.errors or error.get("type") in residue.errors)
        and residue.cause in (None, cause_of(job.kind, job.error))
    )


def _brief(job: Job) -> Job:
    return job._replace(params=b"{}", result=None, attempts=b"[]")


async def _assert_pages(store: Store, query: Query, wanted: list[Job], monkeypatch: pytest.MonkeyPatch) -> None:
    """Check the pages when the store takes its jobs and groups for few or many, and so chooses other indexes."""
    for few_jobs, many_groups, limit in product((FEW, MANY), (FEW, MANY), (1, 4, 1_000)):
        monkeypatch.setattr(merging, "FEW", min(limit, 2))
        for listing in (walks, postgres_walks):
            monkeypatch.setattr(listing, "FEW_JOBS", few_jobs)
            monkeypatch.setattr(listing, "MANY_GROUPS", many_groups)
        assert await _pages(store, replace(query, limit=limit)) == wanted, f"{few_jobs=} {many_groups=} {limit=}"
    for few_jobs, limit, within in ((FEW, 2, 5), (MANY, 1_000, 1), (MANY, 2, 1_000)):
        monkeypatch.setattr(walks, "FEW_JOBS", few_jobs)
        found = await _search(store, replace(query, limit=limit), within)
        assert found == wanted, f"{few_jobs=} {limit=} {within=}"


async def _pages(store: Store, query: Query) -> list[Job]:
    found: list[Job] = []
    while page := await store.list(query):
        assert len(page) <= query.limit
        found += page
        query = replace(query, after=query.position(page[-1]))
    return found


async def _search(store: Store, query: Query, within: int) -> list[Job]:
    jobs: list[Job] = []
    while True:
        found = await store.search(query, within)
        assert len(found.jobs) <= query.limit
        assert found.scanned <= within
        jobs += found.jobs
        if found.after is None:
            return jobs
        query = replace(query, after=found.after)


async def test_job_that_starts_during_a_listing_is_included(store: Store) -> None:
    live = Query(states=frozenset({State.SCHEDULED, State.RUNNING}))
    for _ in range(200):
        job = await put_one(store)

        listed, claim = await asyncio.gather(store.list(live), store.claim([job.seq], now=NOW))

        assert [found.seq for found in listed] == [job.seq]
        await store.finish([Ending(claim.jobs[0], Outcome(End.SUCCEEDED), NOW)])
