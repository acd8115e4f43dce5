"""Bad jobs in processes end in time with their descendants, even when the service is killed."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from erelong.clock.instants import parse_instant
from tests.support.alive import alive, descendants, is_running, written
from tests.support.process import ServiceProcess
from tests.system.client import Client, looks
from tests.system.trials import percentile, sized

FUNCTIONS = Path(__file__).with_name("process_functions.py")
JOBS = sized(12, 200)
KILLS = sized(1, 10)
AT_ONCE = 2
TIMEOUT, GRACE = 0.3, 0.3
SECOND = 1_000_000
MOST = sized(0.5, 0.05)  # a quiet machine keeps the promise

BEGIN = "echo $ERELONG_JOB_ID $(date +%s%N) >> begun.txt; echo $$ >> pids.txt;"
CHILD = 'sh -c "echo \\$\\$ >> pids.txt; exec sleep 600"'
COMMANDS = {
    "spin": f"{BEGIN} while :; do :; done",
    "ignore": f'trap "" TERM; {BEGIN} while :; do sleep 1; done',
    "fork": f'trap "" TERM; {CHILD} & {CHILD} & setsid {CHILD} & setsid env -i {CHILD} & {BEGIN} wait',
    "die": f"setsid {CHILD} & {BEGIN} kill -9 $$",
    "eat": f"{BEGIN} exec tail /dev/zero",
}
FUNCTION_WAYS = ("spin", "ignore", "fork", "die", "eat")
WAYS = [*FUNCTION_WAYS, *(f"command-{way}" for way in COMMANDS)]
ENDS = {"die": {"crashed"}, "command-die": {"crashed"}, "command-eat": {"exception", "timeout"}}
BEGUN_BY_ALL = 1 + 1 + 5 + 1 + 1 + 1 + 5

pytestmark = [pytest.mark.real_loop, pytest.mark.timeout(sized(60, 600))]


@pytest.fixture
def start_service(make_service: Callable[..., ServiceProcess]) -> Callable[..., ServiceProcess]:
    """Return a function that starts a service with the kinds of this module."""

    def start(**settings: object) -> ServiceProcess:
        given = {
            "workers.grace": GRACE,
            "workers.processes": AT_ONCE,
            "queues.default.concurrency": AT_ONCE,
            **settings,
        }
        service = make_service(settings={name: str(value) for name, value in given.items()})
        (service.folder / "config.toml").write_text(_config(service.folder))
        (service.folder / "process_functions.py").write_text(FUNCTIONS.read_text())
        service.start()
        return service

    return start


@pytest.mark.parametrize("way", WAYS)
async def test_bad_jobs_and_their_descendants_are_dead_soon_after_the_grace(
    start_service: Callable[..., ServiceProcess],
    make_client: Callable[[ServiceProcess], Client],
    way: str,
    figure: Callable[[str, object], None],
) -> None:
    service = start_service()
    client, pids = make_client(service), service.folder / "pids.txt"

    await client.submit_batch([{"kind": way, "timeout": TIMEOUT, "retry": {"max_attempts": 1}}] * JOBS)
    await client.wait_until_done(timeout=400.0)
    left = alive(pids)
    jobs = await client.list_all()
    quick = await client.wait_until_final((await client.submit(kind="quick"))["id"])

    over = _over_the_grace(service, jobs, way)
    shown = [f"{seconds * 1e3:.1f}" for seconds in (percentile(over, 0.5), percentile(over, 0.99), max(over))]
    figure("from the end of the grace until all is dead, ms: p50, p99, most", ", ".join(shown))
    figure("processes, and left at the end", f"{len(written(pids))}, {len(left)}")
    assert {job["error"]["type"] for job in jobs} <= ENDS.get(way, {"timeout"})
    assert percentile(over, 0.99) <= MOST
    assert len(written(pids)) >= JOBS
    assert left == []
    assert quick["result"] == 1


async def test_no_process_is_left_when_the_service_is_killed(
    start_service: Callable[..., ServiceProcess],
    make_client: Callable[[ServiceProcess], Client],
    figure: Callable[[str, object], None],
) -> None:
    ways = [way for way in WAYS if way not in ENDS]
    processes, seconds = 0, []

    for turn in range(KILLS):
        service = start_service(**{"workers.processes": len(FUNCTION_WAYS), "queues.default.concurrency": 100})
        pids = service.folder / "pids.txt"
        await make_client(service).submit_batch([{"kind": way, "timeout": 600} for way in ways])
        async for _ in looks(20.0):
            if len(written(pids)) >= BEGUN_BY_ALL:
                break
        await asyncio.sleep(0.05 * turn)
        running = descendants(service.pid) | set(alive(pids))
        service.kill()
        began = time.perf_counter()
        async for _ in looks(10.0, 0.001):
            if not any(map(is_running, {*running, *written(pids)})):
                break
        seconds.append(time.perf_counter() - began)
        processes += len(running)

    figure(f"of {processes} processes after {KILLS} kills the last was gone after, ms", f"{max(seconds) * 1e3:.1f}")
    assert processes > KILLS * BEGUN_BY_ALL
    assert max(seconds) < 1.0


async def test_poison_job_fails_after_three_crashes_and_other_jobs_go_on(
    start_service: Callable[..., ServiceProcess], make_client: Callable[[ServiceProcess], Client]
) -> None:
    client = make_client(start_service())
    policy = {"max_attempts": 20, "delay": 0.01}

    poison = [await client.submit(kind=kind, retry=policy) for kind in ("die", "command-die")]
    others = await client.submit_batch([{"kind": "quick"}] * 20)
    ended = [await client.wait_until_final(job["id"]) for job in poison]
    results = [(await client.wait_until_final(id))["result"] for id in others]

    for job in ended:
        assert (job["state"], job["attempt"]) == ("failed", 3)
        assert [attempt["outcome"] for attempt in job["attempts"]] == ["crashed"] * 3
        assert job["error"]["message"].startswith(
            "the process running it ended 3 times in a row; it may be the cause: "
        )
    assert results == [1] * 20


@pytest.mark.parametrize("way", ["spin", "fork", "command-ignore"])
async def test_cancel_stops_the_processes_of_a_job(
    start_service: Callable[..., ServiceProcess], make_client: Callable[[ServiceProcess], Client], way: str
) -> None:
    service = start_service()
    client, pids = make_client(service), service.folder / "pids.txt"
    job = await client.submit(kind=way)
    async for _ in looks():
        if written(pids):
            break

    status, _ = await client.ask("POST", f"/v1/jobs/{job['id']}/cancel")
    ended = await client.wait_until_final(job["id"])

    assert status == 202
    assert ended["state"] == "cancelled"
    assert alive(pids) == []


async def test_stopping_service_releases_running_jobs_and_leaves_no_process(
    start_service: Callable[..., ServiceProcess], make_client: Callable[[ServiceProcess], Client]
) -> None:
    service = start_service(**{"server.drain_timeout": 0.2})
    client, pids = make_client(service), service.folder / "pids.txt"
    jobs = [await client.submit(kind=way) for way in ("fork", "command-fork")]
    async for _ in looks():
        if len(written(pids)) >= 10:
            break

    running = descendants(service.pid)
    ended = await asyncio.to_thread(service.stop)
    left = [pid for pid in (*running, *written(pids)) if is_running(pid)]
    service.start()
    history = [(await client.read(job["id"]))["attempts"] for job in jobs]

    assert (ended.code, left) == (0, [])
    assert ended.seconds < 2.0
    assert [attempts[0]["outcome"] for attempts in history] == ["released"] * 2


def _config(folder: Path) -> str:
    limited = "memory = 200000000"
    kinds = [
        f'[kinds.{way}]\npython = "process_functions:{way}"\nisolation = "process"\n{limited}'
        for way in (*FUNCTION_WAYS, "quick")
    ]
    for way, script in COMMANDS.items():
        command = ["sh", "-c", script]
        kinds.append(f"[kinds.command-{way}]\ncommand = {json.dumps(command)}\ndirectory = '{folder}'\n{limited}")
    return "\n".join(kinds)


def _over_the_grace(service: ServiceProcess, jobs: list[dict[str, Any]], way: str) -> list[float]:
    """Return the seconds beyond the limit of each job, counted from its begin, as it may have waited for a process."""
    begun = {id: int(instant) // 1_000 for id, instant in map(str.split, _lines(service.folder / "begun.txt"))}
    allowed = 0.0 if way in ("die", "command-die") else TIMEOUT + GRACE
    starts = {job["id"]: _instant(job["started_at"]) if "-" in way else begun[job["id"]] for job in jobs}
    return [(_instant(job["finished_at"]) - starts[job["id"]]) / SECOND - allowed for job in jobs]


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines()


def _instant(text: str) -> int:
    return parse_instant(text, round(time.time() * SECOND), 3600)
