"""Compare this tree with another revision: both services run side by side and are measured alternately."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from tests.bench.ground import Ground, get, port_of
from tests.bench.jobs import ECHO, no_op
from tests.bench.load import request, send
from tests.bench.requests import cost, cost_of_lines, cost_of_older, cost_of_posts, cost_of_webhook_lines
from tests.bench.runs import drain, fire_alone, hook_to
from tests.support import ROOT
from tests.support.process import ServiceProcess

NO_SLOWER = 1.05
CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class Sides:
    """Two running services: of this tree and another one, or on two stores."""

    this: ServiceProcess
    other: ServiceProcess


Part = Callable[[Ground, ServiceProcess, int], Awaitable[float]]
"""Measures one service in a numbered round; returns CPU microseconds per job or request."""


async def _post_echo(_: Ground, service: ServiceProcess, __: int) -> float:
    return await cost(service.pid, port_of(service), request("POST", "/v1/jobs", ECHO), 3_000, 201)


async def _post_webhook(_: Ground, service: ServiceProcess, round: int) -> float:
    return await cost_of_posts(service, f"post{round}", 3_000)


async def _line_echo(_: Ground, service: ServiceProcess, __: int) -> float:
    return await cost_of_lines(service, 8)


async def _line_webhook(_: Ground, service: ServiceProcess, round: int) -> float:
    return await cost_of_webhook_lines(service, f"batch{round}", 8)


async def _get_latest(_: Ground, service: ServiceProcess, __: int) -> float:
    (made,) = await send(port_of(service), [request("POST", "/v1/jobs", ECHO)], status=201, connections=1)
    return await cost(service.pid, port_of(service), request("GET", made.location.decode()), 3_000, 200)


async def _get_older(_: Ground, service: ServiceProcess, __: int) -> float:
    return await cost_of_older(service, 3_000)


async def _drain_no_ops(_: Ground, service: ServiceProcess, round: int) -> float:
    return await drain(service, f"no-ops{round}", no_op, 10_000)


async def _drain_webhooks(ground: Ground, service: ServiceProcess, round: int) -> float:
    await get(ground.sink_port, "/")
    return await drain(service, f"webhooks{round}", hook_to(ground), 5_000)


async def _webhook_alone(ground: Ground, service: ServiceProcess, round: int) -> float:
    return await fire_alone(ground, service, f"alone{round}")


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
    """Print the cost of each part as a ratio of this tree to the other; return 1 if any part is slower."""
    parts = {name: part for name, part in PARTS.items() if only in name}
    with checked_out(revision) as tree, ground.service("this") as this, ground.service("other", root=tree) as other:
        sides = Sides(this=this, other=other)
        figures = await measure_pairs(ground, sides, parts, pairs)
    print(f"\nthis tree against {revision}, CPU, {pairs} pairs\n")
    print(f"{'':28}{'other':>9}{'this':>9}{'ratio':>8}   {CONFIDENCE:.0%} interval")
    slower = [name for name, measured in figures.items() if not _show(name, *measured)]
    print("\n" + (f"SLOWER: {', '.join(slower)}" if slower else "no slower"))
    return int(bool(slower))


async def measure_pairs(
    ground: Ground, sides: Sides, parts: dict[str, Part], pairs: int
) -> dict[str, tuple[list[float], list[float]]]:
    """Return the costs of each part, of the other side and of this one."""
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
    """Return the 95 % confidence interval of the median, for any distribution."""
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
    """Check out another revision into a temporary work tree."""
    folder = Path(subprocess.run(["mktemp", "-d"], capture_output=True, check=True, text=True).stdout.strip()) / "tree"
    git = ["git", "-C", str(ROOT), "worktree"]
    subprocess.run([*git, "add", "--detach", "--quiet", str(folder), revision], check=True)
    try:
        yield folder
    finally:
        subprocess.run([*git, "remove", "--force", str(folder)], check=True)
