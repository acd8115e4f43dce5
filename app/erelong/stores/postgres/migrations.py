"""The schema of the PostgreSQL store: made in an empty database, and migrated from earlier versions."""

from __future__ import annotations

import secrets
import time
from typing import TYPE_CHECKING, NamedTuple

from erelong.errors import StoreCorrupt, WrongClock
from erelong.stores.postgres import statements as sql
from erelong.stores.postgres.connection import SCHEMA_NAME, is_alive
from erelong.telemetry.log import get_logger

if TYPE_CHECKING:
    from collections.abc import Sequence

    from erelong.stores.postgres.connection import Connection

log = get_logger(__name__)

LOCK = 0x45524C4F  # "ERLO", so that two nodes that start together do not both make the schema
HAS_SCHEMA = "SELECT count(*) FROM pg_catalog.pg_namespace WHERE nspname = %s"
VERSION = f"SELECT schema_version, is_virtual FROM {SCHEMA_NAME}.meta"
PATIENCE = 3_600.0
"""Seconds that a statement of a migration may take, such as an index of all jobs."""
TABLES = "SELECT relname FROM pg_catalog.pg_class JOIN pg_namespace n ON n.oid = relnamespace WHERE nspname = %s"


class Migration(NamedTuple):
    """The statements that upgrade a schema from the preceding version. Nodes of that version must still work on it.

    They must keep the `seq` and `version` of every job, since claims refer to these.
    """

    version: int
    statements: Sequence[str]


MIGRATIONS: Sequence[Migration] = ()


def prepare(connection: Connection, *, is_virtual: bool, must_exist: bool) -> None:
    """Make or migrate the schema; raise an `Exit` if it is foreign or newer, or of the other kind of clock."""
    connection.script("BEGIN")
    try:
        tables = locked_tables(connection)
        if not tables and must_exist:
            message = "the database holds no jobs of erelong, and [store] must_exist is true; correct [store] url"
            raise StoreCorrupt(f"{message}, or set must_exist to false to make the tables")
        if not tables:
            make_schema(connection)
            connection.script(sql.SCHEMA)
            make_rows(connection, identity=secrets.token_hex(16), is_virtual=is_virtual)
        elif not is_ours(tables):
            message = f"the schema {SCHEMA_NAME} of the database belongs to another program; name another database"
            raise StoreCorrupt(f"{message} in [store] url")
        _must_be_readable(connection, is_virtual=is_virtual)
        connection.script("COMMIT")
    except BaseException:
        if is_alive(connection):
            connection.script("ROLLBACK")
        raise


def locked_tables(connection: Connection) -> set[str]:
    """Keep others from making or migrating the schema until the end of the transaction; return its tables."""
    connection.row(f"SELECT pg_advisory_xact_lock({LOCK})")
    return {name for (name,) in connection.rows(TABLES, SCHEMA_NAME)}


def is_ours(tables: set[str]) -> bool:
    return {"meta", "fences", "terms"} <= tables


def make_schema(connection: Connection) -> None:
    """Make the schema, unless it is there for a user who may not."""
    if connection.row(HAS_SCHEMA, SCHEMA_NAME)[0] == 0:
        connection.script(f"CREATE SCHEMA {SCHEMA_NAME}")
    log.info("schema_created", schema=SCHEMA_NAME, version=sql.SCHEMA_VERSION)


def make_rows(connection: Connection, *, identity: str, is_virtual: bool) -> None:
    """Write the rows that every store has, into the tables of a new one."""
    connection.run(sql.SET_META, identity, sql.SCHEMA_VERSION, is_virtual)
    connection.run(sql.SET_FENCE)
    connection.run(sql.SET_TERM, sql.PROTOCOL)


def _must_be_readable(connection: Connection, *, is_virtual: bool) -> None:
    version, was_virtual = connection.row(VERSION)
    if version > sql.SCHEMA_VERSION:
        message = f"the database has schema version {version}; this erelong reads versions up to {sql.SCHEMA_VERSION}; "
        raise StoreCorrupt(message + "start the erelong that wrote it, or a newer one")
    if version < 1:
        raise StoreCorrupt(f"the database has schema version {version}, which no erelong writes; restore a backup")
    if was_virtual and not is_virtual:
        raise WrongClock("the database was made under a virtual clock; add --virtual-clock, or name another database")
    if is_virtual and not was_virtual:
        raise WrongClock("the database holds jobs of real time; remove --virtual-clock, or name an empty database")
    for migration in MIGRATIONS:
        if migration.version > version:
            _apply(connection, migration)


def _apply(connection: Connection, migration: Migration) -> None:
    log.info("migration_started", schema=SCHEMA_NAME, version=migration.version)
    start, connection.patience = time.monotonic(), PATIENCE
    for statement in migration.statements:
        connection.script(statement)
    connection.run("UPDATE meta SET schema_version = %s", migration.version)
    log.info("migration_finished", version=migration.version, seconds=round(time.monotonic() - start, 3))
