"""The service's side of one worker process, which has imported its functions and waits for calls."""

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
MAX_MEMORY: Final = 512 * 1024 * 1024  # bytes that a process may hold between calls
START_TIME: Final = 60.0  # seconds to import the modules of the kinds

# Unbuffered, so that output survives a kill; faulthandler prints the traceback of a crash.
_OPTIONS: Final = ("-P", "-u", "-X", "faulthandler")
_PROGRAM: Final = str(Path(__file__).with_name("worker_main.py"))


class StartFailed(Exception):
    """A worker process did not start or could not import its functions; the text gives the reason."""


class WorkerGone(Exception):
    """The process ended, or closed its connection, before it answered."""


class Answer(NamedTuple):
    """The outcome of a call: a result, or the fields of AttemptFailed."""

    result: bytes | None
    failure: dict[str, Any] | None


class ProcessWorker:
    """A worker process that runs one call at a time."""

    def __init__(self, *, process: Process, tail: Tail, channel: _Channel, max_memory: int) -> None:
        self._process = process
        self._max_memory = max_memory
        self._tail = tail
        self._channel = channel
        self._calls = 0
        self._is_spent = False
        process.ended.add_done_callback(lambda _: channel.close())

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def has_worked(self) -> bool:
        return self._calls > 0

    @property
    def is_spent(self) -> bool:
        """Whether it must be replaced: it is old, large or gone, or a process that a call started still runs."""
        return self._is_spent or self._calls >= MAX_CALLS or self._channel.is_closed

    def on_end(self, callback: Callable[[], None]) -> None:
        """Call back when the process has ended, for any reason."""
        self._process.ended.add_done_callback(lambda _: callback())

    def call(self, kind: str, attempt: Attempt, params: bytes) -> asyncio.Future[Answer]:
        """Begin a call, whose future may raise WorkerGone. A caller that does not await it must `stop` the process."""
        self._calls += 1
        self._tail.clear()
        return self._channel.call(orjson.dumps({"kind": kind, "attempt": attempt._asdict()}), params, self._read)

    def output(self) -> str:
        """Return the last output of the call so far."""
        return self._tail.text()

    async def stop(self, grace: float) -> Ended:
        if self._channel.is_closed:  # it is dying; a signal would hide its own exit code
            await asyncio.wait((self._process.ended,), timeout=grace)
        ended = await self._process.stop(grace)
        self._channel.close()
        self._tail.close()
        return ended

    async def handshake(self, functions: Mapping[str, str], max_result: int) -> None:
        """Make it import its functions; raise StartFailed when it cannot."""
        greeting = {"path": [entry or os.getcwd() for entry in sys.path], "functions": functions}
        ready = self._channel.handshake(orjson.dumps({**greeting, "max_result": max_result}) + b"\n")
        try:
            problem = await asyncio.wait_for(ready, START_TIME)
        except TimeoutError:
            raise StartFailed(f"its functions were not imported within {START_TIME:g} s") from None
        except WorkerGone:
            ended = await self._process.stop(0.0)
            raise StartFailed(f"the process {ended}: {self.output() or 'it wrote no output'}") from None
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
    """Start a process and wait until it is ready; raise StartFailed when that fails."""
    max_memory = min(MAX_MEMORY, (process_environment.memory or 2 * MAX_MEMORY) // 2)
    try:
        with ExitStack() as opened:
            tail = opened.enter_context(Tail())
            ours, theirs = socketpair()
            opened.callback(ours.close)
            with theirs:
                process = await _start(processes, process_environment, [tail.writer, tail.writer, theirs.fileno()])
            tail.close_writer()
            worker = ProcessWorker(process=process, tail=tail, channel=await _connect(ours), max_memory=max_memory)
            try:
                await worker.handshake(functions, max_result)
            except BaseException:
                await shielded(worker.stop(0.0))
                raise
            opened.pop_all()
    except OSError as error:
        raise StartFailed(str(error)) from error
    return worker


async def _start(
    processes: SupervisorClient, process_environment: ProcessEnvironment, descriptors: list[int]
) -> Process:
    null = os.open(os.devnull, os.O_RDONLY)
    try:
        return await processes.start(
            [sys.executable, *_OPTIONS, _PROGRAM],
            path=sys.executable,
            process_environment=process_environment,
            descriptors=[null, *descriptors],
            is_reaper=True,
        )
    finally:
        os.close(null)


async def _connect(ours: socket) -> _Channel:
    _, channel = await asyncio.get_running_loop().create_unix_connection(_Channel, sock=ours)
    return channel


class _Call(NamedTuple):
    """A call that is not answered yet. `read` belongs to the worker, which its channel must not keep alive."""

    answer: asyncio.Future[Answer]
    read: Callable[[bytes, bytes], Answer]


class _Channel(asyncio.Protocol):
    """The connection to a worker process: a handshake answered by one message, then calls answered by two."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._frames = Frames()
        self._parts: list[bytes] = []
        self._transport: asyncio.WriteTransport | None = None
        self._ready: asyncio.Future[str | None] = self._loop.create_future()
        self._call: _Call | None = None

    @property
    def is_closed(self) -> bool:
        return self._transport is None

    def handshake(self, greeting: bytes) -> asyncio.Future[str | None]:
        if self._transport is not None:
            self._transport.write(greeting)
        return self._ready

    def call(self, head: bytes, params: bytes, read: Callable[[bytes, bytes], Answer]) -> asyncio.Future[Answer]:
        answer: asyncio.Future[Answer] = self._loop.create_future()
        if self._transport is None:
            answer.set_exception(WorkerGone())
        else:
            self._call = _Call(answer, read)
            self._transport.write(framed(head, params))
        return answer

    def close(self) -> None:
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
            if len(self._parts) == 2 and self._call is not None:
                call, self._call = self._call, None
                if not call.answer.done():
                    call.answer.set_result(call.read(*self._parts))
                self._parts.clear()

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        call, self._call = self._call, None
        for future in (self._ready, None if call is None else call.answer):
            if future is not None and not future.done():
                future.set_exception(WorkerGone())
