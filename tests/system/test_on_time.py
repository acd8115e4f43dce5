"""Jobs run on time on both event loops, none early, and the service sleeps in between."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from statistics import median

import pytest

from tests.support.process import HAS_PROC, ServiceProcess
from tests.system.book import install, read_book
from tests.system.client import Client
from tests.system.trials import percentile, sized

JOBS, SPAN = sized((1_000, 2.0), (10_000, 10.0))
TRIES = sized(5, 20)
IDLE = sized(1.0, 10.0)
CONFIG = '[kinds.begin]\npython = "functions:begin"\n'
SECOND = 1_000_000

pytestmark = [
    pytest.mark.real_loop,
    pytest.mark.timeout(sized(30, 120)),
    pytest.mark.parametrize("loop", ["uvloop", "asyncio"]),
]


async def test_near_job_runs_on_time_while_the_scheduler_sleeps_until_a_far_one(
    make_service: Callable[..., ServiceProcess],
    make_client: Callable[[ServiceProcess], Client],
    figure: Callable[[str, object], None],
    loop: str,
) -> None:
    service = make_service(config=CONFIG, settings={"server.loop": loop})
    install(service)
    service.start()
    client = make_client(service)
    await client.submit(kind="begin", delay=3600)
    await asyncio.sleep(0.3)

    due: dict[str, int] = {}
    for _ in range(TRIES):
        at = round(time.time() + 1, 3)
        due[(await client.submit(kind="begin", execute_at=at))["id"]] = round(at * SECOND)
        await asyncio.sleep(0.2)
    await client.wait_until_done(waiting=1)
    late = [(run.began_at - due[run.id]) / 1000 for run in read_book(service)]

    figure("ms late, 1 s ahead", " ".join(f"{ms:.2f}" for ms in sorted(late)))
    assert len(late) == TRIES
    assert min(late) >= 0
    assert median(late) < 5


async def test_many_jobs_at_random_instants_are_never_early(
    make_service: Callable[..., ServiceProcess],
    make_client: Callable[[ServiceProcess], Client],
    figure: Callable[[str, object], None],
    loop: str,
) -> None:
    service = make_service(config=CONFIG, settings={"server.loop": loop})
    install(service)
    service.start()
    client = make_client(service)
    first = time.time() + sized(1.5, 4.0)
    instants = [round(first + random.random() * SPAN, 6) for _ in range(JOBS)]
    answers = client.stream({"kind": "begin", "execute_at": instant} for instant in instants)
    ids = [answer["id"] async for answer in answers]
    due = {id: round(instant * SECOND) for id, instant in zip(ids, instants, strict=True)}
    assert time.time() < first, "the machine is too slow to submit so many before the first is due"

    before = service.cpu_seconds() if HAS_PROC else 0.0
    await asyncio.sleep(first + SPAN - time.time())
    await client.wait_until_done()
    spent = service.cpu_seconds() - before if HAS_PROC else 0.0
    late = [(run.began_at - due[run.id]) / 1000 for run in read_book(service)]

    figure(f"{JOBS} jobs in {SPAN:g} s, CPU µs per job", f"{spent / JOBS * 1e6:.0f}")
    figure("ms late: least, p50, p99, most", _spread(late))
    assert len(late) == JOBS
    assert min(late) >= 0
    assert percentile(late, 0.5) < 5
    assert spent < SPAN / 2


@pytest.mark.skipif(not HAS_PROC, reason="CPU time is read from /proc")
async def test_idle_service_uses_no_cpu(
    make_service: Callable[..., ServiceProcess],
    make_client: Callable[[ServiceProcess], Client],
    figure: Callable[[str, object], None],
    loop: str,
) -> None:
    service = make_service(settings={"server.loop": loop})
    service.start()
    await make_client(service).submit(kind="echo", delay=3600)
    await asyncio.sleep(0.3)

    before = service.cpu_seconds()
    await asyncio.sleep(IDLE)
    spent = service.cpu_seconds() - before

    figure(f"CPU ms in {IDLE:g} s of waiting", f"{spent * 1000:.0f}")
    assert spent <= 0.01 * IDLE + 0.01


def _spread(late: list[float]) -> str:
    return " ".join(f"{ms:.2f}" for ms in (min(late), percentile(late, 0.5), percentile(late, 0.99), max(late)))
