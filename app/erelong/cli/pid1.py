"""The first process of a container: passes signals on to the service, and reaps what nobody else does."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

FIRST: Final = 1
HEARD: Final = (signal.SIGTERM, signal.SIGINT)


def run(command: Callable[[], int]) -> int:
    """Run a command and tell its exit code: in a child if this is the first process of a container, else right here.

    The kernel makes the first process the parent of every orphan, and one that is dead and not reaped keeps its number
    for ever. The service cannot reap what it does not know without stealing exit codes from functions that wait for
    processes of their own; a parent that does nothing else can.
    """
    if os.getpid() != FIRST:
        return command()
    signals = {*HEARD, signal.SIGHUP, signal.SIGCHLD}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)  # blocked, they wait; else the kernel drops them for this process
    child = os.fork()
    if child == 0:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)
        return command()
    return _tend(child, signals)


def _tend(child: int, signals: set[signal.Signals]) -> int:
    """Pass on and reap until the child has ended. All others end with this process: the kernel sees to that."""
    while True:
        heard = signal.sigwaitinfo(signals)
        if heard.si_signo == signal.SIGCHLD:
            code = _reap(child)
            if code is not None:
                return code
        elif heard.si_code <= 0 or heard.si_signo == signal.SIGHUP:
            # From a process, or that the terminal is gone. Ctrl+C comes from the kernel, which tells the child as well.
            os.kill(child, heard.si_signo)


def _reap(child: int) -> int | None:
    """Reap all that have died; the exit code once the child is among them, as a shell would give it."""
    while True:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return None
        if pid == child:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code
