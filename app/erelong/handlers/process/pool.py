"""A pool of worker processes: started in advance, reused, and replaced when worn out."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from erelong.handlers.base import AttemptFailed
from erelong.handlers.process.worker import ProcessWorker, StartFailed, start_process_worker
from erelong.settings.section import ConfigError
from erelong.telemetry.log import get_logger

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from typing import Any

    from erelong.handlers.process.supervisor_client import Ended, ProcessEnvironment, SupervisorClient

log = get_logger(__name__)


class ProcessPool:
    """At most `size` processes with the same environment; attempts wait for a free one in order.

    A process that cannot be started fails the first waiting attempt. The pool tries again for the next attempt.
    """

    def __init__(
        self,
        *,
        processes: SupervisorClient,
        process_environment: ProcessEnvironment,
        size: int,
        grace: float,
        max_result: int,
    ) -> None:
        self._processes = processes
        self._process_environment = process_environment
        self._size = size
        self._grace = grace
        self._max_result = max_result
        self._functions: dict[str, str] = {}
        self._users = 0
        self._all: set[ProcessWorker] = set()
        self._idle: list[ProcessWorker] = []
        self._waiting: deque[asyncio.Future[ProcessWorker]] = deque()
        self._starting = 0
        self._tasks: set[asyncio.Task[None]] = set()

    def add(self, kind: str, path: str) -> None:
        """Make its processes import the function of a kind; call it before `open`."""
        self._functions[kind] = path

    async def open(self) -> None:
        """Start the processes; raise ConfigError when the first cannot start."""
        self._users += 1
        if self._users > 1:
            return
        await self._processes.open()
        try:
            self._admit(await self._start())
        except StartFailed as error:
            self._users = 0
            await self._processes.close()
            raise ConfigError([str(error)]) from error
        self._fill()

    async def close(self) -> None:
        """End all processes at once, if this is the last user."""
        self._users -= 1
        if self._users:
            return
        self._idle.clear()
        for future in self._waiting:
            future.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, *(process.stop(0.0) for process in self._all), return_exceptions=True)
        await self._processes.close()

    async def take(self) -> ProcessWorker:
        """Wait for a free process. The caller must give it back or end it."""
        while self._idle:
            process = self._idle.pop()
            if not process.is_spent:
                return process
            self._spawn(self._retire(process))
        future: asyncio.Future[ProcessWorker] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        self._fill()
        try:
            return await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled() and future.exception() is None:
                self.give_back(future.result())
            raise

    def give_back(self, process: ProcessWorker) -> None:
        if process.is_spent:
            self._spawn(self._retire(process))
            return
        while self._waiting:
            future = self._waiting.popleft()
            if not future.done():
                future.set_result(process)
                return
        self._idle.append(process)

    async def end(self, process: ProcessWorker) -> Ended:
        """End a process and its descendants, SIGTERM first; then start a replacement."""
        ended = await process.stop(self._grace)
        self._all.discard(process)
        self._fill()
        return ended

    def _fill(self) -> None:
        """Bring the pool up to its size."""
        while self._users and len(self._all) + self._starting < self._size:
            self._starting += 1
            self._spawn(self._add_one())

    async def _add_one(self) -> None:
        try:
            process = await self._start()
        except StartFailed as error:
            self._starting -= 1
            log.error("process_start_failed", error=str(error))
            self._fail_first(error)
        except BaseException:
            self._starting -= 1
            raise
        else:
            self._starting -= 1
            self._admit(process)

    async def _start(self) -> ProcessWorker:
        return await start_process_worker(
            processes=self._processes,
            process_environment=self._process_environment,
            functions=self._functions,
            max_result=self._max_result,
        )

    def _admit(self, process: ProcessWorker) -> None:
        self._all.add(process)
        process.on_end(lambda: self._note_end(process))
        self.give_back(process)

    def _fail_first(self, error: StartFailed) -> None:
        while self._waiting:
            future = self._waiting.popleft()
            if not future.done():
                future.set_exception(AttemptFailed("exception", f"cannot start a process for it: {error}"))
                break
        if self._waiting:
            self._fill()

    def _note_end(self, process: ProcessWorker) -> None:
        """Remove a process that died while idle, and replace it if it ever took a call."""
        if process in self._idle:
            self._idle.remove(process)
            self._all.discard(process)
            log.warning("idle_process_died", process=process.pid)
            self._spawn(self._clean_up(process))

    async def _retire(self, process: ProcessWorker) -> None:
        await self.end(process)

    async def _clean_up(self, process: ProcessWorker) -> None:
        await process.stop(0.0)
        if process.has_worked or self._waiting:
            self._fill()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
