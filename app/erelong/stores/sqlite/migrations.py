"""The way of an embedded database from the schema of an earlier version to the one of this version."""

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
    """The statements that make a database of one version from one of the version before.

    They must leave `seq` and `version` of every job: jobs that are running are known by these.
    """

    version: int
    statements: Sequence[str]


MIGRATIONS: Sequence[Migration] = ()


def must_be_readable(version: int, path: Path) -> None:
    """Raise `StoreCorrupt` if a database has a schema that no migration begins with."""
    if version > sql.SCHEMA_VERSION:
        message = f"{path} has schema version {version}, and this erelong reads versions up to {sql.SCHEMA_VERSION}; "
        raise StoreCorrupt(message + "start the erelong that wrote it, or a newer one")
    if version < 1:
        raise StoreCorrupt(f"{path} has schema version {version}, which no erelong writes; restore a backup")


def migrate(connection: apsw.Connection, path: Path) -> None:
    """Bring a database to the newest schema, each version in one transaction; it stays as it is if that fails."""
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
