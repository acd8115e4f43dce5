"""Migrations of the embedded database from earlier schema versions."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from erelong.errors import StoreCorrupt
from erelong.stores.sqlite import statements as sql
from erelong.telemetry.log import get_logger

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import apsw

log = get_logger(__name__)


class Migration(NamedTuple):
    """The statements that upgrade a database from the preceding schema version.

    They must keep the `seq` and `version` of every job, since claims refer to these.
    """

    version: int
    statements: Sequence[str]


MIGRATIONS: Sequence[Migration] = ()


def must_be_readable(version: int, path: Path) -> None:
    """Raise `StoreCorrupt` if a database has a schema version that this program cannot migrate."""
    if version > sql.SCHEMA_VERSION:
        message = f"{path} has schema version {version}; this erelong reads versions up to {sql.SCHEMA_VERSION}; "
        raise StoreCorrupt(message + "start the erelong that wrote it, or a newer one")
    if version < 1:
        raise StoreCorrupt(f"{path} has schema version {version}, which no erelong writes; restore a backup")


def migrate(connection: apsw.Connection, path: Path) -> None:
    """Migrate a database to the current schema, one transaction per version. A failed version changes nothing."""
    version = connection.pragma("user_version")
    for migration in MIGRATIONS:
        if migration.version > version:
            _apply(connection, migration, path)


def _apply(connection: apsw.Connection, migration: Migration, path: Path) -> None:
    jobs = connection.execute(sql.LAST_SEQ).get
    log.info("migration_started", file=path, version=migration.version, last_job=jobs)
    start = time.monotonic()
    connection.execute("BEGIN IMMEDIATE")
    try:
        for statement in migration.statements:
            connection.execute(statement).fetchall()
        connection.pragma("user_version", migration.version)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    log.info("migration_finished", version=migration.version, seconds=round(time.monotonic() - start, 3))
