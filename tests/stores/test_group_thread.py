"""The threads of a store: a thread survives any exception of a group, and every call is answered in time."""

from __future__ import annotations

import asyncio
import operator
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from erelong.errors import KeyTaken, StoreUnavailable
from erelong.stores.group_thread import Call, GroupThread, Split, in_runs, run_as_one
from erelong.stores.sqlite.store import SqliteStore
from tests.support.builders import put_one

pytestmark = pytest.mark.real_loop

TIMEOUT = 1.0  # long enough that the order of events holds on a busy machine


class Held:
    """A thread whose groups wait until `may_go` is set, and raise `error` if there is one."""

    def __init__(self) -> None:
        self.may_go = threading.Event()
        self.may_go.set()
        self.error: BaseException | None = None
        self.thread = GroupThread(name="held", work=self, timeout=TIMEOUT)

    def rest(self) -> None:
        return None

    def run(self, group: Sequence[Call]) -> None:
        self.may_go.wait(5)
        if self.error is not None:
            raise self.error
        for call in group:
            call.run()


@pytest_asyncio.fixture
async def held() -> AsyncIterator[Held]:
    held = Held()
    held.thread.start()
    yield held
    held.may_go.set()
    await held.thread.stop()


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), MemoryError(), ValueError("a bug")], ids=repr)
async def test_group_that_raises_is_refused_and_the_next_one_runs(held: Held, error: BaseException) -> None:
    held.error = error
    with pytest.raises(StoreUnavailable, match=type(error).__name__):
        await held.thread.call(int, "7")
    held.error = None

    assert await held.thread.call(int, "7") == 7
    assert held.thread.status() is None


async def test_call_past_its_timeout_is_refused_and_later_calls_are_answered(
    held: Held, caplog: pytest.LogCaptureFixture
) -> None:
    held.may_go.clear()
    slow = asyncio.create_task(held.thread.call(int, "1"))
    await asyncio.sleep(TIMEOUT * 0.6)
    young = asyncio.create_task(held.thread.call(int, "2"))

    with pytest.raises(StoreUnavailable, match="did not answer within 1 s"):
        await slow
    assert not young.done()
    held.may_go.set()

    assert await young == 2
    assert await held.thread.call(int, "3") == 3
    assert [record.msg for record in caplog.records] == ["store_stalled"]
    assert not held.thread._unanswered


async def test_calls_of_successive_turns_of_the_loop_are_one_group(held: Held) -> None:
    held.may_go.clear()
    calls = [asyncio.create_task(held.thread.call(int, "1")) for _ in range(2)]
    await asyncio.sleep(0)

    calls += [asyncio.create_task(held.thread.call(int, "2")) for _ in range(3)]
    await asyncio.sleep(TIMEOUT / 20)

    assert [len(group) for _, group in held.thread._unanswered] == [5]
    held.may_go.set()
    assert sum(await asyncio.gather(*calls)) == 8


async def test_calls_do_not_gather_for_long(held: Held) -> None:
    """Although every turn of the loop brings one more, the first ones are answered."""
    calls: list[asyncio.Task[int]] = []
    while not (calls and calls[0].done()):
        calls += [asyncio.create_task(held.thread.call(int, "1")) for _ in range(2)]
        await asyncio.sleep(0)
        assert len(calls) < 100_000

    assert sum(await asyncio.gather(*calls)) == len(calls)


async def test_calls_answered_in_time_leave_no_deadline(held: Held) -> None:
    for number in range(50):
        assert await held.thread.call(int, str(number)) == number
    await asyncio.sleep(2 * TIMEOUT)

    assert not held.thread._unanswered
    assert held.thread._check is None


SHARED = Split(operator.add, None, lambda results, items, start: results[start : start + len(items)])


def make_calls(function: Callable[..., Any], *items: list[int], split: Split | None = SHARED) -> list[Call]:
    return [Call(function, (part,), asyncio.get_running_loop().create_future(), split) for part in items]


async def test_calls_in_a_row_run_as_one_and_get_their_own_results() -> None:
    runs: list[list[int]] = []

    def double(numbers: list[int]) -> list[int]:
        runs.append(numbers)
        return [2 * number for number in numbers]

    calls = make_calls(double, [1], [2, 3], [])
    calls += make_calls(double, [4], [5], split=None)
    calls += make_calls(double, [6])
    for run in in_runs(calls):
        run_as_one(run)

    assert runs == [[1, 2, 3], [4], [5], [6]]
    assert [call.result for call in calls] == [[2], [4, 6], [], [8], [10], [12]]


async def test_problem_of_a_run_is_that_of_each_call() -> None:
    problem = KeyTaken("no")

    def refuse(_: list[int]) -> list[int]:
        raise problem

    calls = make_calls(refuse, [1], [2])
    run_as_one(calls)

    assert [call.error for call in calls] == [problem, problem]


async def test_ended_thread_is_reported(held: Held) -> None:
    held.thread._calls.put(None)
    assert held.thread._thread is not None
    held.thread._thread.join(5)

    assert held.thread.status() == "the thread held has ended: restart the service"
    with pytest.raises(StoreUnavailable, match="did not answer"):
        await held.thread.call(int, "1")


@pytest.mark.parametrize("name", ["_writer", "_reader", "_lister"])
async def test_store_names_its_ended_thread(tmp_path: Path, name: str) -> None:
    store = SqliteStore(path=tmp_path / "erelong.db", timeout=TIMEOUT)
    await store.open()
    await put_one(store)
    thread = getattr(store, name)
    thread._calls.put(None)
    thread._thread.join(5)

    assert store.status() == f"the thread {thread._name} has ended: restart the service"
    await store.close()


@pytest.mark.parametrize("name", ["_writer", "_reader", "_lister"])
async def test_store_thread_survives_system_exit(tmp_path: Path, name: str) -> None:
    store = SqliteStore(path=tmp_path / "erelong.db")
    await store.open()

    def leave() -> None:
        raise SystemExit(1)

    with pytest.raises(StoreUnavailable):
        await getattr(store, name).call(leave)

    job = await put_one(store)
    store._cache.drop_all()
    assert (await store.get([job.seq]))[job.seq] == job
    assert len(await store.peek([job.seq])) == 1
    assert store.status() is None
    await store.close()
