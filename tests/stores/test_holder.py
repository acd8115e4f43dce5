"""The live job that holds a key is found by it in any state."""

from __future__ import annotations

import pytest

from erelong.model.job import State
from erelong.model.outcome import End, Outcome
from erelong.stores.base import Ending, Store
from erelong.stores.sqlite.store import SqliteStore
from tests.support.builders import NOW, make_ended, make_failure, make_job, put, put_one

pytestmark = pytest.mark.real_loop


async def test_waiting_holder_is_returned_in_full(store: Store) -> None:
    job, _, _ = await put(
        store, make_job(key="k", params={"a": 1}), make_job(key="other"), make_job(key="k", queue="mail")
    )

    assert await store.holder("default", "k") == job


async def test_free_key_has_no_holder(store: Store) -> None:
    await put(store, make_job(key="k"), make_job())

    assert await store.holder("default", "none") is None
    assert await store.holder("mail", "k") is None


@pytest.mark.parametrize("state", [state for state in State if state.is_final])
async def test_job_that_has_ended_holds_no_key(store: Store, state: State) -> None:
    await put(store, make_ended(state, key="k"))

    assert await store.holder("default", "k") is None


async def test_holder_is_current_through_its_life(store: Store) -> None:
    job = await put_one(store, key="k")
    (first,) = (await store.claim([job.seq], now=NOW)).jobs
    assert await store.holder("default", "k") == first

    await store.save([cancelled := first.cancel(NOW)])
    assert await store.holder("default", "k") == cancelled

    await store.finish([Ending(cancelled, Outcome(End.RELEASED), NOW)])
    assert await store.holder("default", "k") is None


async def test_holder_that_waits_for_its_next_attempt_is_found(store: Store) -> None:
    job = await put_one(store, key="k")
    (running,) = (await store.claim([job.seq], now=NOW)).jobs

    await store.finish([ending := Ending(running, make_failure(), NOW)])

    assert await store.holder("default", "k") == ending.after


async def test_newer_holder_is_found_and_not_the_one_that_has_ended(store: Store) -> None:
    (ended,) = await put(store, make_ended(State.FAILED, key="k"))
    newer = await put_one(store, key="k")
    assert await store.holder("default", "k") == newer

    await store.save([newer.cancel(NOW)])
    await store.save([again := ended.revive(NOW)])

    assert await store.holder("default", "k") == again


async def test_holder_with_an_unreadable_state_is_returned_as_failed(sqlite: SqliteStore) -> None:
    job = await put_one(sqlite, key="k")
    sqlite._file.write.execute("UPDATE jobs SET state = -1 WHERE seq = ?", (job.seq,))
    sqlite._cache.drop_all()

    holder = await sqlite.holder("default", "k")

    assert holder is not None
    assert (holder.seq, holder.state, b"unreadable" in (holder.error or b"")) == (job.seq, State.FAILED, True)
