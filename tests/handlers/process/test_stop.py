"""Attempts in processes always end, with their descendants, and nothing outlives them."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path

import orjson
import pytest

from erelong.handlers.base import AttemptFailed
from erelong.handlers.process.runner import ProcessRunner
from erelong.handlers.registry import make_kinds
from erelong.settings.sections import Config
from tests.handlers.attempts import handler_of
from tests.handlers.process_runs import OpenKind, OpenKinds, failure, in_process, run, until
from tests.support.alive import alive, written

pytestmark = [pytest.mark.real_loop("asyncio", "uvloop"), pytest.mark.timeout(30)]


@pytest.mark.parametrize("function", ["wait", "spin", "ignore", "tidy", "fork"])
async def test_attempt_over_its_timeout_is_dead_with_all_it_started(
    open_function: OpenKind, pids: Path, function: str
) -> None:
    handler = await open_function(function, grace=0.3)
    began = time.monotonic()

    failed = await failure(handler, 0.5, pids=str(pids))

    took = time.monotonic() - began
    assert (failed.type, failed.message) == ("timeout", "it did not end within 0.5 s")
    assert 0.5 <= took < 0.5 + 0.3 + 1.0
    assert written(pids)
    assert alive(pids) == []


@pytest.mark.parametrize("function", ["wait", "spin", "ignore", "fork"])
async def test_cancelled_attempt_is_dead_with_all_it_started(
    open_function: OpenKind, pids: Path, function: str
) -> None:
    handler = await open_function(function)
    attempt = asyncio.ensure_future(run(handler, pids=str(pids)))
    await until(lambda: len(written(pids)) >= (5 if function == "fork" else 1))

    attempt.cancel()
    with pytest.raises(asyncio.CancelledError):
        await attempt

    assert alive(pids) == []


async def test_function_that_handles_sigterm_cleans_up_and_ends_early(open_function: OpenKind, pids: Path) -> None:
    handler = await open_function("tidy", grace=20.0)

    failed = await failure(handler, 0.5, pids=str(pids))

    assert failed.output == "tidied up\n"


async def test_process_is_replaced_after_it_was_killed(open_functions: OpenKinds, pids: Path) -> None:
    handlers = await open_functions("spin", "add")

    await failure(handlers["spin"], 0.1, pids=str(pids))

    assert (await run(handlers["add"], a=1)).json == b"3"


async def test_attempt_cancelled_while_it_waits_for_a_process_leaves_the_queue(
    open_functions: OpenKinds, pids: Path
) -> None:
    handlers = await open_functions("wait", "pid")
    first = asyncio.ensure_future(run(handlers["wait"], pids=str(pids)))
    await until(lambda: bool(written(pids)))
    waiting = [asyncio.ensure_future(run(handlers["pid"])) for _ in range(3)]
    await asyncio.sleep(0)

    waiting[0].cancel()
    first.cancel()
    await asyncio.wait([first, *waiting])

    assert waiting[0].cancelled()
    assert waiting[1].result() == waiting[2].result()


async def test_cancel_again_while_it_is_stopped_changes_nothing(open_function: OpenKind, pids: Path) -> None:
    handler = await open_function("ignore")
    attempt = asyncio.ensure_future(run(handler, pids=str(pids)))
    await until(lambda: bool(written(pids)))

    for _ in range(5):
        attempt.cancel()
        await asyncio.sleep(0)

    assert not attempt.done()
    with pytest.raises(asyncio.CancelledError):
        await attempt
    assert alive(pids) == []


@pytest.mark.parametrize("function", ["fork_and_return", "fork_and_die"])
async def test_nothing_outlives_the_attempt_that_started_it(open_function: OpenKind, pids: Path, function: str) -> None:
    handler = await open_function(function)

    if function == "fork_and_return":
        assert (await run(handler, pids=str(pids))).json == b"2"
        await until(lambda: not alive(pids))
    else:
        assert (await failure(handler, pids=str(pids))).type == "crashed"

    assert written(pids)
    assert alive(pids) == []


async def test_forked_children_end_at_sigterm_by_default(open_function: OpenKind) -> None:
    handler = await open_function("fork_and_stop")

    assert orjson.loads((await run(handler, times=300)).json or b"") == [-signal.SIGTERM]


async def test_function_may_use_processes_of_its_own(open_function: OpenKind) -> None:
    handler = await open_function("use_processes")

    assert [(await run(handler)).json for _ in range(2)] == [b"[1,2]"] * 2


async def test_close_leaves_nothing_even_while_attempts_run(pids: Path) -> None:
    handler = handler_of(make_kinds(Config(kinds={"call": in_process("fork")}))["call"])
    await handler.open()
    attempt = asyncio.ensure_future(run(handler, pids=str(pids)))
    await until(lambda: len(written(pids)) >= 5)

    await handler.close()

    assert alive(pids) == []
    with pytest.raises(AttemptFailed, match="the process that ran it"):
        await attempt


async def test_idle_process_that_dies_is_replaced_before_it_is_needed(open_function: OpenKind) -> None:
    handler = await open_function("pid")
    assert isinstance(handler, ProcessRunner)
    first = int((await run(handler)).json or b"")

    os.kill(first, signal.SIGKILL)
    await until(lambda: [process.pid for process in handler._pool._idle] not in ([first], []))

    assert int((await run(handler)).json or b"") != first
