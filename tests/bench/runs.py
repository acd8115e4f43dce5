"""How jobs run: how late they reach a receiver, and what it costs to fire and complete those that are due."""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections.abc import Iterator
from statistics import median

import orjson

from tests.bench.ground import Cpu, Ground, get, port_of, wait_until_done
from tests.bench.load import HOST, request, send, stream
from tests.bench.verdicts import Measure
from tests.support.process import ServiceProcess

LINES = 1_000
LEAD = 2.0  # seconds between the submit and the first that is due


async def measure_lateness(ground: Ground, number: int, span: float) -> list[Measure]:
    """Few webhooks at random instants, beside a bare timer for the same ones."""
    with ground.service("lateness") as service:
        instants = _instants(number, span)
        with ground.bare_timer(instants) as lateness:
            late = await _fire(ground, service, instants)
            bare = await asyncio.to_thread(lateness)
    p50, p99 = _at(late, 0.5), _at(late, 0.99)
    bare50, bare99 = _at(bare, 0.5), _at(bare, 0.99)
    what = f"{number:,} webhooks in {span:g} s"
    return [
        Measure(name=f"{what}: early", must=0, goal=0, figure=sum(ms < 0 for ms in late)),
        _late(f"{what}: p50 late, beyond call_at", 2, 0.7, p50 - bare50, f"{p50:.2f}, call_at {bare50:.2f} ms"),
        _late(f"{what}: p99 late, beyond call_at", 10, 1, p99 - bare99, f"{p99:.2f}, call_at {bare99:.2f} ms"),
    ]


async def measure_rush(ground: Ground, rate: int, span: float) -> list[Measure]:
    """Webhooks at random instants, so many a second."""
    with ground.service("rush") as service:
        late = await _fire(ground, service, _instants(int(rate * span), span))
    detail = f"p50 {_at(late, 0.5):.1f} ms; early: {sum(ms < 0 for ms in late)}"
    return [_late(f"{rate:,} webhooks/s for {span:g} s: p99 late", 100, 15, _at(late, 0.99), detail)]


async def measure_drains(ground: Ground, number: int) -> list[Measure]:
    """Many jobs due at one instant: webhooks beside a bare client, and no-ops."""
    client, hooks, nothings, stalls = [], [], [], []
    with ground.service("drains") as service:
        for index in range(max(1, ground.rounds // 2)):
            client.append(await asyncio.to_thread(ground.bare_client, number))
            await get(ground.sink_port, "/")
            url = f"http://{HOST}:{ground.sink_port}"
            hooks.append((await _drain(service, f"hooks{index}", _hook(f"{url}/0"), number))[0])
            cost, stall = await _drain(service, f"nothings{index}", b'"kind":"nothing"', number)
            nothings.append(cost)
            stalls.append(stall)
    bare, hook, nothing = median(client), median(hooks), median(nothings)
    due = f"{number:,}"
    return [
        Measure(
            name=f"drain of {due} due webhooks: CPU / client",
            must=2.0,
            goal=1.3,
            figure=hook / bare,
            unit="×",
            detail=f"{hook:.1f} µs, bare client: {bare:.1f} µs",
        ),
        Measure(name=f"drain of {due} due no-ops: CPU per job", must=15, goal=5, figure=nothing, unit="µs"),
        Measure(name=f"slowest answer, {due} no-ops due at once", must=500, goal=100, figure=median(stalls), unit="ms"),
    ]


async def _fire(ground: Ground, service: ServiceProcess, instants: list[int]) -> list[float]:
    """Submit webhooks for these instants; by how many milliseconds each reached the sink late."""
    url = f"http://{HOST}:{ground.sink_port}"
    lines = (
        b'{"queue":"hooks","execute_at":%.6f,%s}\n' % (instant / 1e6, _hook(f"{url}/{instant}")) for instant in instants
    )
    assert await stream(port_of(service), _chunks(lines)) == len(instants)
    if time.time_ns() // 1000 > min(instants):
        raise TimeoutError("the machine is too slow to submit the jobs before the first is due")
    await asyncio.sleep(max(instants) / 1e6 - time.time())
    await wait_until_done(service, "hooks")
    came = await get(ground.sink_port, "/")
    assert len(came) == len(instants), f"{len(came)} of {len(instants)} webhooks came"
    return [(instant - int(due)) / 1e3 for due, instant in came]


async def _drain(service: ServiceProcess, queue: str, job: bytes, number: int) -> tuple[float, float]:
    """Submit jobs for one instant; the CPU microseconds per job from then on, the slowest answer meanwhile in ms."""
    due_at = time.time() + LEAD + number / 20_000
    line = b'{"queue":"%s","execute_at":%.3f,%s}\n' % (queue.encode(), due_at, job)
    assert await stream(port_of(service), _chunks(itertools.repeat(line, number))) == number
    if time.time() > due_at:
        raise TimeoutError("the machine is too slow to submit the jobs before they are due")
    await asyncio.sleep(due_at - time.time() - 0.05)
    cpu = Cpu(service.pid)
    asking = asyncio.create_task(_slowest(port_of(service)))
    await asyncio.sleep(0.1)
    await wait_until_done(service, queue)
    asking.cancel()
    return cpu.microseconds() / number, await asking


async def _slowest(port: int) -> float:
    slowest = 0.0
    try:
        while True:
            (answer,) = await send(port, [request("GET", "/livez")], status=200, connections=1)
            slowest = max(slowest, answer.seconds)
            await asyncio.sleep(0.02)
    except asyncio.CancelledError:
        return slowest * 1e3


def _hook(url: str) -> bytes:
    return b'"kind":"http","params":%s' % orjson.dumps({"url": url, "json": {"order": 7}})


def _instants(number: int, span: float) -> list[int]:
    """Instants in microseconds, all different."""
    first = round((time.time() + LEAD) * 1e6)
    return [first + offset for offset in random.sample(range(int(span * 1e6)), number)]


def _chunks(lines: Iterator[bytes]) -> Iterator[bytes]:
    while chunk := b"".join(itertools.islice(lines, LINES)):
        yield chunk


def _at(values: list[float] | list[int], share: float) -> float:
    """The value that this share of all does not exceed; microseconds, which are whole, as milliseconds."""
    ordered = sorted(values)
    value = ordered[min(len(ordered) - 1, int(len(ordered) * share))]
    return value / 1e3 if isinstance(value, int) else value


def _late(name: str, must: float, goal: float, figure: float, detail: str) -> Measure:
    return Measure(name=name, must=must, goal=goal, figure=figure, unit="ms", detail=detail)
