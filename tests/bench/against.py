"""Is this tree slower than another revision? Both services run side by side and are measured in turn, pair by pair."""

from __future__ import annotations

import asyncio
import itertools
import math
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import orjson

from tests.bench.ground import Cpu, Ground, get, port_of
from tests.bench.load import HOST, request, send, stream
from tests.bench.requests import BODY, LINES, WEEK, cost, cost_of_lines
from tests.bench.runs import drain
from tests.support import ROOT
from tests.support.process import ServiceProcess

NO_SLOWER = 1.05
CONFIDENCE = 0.95
ALONE = 100  # webhooks, one by one
ALONE_APART = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Sides:
    """This tree and the other one, each with a service that runs."""

    this: ServiceProcess
    other: ServiceProcess


Part = Callable[[Ground, ServiceProcess, int], Awaitable[float]]
"""Measures one service once; the number tells rounds apart. Returns CPU microseconds per job or request."""


async def _post_echo(_: Ground, service: ServiceProcess, __: int) -> float:
    return await cost(service.pid, port_of(service), request("POST", "/v1/jobs", BODY), 3_000, 201)


async def _post_webhook(_: Ground, service: ServiceProcess, round: int) -> float:
    wanted = (request("POST", "/v1/jobs", _hook(index, f"post{round}")) for index in range(3_000))
    cpu = Cpu(service.pid)
    await send(port_of(service), wanted, status=201)
    return cpu.microseconds() / 3_000


async def _line_echo(_: Ground, service: ServiceProcess, __: int) -> float:
    return await cost_of_lines(service, 8)


async def _line_webhook(_: Ground, service: ServiceProcess, round: int) -> float:
    batches = [
        b"\n".join(_hook(index, f"batch{round}.{batch}") for index in range(LINES)) + b"\n" for batch in range(1, 9)
    ]
    wanted = [request("POST", "/v1/jobs/batch", batch, "application/x-ndjson") for batch in batches]
    cpu = Cpu(service.pid)
    await send(port_of(service), wanted, status=200, connections=1)
    return cpu.microseconds() / len(batches) / LINES


async def _get_latest(_: Ground, service: ServiceProcess, __: int) -> float:
    (made,) = await send(port_of(service), [request("POST", "/v1/jobs", BODY)], status=201, connections=1)
    return await cost(service.pid, port_of(service), request("GET", made.location.decode()), 3_000, 200)


async def _get_older(_: Ground, service: ServiceProcess, __: int) -> float:
    jobs = (await get(port_of(service), "/v1/jobs?queue=hooks&limit=1000"))["jobs"]
    wanted = itertools.islice(itertools.cycle([request("GET", f"/v1/jobs/{job['id']}") for job in jobs]), 3_000)
    cpu = Cpu(service.pid)
    await send(port_of(service), wanted, status=200)
    return cpu.microseconds() / 3_000


async def _drain_no_ops(_: Ground, service: ServiceProcess, round: int) -> float:
    return await drain(service, f"no-ops{round}", b'"kind":"nothing"', 10_000)


async def _drain_webhooks(ground: Ground, service: ServiceProcess, round: int) -> float:
    await get(ground.sink_port, "/")
    params = orjson.dumps({"url": f"http://{HOST}:{ground.sink_port}/0", "json": {"order": 7}})
    return await drain(service, f"webhooks{round}", b'"kind":"http","params":%s' % params, 5_000)


async def _webhook_alone(ground: Ground, service: ServiceProcess, round: int) -> float:
    await get(ground.sink_port, "/")
    first = time.time() + 0.5
    params = orjson.dumps({"url": f"http://{HOST}:{ground.sink_port}/0", "json": {"order": 7}})
    line = b'{"kind":"http","queue":"alone%d","execute_at":%.4f,"params":%s}\n'
    lines = [line % (round, first + index * ALONE_APART, params) for index in range(ALONE)]
    assert await stream(port_of(service), [b"".join(lines)]) == ALONE
    await asyncio.sleep(first - 0.1 - time.time())
    cpu = Cpu(service.pid)
    await asyncio.sleep(ALONE * ALONE_APART + 0.3)
    return cpu.microseconds() / ALONE


PARTS: dict[str, Part] = {
    "POST of an echo": _post_echo,
    "POST of a webhook": _post_webhook,
    "line of a batch, echo": _line_echo,
    "line of a batch, webhook": _line_webhook,
    "GET of the last job": _get_latest,
    "GET of an older job": _get_older,
    "no-op drained": _drain_no_ops,
    "webhook drained": _drain_webhooks,
    "webhook alone": _webhook_alone,
}


async def compare(ground: Ground, revision: str, pairs: int, only: str) -> int:
    """Print the ratio of each part, this tree's cost over the other's; the exit code says whether none is slower."""
    parts = {name: part for name, part in PARTS.items() if only in name}
    with checked_out(revision) as tree, ground.service("this") as this, ground.service("other", root=tree) as other:
        sides = Sides(this=this, other=other)
        figures = await _measure(ground, sides, parts, pairs)
    print(f"\nthis tree against {revision}, CPU, {pairs} pairs\n")
    print(f"{'':28}{'other':>9}{'this':>9}{'ratio':>8}   {CONFIDENCE:.0%} interval")
    slower = [name for name, measured in figures.items() if not _show(name, *measured)]
    print("\n" + (f"SLOWER: {', '.join(slower)}" if slower else "no slower"))
    return int(bool(slower))


async def _measure(
    ground: Ground, sides: Sides, parts: dict[str, Part], pairs: int
) -> dict[str, tuple[list[float], list[float]]]:
    figures: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in parts}
    for round in range(pairs + 1):  # the first warms up
        print(f"round {round} of {pairs} …", file=sys.stderr, flush=True)
        for name, part in parts.items():
            sequence = [sides.other, sides.this] if round % 2 else [sides.this, sides.other]
            costs = {id(side): await part(ground, side, round) for side in sequence}
            if round:
                figures[name][0].append(costs[id(sides.other)])
                figures[name][1].append(costs[id(sides.this)])
    return figures


def _show(name: str, other: list[float], this: list[float]) -> bool:
    """Print one row; return whether this tree is no slower."""
    ratios = [one / another for one, another in zip(this, other, strict=True)]
    middle, (low, high) = median(ratios), interval(ratios)
    is_fine = middle <= NO_SLOWER and low <= 1.0
    costs = f"{median(other):7.1f}µs{median(this):7.1f}µs"
    print(f"{name:28}{costs}{middle:8.3f}   {low:.3f} … {high:.3f}{'' if is_fine else '   SLOWER'}")
    return is_fine


def interval(values: list[float]) -> tuple[float, float]:
    """The interval that holds the true median with at least 95 % confidence, whatever the distribution."""
    ordered, number = sorted(values), len(values)
    tail, cut = 0.0, 0
    while cut < number // 2:
        tail += math.comb(number, cut) / 2**number
        if 2 * tail > 1 - CONFIDENCE:
            break
        cut += 1
    cut = max(cut - 1, 0)
    return ordered[cut], ordered[number - 1 - cut]


@contextmanager
def checked_out(revision: str) -> Iterator[Path]:
    """A work tree of another revision."""
    folder = Path(subprocess.run(["mktemp", "-d"], capture_output=True, check=True, text=True).stdout.strip()) / "tree"
    git = ["git", "-C", str(ROOT), "worktree"]
    subprocess.run([*git, "add", "--detach", "--quiet", str(folder), revision], check=True)
    try:
        yield folder
    finally:
        subprocess.run([*git, "remove", "--force", str(folder)], check=True)


def _hook(index: int, load: str) -> bytes:
    """A webhook as applications send it; every third has a key and labels."""
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 3_600 + index * 7_919 % WEEK))
    params = {
        "url": "https://app.example/hooks/reminders",
        "method": "POST",
        "headers": {"X-Tenant": "t-1048"},
        "json": {
            "order": index,
            "customer": "c-20931",
            "text": "Your order ships tomorrow.",
            "channel": ["mail", "sms"],
        },
    }
    job = {"kind": "http", "queue": "hooks", "execute_at": at, "params": params}
    if index % 3 == 0:
        job |= {"key": f"{load}-{index}", "labels": {"tenant": f"t-{index % 50}"}}
    return orjson.dumps(job)
