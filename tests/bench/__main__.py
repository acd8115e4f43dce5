"""Measure the running service beside yardsticks in the same run: python -m tests.bench [--quick] [--plot FILE]"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import sys
import time
from collections.abc import Callable, Coroutine
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import orjson

from erelong import __version__
from tests.bench.against import compare
from tests.bench.beside import measure_beside
from tests.bench.ground import Ground
from tests.bench.imports import measure_imports
from tests.bench.plot import plot
from tests.bench.requests import measure_many, measure_requests
from tests.bench.runs import measure_alone, measure_drains, measure_lateness, measure_rush, measure_second
from tests.bench.verdicts import Findings, table
from tests.support.process import HAS_PROC


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """The amount of load in each part."""

    rounds: int
    requests: int
    late: int
    span: float
    rush_span: float
    drain: int
    due: int
    imports: int
    waiting: tuple[int, ...]
    most: int | None = None


FULL = Size(
    rounds=5,
    requests=10_000,
    late=1_000,
    span=20.0,
    rush_span=4.0,
    drain=20_000,
    due=1_000_000,
    imports=300_000,
    waiting=(10_000, 100_000, 1_000_000),
)
QUICK = Size(
    rounds=2,
    requests=3_000,
    late=200,
    span=4.0,
    rush_span=1.0,
    drain=5_000,
    due=50_000,
    imports=40_000,
    waiting=(1_000, 10_000, 100_000),
)


def main() -> int:
    """Run the benchmark; return 1 when a measure misses its limit."""
    options = _parser().parse_args()
    if not HAS_PROC:
        print("the benchmark reads CPU time and memory from /proc: run it on Linux", file=sys.stderr)
        return 1
    began = time.monotonic()
    size = QUICK if options.quick else FULL
    if options.most:
        below = tuple(number for number in size.waiting if number < options.most)
        size = replace(size, waiting=below, most=options.most)
    if options.against:
        with Ground(folder=options.folder, rounds=size.rounds, cpu=options.cpu) as ground:
            return asyncio.run(compare(ground, options.against, options.pairs, options.part))
    with Ground(folder=options.folder, rounds=size.rounds, cpu=options.cpu, store=options.store) as ground:
        findings = asyncio.run(_measure(ground, size, options.only, options.store))
    measures = [measure for part in findings for measure in part.measures]
    title = f"erelong {__version__} on {options.store}, Python {platform.python_version()}, {os.cpu_count()} cores"
    if options.cpu is not None:
        title += f", the service on CPU {options.cpu}"
    print(f"\n{title}")
    print(f"{time.monotonic() - began:.0f} s{', quick: the figures are rough' if options.quick else ''}\n")
    print(table(measures))
    if options.json:
        figures = [asdict(measure) | {"verdict": measure.verdict} for measure in measures]
        options.json.write_bytes(orjson.dumps(figures, option=orjson.OPT_INDENT_2))
    if options.plot:
        options.plot.write_text(plot(title, [line for part in findings for line in part.series]))
    return int(any(measure.verdict == "MISSED" for measure in measures))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="less of everything: under a minute")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures here, too")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw lateness and costs here, as SVG")
    parser.add_argument("--most", type=_number, metavar="N", help="go up to so many waiting jobs, such as 1e7")
    parser.add_argument("--folder", type=Path, metavar="DIR", help="where the stores are put (default: the system's)")
    parser.add_argument("--store", choices=("sqlite", "postgres"), default="sqlite", help="where the jobs are stored")
    parser.add_argument("--cpu", type=int, metavar="N", help="hold the service to this one CPU")
    parser.add_argument("--against", metavar="REV", help="compare the costs of this tree with those of a revision")
    parser.add_argument("--pairs", type=int, metavar="N", default=12, help="so many times each (default: 12)")
    parser.add_argument("--part", default="", metavar="TEXT", help="compare only what has this in its name")
    parser.add_argument("--only", nargs="+", choices=PARTS | BESIDE, help="measure only these parts")
    return parser


def _number(text: str) -> int:
    return int(float(text))


PARTS: dict[str, Callable[[Ground, Size], Coroutine[Any, Any, Findings]]] = {
    "requests": lambda ground, size: measure_requests(ground, size.requests),
    "lateness": lambda ground, size: measure_lateness(ground, size.late, size.span),
    "alone": lambda ground, _: measure_alone(ground),
    "rush": lambda ground, size: measure_rush(ground, 5_000, size.rush_span),
    "drains": lambda ground, size: measure_drains(ground, size.drain),
    "second": lambda ground, size: measure_second(ground, size.due),
    "imports": lambda ground, size: measure_imports(ground, size.imports),
    "many": lambda ground, size: measure_many(ground, size.waiting, size.requests, size.most),
}

BESIDE: dict[str, Callable[[Ground, Size], Coroutine[Any, Any, Findings]]] = {
    "beside": lambda ground, size: measure_beside(ground, size.drain)
}
"""What is measured on PostgreSQL alone."""


async def _measure(ground: Ground, size: Size, only: list[str] | None, store: str) -> list[Findings]:
    parts = PARTS if store == "sqlite" else PARTS | BESIDE
    findings = []
    for name in only or parts:
        print(f"measuring {name} …", file=sys.stderr, flush=True)
        findings.append(await parts[name](ground, size))
    return findings


if __name__ == "__main__":
    sys.exit(main())
