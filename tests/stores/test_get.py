"""get and glance: reading jobs by number."""

from __future__ import annotations

import pytest

from erelong.model.job import State
from erelong.stores.base import Store, peek_at
from tests.support.builders import make_ended, make_job, make_running, put

pytestmark = pytest.mark.real_loop


async def test_get_knows_all_states_and_leaves_out_the_unknown(store: Store) -> None:
    jobs = await put(store, make_job(labels={"a": "b"}), make_running(), make_ended(State.FAILED))

    assert await store.get([*(job.seq for job in jobs), 99]) == {job.seq: job for job in jobs}


async def test_glance_sees_those_that_wait(store: Store) -> None:
    waiting, labelled, *_ = await put(
        store,
        make_job(priority=3, expires_after=60),
        make_job(queue="other", kind="http", labels={"tenant": "t1"}),
        make_running(),
        make_ended(State.CANCELLED),
    )

    assert await store.peek([4, 3, 2, 1, 99]) == [peek_at(labelled), peek_at(waiting)]
