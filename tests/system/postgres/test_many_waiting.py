"""A node takes over a store in which very many jobs wait: it reads those that are due soon, and no others."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import psycopg
import pytest

from erelong.stores.postgres.connection import SCHEMA_NAME
from erelong.stores.rows import COLUMNS
from tests.support.postgres import PostgresServer
from tests.support.process import ServiceProcess
from tests.system.client import Client
from tests.system.postgres.balancer import loaded
from tests.system.postgres.conftest import MakeNode
from tests.system.trials import percentile, sized

pytestmark = [pytest.mark.real_loop, pytest.mark.timeout(sized(90, 3600))]

WAITING = sized(30_000, 10_000_000)
MOST = sized(1.5, 0.5)
DAY = 86_400
COPIES = {"seq": "seq + n", "token": "substr(md5(n::text), 1, 16)", "due_at": "due_at + n * 60000::bigint"}
FILL = f"""
INSERT INTO jobs ({", ".join(COLUMNS)}) SELECT {", ".join(COPIES.get(name, name) for name in COLUMNS)}
FROM jobs, generate_series(1, {WAITING}) AS n WHERE seq = (SELECT max(seq) FROM jobs);
INSERT INTO counts SELECT queue, kind, state, {WAITING} FROM jobs WHERE seq = (SELECT max(seq) FROM jobs)
ON CONFLICT (queue, kind, state) DO UPDATE SET jobs = counts.jobs + excluded.jobs;
UPDATE terms SET next_seq = next_seq + {WAITING};
"""


@pytest.mark.parametrize("is_analysed", sized([False], [False, True]))
async def test_take_over_is_quick_however_many_jobs_wait(
    is_analysed: bool,
    make_node: MakeNode,
    make_client: Callable[[ServiceProcess], Client],
    server: PostgresServer,
    figure: Callable[[str, object], None],
) -> None:
    first = make_node()
    await asyncio.to_thread(first.start)
    await make_client(first).submit(kind="echo", queue="filling", delay=DAY)
    await asyncio.to_thread(first.stop)
    await asyncio.to_thread(_fill, server, is_analysed)
    nodes = [first, make_node()]
    start = await asyncio.to_thread(nodes[0].start)
    await asyncio.to_thread(nodes[1].start, is_standby=True)
    gaps = []

    async with loaded(nodes) as trial:
        for _ in range(sized(1, 10)):
            await asyncio.sleep(1.0)
            leader = trial.leader
            began = time.monotonic()
            leader.kill()
            gaps.append(await trial.pause_until_taken_over(began))
            await asyncio.to_thread(leader.start, is_standby=True)
        counts = await make_client(trial.leader).counts("filling")
        trial.promises.is_over = True

    figure("start", f"{start:.3f} s")
    figure("longest pause, p50 and max", f"{percentile(gaps, 0.5):.3f} {max(gaps):.3f} s of {len(gaps)}")
    assert counts["scheduled"] == WAITING + 1
    assert max(gaps) <= MOST


def _fill(server: PostgresServer, is_analysed: bool) -> None:
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute(f"SET search_path = {SCHEMA_NAME}")
        for statement in FILL.split(";"):
            connection.execute(statement.encode())
        if is_analysed:
            connection.execute("VACUUM ANALYZE jobs")
