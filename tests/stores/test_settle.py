"""After `settle`, no earlier write takes effect, whatever its caller was told."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence

import pytest

from erelong.errors import StoreUnavailable
from erelong.stores.base import Store
from erelong.stores.group_thread import Call
from erelong.stores.postgres.store import PostgresStore
from erelong.stores.sqlite.store import SqliteStore
from tests.support.builders import ALL, put_one

pytestmark = pytest.mark.real_loop

TIMEOUT = 0.1


async def test_settled_store_has_done_the_writes_that_nobody_awaited(store: Store) -> None:
    adds = [asyncio.ensure_future(put_one(store)) for _ in range(3)]
    await asyncio.sleep(0)
    for adding in adds:
        adding.cancel()

    await store.settle()

    assert len(await store.list(ALL)) == 3


@pytest.mark.parametrize("store", ["sqlite", "postgres"], indirect=True)  # which write in a thread
async def test_settled_store_has_done_the_writes_that_failed_while_it_hung(
    store: SqliteStore | PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    work, goes_on = store._writer._group_work, threading.Event()
    run = work.run

    def hang(group: Sequence[Call]) -> None:
        goes_on.wait(5)
        run(group)

    monkeypatch.setattr(work, "run", hang)
    with monkeypatch.context() as impatient:
        impatient.setattr(store._writer, "_timeout", TIMEOUT)
        for call in (put_one(store), store.settle()):
            with pytest.raises(StoreUnavailable, match="did not answer"):
                await call
    before = await store.list(ALL)
    settling = asyncio.ensure_future(store.settle())
    await asyncio.sleep(0)

    goes_on.set()
    await settling

    assert (len(before), len(await store.list(ALL))) == (0, 1)
