"""The parent of all processes that jobs run in: starts them, and ends them with their descendants.

A separate program with one thread that imports the standard library only. Each process gets its own session, and the
kernel kills it if the supervisor dies. A descendant that leaves its session and loses its parent becomes a child of
the supervisor (PR_SET_CHILD_SUBREAPER). When the service ends or dies, the supervisor ends all processes, then itself.

Orders and reports are JSON, one per packet:

    ← {"start": 7, "path", "argv", "environment", "directory", "memory", "is_reaper"} with descriptors 0, 1, 2 …
    → {"started": 7, "pid"}   or   {"failed": 7, "error"}
    ← {"stop": 7, "grace"}: SIGTERM to its group, SIGKILL after the grace
    → {"ended": 7, "code", "memory", "left"}: it and its descendants are gone, except `left` that cannot be killed
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import math
import os
import resource
import select
import signal
import socket
import sys
import time
from collections import deque
from contextlib import suppress
from typing import Any, NoReturn

MAX_ORDER = 1 << 20
MAX_DESCRIPTORS = 8
START_TIME = 10.0  # seconds that an exec may take, such as from a slow disk
KILL_TIME = 5.0  # seconds after SIGKILL until a process is given up, such as one stuck in the kernel
PAUSE = 0.001  # seconds between two checks of dying processes
MARK = "ERELONG_PROCESS"
OOM_SCORE = "500"  # when memory runs out, the kernel takes these before the service

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36

_libc = ctypes.CDLL(None, use_errno=True)


class Group:
    """A started process and its descendants."""

    __slots__ = ("code", "give_up_at", "kill_at", "memory", "number", "pid")

    def __init__(self, *, number: int, pid: int) -> None:
        self.number = number
        self.pid = pid
        self.code: int | None = None
        self.memory = 0
        self.kill_at = math.inf
        self.give_up_at = math.inf

    def end(self, kill_at: float) -> None:
        """Set the time of SIGKILL, or move it forward."""
        self.kill_at = min(self.kill_at, kill_at)
        self.give_up_at = self.kill_at + KILL_TIME

    def signal(self, number: int) -> bool:
        """Signal the rest of its process group; return whether the group exists.

        The kernel does not reuse the group's number while the group exists or its first process is not reaped.
        """
        try:
            os.killpg(self.pid, number)
        except ProcessLookupError:
            return False
        except PermissionError:  # its program runs as another user
            return True
        return True

    @property
    def has_members(self) -> bool:
        return self.code is None or self.signal(0)


class Supervisor:
    """All groups, the connection to the service, and the event loop."""

    def __init__(self, *, service: socket.socket) -> None:
        self._service = service
        self._groups: dict[int, Group] = {}
        self._by_pid: dict[int, Group] = {}
        self._suspects: set[int] = set()
        self._reports: deque[bytes] = deque()
        self._is_orphan = False
        self._leave_at = math.inf
        self._token = os.urandom(8).hex()
        self._poll = select.poll()

    def run(self, service_pid: int) -> None:
        """Serve until the service and all processes are gone."""
        wakeup = _catch_signals()
        self._service.setblocking(False)
        self._service.set_inheritable(False)
        self._poll.register(self._service, select.POLLIN)
        self._poll.register(wakeup, select.POLLIN)
        service_end = _open_pidfd(service_pid)
        if service_end is not None:
            self._poll.register(service_end, select.POLLIN)
        if os.getppid() != service_pid:
            self._end_all()
        while not self._is_orphan or ((self._groups or self._strays()) and time.monotonic() < self._leave_at):
            for descriptor, _ in self._poll.poll(self._wait()):
                if descriptor == wakeup:
                    _read_all(wakeup)
                elif descriptor == service_end:
                    self._end_all()
                else:
                    self._exchange()
            self._reap()
            self._advance(time.monotonic())

    # the connection to the service

    def _exchange(self) -> None:
        self._send_reports()
        while not self._is_orphan:
            try:
                text, descriptors, _, _ = socket.recv_fds(self._service, MAX_ORDER, MAX_DESCRIPTORS)
            except BlockingIOError:
                return
            except OSError:
                text, descriptors = b"", []
            if not text:
                self._end_all()
                return
            for descriptor in descriptors:
                os.set_inheritable(descriptor, False)
            self._obey(json.loads(text), descriptors)

    def _obey(self, order: dict[str, Any], descriptors: list[int]) -> None:
        if "start" in order:
            self._start(order, descriptors)
        elif (group := self._groups.get(order["stop"])) is not None:
            group.end(time.monotonic() + order["grace"])
            if order["grace"] > 0:
                group.signal(signal.SIGTERM)

    def _end_all(self) -> None:
        """End all groups, since the service is gone."""
        if self._is_orphan:
            return
        self._is_orphan = True
        self._leave_at = time.monotonic() + 2 * KILL_TIME
        self._poll = select.poll()  # both descriptors of the service would stay readable
        for group in self._groups.values():
            group.end(time.monotonic())

    def _report(self, **fields: object) -> None:
        self._reports.append(json.dumps(fields).encode())
        self._send_reports()

    def _send_reports(self) -> None:
        """Send reports without blocking, since the service may be busy."""
        if self._is_orphan:
            return
        try:
            while self._reports:
                self._service.send(self._reports[0])
                self._reports.popleft()
        except BlockingIOError:
            pass
        except OSError:
            self._end_all()
            return
        self._poll.modify(self._service, select.POLLIN | (select.POLLOUT if self._reports else 0))

    # start

    def _start(self, order: dict[str, Any], descriptors: list[int]) -> None:
        number = order["start"]
        order["environment"][MARK] = f"{self._token}.{number}"
        read, write = os.pipe()
        try:
            pid = os.fork()
            if pid == 0:
                _become(order, descriptors, write)
        except OSError as error:
            pid, problem = 0, f"cannot fork: {error.strerror}"
        finally:
            for descriptor in (write, *descriptors):
                os.close(descriptor)
        if pid:
            problem = _start_problem(read)
        os.close(read)
        if problem:
            if pid:
                os.kill(pid, signal.SIGKILL)
            self._report(failed=number, error=problem)
            return
        self._groups[number] = self._by_pid[pid] = Group(number=number, pid=pid)
        self._report(started=number, pid=pid)

    # end

    def _reap(self) -> None:
        """Reap dead children. The rest of a group ends with its first process, unless its grace is running."""
        while (pid := _next_dead()) is not None:
            group = self._by_pid.pop(pid, None)
            if group is not None:
                now = time.monotonic()
                if group.kill_at == math.inf:
                    group.end(now)
                if group.kill_at <= now:
                    group.signal(signal.SIGKILL)  # before the reaping frees the number
            _, status, usage = os.wait4(pid, 0)
            if group is not None:
                group.code = os.waitstatus_to_exitcode(status)
                group.memory = usage.ru_maxrss * 1024

    def _advance(self, now: float) -> None:
        """Advance ending groups: SIGKILL at its time, repeated until no process is left, then the report."""
        ending = [group for group in self._groups.values() if group.kill_at < math.inf]
        for group in ending:
            if now >= group.kill_at:
                group.signal(signal.SIGKILL)
        over = [group for group in ending if not group.has_members or now >= group.give_up_at]
        if not over and not self._is_orphan:
            return
        strays = self._strays()
        for group in over:
            left = sum(number in (group.number, None) for number in strays.values())
            if left == 0 or now >= group.give_up_at:
                del self._groups[group.number]
                self._by_pid.pop(group.pid, None)
                left += group.has_members
                self._report(ended=group.number, code=group.code, memory=group.memory, left=left)
        self._kill(strays, {group.number for group in over})

    def _kill(self, strays: dict[int, int | None], numbers: set[int]) -> None:
        """Kill strays of these groups and of unknown groups. They are our children, so their numbers are not reused.

        A stray of an unknown group may be in the middle of an exec, so it is killed only when seen twice.
        """
        for pid, number in strays.items():
            if self._is_orphan or number in numbers or pid in self._suspects:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
        self._suspects = {pid for pid, number in strays.items() if number is None}

    def _strays(self) -> dict[int, int | None]:
        """Return adopted children, which lost their parents, with the numbers of their groups; None if unknown.

        The session identifies the group, or, if a process left it, the mark in its initial environment. A dead child
        counts until it is reaped, since its own children may not have been adopted yet.
        """
        sessions = {group.pid: group.number for group in self._groups.values()}
        strays: dict[int, int | None] = {}
        for pid, session in _children():
            if pid not in self._by_pid:
                number = sessions.get(session) or _mark(pid, self._token)
                strays[pid] = number if number in self._groups else None
        return strays

    def _wait(self) -> float | None:
        """Return the milliseconds until the next check is due; None if only an event can cause one."""
        now = time.monotonic()
        ending = [group for group in self._groups.values() if group.kill_at < math.inf]
        if not ending:
            return PAUSE * 1000 if self._is_orphan else None
        if any(now >= group.kill_at or group.code is not None for group in ending):
            return PAUSE * 1000
        return max(0.0, math.ceil((min(group.kill_at for group in ending) - now) * 1000))


def _become(order: dict[str, Any], descriptors: list[int], report: int) -> NoReturn:
    """Turn this child into the ordered program; write an error to `report`."""
    supervisor = os.getppid()
    try:
        report, *copies = [fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 64) for descriptor in (report, *descriptors)]
        os.setsid()
        _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != supervisor:
            os._exit(1)
        if order["is_reaper"]:
            _prctl(PR_SET_CHILD_SUBREAPER, 1)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        for target, descriptor in enumerate(copies):
            os.dup2(descriptor, target)
        with suppress(OSError), open("/proc/self/oom_score_adj", "w") as score:
            score.write(OOM_SCORE)
        if order["directory"] is not None:
            os.chdir(order["directory"])
        if order["memory"] is not None:
            resource.setrlimit(resource.RLIMIT_DATA, (order["memory"], order["memory"]))
        os.execve(order["path"], order["argv"], order["environment"])  # noqa: S606 - no shell is the point
    except OSError as error:
        os.write(report, f"{error.filename or order['path']}: {error.strerror}".encode(errors="replace"))
    except BaseException as error:  # noqa: BLE001 - a copy of the supervisor must not run on
        os.write(report, f"{type(error).__name__}: {error}".encode(errors="replace")[:4000])
    os._exit(1)


def _start_problem(report: int) -> str:
    """Return why a child could not become the ordered program; empty if it did."""
    if not select.select([report], [], [], START_TIME)[0]:
        return f"the program was not loaded within {START_TIME:g} s"
    return os.read(report, 4096).decode(errors="replace")


def _catch_signals() -> int:
    """Ignore signals to end; return a descriptor that is readable when a child has died."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    read, write = os.pipe()
    for descriptor in (read, write):
        os.set_blocking(descriptor, False)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    return read


def _open_pidfd(pid: int) -> int | None:
    """Return a descriptor that is readable when the service ends: its children may hold its socket open."""
    try:
        return os.pidfd_open(pid)
    except OSError:  # a kernel before 5.3
        return None


def _next_dead() -> int | None:
    try:
        dead = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return None
    return None if dead is None else dead.si_pid


def _children() -> list[tuple[int, int]]:
    """Return all children with their sessions."""
    me = os.getpid()
    try:
        with open(f"/proc/self/task/{me}/children") as listing:
            pids = listing.read().split()
    except FileNotFoundError:  # a kernel without CONFIG_PROC_CHILDREN
        pids = [name for name in os.listdir("/proc") if name.isdigit()]
    children = []
    for pid in pids:
        try:
            with open(f"/proc/{pid}/stat", errors="replace") as stat:
                _, parent, _, session = stat.read().rpartition(")")[2].split()[:4]
        except OSError:
            continue
        if int(parent) == me:
            children.append((int(pid), int(session)))
    return children


def _mark(pid: int, token: str) -> int | None:
    try:
        with open(f"/proc/{pid}/environ", "rb") as environment:
            _, _, rest = environment.read().partition(f"{MARK}={token}.".encode())
    except OSError:
        return None
    number = rest.partition(b"\0")[0]
    return int(number) if number.isdigit() else None


def _prctl(option: int, value: int) -> None:
    if _libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl {option}: {os.strerror(ctypes.get_errno())}")


def _read_all(descriptor: int) -> None:
    with suppress(BlockingIOError):
        while os.read(descriptor, 4096):
            pass


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as service:
        Supervisor(service=service).run(service_pid=int(sys.argv[2]))
