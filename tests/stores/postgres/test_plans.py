"""Plans: every statement goes by its index, whether the tables are empty, filled, or filled since they were analysed.

The server logs the plan of each statement that the store really executes (auto_explain).
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from typing import NamedTuple

import psycopg
import pytest
import pytest_asyncio

from erelong.model.conflict import OnConflict
from erelong.model.document import Document
from erelong.model.job import SECOND, State
from erelong.model.outcome import End, Outcome
from erelong.model.query import Order, Query
from erelong.model.submission import IdempotencyRecord
from erelong.stores.base import Ending
from erelong.stores.postgres.connection import SCHEMA_NAME
from erelong.stores.postgres.listing import walks as listing
from erelong.stores.postgres.store import PostgresStore
from tests.support.builders import NOW, make_failure, make_job, make_new_job, purge, put
from tests.support.postgres import PostgresServer

pytestmark = [pytest.mark.real_loop, pytest.mark.timeout(60)]

FILL = f"""
INSERT INTO {SCHEMA_NAME}.jobs (seq, created_at, execute_at, due_at, group_number, version, attempt, state, token, kind,
    queue, key, spec, params, finished_at)
SELECT 1000000 + n, 1, 1, CASE WHEN n % 2 = 0 THEN {NOW} + n END, n % 7, 1, 0, n % 2 * 2, 't', 'x',
    'filling' || n % 5, CASE WHEN n % 3 = 0 THEN 'f' || n END, '{{}}', '{{}}', CASE WHEN n % 2 = 1 THEN n END
FROM generate_series(1, 20000) AS n
"""
FILL_LABELS = (
    f"INSERT INTO {SCHEMA_NAME}.labels SELECT 'tenant', 't' || n, 1000000 + n FROM generate_series(1, 20000) AS n"
)
ANALYZE = "ANALYZE"
SETUPS = {
    "empty": [],
    "analysed while empty": [ANALYZE],
    "filled, never analysed": [FILL, FILL_LABELS],
    "filled and analysed": [FILL, FILL_LABELS, ANALYZE],
    "analysed while empty, then filled": [ANALYZE, FILL, FILL_LABELS],
}
TABLES = ("jobs", "labels", "documents", "idempotency_records")
SCAN = re.compile(r"(?:(Seq|Index|Bitmap Heap|Index Only|Tid) Scan)(?: Backward)?(?: using (\w+))? on (\w+)")


class Plan(NamedTuple):
    """A statement that was executed, and its scans: how, by which index, of which table."""

    text: str
    scans: list[tuple[str, str, str]]


@pytest.fixture
def plans(server: PostgresServer) -> Iterator[list[int]]:
    """Make the server log all plans; return where the log began."""
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("ALTER DATABASE postgres SET session_preload_libraries = 'auto_explain'")
        connection.execute("ALTER DATABASE postgres SET auto_explain.log_min_duration = 0")
    yield [(server.home / "log").stat().st_size]
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("ALTER DATABASE postgres RESET ALL")


@pytest_asyncio.fixture(params=SETUPS.values(), ids=SETUPS.keys())
async def store(
    request: pytest.FixtureRequest, server: PostgresServer, plans: list[int]
) -> AsyncIterator[PostgresStore]:
    """Return a store with other jobs than those of the test, in each state of the statistics."""
    with psycopg.connect(server.url, autocommit=True) as connection:
        for statement in request.param:
            connection.execute(statement)
    store = PostgresStore(url=server.url, durability="normal")
    await store.open()
    yield store
    await store.close()


def _plans(server: PostgresServer, start: int) -> list[Plan]:
    text = (server.home / "log").read_bytes()[start:].decode()
    found = []
    for entry in re.split(r"(?m)^\d{4}-\d\d-\d\d [^\n]*LOG:\s+", text):
        if "plan:\n" not in entry or SCHEMA_NAME in entry.partition("\n")[2][:200]:
            continue
        lines = entry.partition("Query Text: ")[2]
        found.append(Plan(lines, [(how, index, table) for how, index, table in SCAN.findall(lines)]))
    return found


async def test_writes_and_reads_by_number_use_the_primary_key(
    store: PostgresStore, server: PostgresServer, plans: list[int]
) -> None:
    jobs = await put(store, *(make_job(key=f"k{n}", labels={"tenant": f"t{n}"}) for n in range(8)))
    claim = await store.claim([job.seq for job in jobs[:4]], now=NOW)
    await store.finish([Ending(job, Outcome(End.SUCCEEDED), NOW) for job in claim.jobs[:2]])
    await store.finish([Ending(claim.jobs[2], make_failure(), NOW)])
    await store.save([jobs[4].cancel(NOW)._replace(labels=None)])
    await store.delete(jobs[5])
    await store.get([job.seq for job in jobs])
    store._cache.drop_all()
    await store.get([job.seq for job in jobs])
    await store.peek([job.seq for job in jobs])
    await purge(store, "default", State.SUCCEEDED, before=NOW + 1, limit=10)

    assert _faults(_plans(server, plans[0]), needed=("fresh", "listed", "claims", "DELETE FROM jobs", "AS named")) == []


async def test_names_are_found_by_their_index(store: PostgresStore, server: PostgresServer, plans: list[int]) -> None:
    record = IdempotencyRecord("caller", "once", b"1")
    for _ in range(2):
        await store.add([make_new_job(key="k", on_conflict=OnConflict.KEEP)], now=NOW)
        await store.add([make_new_job()], now=NOW, record=record, beside=[])
    await store.find_replay(record, now=NOW)
    await store.holder("default", "k")
    await store.add([make_new_job()], now=NOW, beside=[Document("s", "a", 1, NOW, b"{}")])
    await store.document("s", "a")
    await store.documents("s", limit=10)
    await store.forget_records(now=NOW + 3600 * 24 * SECOND, limit=5)

    assert _faults(_plans(server, plans[0]), needed=("AS named", "JOIN documents", "AS records", "ORDER BY name")) == []


LISTINGS = {
    "all": (Query(), {"jobs_pkey"}),
    "a key": (Query(key="k"), {"keyed"}),
    "a label": (Query(labels={"tenant": "t1"}), {"jobs_pkey"}),
    "a queue": (Query(queues=frozenset({"filling1", "default"})), {"grouped", "jobs_pkey"}),
    "a due range": (Query(due_after=NOW, due_before=NOW + 50), {"due", "grouped", "jobs_pkey"}),
    "by due time": (Query(order=Order.DUE), {"due"}),
    "a key by due time": (Query(order=Order.DUE, key="k"), {"keyed"}),
}


@pytest.mark.parametrize(("query", "indexes"), LISTINGS.values(), ids=LISTINGS.keys())
async def test_listings_walk_along_their_index(
    store: PostgresStore,
    server: PostgresServer,
    plans: list[int],
    query: Query,
    indexes: set[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(listing, "FEW_JOBS", 2)
    await put(store, *(make_job(key=f"k{n}", labels={"tenant": "t1"}) for n in range(8)))

    await store.list(query)

    found = _plans(server, plans[0])
    assert _faults(found, needed=("listed",)) == []
    (listed,) = [plan for plan in found if _is_listing(plan)]
    assert {index for _, index, table in listed.scans if table == "jobs"} <= indexes, listed.text


async def test_due_and_ended_jobs_are_found_by_their_index(
    store: PostgresStore, server: PostgresServer, plans: list[int]
) -> None:
    await put(store, *(make_job(expires_after=1) for _ in range(3)))

    await store.due((0, 0), NOW + 10, 100)
    await store.ended("filling1", State.SUCCEEDED, after=(0, 0), before=NOW, limit=5)
    await store.label_values("tenant")

    found = _plans(server, plans[0])
    assert _faults(found, needed=("AS expiring", "finished_at < ", "RECURSIVE")) == []
    used = [{index for _, index, table in plan.scans if table == "jobs"} for plan in found if _is_listing(plan)]
    assert {"due", "expiring"} in used
    assert {"ended"} in used


def _faults(plans: list[Plan], *, needed: tuple[str, ...]) -> list[str]:
    """Return the plans that find rows otherwise than by number or name or read a large table as a whole.

    Listings are left to their own tests. A word of `needed` that no statement contains is a fault too.
    """
    absent = [f"no statement with {word}" for word in needed if not any(word in plan.text for plan in plans)]
    return absent + [plan.text for plan in plans if not all(_is_intended(plan, *scan) for scan in plan.scans)]


def _is_intended(plan: Plan, how: str, index: str, table: str) -> bool:
    if how == "Seq" and table in TABLES:
        return False
    if table == "jobs" and not _is_listing(plan):
        return index == ("held" if "AS named" in plan.text else "jobs_pkey")
    if table in ("labels", "documents", "idempotency_records"):
        is_by_time = "ORDER BY expires_at, caller" in plan.text
        return index == ("expiring_records" if is_by_time else f"{table}_pkey")
    return True


def _is_listing(plan: Plan) -> bool:
    """Return whether a statement finds the numbers of jobs, rather than reading or writing them by number or name."""
    reads_rows = re.search(r"jobs\.token|AS fresh|AS listed|AS named|DELETE", plan.text)
    return reads_rows is None and any(table == "jobs" for _, _, table in plan.scans)
