"""A ThreadPoolExecutor and an `erelong.Executor` alike: maps, shutdowns, and work for asyncio."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from itertools import count
from typing import Any

import pytest

from tests.client.executor.conftest import Gate, Pool, add, hold

pytestmark = pytest.mark.timeout(30)


# map


def test_map_yields_results_in_the_order_of_the_calls(pool: Pool) -> None:
    assert [*pool.map(add, range(20))] == [n + 1 for n in range(20)]
    assert [*pool.map(add, range(9), chunksize=2)] == [n + 1 for n in range(9)]


def test_map_takes_arguments_from_each_iterable_up_to_the_shortest(pool: Pool) -> None:
    assert [*pool.map(add, range(5), [10, 20, 30])] == [10, 21, 32]
    assert [*pool.map(add, [])] == []


def test_map_raises_an_exception_in_its_place(pool: Pool) -> None:
    results = pool.map(add, [1, "x", 3])

    assert next(results) == 2
    with pytest.raises((TypeError, pool.error)):
        next(results)


def test_map_ends_at_its_timeout(pool: Pool, gate: Gate) -> None:
    results = pool.map(hold, [gate.name], timeout=0.05)

    with pytest.raises(TimeoutError):
        next(results)


def test_map_submits_before_anybody_reads(pool: Pool, gate: Gate) -> None:
    results = pool.map(hold, [gate.name] * 2)

    gate.wait_for_calls(2)
    gate.open()

    assert [*results] == [gate.name] * 2


def test_map_that_is_left_cancels_pending_calls(narrow: Pool, gate: Gate, second_gate: Gate) -> None:
    results = narrow.map(hold, [gate.name, second_gate.name, second_gate.name])
    gate.open()
    assert next(results) == gate.name
    second_gate.wait_for_calls(1)

    results.close()  # type: ignore[attr-defined]  # it is a generator
    second_gate.open()

    assert narrow.submit(add, 1).result(10) == 2
    assert second_gate.calls == 1


def test_map_that_fails_cancels_pending_calls(narrow: Pool, gate: Gate) -> None:
    results = narrow.map(hold, [gate.name] * 3, timeout=0.2)
    gate.wait_for_calls(1)

    with pytest.raises(TimeoutError):
        next(results)
    gate.open()

    assert narrow.submit(add, 1).result(10) == 2
    assert gate.calls == 1


def test_map_with_a_buffer_reads_no_further_than_it_must(pool: Pool) -> None:
    if not pool.has_buffers:
        pytest.skip("Python before 3.14 has no buffersize")
    numbers = count()
    results = pool.map(add, numbers, buffersize=2)

    assert [next(results), next(results), next(results)] == [1, 2, 3]
    assert next(numbers) <= 5
    for size in (0, -1):
        with pytest.raises(ValueError, match="buffersize"):
            pool.map(add, [1], buffersize=size)


# shutdown


def test_no_call_is_taken_after_shutdown(pool: Pool) -> None:
    pool.executor.shutdown()
    pool.executor.shutdown()  # a second one does no harm

    with pytest.raises(RuntimeError, match="after shutdown"):
        pool.submit(add, 1)
    with pytest.raises(RuntimeError, match="after shutdown"):
        pool.map(add, [1])


def test_shutdown_waits_for_running_and_pending_calls(narrow: Pool, gate: Gate) -> None:
    futures = [narrow.submit(hold, gate.name), narrow.submit(add, 1)]
    threading.Timer(0.1, gate.open).start()

    narrow.executor.shutdown()

    assert [future.result(0) for future in futures] == [gate.name, 2]


def test_shutdown_that_does_not_wait_lets_calls_end(narrow: Pool, gate: Gate) -> None:
    futures = [narrow.submit(hold, gate.name), narrow.submit(add, 1)]

    narrow.executor.shutdown(wait=False)
    is_done = futures[0].done()
    gate.open()

    assert not is_done
    assert [future.result(10) for future in futures] == [gate.name, 2]


def test_shutdown_can_cancel_pending_calls(narrow: Pool, gate: Gate) -> None:
    running, pending = narrow.submit(hold, gate.name), narrow.submit(hold, gate.name)
    gate.wait_for_calls(1)
    threading.Timer(0.1, gate.open).start()

    narrow.executor.shutdown(cancel_futures=True)

    assert (running.result(0), pending.cancelled(), gate.calls) == (gate.name, True, 1)


def test_leaving_the_block_waits(pool: Pool, gate: Gate) -> None:
    threading.Timer(0.1, gate.open).start()

    with pool.executor as entered:
        future = entered.submit(hold, gate.name)

    assert entered is pool.executor
    assert future.done()


def test_exception_leaves_the_block_after_the_calls(pool: Pool, gate: Gate) -> None:
    threading.Timer(0.1, gate.open).start()
    future = pool.submit(hold, gate.name)

    with pytest.raises(KeyError), pool.executor:
        raise KeyError

    assert future.done()


def test_submits_that_race_with_shutdown_are_refused_or_done(pool: Pool) -> None:
    taken: list[Future[int]] = []
    refused: list[RuntimeError] = []

    def submit() -> None:
        for number in range(1_000):
            try:
                taken.append(pool.submit(add, number))
            except RuntimeError as error:
                refused.append(error)
                return

    threads = [threading.Thread(target=submit) for _ in range(4)]
    for thread in threads:
        thread.start()
    while len(taken) < 20:
        pass
    pool.executor.shutdown()
    for thread in threads:
        thread.join()

    assert all(future.done() for future in taken)
    assert len(taken) == 4_000 or refused


# asyncio


async def _run(work: Callable[[asyncio.AbstractEventLoop], Any]) -> Any:
    return await work(asyncio.get_running_loop())


def test_future_can_be_awaited(pool: Pool) -> None:
    assert asyncio.run(_run(lambda loop: asyncio.wrap_future(pool.submit(add, 1), loop=loop))) == 2


def test_loop_can_run_calls_in_the_pool(pool: Pool) -> None:
    assert asyncio.run(_run(lambda loop: loop.run_in_executor(pool.executor, add, 1, 5))) == 6


def test_cancelled_awaiting_cancels_a_pending_call(narrow: Pool, gate: Gate) -> None:
    narrow.submit(hold, gate.name)
    gate.wait_for_calls(1)
    pending = narrow.submit(add, 1)

    async def give_up() -> None:
        waiting = asyncio.wrap_future(pending)
        waiting.cancel()
        await asyncio.wait([waiting])

    asyncio.run(give_up())

    assert pending.cancelled()
