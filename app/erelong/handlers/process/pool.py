"""The worker processes of some kinds: started before they are needed, used again, replaced when they are spent."""

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
    """At most `size` processes with the same surroundings; attempts that find none free wait in line.

    One that cannot be started fails the attempt that is first in line, and is tried again when somebody asks.
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
        self._surroundings = process_environment
        self._size = size
        self._grace = grace
        self._max_result = max_result
        self._functions: dict[str, str] = {}
        self._users = 0
        self._all: set[ProcessWorker] = set()
        self._idle: list[ProcessWorker] = []
        self._line: deque[asyncio.Future[ProcessWorker]] = deque()
        self._starting = 0
        self._duties: set[asyncio.Task[None]] = set()

    def add(self, kind: str, path: str) -> None:
        """Let its processes import the function of a kind; before the pool is opened."""
        self._functions[kind] = path

    async def open(self) -> None:
        """Start the processes; raise ConfigError when the first cannot be."""
        self._users += 1
        if self._users > 1:
            return
        await self._processes.open()
        try:
            self._take_in(await self._start())
        except StartFailed as error:
            self._users = 0
            await self._processes.close()
            raise ConfigError([str(error)]) from error
        self._fill()

    async def close(self) -> None:
        """Let the last user end all processes at once."""
        self._users -= 1
        if self._users:
            return
        self._idle.clear()
        for waiting in self._line:
            waiting.cancel()
        for duty in self._duties:
            duty.cancel()
        await asyncio.gather(*self._duties, *(process.stop(0.0) for process in self._all), return_exceptions=True)
        await self._processes.close()

    async def take(self) -> ProcessWorker:
        """Wait for a process that is free; it must be given back or ended."""
        while self._idle:
            process = self._idle.pop()
            if not process.is_spent:
                return process
            self._begin(self._retire(process))
        waiting: asyncio.Future[ProcessWorker] = asyncio.get_running_loop().create_future()
        self._line.append(waiting)
        self._fill()
        try:
            return await waiting
        except asyncio.CancelledError:
            if waiting.done() and not waiting.cancelled() and waiting.exception() is None:
                self.give_back(waiting.result())
            raise

    def give_back(self, process: ProcessWorker) -> None:
        if process.is_spent:
            self._begin(self._retire(process))
            return
        while self._line:
            waiting = self._line.popleft()
            if not waiting.done():
                waiting.set_result(process)
                return
        self._idle.append(process)

    async def end(self, process: ProcessWorker) -> Ended:
        """End a process and all that it started, SIGTERM first; another takes its place then."""
        ended = await process.stop(self._grace)
        self._all.discard(process)
        self._fill()
        return ended

    def _fill(self) -> None:
        """Bring the pool up to its size."""
        while self._users and len(self._all) + self._starting < self._size:
            self._starting += 1
            self._begin(self._add_one())

    async def _add_one(self) -> None:
        try:
            process = await self._start()
        except StartFailed as error:
            self._starting -= 1
            log.error("process_start_failed", error=str(error))
            self._refuse_first(error)
        except BaseException:
            self._starting -= 1
            raise
        else:
            self._starting -= 1
            self._take_in(process)

    async def _start(self) -> ProcessWorker:
        return await start_process_worker(
            processes=self._processes,
            process_environment=self._surroundings,
            functions=self._functions,
            max_result=self._max_result,
        )

    def _take_in(self, process: ProcessWorker) -> None:
        self._all.add(process)
        process.on_end(lambda: self._miss(process))
        self.give_back(process)

    def _refuse_first(self, error: StartFailed) -> None:
        while self._line:
            waiting = self._line.popleft()
            if not waiting.done():
                waiting.set_exception(AttemptFailed("exception", f"no process could be started for it: {error}"))
                break
        if self._line:
            self._fill()

    def _miss(self, process: ProcessWorker) -> None:
        """An idle process has died, by whatever hand: replace it, unless it never was of any use."""
        if process in self._idle:
            self._idle.remove(process)
            self._all.discard(process)
            log.warning("idle_process_died", process=process.pid)
            self._begin(self._bury(process))

    async def _retire(self, process: ProcessWorker) -> None:
        await self.end(process)

    async def _bury(self, process: ProcessWorker) -> None:
        await process.stop(0.0)
        if process.has_worked or self._line:
            self._fill()

    def _begin(self, duty: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(duty)
        self._duties.add(task)
        task.add_done_callback(self._duties.discard)
