"""Plans: every statement goes by its index, whether the tables are empty, filled, or filled since they were analysed.

The server logs the plan of each statement that the store really executes (auto_explain).
"""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from types import ModuleType
from typing import Any, NamedTuple

import psycopg
import pytest
import pytest_asyncio

from erelong.model.conflict import OnConflict
from erelong.model.document import Document
from erelong.model.job import SECOND, State
from erelong.model.matching.residue import Residue
from erelong.model.outcome import End, Outcome
from erelong.model.query import Order, Query
from erelong.model.submission import IdempotencyRecord
from erelong.stores.base import Bins, Ending, Override
from erelong.stores.postgres import statements, terms
from erelong.stores.postgres.connection import SCHEMA_NAME
from erelong.stores.postgres.listing import filters, orders, pages, walks
from erelong.stores.postgres.logs import fold_tallies, turn_claims
from erelong.stores.postgres.store import PostgresStore
from erelong.stores.postgres.terms import TTL
from tests.support.builders import NOW, make_ended, make_failure, make_job, make_new_job, purge, put, put_one
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

Exercise = Callable[[PostgresStore], Awaitable[None]]


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
    if request.param:
        first = PostgresStore(url=server.url, durability="normal")  # makes the tables
        await first.open()
        await first.close()
    with psycopg.connect(server.url, autocommit=True) as connection:
        for statement in request.param:
            connection.execute(statement)
    store = PostgresStore(url=server.url, durability="normal")
    await store.open()
    yield store
    await store.close()


def _plans(server: PostgresServer, start: int) -> list[Plan]:
    """Return the plans in the log, without those of the statements that fill the tables."""
    text = (server.home / "log").read_bytes()[start:].decode()
    found = []
    for entry in re.split(r"(?m)^\d{4}-\d\d-\d\d [^\n]*LOG:\s+", text):
        lines = entry.partition("Query Text: ")[2]
        if not lines or f"{SCHEMA_NAME}." in lines[:200]:
            continue
        found.append(Plan(lines, [(how, index, table) for how, index, table in SCAN.findall(lines)]))
    return found


# what the store can do


async def write_and_read_jobs(store: PostgresStore) -> None:
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


async def use_names(store: PostgresStore) -> None:
    record = IdempotencyRecord("caller", "once", b"1")
    for _ in range(2):
        await store.add([make_new_job(key="k", on_conflict=OnConflict.KEEP)], now=NOW)
        await store.add([make_new_job()], now=NOW, record=record, beside=[])
    await store.find_replay(record, now=NOW)
    await store.holder("default", "k")
    await store.add([make_new_job()], now=NOW, beside=[Document("s", "a", 1, NOW, b"{}")])
    await store.document("s", "a")
    await store.documents("s", limit=10)
    await store.add([], now=NOW, beside=[Document("s", "a", 2, NOW, None)])
    await store.forget_records(now=NOW + 3600 * 24 * SECOND, limit=5)
    await store.override("q", Override(b"{}", None))
    await store.overrides()
    await store.override("q", None)


async def find_due_and_ended(store: PostgresStore) -> None:
    await put(store, *(make_job(expires_after=1) for _ in range(3)))
    await store.due((0, 0), NOW + 10, 100)
    await store.ended("filling1", State.SUCCEEDED, after=(0, 0), before=NOW, limit=5)
    await store.label_values("tenant")


async def count_jobs(store: PostgresStore) -> None:
    bins = Bins(NOW, SECOND, 10)
    for query in (Query(), Query(queues=frozenset({"filling1"})), Query(labels={"tenant": "t1"})):
        await store.spread(bins, query)
        await store.tally(query, 100)
    await store.tally(Query(after=(0, 1_000_010)), 100)


async def keep_house(store: PostgresStore) -> None:
    """Turn both logs, and write in a new epoch."""
    await put_one(store)
    fold_tallies(store._session)
    turn_claims(store._session, "node", {})
    store._session._drop(psycopg.OperationalError("dropped by the test"))
    await put_one(store)


async def list_jobs(store: PostgresStore) -> None:
    await put(store, make_job(), make_job(), make_job(queue="rare"))
    for query, _ in LISTINGS.values():
        await store.list(query)
    for residue in (Residue(schedules=frozenset({"s"})), Residue(errors=frozenset({"E"}), attempt_min=1)):
        await store.search(Query(residue=residue), 100)
    await store.list(Query(is_line=True, limit=2))
    await store.list(Query(is_full=True, limit=2))
    await store.search(Query(limit=1), 1)


LISTINGS = {
    "all": (Query(), {"jobs_pkey"}),
    "a key": (Query(key="k"), {"keyed"}),
    "a label": (Query(labels={"tenant": "t1"}), {"jobs_pkey"}),
    "a queue": (Query(queues=frozenset({"filling1", "default"})), {"grouped", "jobs_pkey"}),
    "a due range": (Query(due_after=NOW, due_before=NOW + 50), {"due", "grouped", "jobs_pkey"}),
    "by due time": (Query(order=Order.DUE), {"due"}),
    "a key by due time": (Query(order=Order.DUE, key="k"), {"keyed"}),
    "a rare queue by due time": (Query(order=Order.DUE, queues=frozenset({"rare"})), {"grouped"}),
    "by start": (Query(order=Order.STARTED), {"grouped", "jobs_pkey"}),
    "by end": (Query(order=Order.FINISHED), {"ended"}),
    "a key by end": (Query(order=Order.FINISHED, key="k"), {"keyed", "ended"}),
    "a label by end": (Query(order=Order.FINISHED, labels={"tenant": "t1"}), {"jobs_pkey", "ended"}),
}
EXERCISES = {
    "by number": write_and_read_jobs,
    "by name": use_names,
    "due and ended": find_due_and_ended,
    "counts": count_jobs,
    "house": keep_house,
}


# plans


@pytest.mark.parametrize("exercise", EXERCISES.values(), ids=EXERCISES.keys())
async def test_rows_are_found_by_the_intended_index(
    exercise: Exercise, store: PostgresStore, server: PostgresServer, plans: list[int]
) -> None:
    await exercise(store)

    found = _plans(server, plans[0])
    assert found
    assert _faults(found) == []


@pytest.mark.parametrize(("query", "indexes"), LISTINGS.values(), ids=LISTINGS.keys())
async def test_listings_walk_along_their_index(
    store: PostgresStore,
    server: PostgresServer,
    plans: list[int],
    query: Query,
    indexes: set[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(walks, "FEW_JOBS", 2)
    labelled = [make_job(key=f"k{n}", labels={"tenant": "t1"}) for n in range(8)]
    await put(store, *labelled, make_job(queue="rare"), make_ended(State.SUCCEEDED))

    await store.list(query)

    found = _plans(server, plans[0])
    assert _faults(found) == []
    listed = [plan for plan in found if _is_listing(plan)]
    assert listed
    for plan in listed:
        assert {index for _, index, table in plan.scans if table == "jobs"} <= indexes, plan.text


async def test_due_and_ended_jobs_are_found_by_their_index(
    store: PostgresStore, server: PostgresServer, plans: list[int]
) -> None:
    await find_due_and_ended(store)

    found = _plans(server, plans[0])
    used = [{index for _, index, table in plan.scans if table == "jobs"} for plan in found if _is_listing(plan)]
    assert {"due", "expiring"} in used
    assert {"ended"} in used


# all statements

EXEMPT = {
    **dict.fromkeys(("SET_META", "SET_FENCE", "SET_TERM"), "made once, when the tables are empty"),
    **dict.fromkeys(("UNLOCK", "END_WRITERS"), "reads no table of erelong"),
    "RETURN_NUMBERS": "run by a node that ends, on the one row of its table",
    "RESIGN": "the same",
}


@pytest.mark.parametrize("store", [SETUPS["filled, never analysed"]], ids=["filled"], indirect=True)
async def test_no_statement_is_missing_here(
    store: PostgresStore, server: PostgresServer, plans: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    called = _watch_makers(monkeypatch)
    for exercise in EXERCISES.values():
        await exercise(store)
    for few_jobs in (20_000, 2):
        monkeypatch.setattr(walks, "FEW_JOBS", few_jobs)
        await list_jobs(store)
    await asyncio.sleep(TTL / 2)  # the term is renewed meanwhile

    texts = [" ".join(plan.text.split()) for plan in _plans(server, plans[0])]
    constants = {name: text for module in (statements, terms, walks, orders, filters) for name, text in _sql(module)}
    unseen = [name for name, text in constants.items() if not any(re.search(_pattern(text), seen) for seen in texts)]
    assert sorted({*unseen} - EXEMPT.keys()) == []
    assert [name for name, times in called.items() if not times] == []


def _sql(module: ModuleType) -> Iterator[tuple[str, str]]:
    """Return the statements of a module by name."""
    for name, text in vars(module).items():
        if isinstance(text, str) and re.match(r"\s*(SELECT|INSERT|UPDATE|DELETE|WITH)\b", text):
            yield name, text


def _pattern(statement: str) -> str:
    """Return a pattern for a statement as the server logs it."""
    text = re.escape(" ".join(statement.split())).replace("%s", r"\$\d+").replace("%%", "%")
    for mark, words in ((r"\{fence\}", "(fence, )?"), (r"\{half\}", r"\w+_[01]"), (r"\{\{\}\}", r"\{\}")):
        text = text.replace(mark, words)
    return text


def _watch_makers(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Count the calls of the functions that make statements for listings."""
    calls: dict[str, int] = {}
    for module in (walks, orders):
        for name, function in [*vars(module).items()]:
            if not inspect.isfunction(function) or function.__module__ != module.__name__:
                continue
            if '"SELECT' in (source := inspect.getsource(function)) or re.search(r'"""\s*SELECT', source):
                calls[name] = 0
                for user in (module, pages):
                    monkeypatch.setattr(user, name, _counted(name, function, calls), raising=user is module)
    return calls


def _counted(name: str, function: Callable[..., Any], calls: dict[str, int]) -> Callable[..., Any]:
    def count(*arguments: Any, **options: Any) -> Any:
        calls[name] += 1
        return function(*arguments, **options)

    return count


def _faults(plans: list[Plan]) -> list[str]:
    """Return the plans that find rows otherwise than by number or name or read a large table as a whole. The indexes of
    listings are left to their own tests.
    """
    return [plan.text for plan in plans if not all(_is_intended(plan, *scan) for scan in plan.scans)]


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
