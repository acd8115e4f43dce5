"""erelong with one more schema version: `serve …` as usual, or `open FILE`.

KILL_AT=n in the environment kills it before the n-th statement of a migration; KILL_WITHIN=n kills it after n thousand
SQLite steps inside the statements.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import apsw

from erelong.stores.sqlite import migrations
from erelong.stores.sqlite import statements as sql
from erelong.stores.sqlite.database import DatabaseFile

VERSION = sql.SCHEMA_VERSION + 1
STATEMENTS = (
    "ALTER TABLE jobs ADD COLUMN note TEXT",
    "UPDATE jobs SET note = token",
    "CREATE INDEX noted ON jobs (note)",
    "CREATE TABLE notes (seq INTEGER PRIMARY KEY, note TEXT NOT NULL) STRICT",
    "INSERT INTO notes SELECT seq, note FROM jobs",
)
STEPS = 1_000


def install() -> None:
    """Turn this process into the next version."""
    migrations.MIGRATIONS = (*migrations.MIGRATIONS, migrations.Migration(VERSION, STATEMENTS))
    sql.SCHEMA_VERSION = VERSION
    sql.SCHEMA += ";".join((STATEMENTS[0], STATEMENTS[3], f"PRAGMA user_version = {VERSION}"))


def open_database(path: Path) -> None:
    """Migrate a database and exit."""
    file = DatabaseFile(path=path, durability="full", reserve=0)
    file.open()
    file.close()


def _arm() -> None:
    """Kill this process during a migration, if the environment says so."""
    apply = migrations._apply
    at, within = int(os.environ.get("KILL_AT", "-1")), int(os.environ.get("KILL_WITHIN", "-1"))

    def watched(connection: apsw.Connection, migration: migrations.Migration, path: Path) -> None:
        seen = steps = 0

        def note_statement(*_: object) -> bool:
            nonlocal seen
            if seen == at:
                os.kill(os.getpid(), signal.SIGKILL)
            seen += 1
            return True

        def note_steps() -> bool:
            nonlocal steps
            steps += 1
            if steps == within:
                os.kill(os.getpid(), signal.SIGKILL)
            return False

        connection.exec_trace = note_statement
        connection.set_progress_handler(note_steps, STEPS)
        apply(connection, migration, path)
        connection.exec_trace = None
        connection.set_progress_handler(None)

    migrations._apply = watched


def main() -> int:
    install()
    _arm()
    command, *arguments = sys.argv[1:]
    if command == "open":
        open_database(Path(arguments[0]))
        return 0
    from erelong.cli import parser

    return parser.main()


if __name__ == "__main__":
    sys.exit(main())
