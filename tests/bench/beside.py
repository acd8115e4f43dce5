"""PostgreSQL beside SQLite: the same requests and jobs on both, in turn, and what the database server itself uses."""

from __future__ import annotations

import time
from statistics import median

from tests.bench.against import PARTS, Sides, measure_pairs
from tests.bench.ground import Ground, port_of, wait_until_done
from tests.bench.jobs import no_op
from tests.bench.load import stream
from tests.bench.runs import chunks, draw_instants, fire, quantile
from tests.bench.verdicts import Findings, Measure
from tests.support.process import ServiceProcess

MUST = {"POST of a webhook": 1.15, "webhook drained": 1.15, "no-op drained": 1.5}
USUAL = 1.5
SPAN = 4.0
LEAD = 1.0


async def measure_beside(ground: Ground, number: int) -> Findings:
    """CPU of the service on PostgreSQL as multiples of that on SQLite, and CPU of the server per job.

    The server is measured first: later, it would also clear up after the other parts.
    """
    with ground.service("life") as service:
        lives = [await _life(ground, service, f"life{round}", number) for round in range(ground.rounds)]
    with ground.service("beside-sqlite", store="sqlite") as other, ground.service("beside-postgres") as this:
        late = [quantile(await fire(ground, side, draw_instants(200, SPAN)), 0.99) for side in (other, this)]
        figures = await measure_pairs(ground, Sides(this=this, other=other), PARTS, ground.rounds)
    measures = [_ratio(name, *costs) for name, costs in figures.items()]
    name = f"{number:,} no-ops submitted and run: CPU of PostgreSQL per job"
    measures.append(Measure(name=name, must=25, goal=20, figure=median(lives), unit="µs"))
    detail = f"SQLite: {late[0]:.2f} ms"
    measures.append(Measure(name="webhooks: p99 late", must=10, goal=5, figure=late[1], unit="ms", detail=detail))
    return Findings(measures=measures)


def _ratio(name: str, sqlite: list[float], postgres: list[float]) -> Measure:
    return Measure(
        name=f"{name}: CPU / SQLite",
        must=MUST.get(name, USUAL),
        goal=1.0,
        figure=median([one / another for one, another in zip(postgres, sqlite, strict=True)]),
        unit="×",
        detail=f"{median(postgres):.1f} µs, SQLite: {median(sqlite):.1f} µs",
    )


async def _life(ground: Ground, service: ServiceProcess, queue: str, number: int) -> float:
    """CPU microseconds of the database server per job, from the submit of its line to its end."""
    before = ground.database_seconds()
    due_at = time.time() + LEAD + number / 10_000
    lines = (no_op(index, queue, queue=queue, at=due_at) + b"\n" for index in range(number))
    assert await stream(port_of(service), chunks(lines)) == number
    await wait_until_done(service, queue)
    return (ground.database_seconds() - before) / number * 1e6
