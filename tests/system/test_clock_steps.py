"""The wall clock of a service under load steps by an hour: no job is early, none runs twice."""

from __future__ import annotations

import asyncio
import random
import time
from bisect import bisect_right
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.support.process import ServiceProcess
from tests.system.book import install
from tests.system.client import Client, looks
from tests.system.stepped_clock import SteppedClock, build
from tests.system.trials import percentile, sized

HOUR = 3_600.0
STEPS = sized((HOUR, -HOUR, HOUR), (HOUR, -HOUR, HOUR, HOUR, -HOUR, -HOUR, HOUR) * 5)
STRETCH = sized(0.7, 2.0)  # seconds between two steps
WAITING = sized(300, 1_000)  # jobs that a step forward makes due
SLACK = 0.7  # seconds that a busy machine may be late beyond the promise
RATE = 20
CONFIG = """
[workers]
grace = 0.2

[kinds]
tell = { python = "functions:tell_time", retry = { delay = 0.2, jitter = 0.0 } }
hang = { python = "functions:hang", retry = { max_attempts = 1 } }
spin = { python = "process_functions:spin", isolation = "process", retry = { max_attempts = 1 } }
work = { pull = true, retry = { max_attempts = 1 } }

[queues]
rated = { rate = { per_second = 20, burst = 1 } }
"""

pytestmark = [pytest.mark.real_loop, pytest.mark.timeout(sized(40, 300))]


class Run(NamedTuple):
    """One attempt at a job, as its function saw it; `began` is on the monotonic clock."""

    id: str
    attempt: int
    due_at: int
    began: float


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("stepped_clock"))


@pytest.fixture
def clock(library: Path, tmp_path: Path) -> SteppedClock:
    return SteppedClock(library=library, file=tmp_path / "off")


@pytest.fixture
def start_service(make_service: Callable[..., ServiceProcess], clock: SteppedClock) -> Callable[..., ServiceProcess]:
    """Return a function that starts a service on the stepped clock."""

    def start(**environment: str) -> ServiceProcess:
        service = make_service(config=CONFIG, environment=clock.environment | environment)
        install(service)
        service.start()
        return service

    return start


class Load:
    """A client that submits near and far jobs by the clock of the service; `known_at` is when it got their ids."""

    def __init__(self, *, client: Client, clock: SteppedClock) -> None:
        self.known_at: dict[str, float] = {}
        self._client = client
        self._clock = clock

    async def run(self) -> None:
        while True:
            await self.submit([self._clock.now() + random.uniform(-0.1, 1.5) for _ in range(5)])
            await asyncio.sleep(0.03)

    async def submit(self, instants: list[float]) -> None:
        jobs = [
            {"kind": "tell", "params": {"stumble": random.random() < 0.3}, "execute_at": round(at, 3)}
            for at in instants
        ]
        ids = await self._client.submit_batch(jobs)
        self.known_at |= dict.fromkeys(ids, time.monotonic())


async def test_steps_under_load_start_no_job_early_or_twice_and_due_jobs_within_a_second(
    start_service: Callable[..., ServiceProcess],
    make_client: Callable[[ServiceProcess], Client],
    clock: SteppedClock,
    figure: Callable[[str, object], None],
) -> None:
    service = start_service()
    client = make_client(service)
    load = Load(client=client, clock=clock)

    loading = asyncio.create_task(load.run())
    for step in STEPS:
        if step > 0:
            begin, end = clock.now() + 60, clock.now() + HOUR - 60
            await load.submit([random.uniform(begin, end) for _ in range(WAITING)])
        await asyncio.sleep(STRETCH)
        clock.step(step, service)
    await asyncio.sleep(1.0)
    loading.cancel()
    clock.step(HOUR, service)  # makes the remaining jobs due
    await client.wait_until_done()
    runs = _runs(service)
    jobs = {job["id"]: job for job in await client.list_all()}

    late = [_late(run, clock, load.known_at) for run in runs]
    assert {job["state"] for job in jobs.values()} == {"succeeded"}
    assert jobs.keys() == load.known_at.keys()
    assert sorted((run.id, run.attempt) for run in runs) == sorted(_attempts(jobs))
    assert max(late) < 1.0
    assert service.errors() == []
    figure(f"{len(runs)} attempts over {len(STEPS) + 1} steps of ±1 h: s late p50, p99, most", _spread(late))


async def test_steps_do_not_change_timeouts_leases_rates_and_waits(
    start_service: Callable[..., ServiceProcess], make_client: Callable[[ServiceProcess], Client], clock: SteppedClock
) -> None:
    service = start_service()
    client = make_client(service)
    begin_at = clock.now()
    await client.submit_batch([{"kind": "tell", "queue": "rated"}] * 200)
    held = await _lease(client, 30.0)
    measures = {
        "an async function's timeout": _until_over(client, kind="hang", timeout=1.5),
        "a process' timeout": _until_over(client, kind="spin", timeout=1.5),
        "a lease": _until_lost(client, 1.5),
        "a long-poll": _ask(client, "GET", f"/v1/jobs/{(await _far(client))['id']}?wait=1.5"),
        "a worker's wait": _ask(client, "POST", "/v1/leases", {"kinds": ["work"], "queues": ["none"], "wait": 1.5}),
    }

    measuring = asyncio.gather(*measures.values())
    for step in (HOUR, -HOUR, HOUR):
        await asyncio.sleep(0.35)
        clock.step(step, service)
    took = dict(zip(measures, await measuring, strict=True))
    status, _ = await client.ask("POST", f"/v1/leases/{held['token']}/finish")
    starts = sorted(run.began for run in _runs(service))

    assert {what: seconds for what, seconds in took.items() if not 1.3 < seconds < 1.5 + SLACK} == {}
    assert status == 200
    assert max(bisect_right(starts, start + 1.0) - index for index, start in enumerate(starts)) <= RATE + 1
    assert len(starts) > 0.5 * RATE * (clock.now() - HOUR - begin_at)


@pytest.mark.parametrize("without", [{}, {"STEPPED_CLOCK_NO_TIMERFD": "1"}], ids=["timerfd", "timer"])
async def test_step_is_logged_and_the_jobs_that_it_makes_due_or_expires_are_handled_within_a_second(
    start_service: Callable[..., ServiceProcess],
    make_client: Callable[[ServiceProcess], Client],
    clock: SteppedClock,
    without: dict[str, str],
) -> None:
    service = start_service(**without)
    client = make_client(service)
    await client.ask("POST", "/v1/queues/shut/pause")
    waiting = await client.submit(kind="tell", delay=1_800)
    expiring = await client.submit(kind="tell", queue="shut", expires_after=1_800)
    failed = await client.submit(kind="tell", params={"stumble": True}, retry={"delay": 1_800})
    await _until(client, failed["id"], lambda job: job["attempt"] == 1 and job["state"] == "scheduled")

    clock.step(HOUR, service)
    jobs = await asyncio.gather(*(client.wait_until_final(job["id"], 1.0) for job in (waiting, expiring, failed)))
    clock.step(-HOUR, service)
    later = await client.submit(kind="tell", execute_at=clock.now() + HOUR - 1)
    await asyncio.sleep(1.5)
    later = await client.read(later["id"])
    _, ready = await client.ask("GET", "/readyz")

    assert [job["state"] for job in jobs] == ["succeeded", "expired", "succeeded"]
    assert (later["state"], later["waiting_for"]) == ("scheduled", "time")
    assert ready["ready"]
    assert "stepped by -3600.0 s" in ready["checks"]["clock"]
    assert [round(event["seconds"]) for event in service.events("clock_jumped")] == [HOUR, -HOUR]
    assert "\nerelong_clock_jumps_total 2.0\n" in await client.page("/metrics")


def _runs(service: ServiceProcess) -> list[Run]:
    lines = map(str.split, (service.folder / "clocks.txt").read_text().splitlines())
    return [Run(id, int(attempt), int(due_at), float(began)) for id, attempt, due_at, began in lines]


def _late(run: Run, clock: SteppedClock, known_at: dict[str, float]) -> float:
    """Return the monotonic seconds since a job was due and, for its first attempt, since its client knew it."""
    due_since = clock.due_since(run.due_at, run.began)
    assert due_since is not None, f"{run} was early: the clock went by {clock.stretches}"
    return max(0.0, run.began - max(due_since, known_at[run.id]))


def _attempts(jobs: dict[str, Any]) -> list[tuple[str, int]]:
    return [(id, attempt["number"]) for id, job in jobs.items() for attempt in job["attempts"]]


async def _far(client: Client) -> dict[str, Any]:
    return await client.submit(kind="echo", delay=10 * HOUR)


async def _ask(client: Client, method: str, path: str, body: object = None) -> float:
    began = time.monotonic()
    status, _ = await client.ask(method, path, body)
    assert status == 200
    return time.monotonic() - began


async def _until_over(client: Client, **job: Any) -> float:
    """Return the seconds from the start of a job to its end by a timeout, as a client sees them."""
    running = await client.submit_and_wait_for_start(**job)
    began = time.monotonic()
    over = await client.wait_until_final(running["id"])
    assert over["error"]["type"] == "timeout"
    return time.monotonic() - began


async def _lease(client: Client, seconds: float) -> dict[str, Any]:
    await client.submit(kind="work", queue="lent")
    _, answer = await client.ask("POST", "/v1/leases", {"kinds": ["work"], "wait": 5, "lease": seconds})
    return dict(answer["leases"][0])


async def _until_lost(client: Client, seconds: float) -> float:
    lease = await _lease(client, seconds)
    began = time.monotonic()
    lost = await client.wait_until_final(lease["job"]["id"])
    assert lost["error"]["type"] == "lost"
    return time.monotonic() - began


async def _until(client: Client, id: str, is_so: Callable[[dict[str, Any]], bool]) -> None:
    async for _ in looks():
        if is_so(await client.read(id)):
            return


def _spread(late: list[float]) -> str:
    return " ".join(f"{seconds:.4f}" for seconds in (percentile(late, 0.5), percentile(late, 0.99), max(late)))
