"""The service's side of the supervisor: starts it, and starts and ends processes through it."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import orjson

from erelong.handlers.base import AttemptFailed
from erelong.telemetry.log import get_logger

if TYPE_CHECKING:
    from collections.abc import Coroutine, Mapping, Sequence

IS_SUPPORTED: Final = sys.platform == "linux"
ANSWER_TIME: Final = 15.0  # seconds; longer than the supervisor's own limits for a start and a kill
INHERITED: Final = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR")

_SUPERVISOR: Final = Path(__file__).with_name("supervisor.py")
_MAX_REPORT: Final = 65_536

T = TypeVar("T")

log = get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessEnvironment:
    """The environment, directory and memory limit of a process; it inherits a few variables of the service."""

    environment: Mapping[str, str] = field(default_factory=dict)
    directory: str | None = None
    memory: int | None = None

    @property
    def whole_environment(self) -> dict[str, str]:
        return {name: os.environ[name] for name in INHERITED if name in os.environ} | dict(self.environment)


class Ended(NamedTuple):
    """How a process ended: its exit code, negative for a signal, None if unknown, and its peak memory."""

    code: int | None
    memory: int = 0

    def __str__(self) -> str:
        if self.code is None:
            return "was lost with the process supervisor"
        if self.code >= 0:
            return f"ended with exit code {self.code}"
        try:
            name = signal.Signals(-self.code).name
        except ValueError:
            name = f"signal {-self.code}"
        hint = ", perhaps because memory ran out" if self.code == -signal.SIGKILL else ""
        return f"was ended by {name}{hint} (it had {self.memory / 1e6:.0f} MB)"


class Process:
    """One process in its own session; `ended` is done when it and its descendants are gone."""

    def __init__(self, *, number: int, supervisor: _Supervisor) -> None:
        loop = asyncio.get_running_loop()
        self.pid = 0
        self.started: asyncio.Future[None] = loop.create_future()
        self.ended: asyncio.Future[Ended] = loop.create_future()
        self._number = number
        self._supervisor = supervisor

    async def stop(self, grace: float) -> Ended:
        """Send SIGTERM to its group, and SIGKILL after the grace; with a grace of 0, SIGKILL at once."""
        if not self.ended.done():
            self._supervisor.send({"stop": self._number, "grace": grace})
            await self._supervisor.wait_for(self.ended, grace + ANSWER_TIME)
        return self.ended.result()


class SupervisorClient:
    """Starts processes. All kinds share one client; the first `open` starts the supervisor."""

    def __init__(self) -> None:
        self._users = 0
        self._supervisor: _Supervisor | None = None

    async def open(self) -> None:
        self._users += 1
        if self._supervisor is None:
            self._supervisor = _Supervisor()

    async def close(self) -> None:
        """End all processes and the supervisor, if this is the last user."""
        self._users -= 1
        if self._users == 0 and self._supervisor is not None:
            supervisor, self._supervisor = self._supervisor, None
            await supervisor.close()

    async def start(
        self,
        argv: Sequence[str],
        *,
        path: str,
        process_environment: ProcessEnvironment,
        descriptors: Sequence[int],
        extra: Mapping[str, str] | None = None,
        is_reaper: bool = False,
    ) -> Process:
        """Start the program at `path`, with the descriptors as its 0, 1, 2 …, and `extra` in its environment.

        Raise OSError when it cannot start. A cancel leaves no process behind.
        """
        if self._supervisor is None:
            raise OSError("cannot start a process: the handler is not open")
        if self._supervisor.is_lost:
            self._supervisor = _Supervisor()
        order = {
            "path": path,
            "argv": list(argv),
            "environment": process_environment.whole_environment | dict(extra or {}),
            "directory": process_environment.directory,
            "memory": process_environment.memory,
            "is_reaper": is_reaper,
        }
        process = self._supervisor.start(order, descriptors)
        try:
            await self._supervisor.wait_for(process.started, ANSWER_TIME)
        except asyncio.CancelledError:
            await shielded(process.stop(0.0))
            process.started.exception()  # otherwise asyncio logs that it was never retrieved
            raise
        process.started.result()
        return process


class _Supervisor:
    """A supervisor process and the connection to it."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._processes: dict[int, Process] = {}
        self._count = 0
        self._orders: deque[tuple[bytes, list[int]]] = deque()
        self._gone: asyncio.Future[None] = self._loop.create_future()
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            command = [sys.executable, "-I", "-S", str(_SUPERVISOR), str(theirs.fileno()), str(os.getpid())]
            self._process = subprocess.Popen(
                command,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env=ProcessEnvironment().whole_environment,
                start_new_session=True,
            )
        self._socket.setblocking(False)
        self._loop.add_reader(self._socket, self._receive)

    @property
    def is_lost(self) -> bool:
        return self._gone.done()

    def start(self, order: dict[str, Any], descriptors: Sequence[int]) -> Process:
        self._count += 1
        process = self._processes[self._count] = Process(number=self._count, supervisor=self)
        # Copies, since the order may have to wait until the socket accepts it.
        self.send({"start": self._count, **order}, [os.dup(descriptor) for descriptor in descriptors])
        return process

    def send(self, order: dict[str, Any], descriptors: Sequence[int] = ()) -> None:
        self._orders.append((orjson.dumps(order), list(descriptors)))
        if len(self._orders) == 1:
            self._send_on()

    async def wait_for(self, report: asyncio.Future[Any], timeout: float) -> None:
        """Wait for a report; at the timeout, kill the supervisor, and with it all processes."""
        if not (await asyncio.wait((report,), timeout=timeout))[0]:
            log.error("supervisor_stuck", process=self._process.pid)
            self._lose()

    async def close(self) -> None:
        """Close the connection, upon which the supervisor ends all processes and itself."""
        if not self.is_lost:
            self._socket.shutdown(socket.SHUT_WR)
            await asyncio.wait((self._gone,), timeout=ANSWER_TIME)
            self._lose()

    def _send_on(self) -> None:
        self._loop.remove_writer(self._socket)
        while self._orders:
            order, descriptors = self._orders[0]
            try:
                socket.send_fds(self._socket, [order], descriptors)
            except BlockingIOError:
                self._loop.add_writer(self._socket, self._send_on)
                return
            except OSError as error:
                self._refuse(order, error)
            self._orders.popleft()
            _close(descriptors)

    def _refuse(self, order: bytes, error: OSError) -> None:
        """Fail an order that cannot be sent, such as one too large for a packet."""
        number = orjson.loads(order).get("start")
        process = self._processes.pop(number, None) if number and not self.is_lost else None
        if process is not None:
            process.ended.set_result(Ended(None))
            process.started.set_exception(OSError(error.errno, f"{error.strerror} ({len(order)} bytes to start it)"))

    def _receive(self) -> None:
        while True:
            try:
                text = self._socket.recv(_MAX_REPORT)
            except BlockingIOError:
                return
            except OSError:
                text = b""
            if not text:
                self._lose()
                return
            self._apply(orjson.loads(text))

    def _apply(self, report: dict[str, Any]) -> None:
        match report:
            case {"started": number, "pid": pid}:
                process = self._processes[number]
                process.pid = pid
                process.started.set_result(None)
            case {"failed": number, "error": error}:
                process = self._processes.pop(number)
                process.ended.set_result(Ended(None))
                process.started.set_exception(OSError(error))
            case {"ended": number, "code": code, "memory": memory, "left": left}:
                process = self._processes.pop(number)
                process.ended.set_result(Ended(code, memory))
                if left:
                    log.error("processes_left_running", process=process.pid, left=left)

    def _lose(self) -> None:
        """Fail all processes: when the supervisor is gone, the kernel has killed them."""
        if self.is_lost:
            return
        self._gone.set_result(None)
        self._loop.remove_reader(self._socket)
        self._loop.remove_writer(self._socket)
        self._socket.close()
        self._process.kill()
        self._process.wait()
        for _, descriptors in self._orders:
            _close(descriptors)
        self._orders.clear()
        for process in self._processes.values():
            if not process.started.done():
                process.started.set_exception(OSError("the process supervisor is gone"))
            process.ended.set_result(Ended(None))
        if self._processes:
            log.error("supervisor_lost", processes=len(self._processes), code=self._process.returncode)
        self._processes.clear()


async def shielded(work: Coroutine[Any, Any, T]) -> T:
    """Await work to its end despite cancellations, then raise the last of them."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled
    return task.result()


def crashed(name: str, ended: Ended, output: str) -> AttemptFailed:
    return AttemptFailed("crashed", f"{name} {ended}", output=output)


def timed_out(timeout: float, output: str) -> AttemptFailed:
    return AttemptFailed("timeout", f"it did not end within {timeout:g} s", output=output)


def _close(descriptors: Sequence[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
