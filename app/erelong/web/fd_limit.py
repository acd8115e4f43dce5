"""Open files and sockets: how many the process may have, and few words in the log when it has no more."""

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

RESERVED = 128  # for the store, the log, processes, and clients that are told that they are too many
LEAST = 8
QUIET = 10.0  # seconds between two lines about the same want

log = get_logger(__name__)


def allowed(wanted: int) -> int:
    """Have this many allowed, as far as the system lets us; how many are."""
    if sys.platform == "win32":  # which knows no such limit
        return wanted
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return wanted
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    return most


def fitted(config: Config) -> Config:
    """The settings with no more connections, of clients and to others, than there are descriptors for.

    The share of clients that may be made to wait stays, or those would keep all others out.
    """
    limits, webhooks = config.limits, config.webhooks
    wanted = limits.max_connections + webhooks.max_connections + RESERVED
    found = allowed(wanted)
    if found >= wanted:
        return config
    clients = min(limits.max_connections, max(LEAST, (found - RESERVED) // 2))
    calls = min(webhooks.max_connections, max(LEAST, found - RESERVED - clients))
    waiters = limits.max_waiters * clients // limits.max_connections
    log.warning(
        "fd_limit_low",
        allowed=found,
        wanted=wanted,
        max_connections=clients,
        max_waiters=waiters,
        max_calls=calls,
        remedy=f"ulimit -n {wanted}, or more",
    )
    return config.model_copy(
        update={
            "limits": limits.model_copy(update={"max_connections": clients, "max_waiters": waiters}),
            "webhooks": webhooks.model_copy(update={"max_connections": calls}),
        }
    )


class Complaints:
    """What the event loop has to say: of descriptors that have run out one line in `QUIET`, not thousands a second."""

    def __init__(self) -> None:
        self._said_at = -QUIET

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if not isinstance(error, OSError) or error.errno not in (errno.EMFILE, errno.ENFILE):
            loop.default_exception_handler(context)
        elif loop.time() - self._said_at >= QUIET:
            self._said_at = loop.time()
            log.warning("fds_exhausted", error=str(error), during=context.get("message"))
