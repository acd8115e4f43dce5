"""The process around the event loop: the loop itself, the signals that stop it, and tasks left on it."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from typing import TYPE_CHECKING

from erelong.telemetry.log import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any

    from erelong.duties.signal import Signal
    from erelong.errors import Exit
    from erelong.stores.base import Store

STRAY_GRACE = 0.1  # seconds: with RELEASE_GRACE of the workers, shutdown ends within a second of drain_timeout

log = get_logger(__name__)


def run_loop(service: Coroutine[Any, Any, Exit | None], loop: str) -> Exit | None:
    """Run the service on the named loop; return why it ended. Tasks that do not end are killed with the process."""
    with asyncio.Runner(loop_factory=_loop_factory(loop)) as runner:
        reason = runner.run(service)
        strays = runner.run(end_strays(STRAY_GRACE))
        if strays:
            log.warning("tasks_left_running", tasks=strays)
            logging.shutdown()
            if reason is not None:
                sys.stderr.write(f"{reason.line}\n")
            sys.stderr.flush()
            os._exit(reason.code if reason else 0)  # a task that swallows its cancellation would keep the loop running
    return reason


def handle_signals(hangup: Signal) -> asyncio.Event:
    """Return an event that the first SIGTERM or SIGINT sets. The second signal ends the process at once.

    SIGHUP sets `hangup`. If stdin is a terminal, SIGHUP means that the terminal is gone and drains the service. A
    second SIGHUP is harmless, since the shell and the kernel may both send one.
    """
    stopping = asyncio.Event()
    is_at_terminal = os.isatty(0)

    def stop(number: int) -> None:
        if stopping.is_set():
            os._exit(128 + number)
        stopping.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop, number)
    loop.add_signal_handler(signal.SIGHUP, stopping.set if is_at_terminal else hangup.set)
    return stopping


async def led(stopping: asyncio.Event, take_over: Coroutine[Any, Any, None]) -> bool:
    """Wait until this node leads; return False if a signal stops it before."""
    leading = asyncio.ensure_future(take_over)
    stop = asyncio.ensure_future(stopping.wait())
    await asyncio.wait((leading, stop), return_when=asyncio.FIRST_COMPLETED)
    stop.cancel()
    if leading.done():
        await leading
        return True
    leading.cancel()
    await asyncio.wait((leading,))
    return False


async def stop_requested(stopping: asyncio.Event, store: Store) -> Exit | None:
    """Wait for a signal, or for the store to end; return why the store ended."""
    end_of_store = asyncio.ensure_future(store.end())
    end_of_store.add_done_callback(lambda _: stopping.set())
    await stopping.wait()
    return None if end_of_store.cancel() else end_of_store.result()


async def end_strays(grace: float) -> int:
    """Cancel the tasks left on this loop, such as abandoned attempts; return how many do not end."""
    strays = asyncio.all_tasks() - {asyncio.current_task()}
    for task in strays:
        task.cancel()
    return len((await asyncio.wait(strays, timeout=grace))[1]) if strays else 0


def _loop_factory(name: str) -> Callable[[], asyncio.AbstractEventLoop] | None:
    if name != "uvloop":
        return None
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop
