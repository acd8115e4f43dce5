"""Query plans of the embedded store: each statement uses the intended index and never scans the whole table."""

from __future__ import annotations

import re
from dataclasses import replace

import apsw
import pytest

from erelong.model.job import State
from erelong.model.query import Order, Query
from erelong.stores import rows
from erelong.stores.sqlite import statements as sql
from erelong.stores.sqlite.listing import walks
from erelong.stores.sqlite.store import SqliteStore
from tests.support.builders import NOW, make_ended, make_job, make_running, put

pytestmark = pytest.mark.real_loop

QUEUE = Query(queues=frozenset({"a"}))
LABEL = Query(labels={"tenant": "t1"})
DUE = Query(due_after=NOW)
OF_GROUP = "jobs USING INDEX grouped (group_number=?)"
OF_STATE = "jobs USING INDEX grouped (group_number>? AND group_number<?)"
ALONG_GROUPS = "jobs USING INDEX grouped (group_number=? AND rowid<?)"
ALONG_ROWS = "jobs USING INTEGER PRIMARY KEY (rowid<?)"
ALONG_CLAIMS = ["claims USING INTEGER PRIMARY KEY (rowid<?)", "jobs USING INTEGER PRIMARY KEY (rowid=?)"]
ALONG_KEYS = "jobs USING COVERING INDEX keyed (key=? AND rowid<?)"
ALONG_LABELS = "labels USING PRIMARY KEY (name=? AND value=? AND seq<?)"
LABEL_OF_A_ROW = "SEARCH labels USING PRIMARY KEY (name=? AND value=? AND seq=?)"
ALONG_DUE = "jobs USING COVERING INDEX due (due_at>?)"


@pytest.mark.parametrize("is_many", [False, True], ids=["few", "many"])
@pytest.mark.parametrize(
    ("query", "few", "many"),
    [
        pytest.param(Query(), [ALONG_ROWS], [ALONG_ROWS], id="all"),
        pytest.param(QUEUE, [ALONG_GROUPS], [ALONG_GROUPS], id="queue"),
        pytest.param(Query(states=frozenset({State.FAILED})), [ALONG_GROUPS], [ALONG_GROUPS], id="state"),
        pytest.param(
            Query(kinds=frozenset({"echo"})),
            [*[ALONG_GROUPS] * 2, *ALONG_CLAIMS],
            [*[ALONG_GROUPS] * 2, *ALONG_CLAIMS],
            id="kind",
        ),
        pytest.param(Query(key="k"), [ALONG_KEYS], [ALONG_KEYS], id="key"),
        pytest.param(LABEL, [ALONG_ROWS], [ALONG_LABELS, "jobs USING INTEGER PRIMARY KEY (rowid=?)"], id="label"),
        pytest.param(
            replace(LABEL, queues=QUEUE.queues),
            [ALONG_GROUPS],
            [ALONG_LABELS, "jobs USING INTEGER PRIMARY KEY (rowid=?)"],
            id="label and queue",
        ),
        pytest.param(DUE, [ALONG_ROWS], [ALONG_DUE, OF_STATE, *ALONG_CLAIMS], id="due"),
        pytest.param(replace(DUE, order=Order.DUE), [ALONG_DUE], [ALONG_DUE], id="due in order"),
        pytest.param(Query(order=Order.DUE), [ALONG_DUE], [ALONG_DUE], id="in order"),
        pytest.param(
            replace(QUEUE, order=Order.DUE), [OF_GROUP], ["jobs USING INDEX due (due_at>?)"], id="queue in order"
        ),
        pytest.param(
            Query(kinds=frozenset({"echo"}), order=Order.DUE),
            ["jobs USING INDEX due (due_at>?)"],
            ["jobs USING INDEX due (due_at>?)"],
            id="kind of most in order",
        ),
        pytest.param(
            Query(key="k", order=Order.DUE),
            ["jobs USING INDEX keyed (key=?)"],
            ["jobs USING INDEX keyed (key=?)"],
            id="key in order",
        ),
    ],
)
async def test_listing_uses_its_index(
    sqlite: SqliteStore, monkeypatch: pytest.MonkeyPatch, query: Query, few: list[str], many: list[str], is_many: bool
) -> None:
    await put(sqlite, make_job(queue="a"), make_running(queue="b"), make_ended(State.FAILED), make_job(queue="c"))
    if is_many:
        monkeypatch.setattr(walks, "FEW_JOBS", -1)

    steps = await plan_of_listing(sqlite, query)

    assert steps == (many if is_many else few)


async def test_listing_of_many_groups_walks_the_table(sqlite: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    await put(sqlite, make_job(queue="a"))
    monkeypatch.setattr(walks, "MANY_GROUPS", -1)

    assert await plan_of_listing(sqlite, QUEUE) == [ALONG_ROWS]


async def test_groups_with_the_same_number_are_distinguished(
    sqlite: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows, "group_number", lambda _queue, _kind, state: state * rows.NUMBERS_OF_A_STATE + 1)
    jobs = await put(sqlite, make_job(queue="a"), make_job(queue="b"), make_job(queue="a", kind="other"))
    waiting = Query(states=frozenset({State.SCHEDULED}), is_full=True)

    assert await sqlite.list(waiting) == [*reversed(jobs)]
    assert await sqlite.list(replace(waiting, kinds=frozenset({"other"}))) == jobs[2:]
    assert await sqlite.list(replace(waiting, queues=QUEUE.queues, order=Order.DUE)) == [jobs[0], jobs[2]]


@pytest.mark.parametrize(
    ("statement", "steps"),
    [
        (sql.SELECT_CLAIMABLE, ["jobs USING INTEGER PRIMARY KEY (rowid=?)"]),
        (sql.SELECT_UNCLAIMED, ["jobs USING INTEGER PRIMARY KEY (rowid=?)"]),
        (sql.SELECT_PEEK, ["jobs USING INTEGER PRIMARY KEY (rowid=?)"]),
        (sql.SELECT, ["jobs USING INTEGER PRIMARY KEY (rowid=?)"]),
        (sql.SELECT_STORED, ["jobs USING INTEGER PRIMARY KEY (rowid=?)"]),
        (sql.SELECT_PURGEABLE, ["jobs USING INTEGER PRIMARY KEY (rowid=?)"]),
        (sql.SELECT_WAITING, ["jobs USING INTEGER PRIMARY KEY (rowid=?)"]),
        (sql.update(1), ["jobs USING INTEGER PRIMARY KEY (rowid=?)"]),
        (sql.update(8), ["jobs USING INTEGER PRIMARY KEY (rowid=?)"]),
        (sql.SELECT_HOLDER, ["jobs USING INDEX held (queue=? AND key=?)"]),
        (sql.SELECT_HELD_KEYS, ["jobs USING INDEX held (queue=? AND key=?)"]),
        (
            sql.SELECT_DUE,
            [
                "jobs USING COVERING INDEX due (due_at=? AND rowid>?)",
                "jobs USING COVERING INDEX due (due_at>? AND due_at<?)",
                "jobs USING INDEX expiring (expires_at=? AND rowid>?)",
                "jobs USING INDEX expiring (expires_at>? AND expires_at<?)",
            ],
        ),
        (
            sql.SELECT_ENDED,
            ["jobs USING COVERING INDEX ended (queue=? AND state=? AND finished_at>? AND finished_at<?)"],
        ),
        (sql.SELECT_RECORD, ["idempotency_records USING PRIMARY KEY (caller=? AND key=?)"]),
        (
            sql.FORGET_RECORDS,
            [
                "idempotency_records USING PRIMARY KEY (caller=? AND key=?)",
                "idempotency_records USING COVERING INDEX expiring_records (expires_at<?)",
            ],
        ),
        (sql.LAST_SEQ, ["jobs"]),
    ],
)
async def test_statement_uses_its_index(sqlite: SqliteStore, statement: str, steps: list[str]) -> None:
    assert plan(sqlite._file.slow, statement) == steps


async def test_plans_do_not_depend_on_bound_values(sqlite: SqliteStore) -> None:
    file = sqlite._file

    stable = [
        connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, -1) for connection in (file.write, file.quick, file.slow)
    ]

    assert stable == [1, 1, 1]


async def plan_of_listing(store: SqliteStore, query: Query) -> list[str]:
    statements: list[str] = []

    def note(_: apsw.Cursor, statement: str, __: object) -> bool:
        statements.append(statement)
        return True

    store._file.slow.exec_trace = note
    await store.list(query)
    store._file.slow.exec_trace = None
    found = [statement for statement in statements if "ORDER BY" in statement]
    return [step for statement in found for step in plan(store._file.slow, statement)]


def plan(connection: apsw.Connection, statement: str) -> list[str]:
    """Return the steps of a statement through tables, without label lookups for rows already found."""
    rows = connection.execute(f"EXPLAIN QUERY PLAN {statement}", [None] * count_values(statement)).fetchall()
    steps = [str(row[3]) for row in rows]
    assert not [
        step
        for step in steps
        if step.startswith("SCAN") and not re.search("subquery|listed|range|carray|VALUES|claims$", step)
    ]
    return [step.removeprefix("SEARCH ") for step in steps if step.startswith("SEARCH") and step != LABEL_OF_A_ROW]


def count_values(statement: str) -> int:
    numbered = [int(number) for number in re.findall(r"\?(\d+)", statement)]
    return max(numbered) if numbered else statement.count("?")
