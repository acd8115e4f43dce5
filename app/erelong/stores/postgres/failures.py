"""Failures of PostgreSQL and of the way to it, translated into the errors of the store boundary."""

from __future__ import annotations

from enum import Enum, auto

import psycopg
from psycopg import errors

from erelong.errors import Exit, Problem, StorageFull, StoreCorrupt, StoreFailed, StoreRefused, StoreUnavailable
from erelong.stores.postgres.statements import FENCE_REFUSED
from erelong.telemetry.log import get_logger

log = get_logger(__name__)


class FailureKind(Enum):
    """What a failure says about the group that met it.

    SESSION: the connection is gone, and the group may be stored or not. FENCED: another session writes. GONE: the
    tables are gone. FULL and OTHER: the database refused the group, so it is not stored. WAIT: the same, but it may
    succeed when repeated.
    """

    SESSION = auto()
    FENCED = auto()
    GONE = auto()
    FULL = auto()
    WAIT = auto()
    OTHER = auto()


class TermLost(Exception):
    """Another session has begun a new epoch, so this one must not write."""


class Unsettled(Exception):
    """The connection was lost while a group was written, and could not be restored to see whether it is stored."""


class Doubtful(psycopg.OperationalError):
    """The server reported a commit that its standbys may not have."""


class TooSlow(psycopg.OperationalError):
    """The server did not answer in time; its connection is closed."""


_SESSION = (
    errors.ReadOnlySqlTransaction,
    errors.CannotConnectNow,
    errors.AdminShutdown,
    errors.CrashShutdown,
    errors.IdleInTransactionSessionTimeout,
)
_GONE = (errors.UndefinedTable, errors.InvalidSchemaName)
_FULL = (errors.DiskFull, errors.ConfigurationLimitExceeded)
_WAIT = (errors.LockNotAvailable, errors.DeadlockDetected, errors.SerializationFailure, errors.QueryCanceled)


TAKEN_OVER = StoreFailed("another node has taken over this store; start again, to wait for its end")
GONE = StoreCorrupt(
    "the tables of erelong are gone from the database; restore it from a backup, or start again with empty tables"
)
_REMEDY = "check the server and [store] url"
# libpq reports a failed login without an SQLSTATE.
_REMEDIES = (
    ("(42501)", "grant the user of [store] url CREATE on the database, or all rights on its schema erelong"),
    ("too many ", "raise max_connections or the limit of the role in PostgreSQL, or end other sessions"),
    ("connection slots", "raise max_connections in PostgreSQL, or end other sessions"),
    ("sslmode", "correct sslmode in [store] url"),
    ("SSL", "correct sslmode in [store] url, or turn ssl on in PostgreSQL"),
    ("certificate", "correct sslmode or sslrootcert in [store] url"),
    ("lock timeout", "another program holds its tables; wait for the end of a copy, or end that program's session"),
    ("password", "check the user and the password in [store] url"),
    ("role ", "create the role, or correct the user in [store] url"),
    ("pg_hba.conf", "permit the connection in pg_hba.conf, or correct [store] url"),
    ("database ", "create the database, or correct its name in [store] url"),
    ("resolve host", "correct the host in [store] url"),
    ("session is read-only", "name the primary, not a standby, in [store] url"),
    ("server is in hot standby", "name the primary, not a standby, in [store] url"),
)


def diagnose(error: BaseException) -> FailureKind:
    match error:
        case TermLost():
            return FailureKind.FENCED
        case psycopg.Error() if error.sqlstate == FENCE_REFUSED:
            return FailureKind.FENCED
        case psycopg.Error() if isinstance(error, _GONE):
            return FailureKind.GONE
        case psycopg.Error() if isinstance(error, _FULL):
            return FailureKind.FULL
        case psycopg.Error() if isinstance(error, _WAIT):
            return FailureKind.WAIT
        case psycopg.Error() if isinstance(error, _SESSION):
            return FailureKind.SESSION
        case psycopg.OperationalError() if error.sqlstate is None or error.sqlstate[:2] in ("08", "53", "57", "58"):
            return FailureKind.SESSION
        case Unsettled() | psycopg.InterfaceError():  # the connection is closed
            return FailureKind.SESSION
        case _:
            return FailureKind.OTHER


def described(error: BaseException) -> str:
    """Return the first line of a message with its SQLSTATE. It names hosts and users, but never a password."""
    state = getattr(error, "sqlstate", None)
    text = str(error).strip().partition("\n")[0] or type(error).__name__
    return text + (f" ({state})" if state else "")


def as_problem(error: BaseException) -> Problem:
    """Return the problem for a failure. An unexpected one is logged here, where its traceback is."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, Unsettled):
        return StoreUnavailable("the connection to PostgreSQL was lost; the request may have been stored")
    if isinstance(error, TooSlow):
        return StoreUnavailable(f"PostgreSQL gave {error}; check the server and [store] url")
    match diagnose(error):
        case FailureKind.FULL:
            return StorageFull(
                "the disk of PostgreSQL is full; nothing was stored. Free some space; writes then resume"
            )
        case FailureKind.FENCED:
            return StoreUnavailable("another node writes the store; send the request again")
        case FailureKind.GONE:
            return StoreUnavailable("the tables of the store are gone", exit=GONE)
        case FailureKind.SESSION:
            exit = StoreFailed(f"PostgreSQL cannot be reached: {described(error)}; check the server and [store] url")
            return StoreUnavailable("PostgreSQL cannot be reached", exit=exit)
        case FailureKind.WAIT:
            return StoreUnavailable(
                f"PostgreSQL could not lock what the write needs: {described(error)}; nothing was stored. "
                "Operator: end the session that holds the lock"
            )
        case _:
            log.error("store_failed", exc_info=error)
            return StoreRefused(f"the store failed: {type(error).__name__}")


def as_exit(error: BaseException) -> Exit:
    """Return the exit for a store that cannot be opened."""
    if isinstance(error, Exit):
        return error
    if diagnose(error) is FailureKind.FENCED:
        return TAKEN_OVER
    text = described(error)
    remedies = (remedy for sign, remedy in _REMEDIES if sign in text)
    return StoreFailed(f"PostgreSQL cannot be used: {text}; {next(remedies, _REMEDY)}")
