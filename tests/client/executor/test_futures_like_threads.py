"""Futures of a ThreadPoolExecutor and of an `erelong.Executor` alike: submits, states, callbacks, waits."""

from __future__ import annotations

import logging
import threading
from concurrent.futures import (
    ALL_COMPLETED,
    FIRST_COMPLETED,
    FIRST_EXCEPTION,
    CancelledError,
    Future,
    ThreadPoolExecutor,
    as_completed,
    wait,
)
from typing import Any

import pytest

from tests.client.executor.conftest import Gate, Pool, add, fail, hold, leave

pytestmark = pytest.mark.timeout(30)


# submit


def test_call_has_arguments_by_place_and_by_name(pool: Pool) -> None:
    assert pool.submit(add, 3).result(10) == 4
    assert pool.submit(add, 3, b=4).result(10) == 7
    assert pool.submit(add, b=5, a=1).result(10) == 6


def test_submit_returns_a_future_of_the_standard_library(pool: Pool) -> None:
    assert isinstance(pool.submit(add, 1), Future)


def test_exception_of_the_function_is_that_of_the_future(pool: Pool) -> None:
    future = pool.submit(fail, "no luck")

    error = future.exception(10)
    with pytest.raises(pool.error, match="no luck") as raised:
        future.result(10)

    assert raised.value is error


def test_function_that_exits_ends_only_its_call(pool: Pool) -> None:
    error = pool.submit(leave).exception(10)

    assert isinstance(error, SystemExit | pool.error)
    assert pool.submit(add, 1).result(10) == 2


def test_wrong_arguments_are_a_type_error(pool: Pool) -> None:
    with pytest.raises(TypeError):
        pool.submit(add, nonsense=1).result(10)


def test_result_and_exception_have_a_timeout(pool: Pool, gate: Gate) -> None:
    future = pool.submit(hold, gate.name)

    with pytest.raises(TimeoutError):
        future.result(0.01)
    with pytest.raises(TimeoutError):
        future.exception(0)
    gate.open()

    assert future.result(10) == gate.name


def test_many_threads_may_submit(pool: Pool) -> None:
    with ThreadPoolExecutor(8) as threads:
        results = [*threads.map(lambda n: pool.submit(add, n).result(20), range(80))]

    assert results == [n + 1 for n in range(80)]


# states, and cancelling


def test_running_call_cannot_be_cancelled(pool: Pool, gate: Gate) -> None:
    future = pool.submit(hold, gate.name)
    gate.wait_for_calls(1)

    assert (future.running(), future.done(), future.cancelled(), future.cancel()) == (True, False, False, False)
    gate.open()
    assert future.result(10) == gate.name


def test_pending_call_can_be_cancelled(narrow: Pool, gate: Gate) -> None:
    running, pending = narrow.submit(hold, gate.name), narrow.submit(hold, gate.name)
    gate.wait_for_calls(1)

    assert (pending.running(), pending.done(), pending.cancelled()) == (False, False, False)
    assert (pending.cancel(), pending.cancel()) == (True, True)
    assert (pending.running(), pending.done(), pending.cancelled()) == (False, True, True)
    with pytest.raises(CancelledError):
        pending.result(0)
    with pytest.raises(CancelledError):
        pending.exception(0)
    gate.open()
    assert running.result(10) == gate.name


def test_cancelled_call_never_runs(narrow: Pool, gate: Gate) -> None:
    narrow.submit(hold, gate.name)
    gate.wait_for_calls(1)
    narrow.submit(hold, gate.name).cancel()
    gate.open()

    assert narrow.submit(add, 1).result(10) == 2
    assert gate.calls == 1


def test_finished_call_cannot_be_cancelled(pool: Pool) -> None:
    succeeded, failed = pool.submit(add, 1), pool.submit(fail, "boom")
    wait([succeeded, failed], 10)

    assert (succeeded.cancel(), succeeded.cancelled(), succeeded.done()) == (False, False, True)
    assert (failed.cancel(), failed.cancelled(), failed.running()) == (False, False, False)


# callbacks


@pytest.mark.parametrize("fn", [add, fail])
def test_callback_gets_the_finished_future_once(pool: Pool, fn: Any) -> None:
    called: list[Future[Any]] = []
    over = threading.Event()
    future = pool.submit(fn, 1 if fn is add else "boom")

    future.add_done_callback(called.append)
    future.add_done_callback(lambda _: over.set())  # callbacks run after the future is done
    assert over.wait(10)

    pool.executor.shutdown()
    assert called == [future]


def test_callback_is_called_when_the_call_is_cancelled(narrow: Pool, gate: Gate) -> None:
    narrow.submit(hold, gate.name)
    gate.wait_for_calls(1)
    called: list[bool] = []
    pending = narrow.submit(add, 1)

    pending.add_done_callback(lambda future: called.append(future.cancelled()))
    pending.cancel()

    assert called == [True]


@pytest.mark.parametrize("is_cancelled", [True, False])
def test_callback_of_a_finished_future_is_called_at_once(narrow: Pool, gate: Gate, is_cancelled: bool) -> None:
    narrow.submit(hold, gate.name)
    gate.wait_for_calls(1)
    called: list[Future[Any]] = []
    future = narrow.submit(add, 1)
    if is_cancelled:
        future.cancel()
    else:
        gate.open()
        future.result(10)

    future.add_done_callback(called.append)

    assert called == [future]


def test_callbacks_run_in_order_and_survive_one_another(
    narrow: Pool, gate: Gate, caplog: pytest.LogCaptureFixture
) -> None:
    called, over = [], threading.Event()
    future = narrow.submit(hold, gate.name)
    for number in range(3):
        future.add_done_callback(lambda _, number=number: called.append(1 / (number - 1)))  # type: ignore[misc]
    future.add_done_callback(lambda _: over.set())

    with caplog.at_level(logging.ERROR, "concurrent.futures"):
        gate.open()
        assert over.wait(10)

    assert called == [-1.0, 1.0]
    assert "exception calling callback" in caplog.text


def test_callback_may_submit_the_next_call(pool: Pool) -> None:
    results: list[int] = []
    over = threading.Event()

    def go_on(future: Future[int]) -> None:
        results.append(future.result())
        if len(results) == 5:
            over.set()
        else:
            pool.submit(add, future.result()).add_done_callback(go_on)

    pool.submit(add, 0).add_done_callback(go_on)

    assert over.wait(10)
    assert results == [1, 2, 3, 4, 5]


# wait


def test_wait_returns_at_the_first_end(pool: Pool, gate: Gate) -> None:
    slow, quick = pool.submit(hold, gate.name), pool.submit(add, 1)

    assert wait([slow, quick], 10, FIRST_COMPLETED) == ({quick}, {slow})
    assert wait([slow, quick], 0, FIRST_COMPLETED) == ({quick}, {slow})


def test_wait_returns_at_the_first_exception(pool: Pool, gate: Gate) -> None:
    slow, failed = pool.submit(hold, gate.name), pool.submit(fail, "boom")

    assert wait([slow, failed], 10, FIRST_EXCEPTION) == ({failed}, {slow})


def test_wait_for_an_exception_waits_for_all_if_there_is_none(pool: Pool) -> None:
    futures = {pool.submit(add, n) for n in range(5)}

    assert wait(futures, 10, FIRST_EXCEPTION) == (futures, set())


def test_wait_for_all_counts_successes_failures_and_cancelled_calls(narrow: Pool, gate: Gate) -> None:
    futures = [narrow.submit(hold, gate.name), narrow.submit(fail, "boom"), narrow.submit(add, 1)]
    gate.wait_for_calls(1)
    futures[2].cancel()
    threading.Timer(0.05, gate.open).start()

    assert wait([*futures, *futures], 10, ALL_COMPLETED) == ({*futures}, set())


def test_wait_ends_at_its_timeout(pool: Pool, gate: Gate) -> None:
    slow, quick = pool.submit(hold, gate.name), pool.submit(add, 1)
    quick.result(10)

    assert wait([slow, quick], 0.05) == ({quick}, {slow})


def test_wait_for_nothing_returns(pool: Pool) -> None:
    assert wait([], 0.1) == (set(), set())


# as_completed


def test_as_completed_yields_each_future_once_by_its_end(pool: Pool, gate: Gate) -> None:
    slow, first = pool.submit(hold, gate.name), pool.submit(add, 1)
    first.result(10)
    second = pool.submit(fail, "boom")

    found = []
    for future in as_completed([slow, first, second, first], 10):
        found.append(future)
        if future is second:
            gate.open()

    assert found == [first, second, slow]


def test_as_completed_ends_at_its_timeout(pool: Pool, gate: Gate) -> None:
    slow, quick = pool.submit(hold, gate.name), pool.submit(add, 1)
    quick.result(10)
    completed = as_completed([slow, quick], 0.05)

    assert next(completed) is quick
    with pytest.raises(TimeoutError, match=r"1 \(of 2\) futures unfinished"):
        next(completed)


def test_as_completed_yields_cancelled_calls(narrow: Pool, gate: Gate) -> None:
    running, pending = narrow.submit(hold, gate.name), narrow.submit(add, 1)
    gate.wait_for_calls(1)
    pending.cancel()
    gate.open()

    assert {*as_completed([running, pending], 10)} == {running, pending}
