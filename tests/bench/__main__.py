"""Measure the running service beside yardsticks in the same run: python -m tests.bench [--quick] [--json FILE]"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import sys
import time
from collections.abc import Callable, Coroutine
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import orjson

from app import __version__
from tests.bench.ground import Ground
from tests.bench.requests import measure_many, measure_requests
from tests.bench.runs import measure_drains, measure_lateness, measure_rush
from tests.bench.verdicts import Measure, table
from tests.support.process import HAS_PROC


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How much is measured."""

    rounds: int
    requests: int
    late: int
    span: float
    rush_span: float
    drain: int
    few: int
    many: int


FULL = Size(rounds=5, requests=10_000, late=1_000, span=20.0, rush_span=4.0, drain=20_000, few=100_000, many=1_000_000)
QUICK = Size(rounds=2, requests=3_000, late=200, span=4.0, rush_span=1.0, drain=5_000, few=10_000, many=100_000)


def main() -> int:
    """Exit code 1 when a measure misses what it must reach."""
    asked = _parser().parse_args()
    if not HAS_PROC:
        print("the benchmark reads CPU time and memory from /proc: run it on Linux", file=sys.stderr)
        return 1
    began = time.monotonic()
    with Ground(folder=asked.folder, rounds=(QUICK if asked.quick else FULL).rounds) as ground:
        measures = asyncio.run(_measure(ground, QUICK if asked.quick else FULL, asked.only))
    print(f"\nerelong {__version__}, Python {platform.python_version()}, {os.cpu_count()} cores")
    print(f"{time.monotonic() - began:.0f} s{', quick: take the figures as hints' if asked.quick else ''}\n")
    print(table(measures))
    if asked.json:
        found = [asdict(measure) | {"verdict": measure.verdict} for measure in measures]
        asked.json.write_bytes(orjson.dumps(found, option=orjson.OPT_INDENT_2))
    return int(any(measure.verdict == "MISSED" for measure in measures))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="less of everything: under a minute")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures here, too")
    parser.add_argument("--folder", type=Path, metavar="DIR", help="where the stores are put (default: the system's)")
    parser.add_argument("--only", nargs="+", choices=PARTS, help="measure only these parts", default=list(PARTS))
    return parser


PARTS: dict[str, Callable[[Ground, Size], Coroutine[Any, Any, list[Measure]]]] = {
    "requests": lambda ground, size: measure_requests(ground, size.requests),
    "lateness": lambda ground, size: measure_lateness(ground, size.late, size.span),
    "rush": lambda ground, size: measure_rush(ground, 5_000, size.rush_span),
    "drains": lambda ground, size: measure_drains(ground, size.drain),
    "many": lambda ground, size: measure_many(ground, size.few, size.many, size.requests),
}


async def _measure(ground: Ground, size: Size, only: list[str]) -> list[Measure]:
    measures: list[Measure] = []
    for name in only:
        print(f"measuring {name} …", file=sys.stderr, flush=True)
        measures += await PARTS[name](ground, size)
    return measures


if __name__ == "__main__":
    sys.exit(main())
