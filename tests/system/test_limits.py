"""Queues keep their limits under load, and a held queue does not slow the others."""

from __future__ import annotations

import asyncio
import random
import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any, NamedTuple

import pytest

from tests.support.process import HAS_PROC, ServiceProcess
from tests.system.book import install, most_at_once, read_book
from tests.system.client import Client, looks
from tests.system.trials import IS_FULL, percentile, sized

SECOND = 1_000_000
TENANTS, OF_ONE_TENANT = 50, 10_000
LIMIT = 2
SPAN = sized(2.3, 10.3)  # a little more than the slowest interval, so that a millisecond does not decide
TOLERANCE = sized(0.1, 0.02)
JOBS, JOBS_SPAN, ROUNDS = sized((150, 0.4, 1), (2_000, 4.0, 4))
SLOW, PAUSED = sized(500, 5_000), sized(5_000, 100_000)
MOST_LATE = sized(250, 50)  # ms; a quiet machine needs far less
CONFIG = """
[kinds.begin]
python = "functions:begin"

[kinds.note]
python = "functions:note"

[queues.mail]
concurrency = 500
label_concurrency = { label = "tenant", limit = 2 }

[queues.slow]
concurrency = 20
"""

pytestmark = [pytest.mark.real_loop, pytest.mark.timeout(sized(60, 400))]


class Rate(NamedTuple):
    """A rate limit: jobs per second, and the burst after an idle period."""

    per_second: float
    burst: int


RATES = [Rate(0.5, 1), Rate(1, 1), Rate(50, 1), Rate(50, 50), Rate(500, 1), Rate(500, 500)]


class Quickness(NamedTuple):
    """The lateness of a queue's jobs in milliseconds, and the CPU microseconds of the service per job."""

    late: list[float]
    cpu: float


@pytest.fixture
def make_busy(make_service: Callable[..., ServiceProcess]) -> Callable[[], ServiceProcess]:
    """Return a function that makes services with the kinds and queues of this module, not started."""

    def make() -> ServiceProcess:
        service = make_service(config=CONFIG)
        install(service)
        return service

    return make


async def test_tenant_with_many_due_jobs_does_not_delay_others(
    make_busy: Callable[[], ServiceProcess],
    make_client: Callable[[ServiceProcess], Client],
    figure: Callable[[str, object], None],
) -> None:
    service = make_busy()
    service.start()
    client = make_client(service)
    greedy = {"kind": "note", "params": {"sleep": 0.05}, "queue": "mail", "labels": {"tenant": "t0"}}
    ids = {answer["id"] async for answer in client.stream(greedy for _ in range(OF_ONE_TENANT))}
    async for _ in looks():
        if (await client.counts("mail"))["due"] >= OF_ONE_TENANT - 1_000:
            break

    tenants = [f"t{number}" for number in range(1, TENANTS)]
    others = [await client.submit(kind="begin", queue="mail", labels={"tenant": tenant}) for tenant in tenants]
    late = [(await client.wait_until_final(job["id"]))["late_by"] * 1000 for job in others]

    figure(f"ms late beside a tenant with {OF_ONE_TENANT} due jobs: p50, most", _shown(median(late), max(late)))
    figure("most jobs of that tenant at once", most_at_once(service, ids))
    assert median(late) < MOST_LATE
    assert most_at_once(service, ids) == LIMIT


async def test_rates_hold(
    make_busy: Callable[[], ServiceProcess],
    make_client: Callable[[ServiceProcess], Client],
    figure: Callable[[str, object], None],
) -> None:
    service = make_busy()
    service.start()
    client = make_client(service)
    begin_at = round(time.time() + sized(0.6, 2.0), 3)
    ids = {rate: await _fill_at(client, rate, begin_at) for rate in RATES}

    await asyncio.sleep(begin_at + SPAN - time.time())
    began = {run.id: run.began_at / SECOND for run in read_book(service) if run.began_at < (begin_at + SPAN) * SECOND}

    for rate in RATES:
        starts = sorted(began[id] for id in ids[rate] if id in began)
        share = _rate(starts, rate.burst) / rate.per_second
        shown = f"{len(starts)}, {share:.4f}, {_most_in_a_second(starts[rate.burst :])}"
        figure(f"{rate.per_second:g} a second, burst {rate.burst}: starts, share of the rate, most in a second", shown)
        assert _least_share(rate) <= share <= 1 + TOLERANCE


@pytest.mark.skipif(not HAS_PROC, reason="CPU time is read from /proc")
async def test_slow_and_paused_queues_cost_the_others_nothing(
    make_busy: Callable[[], ServiceProcess],
    make_client: Callable[[ServiceProcess], Client],
    figure: Callable[[str, object], None],
) -> None:
    services = {name: make_busy() for name in ("alone", "slow", "paused")}
    await asyncio.gather(*(asyncio.to_thread(service.start) for service in services.values()))
    clients = {name: make_client(service) for name, service in services.items()}
    await clients["paused"].ask("POST", "/v1/queues/paused/pause")
    await _fill(clients["paused"], "paused", PAUSED, None)
    await _fill(clients["slow"], "slow", SLOW, None, kind="echo", params={"sleep": 600})
    await _wait_until_due(clients["paused"], "paused", PAUSED)
    await _wait_until_due(clients["slow"], "slow", SLOW - 20)

    seen: dict[str, list[Quickness]] = {name: [] for name in services}
    for _ in range(ROUNDS):
        for name, service in services.items():
            seen[name].append(await _measure(service, clients[name]))

    for name, rounds in seen.items():
        late = [ms for quickness in rounds for ms in quickness.late]
        spread = _shown(percentile(late, 0.5), percentile(late, 0.99), max(late))
        cpu = _shown(*(quickness.cpu for quickness in rounds))
        figure(f"beside {name}: ms late p50, p99, most; CPU µs per job in each round", f"{spread}; {cpu}")
        assert percentile(late, 0.99) < MOST_LATE
    assert not IS_FULL or _least_cpu(seen["paused"]) < 1.15 * _least_cpu(seen["alone"])
    assert (await clients["paused"].counts("paused"))["due"] == PAUSED


async def _fill(
    client: Client, queue: str, number: int, at: float | None, *, kind: str = "begin", params: Any = None
) -> Sequence[str]:
    job = {"kind": kind, "queue": queue, "params": params or {}, **({"execute_at": at} if at else {})}
    return [answer["id"] async for answer in client.stream(job for _ in range(number))]


async def _fill_at(client: Client, rate: Rate, at: float) -> Sequence[str]:
    """Submit more jobs than a queue of this rate can start in the time."""
    queue = f"rate-{rate.per_second:g}-{rate.burst}"
    await client.ask("PUT", f"/v1/queues/{queue}", {"rate": rate._asdict(), "concurrency": 10_000})
    return await _fill(client, queue, round((SPAN + 1) * rate.per_second) + rate.burst, at)


async def _wait_until_due(client: Client, queue: str, number: int) -> None:
    async for _ in looks(60.0):
        if (await client.counts(queue))["due"] == number:
            return


async def _measure(service: ServiceProcess, client: Client) -> Quickness:
    """Measure the jobs of a separate queue, due at random instants and submitted in advance."""
    first = time.time() + sized(0.2, 1.0)
    instants = [round(first + random.random() * JOBS_SPAN, 6) for _ in range(JOBS)]
    jobs = ({"kind": "begin", "queue": "quick", "execute_at": instant} for instant in instants)
    ids = [answer["id"] async for answer in client.stream(jobs)]
    due = {id: round(instant * SECOND) for id, instant in zip(ids, instants, strict=True)}
    before = service.cpu_seconds()
    await asyncio.sleep(first + JOBS_SPAN - time.time())
    await client.wait_until_done(queue="quick")
    cpu = (service.cpu_seconds() - before) / JOBS * 1e6
    late = [(run.began_at - due[run.id]) / 1000 for run in read_book(service) if run.id in due]
    assert len(late) == JOBS
    return Quickness(late, cpu)


def _least_share(rate: Rate) -> float:
    """Return the least accepted share: a bucket of one saves no tokens, so that a busy machine loses starts."""
    return 1 - TOLERANCE if IS_FULL or rate.burst >= rate.per_second else 0.5


def _rate(starts: list[float], burst: int) -> float:
    """Return starts per second beyond the burst, counted from the first, since the bucket fills during the burst."""
    return (len(starts) - burst) / (starts[-1] - starts[0])


def _most_in_a_second(starts: list[float]) -> int:
    return max(bisect_right(starts, start + 1.0) - index for index, start in enumerate(starts)) if starts else 0


def _least_cpu(rounds: list[Quickness]) -> float:
    return min(quickness.cpu for quickness in rounds)


def _shown(*values: float) -> str:
    return " ".join(f"{value:.2f}" for value in values)
