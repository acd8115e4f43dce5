"""The threads of a kind: made on demand, reused, abandoned without a wait."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from erelong.handlers.base import AttemptFailed
from erelong.handlers.python import threads
from erelong.handlers.python.threads import ThreadPool
from tests.handlers import functions
from tests.handlers.attempts import Handler, make_attempt, make_python

pytestmark = pytest.mark.real_loop("asyncio", "uvloop")


@pytest.fixture
def release() -> Iterator[threading.Event]:
    functions.release.clear()
    yield functions.release
    functions.release.set()


@pytest.fixture
def blocking(release: threading.Event) -> Handler:
    return make_python("block")


def start(handler: Handler) -> asyncio.Task[object]:
    return asyncio.ensure_future(handler.run(make_attempt(b"{}")))


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - a thread has no event for the loop
        await asyncio.sleep(0)


async def test_thread_is_reused() -> None:
    handler = make_python("thread_id")

    idents = {await handler.run(make_attempt(b"{}")) for _ in range(5)}

    assert len(idents) == 1


async def test_thread_carries_the_name_of_its_kind() -> None:
    assert await make_python("thread_name").run(make_attempt(b"{}")) == b'"kind call"'


async def test_attempts_run_beside_one_another(blocking: Handler, release: threading.Event) -> None:
    attempts = [start(blocking) for _ in range(40)]
    await asyncio.sleep(0)

    alive = sum(thread.name == "kind call" for thread in threading.enumerate())
    release.set()

    assert alive >= 40
    assert await asyncio.gather(*attempts) == [b'"late"'] * 40


async def test_only_some_threads_stay_when_idle() -> None:
    gate = threading.Barrier(40)
    made: set[threading.Thread] = set()
    pool = ThreadPool(name="crowd")

    def work() -> None:
        made.add(threading.current_thread())
        gate.wait(5)

    await asyncio.gather(*(pool.run(work) for _ in range(40)))
    await until(lambda: sum(thread.is_alive() for thread in made) <= threads.MAX_IDLE)

    assert len(made) == 40
    assert await pool.run(threading.current_thread) in made


async def test_cancelled_attempt_ends_at_once_and_its_thread_is_counted(
    blocking: Handler, release: threading.Event
) -> None:
    attempt = start(blocking)
    await asyncio.sleep(0)

    attempt.cancel()
    with pytest.raises(asyncio.CancelledError):
        await attempt
    abandoned = blocking.abandoned
    release.set()
    await until(lambda: blocking.abandoned == 0)

    assert abandoned == 1


async def test_abandoned_thread_is_reused_after_its_end() -> None:
    gate = threading.Event()
    pool = ThreadPool(name="late")
    thread = await pool.run(threading.current_thread)
    attempt = asyncio.ensure_future(pool.run(lambda: gate.wait(5)))
    await asyncio.sleep(0)
    attempt.cancel()
    await asyncio.wait([attempt])

    gate.set()
    await until(lambda: pool.abandoned == 0)

    assert await pool.run(threading.current_thread) is thread


async def test_idle_threads_take_one_call_each() -> None:
    gate = threading.Barrier(5)
    pool = ThreadPool(name="five")

    rounds = [await asyncio.gather(*(pool.run(lambda: gate.wait(5)) for _ in range(5))) for _ in range(3)]

    assert [sorted(places) for places in rounds] == [[0, 1, 2, 3, 4]] * 3


async def test_failure_of_an_abandoned_thread_is_dropped() -> None:
    gate = threading.Event()
    pool = ThreadPool(name="late failure")

    def work() -> None:
        gate.wait(5)
        raise SystemExit(3)

    attempt = asyncio.ensure_future(pool.run(work))
    await asyncio.sleep(0)
    attempt.cancel()
    with pytest.raises(asyncio.CancelledError):
        await attempt
    gate.set()
    await until(lambda: pool.abandoned == 0)

    assert await pool.run(lambda: "next") == "next"


async def test_close_waits_for_no_thread(blocking: Handler, release: threading.Event) -> None:
    attempt = start(blocking)
    await asyncio.sleep(0)

    await blocking.close()
    ended_by_close = attempt.done()
    release.set()

    assert not ended_by_close
    assert await attempt == b'"late"'


async def test_threads_end_after_close() -> None:
    gate = threading.Barrier(2)
    pool = ThreadPool(name="closing")
    idle = await pool.run(threading.current_thread)
    two = [asyncio.ensure_future(pool.run(lambda: (gate.wait(5), threading.current_thread())[1])) for _ in range(2)]
    await asyncio.sleep(0)

    pool.close()
    made = {idle, *await asyncio.gather(*two)}
    for thread in made:
        await asyncio.to_thread(thread.join, 5)

    assert [thread.is_alive() for thread in made] == [False, False]


async def test_thread_that_cannot_be_started_fails_the_attempt() -> None:
    handler = make_python("thread_id")
    usual = threading.stack_size(2**46)  # more address space than there is

    try:
        with pytest.raises(AttemptFailed, match="cannot start a thread for kind call") as failure:
            await handler.run(make_attempt(b"{}"))
    finally:
        threading.stack_size(usual)

    assert failure.value.retryable
    assert handler.abandoned == 0


async def test_threads_that_never_end_have_a_bound(
    blocking: Handler, release: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threads, "MAX_ABANDONED", 2)
    attempts = [start(blocking) for _ in range(2)]
    await asyncio.sleep(0)
    for attempt in attempts:
        attempt.cancel()
    await asyncio.wait(attempts)

    with pytest.raises(AttemptFailed, match="2 abandoned threads of kind call still run"):
        await blocking.run(make_attempt(b"{}"))


async def test_failed_call_leaves_no_reference_cycle() -> None:
    pool = ThreadPool(name="tidy")
    kept: list[weakref.ref[Any]] = []

    class Large:
        pass

    def work() -> None:
        large = Large()
        kept.append(weakref.ref(large))
        raise LookupError

    gc.disable()
    try:
        with pytest.raises(LookupError) as failure:
            await pool.run(work)
        del failure
        await pool.run(lambda: None)
        assert kept[0]() is None
    finally:
        gc.enable()
