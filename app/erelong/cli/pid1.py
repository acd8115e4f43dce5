"""The first process of a container: forwards signals to the service and reaps orphans."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

INIT_PID: Final = 1
FORWARDED: Final = (signal.SIGTERM, signal.SIGINT)


def run(command: Callable[[], int]) -> int:
    """Run a command and return its exit code. The first process of a container runs it in a child.

    The kernel makes the first process the parent of every orphan, and a dead orphan keeps its pid until it is reaped.
    The service cannot reap orphans without stealing exit codes from functions that wait for their own processes. A
    parent that does nothing else can.
    """
    if os.getpid() != INIT_PID:
        return command()
    signals = {*FORWARDED, signal.SIGHUP, signal.SIGCHLD}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)  # the kernel drops unblocked signals to pid 1
    child = os.fork()
    if child == 0:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)
        return command()
    return _supervise(child, signals)


def _supervise(child: int, signals: set[signal.Signals]) -> int:
    """Forward signals and reap until the child has ended. The kernel kills all others with this process."""
    while True:
        received = signal.sigwaitinfo(signals)
        if received.si_signo == signal.SIGCHLD:
            code = _reap(child)
            if code is not None:
                return code
        elif received.si_code <= 0 or received.si_signo == signal.SIGHUP:
            # From a process, or the terminal is gone. Ctrl+C comes from the kernel, which also signals the child.
            os.kill(child, received.si_signo)


def _reap(child: int) -> int | None:
    """Reap all dead processes. Return the exit code of the child, as a shell would give it, once it is among them."""
    while True:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return None
        if pid == child:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code
