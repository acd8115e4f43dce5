"""The file descriptor limit: raises it, fits the settings to it, and logs its exhaustion sparingly."""

from __future__ import annotations

import asyncio
import errno
import sys
from typing import TYPE_CHECKING, Any

from erelong.telemetry.log import get_logger

if sys.platform != "win32":
    import resource

if TYPE_CHECKING:
    from erelong.settings.sections import Config

RESERVED = 128  # for the store, the log, processes, and connections beyond `max_connections`
MIN_CONNECTIONS = 8
QUIET = 10.0  # seconds between two log lines about exhausted descriptors

log = get_logger(__name__)


def raise_fd_limit(wanted: int) -> int:
    """Raise the limit to `wanted` as far as the system allows; return the limit."""
    if sys.platform == "win32":  # it has no such limit
        return wanted
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return wanted
    raised = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))
    return raised


def fit_to_fd_limit(config: Config) -> Config:
    """Return the settings with no more connections, in and out, than there are descriptors.

    `max_waiters` shrinks in proportion, otherwise waiting clients could take every connection.
    """
    limits, webhooks = config.limits, config.webhooks
    wanted = limits.max_connections + webhooks.max_connections + RESERVED
    limit = raise_fd_limit(wanted)
    if limit >= wanted:
        return config
    clients = min(limits.max_connections, max(MIN_CONNECTIONS, (limit - RESERVED) // 2))
    calls = min(webhooks.max_connections, max(MIN_CONNECTIONS, limit - RESERVED - clients))
    waiters = limits.max_waiters * clients // limits.max_connections
    log.warning(
        "fd_limit_low",
        allowed=limit,
        wanted=wanted,
        max_connections=clients,
        max_waiters=waiters,
        max_calls=calls,
        remedy=f"raise the limit: ulimit -n {wanted}",
    )
    return config.model_copy(
        update={
            "limits": limits.model_copy(update={"max_connections": clients, "max_waiters": waiters}),
            "webhooks": webhooks.model_copy(update={"max_connections": calls}),
        }
    )


class LoopExceptionHandler:
    """Handles exceptions of the event loop: logs exhausted descriptors once per `QUIET`, not thousands a second."""

    def __init__(self) -> None:
        self._logged_at = -QUIET

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if not isinstance(error, OSError) or error.errno not in (errno.EMFILE, errno.ENFILE):
            loop.default_exception_handler(context)
        elif loop.time() - self._logged_at >= QUIET:
            self._logged_at = loop.time()
            log.warning("fds_exhausted", error=str(error), during=context.get("message"))
