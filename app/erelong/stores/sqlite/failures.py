"""Failures of SQLite and the disk, translated into the errors of the store boundary."""

from __future__ import annotations

import errno
from enum import Enum, auto

import apsw

from erelong.errors import Exit, Problem, StorageFull, StoreCorrupt, StoreFailed, StoreRefused, StoreUnavailable
from erelong.telemetry.log import get_logger

RESTORE = "put a copy back with `erelong restore FILE`"

log = get_logger(__name__)


class FailureKind(Enum):
    """The cause of a failure: a full disk, a failing disk, damaged data, or a lock of another program.

    OTHER is the fault of a call, not of the store.
    """

    FULL = auto()
    DISK = auto()
    DAMAGE = auto()
    HELD = auto()
    OTHER = auto()


_DAMAGES = {apsw.SQLITE_IOERR_DATA, apsw.SQLITE_IOERR_CORRUPTFS}  # the first: a page checksum does not match
_FULL = {errno.ENOSPC, errno.EDQUOT}


def diagnose(error: BaseException) -> FailureKind:
    match error:
        case apsw.FullError():
            return FailureKind.FULL
        case apsw.IOError() if getattr(error, "extendedresult", None) in _DAMAGES:
            return FailureKind.DAMAGE
        case apsw.CorruptError() | apsw.NotADBError() | UnicodeDecodeError():  # all text is written as UTF-8
            return FailureKind.DAMAGE
        case apsw.BusyError():
            return FailureKind.HELD
        case apsw.IOError() | apsw.ReadOnlyError() | apsw.CantOpenError():
            return FailureKind.DISK
        case OSError():
            return FailureKind.FULL if error.errno in _FULL else FailureKind.DISK
        case _:
            return FailureKind.OTHER


def described(error: BaseException) -> str:
    """Return the message of a failure with SQLite's result code, which can be searched for."""
    result = getattr(error, "extendedresult", None)
    return (str(error) or type(error).__name__) + (f" ({result})" if result else "")


def as_problem(error: BaseException) -> Problem:
    """Return the problem for a failure. An unexpected one is logged here, where its traceback is."""
    if isinstance(error, Problem):
        return error
    match diagnose(error):
        case FailureKind.FULL:
            return StorageFull("the disk is full; nothing was stored. Free some space; writes then resume")
        case FailureKind.DAMAGE:
            return StoreRefused(
                f"the stored data is damaged: {described(error)}; nothing was changed. Operator: {RESTORE}",
                exit=StoreCorrupt(f"the store is damaged: {described(error)}; {RESTORE}"),
            )
        case FailureKind.DISK:
            exit = StoreFailed(
                f"the disk failed: {described(error)}; check the disk and the kernel's log (dmesg), then start again"
            )
            return StoreUnavailable("the disk failed; nothing was stored", exit=exit)
        case FailureKind.HELD:
            return StoreUnavailable(
                "another program has locked the store; nothing was stored. Operator: stop that program"
            )
        case _:
            log.error("store_failed", exc_info=error)
            return StoreRefused(f"the store failed: {type(error).__name__}")


def as_exit(error: BaseException, path: object) -> Exit:
    """Return the exit for a store that cannot be opened."""
    if isinstance(error, Exit):
        return error
    if diagnose(error) is FailureKind.DAMAGE or isinstance(error, apsw.SQLError):
        return StoreCorrupt(f"{path} cannot be read as a database of erelong: {described(error)}; {RESTORE}")
    return StoreFailed(f"{path} cannot be opened: {described(error)}; check the disk and the permissions")
