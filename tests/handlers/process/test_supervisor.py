"""The supervisor and its client: every started process ends, even if either side dies."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from erelong.handlers.process import supervisor_client as subject
from erelong.handlers.process.supervisor_client import Ended, Process, ProcessEnvironment, SupervisorClient, shielded
from tests.handlers.process_runs import until
from tests.support import ROOT
from tests.support.alive import alive, is_alive, written

pytestmark = [pytest.mark.real_loop("asyncio", "uvloop"), pytest.mark.timeout(30)]

WAIT = 'echo $$ >> "$1"; exec sleep 600'
FORK = 'setsid sh -c "echo \\$\\$ >> $1; exec sleep 600" & echo $$ >> "$1"; wait'


@pytest_asyncio.fixture
async def processes(pids: Path) -> AsyncIterator[SupervisorClient]:
    processes = SupervisorClient()
    await processes.open()
    yield processes
    await processes.close()
    assert alive(pids) == []


async def start(processes: SupervisorClient, script: str, pids: Path) -> Process:
    nothing = os.open(os.devnull, os.O_RDWR)
    try:
        return await processes.start(
            ["sh", "-c", script, "sh", str(pids)],
            path="/bin/sh",
            process_environment=ProcessEnvironment(),
            descriptors=[nothing, nothing, nothing],
        )
    finally:
        os.close(nothing)


def supervisor_of(process: Process) -> int:
    return int(Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[1])


async def test_exit_code_is_reported(processes: SupervisorClient, pids: Path) -> None:
    process = await start(processes, "exit 7", pids)

    assert (await asyncio.wait_for(process.ended, 10)).code == 7
    assert (await process.stop(1.0)).code == 7


async def test_no_grace_means_no_sigterm(processes: SupervisorClient, pids: Path) -> None:
    process = await start(processes, 'trap "exit 9" TERM; echo $$ >> "$1"; while :; do :; done', pids)
    await until(lambda: bool(written(pids)))

    assert (await process.stop(0.0)).code == -signal.SIGKILL


async def test_stop_can_be_made_shorter(processes: SupervisorClient, pids: Path) -> None:
    process = await start(processes, 'trap "" TERM; echo $$ >> "$1"; while :; do sleep 1; done', pids)
    await until(lambda: bool(written(pids)))
    patient = asyncio.ensure_future(process.stop(20.0))
    await asyncio.sleep(0)

    assert (await process.stop(0.0)).code == -signal.SIGKILL
    assert (await patient).code == -signal.SIGKILL


async def test_rest_of_a_group_gets_its_grace_after_its_first_process_ended(
    processes: SupervisorClient, pids: Path, tmp_path: Path
) -> None:
    tidied = tmp_path / "tidied"
    child = f'trap "sleep 0.3; echo 1 > {tidied}; exit" TERM; echo $$ >> "{pids}"; while :; do sleep 0.01; done'
    process = await start(processes, f"({child}) & exec sleep 600", pids)
    await until(lambda: bool(written(pids)))

    await process.stop(10.0)

    assert tidied.read_text() == "1\n"


async def test_processes_of_a_killed_supervisor_die_and_another_replaces_it(
    processes: SupervisorClient, pids: Path
) -> None:
    process = await start(processes, WAIT, pids)
    await until(lambda: bool(written(pids)))

    os.kill(supervisor_of(process), signal.SIGKILL)
    ended = await asyncio.wait_for(process.ended, 10)
    await until(lambda: not alive(pids))
    again = await start(processes, "exit 7", pids)

    assert ended == Ended(None)
    assert str(ended) == "was lost with the process supervisor"
    assert await process.stop(1.0) == ended
    assert (await asyncio.wait_for(again.ended, 10)).code == 7


async def test_supervisor_that_does_not_answer_is_killed(
    processes: SupervisorClient, pids: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = await start(processes, WAIT, pids)
    await until(lambda: bool(written(pids)))
    supervisor = supervisor_of(process)

    os.kill(supervisor, signal.SIGSTOP)
    monkeypatch.setattr(subject, "ANSWER_TIME", 0.2)
    ended = await process.stop(0.0)
    await until(lambda: not alive(pids))

    assert ended == Ended(None)
    assert not is_alive(supervisor)


async def test_orders_wait_for_a_busy_supervisor(processes: SupervisorClient, pids: Path) -> None:
    first = await start(processes, WAIT, pids)
    supervisor = supervisor_of(first)

    os.kill(supervisor, signal.SIGSTOP)
    starts = [asyncio.ensure_future(start(processes, f"exit 7 # {'x' * 2_000}", pids)) for _ in range(300)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    os.kill(supervisor, signal.SIGCONT)
    started = await asyncio.gather(*starts)

    assert [(await process.stop(20.0)).code in (7, -signal.SIGTERM) for process in started] == [True] * 300


async def test_supervisor_ends_all_processes_when_the_service_is_killed(pids: Path) -> None:
    """Even while a forked copy of the service holds the connection open."""
    program = f"""
import asyncio, os, sys, time
from pathlib import Path
sys.path[:] = {sys.path!r}
from erelong.handlers.process.supervisor_client import SupervisorClient
from tests.handlers.process.test_supervisor import FORK, start
async def main():
    processes = SupervisorClient()
    await processes.open()
    for _ in range(3):
        await start(processes, FORK, Path({str(pids)!r}))
    if os.fork() == 0:
        os.write(1, b"%d" % os.getpid())
        time.sleep(60)
        os._exit(0)
    await asyncio.sleep(600)
asyncio.run(main())
"""
    service = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, cwd=ROOT)  # noqa: ASYNC220
    assert service.stdout is not None
    copy = int(await asyncio.to_thread(os.read, service.stdout.fileno(), 20))
    await until(lambda: len(written(pids)) == 6)

    service.kill()
    service.wait()
    await until(lambda: not alive(pids))

    os.kill(copy, signal.SIGKILL)
    service.stdout.close()


async def test_process_that_left_its_group_survives_the_end_of_another_group(
    processes: SupervisorClient, pids: Path, tmp_path: Path
) -> None:
    leave = 'setsid sh -c "exec sleep 600 & echo \\$! >> $1" & wait; exec sleep 600'
    first = await start(processes, leave, pids)
    await until(lambda: bool(written(pids)))

    for _ in range(3):
        other = await start(processes, "exit 0", tmp_path / "other")
        await asyncio.wait_for(other.ended, 10)
    before = alive(pids)
    await first.stop(0.0)

    assert before == written(pids)
    assert alive(pids) == []


async def test_closed_client_starts_no_process(pids: Path) -> None:
    with pytest.raises(OSError, match="the handler is not open"):
        await start(SupervisorClient(), WAIT, pids)


async def test_last_close_ends_the_supervisor(pids: Path) -> None:
    processes = SupervisorClient()
    await processes.open()
    await processes.open()
    process = await start(processes, WAIT, pids)
    supervisor = supervisor_of(process)

    await processes.close()
    is_kept = not process.ended.done()
    await processes.close()

    assert is_kept
    assert process.ended.done()
    assert not is_alive(supervisor)


async def test_shielded_work_ends_before_the_cancellation_is_raised() -> None:
    gate = asyncio.Event()
    ended: list[bool] = []

    async def work() -> None:
        await gate.wait()
        ended.append(True)

    task = asyncio.ensure_future(shielded(work()))
    for _ in range(3):
        await asyncio.sleep(0)
        task.cancel()
    gate.set()

    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == [True]
    assert await shielded(asyncio.sleep(0, "result")) == "result"
