"""Measures the lateness of webhooks, and the cost to start and finish due jobs."""

from __future__ import annotations

import asyncio
import itertools
import random
import re
import time
from collections.abc import Callable, Iterator
from functools import partial
from statistics import median

from tests.bench.ground import Cpu, Ground, fetch, get, port_of, wait_until_done
from tests.bench.jobs import no_op, webhook
from tests.bench.load import HOST, request, send, stream
from tests.bench.verdicts import Findings, Measure, Series
from tests.support.process import ServiceProcess

LINES = 1_000
LEAD = 2.0  # seconds between the submit and the first that is due
ALONE = 100  # webhooks, one by one
ALONE_APART = 0.02

MakeJob = Callable[..., bytes]
"""Makes the job of an index and load, with the keywords `queue` and `at`."""


async def measure_lateness(ground: Ground, number: int, span: float) -> Findings:
    """Measure a few webhooks at random instants, beside a bare timer for the same instants."""
    with ground.service("lateness") as service:
        instants = draw_instants(number, span)
        with ground.bare_timer(instants) as lateness:
            late = await fire(ground, service, instants)
            bare = await asyncio.to_thread(lateness)
    p50, p99 = quantile(late, 0.5), quantile(late, 0.99)
    bare50, bare99 = quantile(bare, 0.5), quantile(bare, 0.99)
    what = f"{number:,} webhooks in {span:g} s"
    measures = [
        Measure(name=f"{what}: early", must=0, goal=0, figure=sum(ms < 0 for ms in late)),
        _late(f"{what}: p50 late, beyond call_at", 2, 0.3, p50 - bare50, f"{p50:.2f}, call_at {bare50:.2f} ms"),
        _late(f"{what}: p99 late, beyond call_at", 10, 0.5, p99 - bare99, f"{p99:.2f}, call_at {bare99:.2f} ms"),
    ]
    return Findings(measures=measures, series=[_spread(what, late), _spread("bare call_at", bare)])


async def measure_alone(ground: Ground) -> Findings:
    """Webhooks that come due one by one."""
    with ground.service("alone") as service:
        await fire_alone(ground, service, "warm")
        costs = [await fire_alone(ground, service, f"alone{index}") / 1e3 for index in range(ground.rounds)]
    name = f"webhook due alone, {1 / ALONE_APART:.0f}/s: CPU"
    return Findings(measures=[Measure(name=name, must=1.0, goal=0.4, figure=median(costs), unit="ms")])


async def measure_rush(ground: Ground, rate: int, span: float) -> Findings:
    """Measure webhooks at random instants, at a given rate."""
    with ground.service("rush") as service:
        late = await fire(ground, service, draw_instants(int(rate * span), span))
    detail = f"p50 {quantile(late, 0.5):.1f} ms; early: {sum(ms < 0 for ms in late)}"
    what = f"{rate:,} webhooks/s"
    measure = _late(f"{what} for {span:g} s: p99 late", 100, 10, quantile(late, 0.99), detail)
    return Findings(measures=[measure], series=[_spread(what, late)])


async def measure_drains(ground: Ground, number: int) -> Findings:
    """Measure many jobs due at one instant: no-ops, and webhooks beside a bare client.

    The measures in microseconds come first: after two processes kept both CPUs busy for a second, some machines run a
    fifth slower for a few seconds, and no yardstick would show it.
    """
    client, hooks = [], []
    with ground.service("drains") as service:
        nothings = [await drain(service, f"nothings{index}", no_op, number) for index in range(ground.rounds)]
        for index in range(ground.rounds):
            client.append(await asyncio.to_thread(ground.bare_client, number))
            await get(ground.sink_port, "/")
            hooks.append(await drain(service, f"hooks{index}", hook_to(ground), number))
    bare, hook, nothing = median(client), median(hooks), median(nothings)
    due = f"{number:,}"
    measures = [
        Measure(
            name=f"drain of {due} due webhooks: CPU / client",
            must=1.3,
            goal=0.7,
            figure=hook / bare,
            unit="×",
            detail=f"{hook:.1f} µs, bare client: {bare:.1f} µs",
        ),
        Measure(name=f"drain of {due} due no-ops: CPU per job", must=10, goal=5, figure=nothing, unit="µs"),
    ]
    return Findings(measures=measures)


async def measure_second(ground: Ground, number: int) -> Findings:
    """Measure very many no-ops due in one second: all run once, and the API stays responsive."""
    with ground.service("second") as service:
        first = time.time() + LEAD + number / 10_000
        lines = (
            b'{"queue":"second","execute_at":%.6f,"kind":"nothing"}\n' % (first + index % 1_000_003 / 1_000_003)
            for index in range(number)
        )
        assert await stream(port_of(service), chunks(lines)) == number
        if time.time() > first:
            raise TimeoutError("the machine is too slow to submit the jobs before the first is due")
        await asyncio.sleep(first - time.time())
        began = time.perf_counter()
        asking = asyncio.create_task(_answers(port_of(service)))
        await wait_until_done(service, "second")
        took = time.perf_counter() - began
        asking.cancel()
        answers = await asking
        counts = (await get(port_of(service), "/v1/queues/second"))["counts"]
        page = (await fetch(port_of(service), "/metrics")).decode()
    assert counts["succeeded"] == number, f"{counts['succeeded']} of {number} jobs succeeded"
    (started,) = re.findall(r'attempts_started_total{kind="nothing"} (\S+)', page)
    assert float(started) == number, f"{number} jobs were started {started} times"
    detail = f"p99 {quantile(answers, 0.99):.1f} ms; all ran once, {number / took:,.0f} jobs/s"
    name = f"slowest answer, {number:.0e} no-ops due in one second"
    return Findings(
        measures=[Measure(name=name, must=500, goal=20, figure=max(answers), unit="ms", detail=detail)], series=[]
    )


async def fire(ground: Ground, service: ServiceProcess, instants: list[int]) -> list[float]:
    """Submit webhooks for these instants; return the lateness of each at the sink in milliseconds."""
    url = f"http://{HOST}:{ground.sink_port}"
    await get(ground.sink_port, "/")  # clears the record of the sink
    lines = (
        webhook(index, "late", url=f"{url}/{instant}", at=instant / 1e6) + b"\n"
        for index, instant in enumerate(instants)
    )
    assert await stream(port_of(service), chunks(lines)) == len(instants)
    if time.time_ns() // 1000 > min(instants):
        raise TimeoutError("the machine is too slow to submit the jobs before the first is due")
    await asyncio.sleep(max(instants) / 1e6 - time.time())
    await wait_until_done(service, "hooks")
    came = await get(ground.sink_port, "/")
    assert len(came) == len(instants), f"{len(came)} of {len(instants)} webhooks arrived"
    return [(instant - int(due)) / 1e3 for due, instant in came]


async def fire_alone(ground: Ground, service: ServiceProcess, queue: str) -> float:
    """Submit webhooks that come due one by one; return the CPU microseconds per webhook from then on."""
    await get(ground.sink_port, "/")
    first = time.time() + 0.5
    make = hook_to(ground)
    lines = [make(index, queue, queue=queue, at=first + index * ALONE_APART) + b"\n" for index in range(ALONE)]
    assert await stream(port_of(service), [b"".join(lines)]) == ALONE
    await asyncio.sleep(first - 0.1 - time.time())
    cpu = Cpu(service.pid)
    await asyncio.sleep(ALONE * ALONE_APART + 0.3)
    return cpu.microseconds() / ALONE


async def drain(service: ServiceProcess, queue: str, make: MakeJob, number: int) -> float:
    """Submit jobs for one instant; return the CPU microseconds per job from then on."""
    due_at = time.time() + LEAD + number / 10_000
    lines = (make(index, queue, queue=queue, at=due_at) + b"\n" for index in range(number))
    assert await stream(port_of(service), chunks(lines)) == number
    if time.time() > due_at:
        raise TimeoutError("the machine is too slow to submit the jobs before they are due")
    await asyncio.sleep(due_at - time.time() - 0.05)
    cpu = Cpu(service.pid)
    await asyncio.sleep(0.1)
    await wait_until_done(service, queue)
    return cpu.microseconds() / number


async def _answers(port: int) -> list[float]:
    """Send requests until cancelled; return the duration of each in milliseconds."""
    answers: list[float] = []
    try:
        while True:
            (answer,) = await send(port, [request("GET", "/v1/kinds")], status=200, connections=1)
            answers.append(answer.seconds * 1e3)
            await asyncio.sleep(0.02)
    except asyncio.CancelledError:
        return answers


def hook_to(ground: Ground) -> MakeJob:
    """Return a maker of webhooks that call the sink."""
    return partial(webhook, url=f"http://{HOST}:{ground.sink_port}/0")


def draw_instants(number: int, span: float) -> list[int]:
    """Return distinct instants in microseconds."""
    first = round((time.time() + LEAD) * 1e6)
    return [first + offset for offset in random.sample(range(int(span * 1e6)), number)]


def chunks(lines: Iterator[bytes]) -> Iterator[bytes]:
    while chunk := b"".join(itertools.islice(lines, LINES)):
        yield chunk


def quantile(values: list[float] | list[int], share: float) -> float:
    """Return a quantile; convert integer microseconds to milliseconds."""
    ordered = sorted(values)
    value = ordered[min(len(ordered) - 1, int(len(ordered) * share))]
    return value / 1e3 if isinstance(value, int) else value


def _late(name: str, must: float, goal: float, figure: float, detail: str) -> Measure:
    return Measure(name=name, must=must, goal=goal, figure=figure, unit="ms", detail=detail)


def _spread(name: str, late: list[float] | list[int]) -> Series:
    """Return the share of starts that are later than each lateness; convert integer microseconds to milliseconds."""
    shares = [step / 20 for step in range(1, 19)] + [0.9, 0.95, 0.98, 0.99, 0.995, 0.999]
    points = [(max(quantile(late, share), 0.01), 100 * (1 - share)) for share in shares]
    return Series(
        panel="Lateness: the share of webhooks that reach the receiver later than that",
        name=name,
        x_name="ms after the due time",
        y_name="% later",
        points=tuple(points),
    )
