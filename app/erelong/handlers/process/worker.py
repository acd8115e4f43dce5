"""One worker process as the service sees it: it has imported its functions and waits for calls."""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import ExitStack
from pathlib import Path
from socket import socketpair
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

import orjson

from erelong.handlers.process.framing import Frames, framed
from erelong.handlers.process.supervisor_client import shielded
from erelong.handlers.process.tail import Tail

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from socket import socket

    from erelong.attempt import Attempt
    from erelong.handlers.process.supervisor_client import Ended, Process, ProcessEnvironment, SupervisorClient

MAX_CALLS: Final = 1_000
MAX_MEMORY: Final = 512 * 1024 * 1024  # bytes that one may hold between calls
START_TIME: Final = 60.0  # seconds to import the modules of the kinds

# Nothing of what is written is held back, so that it is there when the process is killed; a crash shows where it was.
_OPTIONS: Final = ("-P", "-u", "-X", "faulthandler")
_PROGRAM: Final = str(Path(__file__).with_name("worker_main.py"))


class StartFailed(Exception):
    """A worker process could not be started, or not import its functions; the text says why."""


class Gone(Exception):
    """The process ended, or closed its line, before it answered."""


class Answer(NamedTuple):
    """What came of a call: a result or none, or what failed, by the names of AttemptFailed."""

    result: bytes | None
    failure: dict[str, Any] | None


class ProcessWorker:
    """Takes one call at a time."""

    def __init__(self, *, process: Process, tail: Tail, line: _Line, max_memory: int) -> None:
        self._process = process
        self._max_memory = max_memory
        self._tail = tail
        self._line = line
        self._calls = 0
        self._is_spent = False
        process.ended.add_done_callback(lambda _: line.hang_up())

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def has_worked(self) -> bool:
        return self._calls > 0

    @property
    def is_spent(self) -> bool:
        """Whether it should not be called again: old, large, gone, or what a call began still runs."""
        return self._is_spent or self._calls >= MAX_CALLS or self._line.is_closed

    def on_end(self, tell: Callable[[], None]) -> None:
        """Tell when it has ended, for whatever reason."""
        self._process.ended.add_done_callback(lambda _: tell())

    def call(self, kind: str, attempt: Attempt, params: bytes) -> asyncio.Future[Answer]:
        """Begin a call. Its answer may be Gone; who does not wait for it must `stop` the process."""
        self._calls += 1
        self._tail.clear()
        return self._line.ask(orjson.dumps({"kind": kind, "attempt": attempt._asdict()}), params, self._read)

    def output(self) -> str:
        """The last of what the call has written up to now."""
        return self._tail.text()

    async def stop(self, grace: float) -> Ended:
        if self._line.is_closed:  # it has just died or is about to: how, is better known when nobody helps
            await asyncio.wait((self._process.ended,), timeout=grace)
        ended = await self._process.stop(grace)
        self._line.hang_up()
        self._tail.close()
        return ended

    async def handshake(self, functions: Mapping[str, str], max_result: int) -> None:
        """Let it import its functions; raise StartFailed when it cannot."""
        greeting = {"path": [entry or os.getcwd() for entry in sys.path], "functions": functions}
        ready = self._line.handshake(orjson.dumps({**greeting, "max_result": max_result}) + b"\n")
        try:
            problem = await asyncio.wait_for(ready, START_TIME)
        except TimeoutError:
            raise StartFailed(f"its functions were not imported within {START_TIME:g} s") from None
        except Gone:
            ended = await self._process.stop(0.0)
            raise StartFailed(f"the process {ended}: {self.output() or 'it said nothing'}") from None
        if problem is not None:
            raise StartFailed(problem)

    def _read(self, head: bytes, result: bytes) -> Answer:
        answer = orjson.loads(head)
        self._is_spent = answer["is_spent"] or answer["memory"] > self._max_memory
        return Answer(result if answer["has_result"] else None, answer["failure"])


async def start_process_worker(
    *,
    processes: SupervisorClient,
    process_environment: ProcessEnvironment,
    functions: Mapping[str, str],
    max_result: int,
) -> ProcessWorker:
    """Start a process and wait until it can be called; raise StartFailed when that fails."""
    max_memory = min(MAX_MEMORY, (process_environment.memory or 2 * MAX_MEMORY) // 2)
    try:
        with ExitStack() as opened:
            tail = opened.enter_context(Tail())
            ours, theirs = socketpair()
            opened.callback(ours.close)
            with theirs:
                process = await _start(processes, process_environment, [tail.writer, tail.writer, theirs.fileno()])
            tail.let_go()
            warm = ProcessWorker(process=process, tail=tail, line=await _connect(ours), max_memory=max_memory)
            try:
                await warm.handshake(functions, max_result)
            except BaseException:
                await shielded(warm.stop(0.0))
                raise
            opened.pop_all()
    except OSError as error:
        raise StartFailed(str(error)) from error
    return warm


async def _start(
    processes: SupervisorClient, process_environment: ProcessEnvironment, descriptors: list[int]
) -> Process:
    nothing = os.open(os.devnull, os.O_RDONLY)
    try:
        return await processes.start(
            [sys.executable, *_OPTIONS, _PROGRAM],
            path=sys.executable,
            process_environment=process_environment,
            descriptors=[nothing, *descriptors],
            is_reaper=True,
        )
    finally:
        os.close(nothing)


async def _connect(ours: socket) -> _Line:
    _, line = await asyncio.get_running_loop().create_unix_connection(_Line, sock=ours)
    return line


class _Line(asyncio.Protocol):
    """The line to a worker process: a greeting with one message for an answer, then calls with two."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._frames = Frames()
        self._parts: list[bytes] = []
        self._transport: asyncio.WriteTransport | None = None
        self._ready: asyncio.Future[str | None] = self._loop.create_future()
        self._answer: asyncio.Future[Answer] | None = None
        self._read: Callable[[bytes, bytes], Answer]

    @property
    def is_closed(self) -> bool:
        return self._transport is None

    def handshake(self, greeting: bytes) -> asyncio.Future[str | None]:
        if self._transport is not None:
            self._transport.write(greeting)
        return self._ready

    def ask(self, head: bytes, params: bytes, read: Callable[[bytes, bytes], Answer]) -> asyncio.Future[Answer]:
        self._answer = answer = self._loop.create_future()
        self._read = read
        if self._transport is None:
            answer.set_exception(Gone())
        else:
            self._transport.write(framed(head, params))
        return answer

    def hang_up(self) -> None:
        if self._transport is not None:
            self._transport.close()
            self.connection_lost(None)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.WriteTransport", transport)

    def data_received(self, data: bytes) -> None:
        self._frames.feed(data)
        while (message := self._frames.take()) is not None:
            if not self._ready.done():
                self._ready.set_result(orjson.loads(message)["problem"])
                continue
            self._parts.append(message)
            if len(self._parts) == 2 and self._answer is not None:
                if not self._answer.done():
                    self._answer.set_result(self._read(*self._parts))
                self._parts.clear()

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        for waited in (self._ready, self._answer):
            if waited is not None and not waited.done():
                waited.set_exception(Gone())
