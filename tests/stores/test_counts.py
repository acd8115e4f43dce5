"""Counts, which each test of the contract checks at its end, and overrides of queues."""

from __future__ import annotations

import pytest

from erelong.model.job import State
from erelong.stores.base import Override, Pause, Store
from tests.support.builders import NOW, make_ended, make_job, make_running, purge, put

pytestmark = pytest.mark.real_loop


async def test_jobs_are_counted_by_queue_kind_and_state(store: Store) -> None:
    await put(store, make_job(), make_job(), make_job(queue="q"), make_job(kind="k"), make_running(), make_job(key="k"))

    assert dict(store.counts()) == {
        ("default", "echo", State.SCHEDULED): 3,
        ("q", "echo", State.SCHEDULED): 1,
        ("default", "k", State.SCHEDULED): 1,
        ("default", "echo", State.RUNNING): 1,
    }


async def test_empty_store_counts_nothing(store: Store) -> None:
    assert dict(store.counts()) == {}


async def test_group_once_seen_stays_at_zero_while_its_queue_has_such_jobs(store: Store) -> None:
    job, _ = await put(store, make_job(), make_running())
    await store.delete(job)

    assert dict(store.counts()) == {("default", "echo", State.SCHEDULED): 0, ("default", "echo", State.RUNNING): 1}


async def test_groups_of_a_queue_and_kind_are_forgotten_with_their_last_job(store: Store) -> None:
    job, _, other = await put(store, make_job(), make_ended(State.FAILED), make_job(queue="q"))
    await store.delete(job)
    await purge(store, "default", State.FAILED, before=NOW + 1, limit=2)

    assert dict(store.counts()) == {("q", "echo", State.SCHEDULED): 1}
    await store.delete(other)
    await put(store, make_job(queue="q"))
    assert dict(store.counts()) == {("q", "echo", State.SCHEDULED): 1}


async def test_purged_jobs_leave_the_counts(store: Store) -> None:
    await put(store, *(make_ended(State.FAILED) for _ in range(3)))

    await purge(store, "default", State.FAILED, before=NOW + 1, limit=2)

    assert store.counts()["default", "echo", State.FAILED] == 1


async def test_job_that_is_replaced_by_one_of_another_kind_is_counted_there(store: Store) -> None:
    (job,) = await put(store, make_job(kind="a"))

    await store.save([job._replace(kind="b", version=2)])

    assert dict(store.counts()) == {("default", "b", State.SCHEDULED): 1}


async def test_queue_has_no_override_at_first(store: Store) -> None:
    assert await store.overrides() == {}


async def test_override_is_kept_until_it_is_dropped(store: Store) -> None:
    await store.override("a", Override(b'{"rate":1}', Pause(NOW)))
    await store.override("b", Override())
    await store.override("a", Override(None, Pause(NOW, "ops", "deploy")))
    both = await store.overrides()
    await store.override("a", None)
    await store.override("unknown", None)

    assert both == {"a": Override(None, Pause(NOW, "ops", "deploy")), "b": Override(None, None)}
    assert await store.overrides() == {"b": Override()}
