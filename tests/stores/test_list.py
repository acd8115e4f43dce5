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
from erelong.model.outcome import End, Outcome
from erelong.model.query import Order, Query
from erelong.stores.base import Ending, Store
from erelong.stores.sqlite import listing as sqlite_listing
from tests.support.builders import NOW, make_ended, make_failure, make_job, make_running, put, put_one

pytestmark = pytest.mark.real_loop

WAITING = frozenset({State.SCHEDULED})
SOME_STATES = frozenset({State.SCHEDULED, State.FAILED})
LABELS = [None, {"tenant": "t1"}, {"tenant": "t2"}, {"tenant": "t1", "env": "prod"}]
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
}


@pytest_asyncio.fixture
async def jobs(store: Store) -> list[Job]:
    """Return jobs in all states, of three queues, with ties in their times."""
    number = count()
    return await put(store, *(_make(state, next(number)) for _ in range(12) for state in (*State, State.SCHEDULED)))


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


@pytest.mark.parametrize("order", Order)
async def test_full_listing_has_params_result_and_attempts(store: Store, order: Order) -> None:
    (job,) = await put(
        store,
        make_running(params={"a": 1})
        .finish(Outcome(End.SUCCEEDED, result=b"1"), NOW)
        ._replace(state=State.SCHEDULED, due_at=NOW, finished_at=None),
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


def _make(state: State, number: int) -> Job:
    fields: dict[str, Any] = {
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
            return make_running(**fields).finish(make_failure(), NOW, backoff=number % 6)
        case State.RUNNING:
            return make_running(**fields)
        case _:
            return make_ended(state, **fields, key="k1" if number % 3 else None)


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
    )


def _brief(job: Job) -> Job:
    return job._replace(params=b"{}", result=None, attempts=b"[]")


async def _assert_pages(store: Store, query: Query, wanted: list[Job], monkeypatch: pytest.MonkeyPatch) -> None:
    """Check the pages when the store takes its jobs and groups for few or many, and so chooses other indexes."""
    for few_jobs, many_groups, limit in product((FEW, MANY), (FEW, MANY), (1, 4, 1_000)):
        monkeypatch.setattr(sqlite_listing, "FEW_JOBS", few_jobs)
        monkeypatch.setattr(sqlite_listing, "MANY_GROUPS", many_groups)
        assert await _pages(store, replace(query, limit=limit)) == wanted, f"{few_jobs=} {many_groups=} {limit=}"


async def _pages(store: Store, query: Query) -> list[Job]:
    found: list[Job] = []
    while page := await store.list(query):
        assert len(page) <= query.limit
        found += page
        query = replace(query, after=(page[-1].due_at or 0, page[-1].seq))
    return found


async def test_job_that_starts_during_a_listing_is_included(store: Store) -> None:
    live = Query(states=frozenset({State.SCHEDULED, State.RUNNING}))
    for _ in range(200):
        job = await put_one(store)

        listed, claim = await asyncio.gather(store.list(live), store.claim([job.seq], now=NOW))

        assert [found.seq for found in listed] == [job.seq]
        await store.finish([Ending(claim.jobs[0], Outcome(End.SUCCEEDED), NOW)])
