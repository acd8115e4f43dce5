"""erelong: a delayed-task service. Jobs are submitted over HTTP, run at their due times, and report their outcomes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from erelong.attempt import Attempt, Cancelled, GiveUp, RetryAfter
from erelong.version import VERSION

if TYPE_CHECKING:
    from erelong.client.aio.client import AsyncClient
    from erelong.client.aio.jobs import AsyncJob
    from erelong.client.batches import Ticket
    from erelong.client.drafts import Draft
    from erelong.client.errors import (
        Busy,
        Changed,
        Conflict,
        ErelongError,
        Forbidden,
        Invalid,
        JobCancelled,
        JobError,
        JobExpired,
        JobFailed,
        KeyTaken,
        LeaseLost,
        NoAnswer,
        NotFound,
        Refused,
        ResultTruncated,
        Unauthenticated,
        Unsupported,
        WrongState,
    )
    from erelong.client.executor.executor import Executor
    from erelong.client.kinds import Kind, kind
    from erelong.client.records import Event
    from erelong.client.sync.client import Client
    from erelong.client.sync.jobs import Job
    from erelong.client.worker.worker import Worker

    __all__ = [
        "AsyncClient",
        "AsyncJob",
        "Attempt",
        "Busy",
        "Cancelled",
        "Changed",
        "Client",
        "Conflict",
        "Draft",
        "ErelongError",
        "Event",
        "Executor",
        "Forbidden",
        "GiveUp",
        "Invalid",
        "Job",
        "JobCancelled",
        "JobError",
        "JobExpired",
        "JobFailed",
        "KeyTaken",
        "Kind",
        "LeaseLost",
        "NoAnswer",
        "NotFound",
        "Refused",
        "ResultTruncated",
        "RetryAfter",
        "Ticket",
        "Unauthenticated",
        "Unsupported",
        "Worker",
        "WrongState",
        "__version__",
        "kind",
    ]

__version__ = VERSION

_MODULES = {
    "AsyncClient": "aio.client",
    "AsyncJob": "aio.jobs",
    "Client": "sync.client",
    "Executor": "executor.executor",
    "Job": "sync.jobs",
    "Worker": "worker.worker",
    "Draft": "drafts",
    **dict.fromkeys(("Kind", "kind"), "kinds"),
    "Event": "records",
    "Ticket": "batches",
    **dict.fromkeys(("Busy", "Changed", "Conflict", "ErelongError", "Forbidden", "Invalid"), "errors"),
    **dict.fromkeys(("JobCancelled", "JobError", "JobExpired", "JobFailed", "KeyTaken", "LeaseLost"), "errors"),
    **dict.fromkeys(("NoAnswer", "NotFound", "Refused", "ResultTruncated", "Unauthenticated", "Unsupported"), "errors"),
    "WrongState": "errors",
}
_NEED_AIOHTTP = frozenset({"AsyncClient", "Worker"})


def __getattr__(name: str) -> Any:
    """Import a name of the client when it is used: functions that run as jobs need none of it."""
    if name == "__all__":  # asked for by `from erelong import *`
        return _names()
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"erelong.client.{_MODULES[name]}"), name)


def _names() -> list[str]:
    """Return the names that can be imported here."""
    from importlib.util import find_spec

    missing = frozenset() if find_spec("aiohttp") else _NEED_AIOHTTP
    return sorted({*_MODULES, "Attempt", "Cancelled", "GiveUp", "RetryAfter", "__version__"} - missing)
