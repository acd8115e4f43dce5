"""Samples the resources of a service under a long mixed load: python -m tests.system.soak --minutes 15."""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import aiohttp

from tests.support.process import ServiceProcess, cpu_seconds
from tests.system.book import install
from tests.system.soak_load import CONFIG, Load, Sink

MEBI = 1024 * 1024


class Sample(NamedTuple):
    """The resources of the service at an instant. `series` counts lines of its metrics, `jobs` stored jobs."""

    second: float
    rss_mib: float
    descriptors: float
    threads: float
    wal_mib: float
    database_mib: float
    agenda: float
    series: float
    jobs: float


class Trend(NamedTuple):
    """The trend of a quantity: its mean, and the rise of the fitted line from the first to the last sample."""

    name: str
    first: float
    last: float
    mean: float
    growth: float
    seconds: float

    @property
    def per_hour(self) -> float:
        return self.growth / self.seconds * 3600


class Soaked(NamedTuple):
    """The result of a soak: trends, responses by status, submitted jobs and CPU seconds."""

    trends: dict[str, Trend]
    answers: dict[int, int]
    submitted: int
    cpu: float

    def table(self) -> list[str]:
        head = f"{'':14}{'first':>10}{'last':>10}{'mean':>10}{'growth':>10}{'per hour':>10}"
        rows = [
            f"{trend.name:14}{trend.first:10.2f}{trend.last:10.2f}{trend.mean:10.2f}"
            f"{trend.growth:10.2f}{trend.per_hour:10.2f}"
            for trend in self.trends.values()
        ]
        seconds = next(iter(self.trends.values())).seconds
        return [f"over the last {seconds:.0f} s", head, *rows, f"answers by status: {self.answers}"]


async def soak(service: ServiceProcess, *, seconds: float, warm_up: float, pause: float) -> Soaked:
    """Load a running service; return its use of resources after the warm-up."""
    samples: list[Sample] = []
    connector = aiohttp.TCPConnector(limit=0)
    async with Sink() as sink, aiohttp.ClientSession(connector=connector) as session:
        load = Load(session=session, service=service, sink=sink)
        loading = asyncio.create_task(load.run())
        began = time.monotonic()
        while not loading.done() and (second := time.monotonic() - began) < seconds:
            if second >= warm_up:
                samples.append(await _look(service, session, second))
            await asyncio.sleep(pause)
        if loading.done():
            await loading  # it failed: raise its error
        loading.cancel()
        await asyncio.wait({loading})
        submitted = await _levels(service, session, "erelong_jobs_submitted_total")
        answers = dict(sorted(load.answers.items()))
        return Soaked(trends(samples), answers, round(submitted[0]), cpu_seconds(service.pid))


def trends(samples: Sequence[Sample]) -> dict[str, Trend]:
    """Fit a line to each quantity by least squares."""
    seconds = [sample.second for sample in samples]
    span = seconds[-1] - seconds[0]
    middle = sum(seconds) / len(seconds)
    spread = sum((second - middle) ** 2 for second in seconds)
    trends = {}
    for index, name in enumerate(Sample._fields[1:], 1):
        values = [sample[index] for sample in samples]
        mean = sum(values) / len(values)
        slope = sum((x - middle) * (y - mean) for x, y in zip(seconds, values, strict=True)) / spread
        trends[name] = Trend(name, values[0], values[-1], mean, slope * span, span)
    return trends


async def _look(service: ServiceProcess, session: aiohttp.ClientSession, second: float) -> Sample:
    agenda, series = await _levels(service, session, "erelong_agenda_entries")
    jobs, _ = await _levels(service, session, "erelong_jobs{")
    return Sample(
        second=second,
        rss_mib=service.resident_bytes() / MEBI,
        descriptors=_number(Path(f"/proc/{service.pid}/fd")),
        threads=_number(Path(f"/proc/{service.pid}/task")),
        wal_mib=_size(service.data / "erelong.db-wal"),
        database_mib=_size(service.data / "erelong.db"),
        agenda=agenda,
        series=series,
        jobs=jobs,
    )


async def _levels(service: ServiceProcess, session: aiohttp.ClientSession, name: str) -> tuple[float, int]:
    """Return the sum of a metric over all its series, and the number of lines of the page."""
    async with session.get(f"{service.url}/metrics") as answer:
        lines = [line for line in (await answer.text()).splitlines() if not line.startswith("#")]
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name)), len(lines)


def _number(folder: Path) -> int:
    return sum(1 for _ in folder.iterdir())


def _size(path: Path) -> float:
    return path.stat().st_size / MEBI if path.exists() else 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=15.0)
    parser.add_argument("--warm-up", type=float, default=3.0, help="minutes without samples")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        service = ServiceProcess(folder=Path(folder), config=CONFIG)
        install(service)
        service.start()
        try:
            soaked = asyncio.run(soak(service, seconds=given.minutes * 60, warm_up=given.warm_up * 60, pause=2.0))
            ended = service.stop()
        finally:
            service.kill()
        print(*soaked.table(), sep="\n")
        print(f"{soaked.submitted} jobs submitted, {soaked.cpu:.1f} s of CPU; stopped with {ended}")
        print(*service.errors(), sep="\n")


if __name__ == "__main__":
    main()
