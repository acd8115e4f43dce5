"""Histograms of due times: exact without filters, and sampled where many rows would have to be read."""

from __future__ import annotations

import pytest

from erelong.model.job import SECOND, State
from erelong.model.query import Query
from erelong.stores.base import Bins, Spread, Store
from erelong.stores.postgres.listing import walks
from erelong.stores.sqlite.listing import histogram
from tests.support.builders import NOW, make_ended, make_job, make_running, put

pytestmark = pytest.mark.real_loop

BINS = Bins(NOW, 10 * SECOND, 3)
ALL = Query()


async def test_jobs_are_counted_in_their_bins(store: Store) -> None:
    await put(store, *(make_job(delay=delay, now=NOW - 20 * SECOND) for delay in (0, 19.999, 20, 29.999, 30, 49, 50)))

    assert await store.spread(BINS, ALL) == Spread([2, 1, 1], 2, 1)


async def test_empty_store_has_empty_bins(store: Store) -> None:
    assert await store.spread(BINS, ALL) == Spread([0, 0, 0], 0, 0)
    assert await store.spread(BINS, Query(queues=frozenset({"mail"}), labels={"a": "b"})) == Spread([0, 0, 0], 0, 0)


async def test_only_waiting_jobs_are_counted(store: Store) -> None:
    await put(store, make_running(), *(make_ended(state) for state in State if state.is_final), make_job(delay=1))
    (claimed,) = await put(store, make_job())
    await store.claim([claimed.seq], now=NOW)

    assert await store.spread(BINS, ALL) == Spread([1, 0, 0], 0, 0)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (Query(queues=frozenset({"mail"})), Spread([2, 0, 0], 0, 1)),
        (Query(queues=frozenset({"mail", "sms"})), Spread([2, 1, 0], 0, 1)),
        (Query(kinds=frozenset({"http"})), Spread([0, 1, 0], 0, 1)),
        (Query(queues=frozenset({"mail"}), kinds=frozenset({"http"})), Spread([0, 0, 0], 0, 1)),
        (Query(labels={"tenant": "t1"}), Spread([1, 0, 0], 0, 1)),
        (Query(labels={"tenant": "t1"}, queues=frozenset({"sms"})), Spread([0, 0, 0], 0, 0)),
        (Query(labels={"tenant": "t1", "env": "x"}), Spread([0, 0, 0], 0, 0)),
        (Query(queues=frozenset({"none"})), Spread([0, 0, 0], 0, 0)),
    ],
)
async def test_filters_select_the_jobs(store: Store, query: Query, expected: Spread) -> None:
    await put(
        store,
        make_job(queue="mail", delay=1, labels={"tenant": "t1"}),
        make_job(queue="mail", delay=1),
        make_job(queue="mail", kind="http", delay=100, labels={"tenant": "t1"}),
        make_job(queue="sms", kind="http", delay=11),
    )

    assert await store.spread(BINS, query) == expected


async def test_sample_stands_for_all_jobs(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    for counting in (histogram, walks):
        monkeypatch.setattr(counting, "MOST_COUNTED", 100)
    queues = ("mail", "other")
    jobs = [make_job(queue=queues[number % 2], delay=number % 25, labels={"a": "b"}) for number in range(2_000)]
    await put(store, *jobs)

    for query in (Query(queues=frozenset({"mail"})), Query(labels={"a": "b"}, queues=frozenset({"mail"}))):
        spread = await store.spread(BINS, query)
        total = sum(spread.counts) + spread.overdue + spread.later

        assert spread.sampled in (1, 20)
        assert total == pytest.approx(1_000, rel=0.3)
        assert spread.counts[0] == pytest.approx(400, rel=0.4)
