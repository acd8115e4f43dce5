"""What SQLite cannot do, in the words of the boundary."""

from __future__ import annotations

import apsw

from app.errors import Problem, StorageFull, StoreUnavailable
from app.log import get_logger

log = get_logger(__name__)


def as_problem(error: Exception) -> Problem:
    """Say it in the words of the boundary; what is unexpected is logged here, where its traceback is."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, apsw.FullError):
        return StorageFull("the disk is full; nothing was stored. Free some space; it goes on by itself", retry_after=5)
    log.error("store_failed", exc_info=error)
    return StoreUnavailable(f"the store failed: {type(error).__name__}", retry_after=5)
