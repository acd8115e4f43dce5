"""The CPU cost of API requests, compared with a bare handler."""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from statistics import median

from tests.bench.ground import Cpu, Ground, get, port_of
from tests.bench.jobs import ECHO, WEEK, webhook
from tests.bench.load import request, send, stream
from tests.bench.verdicts import Findings, Measure, Series
from tests.support.process import ServiceProcess

LINES = 1_000


async def measure_requests(ground: Ground, number: int) -> Findings:
    """POST, batch and GET of webhooks and of toys on a store that begins empty, each round beside the bare handler."""
    bare, posts, batches, gets, real_posts, real_lines, real_gets = [], [], [], [], [], [], []
    with ground.service("requests") as service:
        port, pid = port_of(service), service.pid
        await _post(service, number // 4)
        await cost(ground.bare_pid, ground.bare_port, request("POST", "/", ECHO), number // 4, 201)
        for _ in range(ground.rounds):
            bare.append(await cost(ground.bare_pid, ground.bare_port, request("POST", "/", ECHO), number, 201))
            posts.append(await cost(pid, port, request("POST", "/v1/jobs", ECHO), number, 201))
            batches.append(await cost_of_lines(service, max(5, number // 500)))
            (made,) = await send(port, [request("POST", "/v1/jobs", ECHO)], status=201, connections=1)
            gets.append(await cost(pid, port, request("GET", made.location.decode()), number, 200))
            real_posts.append(await cost_of_posts(service, f"post{len(bare)}", number // 2))
            real_lines.append(await cost_of_webhook_lines(service, f"batch{len(bare)}", max(5, number // 500)))
            real_gets.append(await cost_of_older(service, number))
    post, batch, get, bare_post = median(posts), median(batches), median(gets), median(bare)
    against = f"bare 201: {bare_post:.1f} µs"
    measures = [
        _ratio("durable POST of a webhook: CPU / bare 201", 2.6, 2.0, median(real_posts), bare_post, against),
        _ratio("line of 1,000 webhooks: CPU / bare 201", 0.7, 0.4, median(real_lines), bare_post, against),
        _ratio("GET of an older webhook: CPU / bare 201", 1.5, 1.2, median(real_gets), bare_post, against),
        _ratio("durable POST, 64 connections: CPU / bare 201", 3.0, 2.2, post, bare_post, against),
        _ratio("batch of 1,000 lines: CPU per job / bare 201", 0.5, 0.25, batch, bare_post, against),
        _ratio("GET by id: CPU / bare 201", 2.0, 1.5, get, bare_post, against),
    ]
    return Findings(measures=measures)


async def measure_many(ground: Ground, sizes: tuple[int, ...], number: int, most: int | None = None) -> Findings:
    """The same requests with ever more jobs waiting, what these take in memory, and a restart with them; then, if there
    is a `most`, with as many more."""
    few, many = sizes[0], sizes[-1]
    posts: dict[int, float] = {}
    gets: dict[int, float] = {}
    with ground.service("many") as service:
        await _fill(service, few)
        await _post(service, number)
        resident = service.resident_bytes()
        began = time.perf_counter()
        for size, earlier in zip(sizes, (few, *sizes), strict=False):
            await _fill(service, size - earlier)
            posts[size], gets[size] = await _both(ground, service, number)
        filled = f"{(many - few) / (time.perf_counter() - began):,.0f} jobs/s submitted, pauses to measure included"
        measures = [
            _memory(few, many, service.resident_bytes() - resident, submitted=len(sizes) * ground.rounds * number),
            Measure(
                name=f"slowest answer with {many:.0e} waiting",
                must=100,
                goal=10,
                figure=await _longest_stall(service, number),
                unit="ms",
                detail=filled,
            ),
            await _restart(service, many, must=5, goal=1.5),
        ]
        if most is not None:
            resident = service.resident_bytes()
            await _fill(service, most - many)
            posts[most], gets[most] = await _both(ground, service, number)
            measures.append(_memory(many, most, service.resident_bytes() - resident, submitted=ground.rounds * number))
            measures.append(await _restart(service, most, must=5 * most / many, goal=1.5 * most / many))
    measures += [_growth("POST", posts), _growth("GET", gets)]
    return Findings(measures=measures, series=[_cost_line("durable POST", posts), _cost_line("GET by id", gets)])


def _memory(few: int, many: int, grown: int, *, submitted: int) -> Measure:
    """Return the memory per waiting job; the measured requests `submitted` further jobs."""
    name = f"memory per waiting job, {few:.0e} to {many:.0e}"
    return Measure(name=name, must=100, goal=24, figure=grown / (many - few + submitted), unit="B")


def _growth(name: str, costs: dict[int, float]) -> Measure:
    (few, *_, many), detail = costs, ", ".join(f"{cost:.2f}" for cost in costs.values())
    name = f"growth of {name} CPU, {few:.0e} to {many:.0e}"
    return Measure(name=name, must=1.5, goal=1.1, figure=costs[many] / costs[few], detail=f"{detail} × bare 201")


async def _restart(service: ServiceProcess, waiting: int, *, must: float, goal: float) -> Measure:
    service.stop()
    ready = service.start()
    return Measure(name=f"restart to ready with {waiting:.0e} waiting", must=must, goal=goal, figure=ready, unit="s")


async def _both(ground: Ground, service: ServiceProcess, number: int) -> tuple[float, float]:
    """Return the cost of a POST and of a GET, as multiples of the bare handler's in the same rounds."""
    port = port_of(service)
    (made,) = await send(port, [request("POST", "/v1/jobs", ECHO)], status=201, connections=1)
    wanted = request("GET", made.location.decode())
    bare, posts, gets = [], [], []
    for _ in range(ground.rounds):
        bare.append(await cost(ground.bare_pid, ground.bare_port, request("POST", "/", ECHO), number, 201))
        posts.append(await _post(service, number))
        gets.append(await cost(service.pid, port, wanted, number, 200))
    return median(posts) / median(bare), median(gets) / median(bare)


def _cost_line(name: str, costs: dict[int, float]) -> Series:
    return Series(
        panel="CPU of a request by the number of waiting jobs",
        name=name,
        x_name="jobs waiting",
        y_name="× bare 201",
        points=tuple(costs.items()),
    )


async def _post(service: ServiceProcess, number: int) -> float:
    return await cost(service.pid, port_of(service), request("POST", "/v1/jobs", ECHO), number, 201)


async def cost(pid: int, port: int, wanted: bytes, number: int, status: int) -> float:
    """Return the CPU microseconds per request."""
    cpu = Cpu(pid)
    await send(port, itertools.repeat(wanted, number), status=status)
    return cpu.microseconds() / number


async def cost_of_lines(service: ServiceProcess, batches: int) -> float:
    wanted = request("POST", "/v1/jobs/batch", (ECHO + b"\n") * LINES, "application/x-ndjson")
    cpu = Cpu(service.pid)
    await send(port_of(service), itertools.repeat(wanted, batches), status=200, connections=1)
    return cpu.microseconds() / batches / LINES


async def cost_of_posts(service: ServiceProcess, load: str, number: int) -> float:
    """CPU microseconds per webhook that is submitted by itself."""
    wanted = [request("POST", "/v1/jobs", webhook(index, load)) for index in range(number)]
    cpu = Cpu(service.pid)
    await send(port_of(service), wanted, status=201)
    return cpu.microseconds() / number


async def cost_of_webhook_lines(service: ServiceProcess, load: str, batches: int) -> float:
    """CPU microseconds per webhook that is submitted as a line of a batch."""
    bodies = [b"\n".join(webhook(index, f"{load}.{batch}") for index in range(LINES)) for batch in range(batches)]
    wanted = [request("POST", "/v1/jobs/batch", body + b"\n", "application/x-ndjson") for body in bodies]
    cpu = Cpu(service.pid)
    await send(port_of(service), wanted, status=200, connections=1)
    return cpu.microseconds() / batches / LINES


async def cost_of_older(service: ServiceProcess, number: int) -> float:
    """CPU microseconds per read of webhooks that are not among the jobs written last."""
    jobs = (await get(port_of(service), "/v1/jobs?queue=hooks&limit=1000"))["jobs"]
    wanted = itertools.islice(itertools.cycle([request("GET", f"/v1/jobs/{job['id']}") for job in jobs]), number)
    cpu = Cpu(service.pid)
    await send(port_of(service), wanted, status=200)
    return cpu.microseconds() / number


async def _fill(service: ServiceProcess, number: int) -> None:
    """Submit jobs due at random times of a week that begins in an hour."""
    first = time.time() + 3600
    line = b'{"kind":"echo","params":{"order":%d},"execute_at":%.3f}\n'
    chunks = (
        b"".join(line % (index, first + index * 7919 % WEEK) for index in range(start, min(number, start + LINES)))
        for start in range(0, number, LINES)
    )
    created = await stream(port_of(service), chunks)
    assert created == number, f"{created} of {number} jobs were created"
    await asyncio.to_thread(os.sync)  # so that pending writes of the system do not disturb the next measurement


async def _longest_stall(service: ServiceProcess, number: int) -> float:
    """Return the duration of the slowest of many small requests in sequence, in milliseconds."""
    port = port_of(service)
    answers = await send(port, itertools.repeat(request("GET", "/livez"), number), status=200, connections=1)
    return max(answer.seconds for answer in answers) * 1e3


def _ratio(name: str, must: float, goal: float, figure: float, bare: float, against: str) -> Measure:
    detail = f"{figure:.1f} µs, {against}"
    return Measure(name=name, must=must, goal=goal, figure=figure / bare, unit="×", detail=detail)
