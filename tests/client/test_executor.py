"""`erelong.Executor` against the promises of concurrent.futures."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, as_completed, wait
from dataclasses import dataclass
from typing import Any

import pytest

from erelong import Client, Draft, Executor, JobFailed, NotFound, kind


@dataclass
class Echoed:
    n: int


@kind("echo")
def echo(n: int) -> Echoed:
    raise NotImplementedError


@kind("echo", retry={"max_attempts": 1})
def fail(fail: str) -> None:
    raise NotImplementedError


LATER = echo.job(1).with_options(delay="1h")


@pytest.fixture
def client(real_service: str) -> Iterator[Client]:
    with Client(real_service) as client:
        yield client


@pytest.fixture
def pool(client: Client) -> Iterator[Executor]:
    pool = Executor(client)
    yield pool
    pool.shutdown(wait=False, cancel_futures=True)


def test_future_has_the_typed_result(pool: Executor) -> None:
    future = pool.submit(echo, n=3)

    assert future.result(timeout=10) == Echoed(3)
    assert (future.done(), future.running(), future.cancelled(), future.exception()) == (True, False, False, None)


def test_failure_of_a_job_is_the_exception_of_its_future(pool: Executor) -> None:
    error = pool.submit(fail, "boom").exception(timeout=10)

    assert isinstance(error, JobFailed)
    assert "boom" in str(error)


def test_kind_can_be_a_name_and_a_draft_has_options(pool: Executor) -> None:
    by_name = pool.submit("echo", n=1)
    by_draft = pool.submit(Draft("echo", {"n": 2}, priority=3))

    assert (by_name.result(10), by_draft.result(10)) == ({"n": 1}, {"n": 2})


def test_plain_function_is_refused_with_the_remedy(pool: Executor) -> None:
    def resize() -> None: ...

    with pytest.raises(TypeError, match=r'resize is not a kind: decorate it with @kind\("resize"\)'):
        pool.submit(resize)  # type: ignore[call-overload]  # the type checker sees it too


def test_wait_as_completed_and_callbacks_work(pool: Executor) -> None:
    called: list[Future[Any]] = []
    soon, late = pool.submit(echo, n=1), pool.submit(LATER)
    soon.add_done_callback(called.append)

    done, pending = wait([soon, late], timeout=10, return_when=FIRST_COMPLETED)
    (first,) = as_completed([soon], timeout=1)

    assert (done, pending, first, called) == ({soon}, {late}, soon, [soon])


async def _result(future: Future[Any]) -> Any:
    return await asyncio.wrap_future(future)


def test_future_can_be_awaited(pool: Executor) -> None:
    assert asyncio.run(_result(pool.submit(echo, n=5))) == Echoed(5)


def test_only_a_waiting_call_can_be_cancelled(pool: Executor, client: Client) -> None:
    waiting, running = pool.submit(LATER), pool.submit("echo", sleep=30)
    while not running.running():
        pass

    assert (waiting.cancel(), running.cancel()) == (True, False)
    assert client.get(waiting.job_id).state == "cancelled"
    with pytest.raises(CancelledError):
        waiting.result(timeout=1)
    running.stop("enough")


def test_edited_job_is_still_cancelled(pool: Executor, client: Client) -> None:
    future = pool.submit(LATER)
    client.edit(future.job_id, priority=3)

    assert future.cancel()


def test_map_yields_results_in_order(pool: Executor) -> None:
    assert [*pool.map(echo, range(1_200))] == [Echoed(n) for n in range(1_200)]


def test_map_raises_at_its_timeout(pool: Executor) -> None:
    slow = kind("echo", delay="1h")(echo.function)

    results = pool.map(slow, [1], timeout=0.1)

    with pytest.raises(TimeoutError):
        next(results)


def test_leaving_waits_and_then_takes_no_more_calls(client: Client) -> None:
    with Executor(client) as pool:
        futures = [pool.submit(echo, n=n) for n in range(20)]

    assert all(future.done() for future in futures)
    with pytest.raises(RuntimeError, match="after shutdown"):
        pool.submit(echo, n=1)


def test_shutdown_cancels_waiting_calls(client: Client) -> None:
    pool = Executor(client)
    future = pool.submit(LATER)

    pool.shutdown(cancel_futures=True)

    assert future.cancelled()


def test_cancelled_call_is_cancelled_even_if_the_watch_is_quicker(
    pool: Executor, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    future, cancel = pool.submit(LATER), client.cancel

    def cancel_seen_by_the_watch(*given: Any, **options: Any) -> Any:
        job = cancel(*given, **options)
        while not future.done():
            time.sleep(0.01)
        return job

    monkeypatch.setattr(client, "cancel", cancel_seen_by_the_watch)

    assert future.cancel()
    assert future.cancelled()


def test_deleted_job_is_an_error(pool: Executor, client: Client) -> None:
    future = pool.submit(LATER)
    client.delete(future.job_id)

    with pytest.raises(NotFound, match="was deleted"):
        future.result(timeout=10)


def test_submit_blocks_while_too_many_are_pending(client: Client) -> None:
    pool = Executor(client, max_pending=2)
    first, _ = pool.submit(LATER), pool.submit(LATER)
    third: list[Future[Any]] = []
    thread = threading.Thread(target=lambda: third.append(pool.submit(echo, n=3)))

    thread.start()
    thread.join(0.2)
    is_blocked = thread.is_alive()
    first.cancel()
    thread.join(10)

    assert is_blocked
    assert third[0].result(10) == Echoed(3)
    pool.shutdown(cancel_futures=True)
