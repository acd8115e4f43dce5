"""Checks of the server at a start: one that breaks a promise is refused, and one that weakens it is logged."""

from __future__ import annotations

from typing import TYPE_CHECKING

from erelong.errors import PlaceRefused
from erelong.stores.postgres.connection import connect
from erelong.telemetry.log import get_logger

if TYPE_CHECKING:
    from erelong.stores.postgres.connection import Connection

POOLER_ROUNDS = 3
BACKEND = "SELECT pg_backend_pid()"
SETTINGS = "SELECT current_setting('synchronous_commit'), current_setting('fsync')"
UNCONFIRMED_STANDBYS = """
SELECT count(*) FROM pg_stat_replication
WHERE current_setting('synchronous_standby_names') = '' OR current_setting('synchronous_commit') IN ('local', 'off')
"""

log = get_logger(__name__)


def check_server(connection: Connection, *, url: str, durability: str) -> None:
    """Raise `PlaceRefused` if this server cannot keep what erelong promises."""
    _must_be_direct(connection, url)
    if durability == "full":
        _must_be_durable(connection)
    (standbys,) = connection.row(UNCONFIRMED_STANDBYS)
    if standbys:
        log.warning(
            "standby_not_synchronous",
            standbys=standbys,
            effect="a failover to one of them may lose acknowledged jobs",
            remedy="set synchronous_standby_names in PostgreSQL",
        )


def _must_be_direct(connection: Connection, url: str) -> None:
    """Refuse a pooler that shares a session among its clients; one that gives each client a session is transparent."""
    if _backend(connection) == connection.info.backend_pid:
        return
    second = connect(url, role="0/start")
    try:
        for _ in range(POOLER_ROUNDS):
            if _backend(connection) == _backend(second):
                message = "[store] url leads to a pooler in transaction mode, but erelong needs sessions of its own"
                raise PlaceRefused(f"{message}; connect to PostgreSQL directly, or set the pool mode to session")
    finally:
        second.drop()


def _backend(connection: Connection) -> int:
    ((pid,),) = connection.run(BACKEND, prepare=False).fetchall()
    return int(pid)


def _must_be_durable(connection: Connection) -> None:
    synchronous_commit, fsync = connection.row(SETTINGS)
    name = "synchronous_commit" if synchronous_commit == "off" else "fsync" if fsync == "off" else None
    if name is not None:
        message = f"{name} is off in PostgreSQL, so a power cut could lose acknowledged jobs; turn it on"
        raise PlaceRefused(f'{message}, or set [store] durability = "normal"')
