"""A worker: its kinds, its requests for jobs, and its end."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import socket
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Unpack

from erelong.client.aio.client import AsyncClient
from erelong.client.calls import leases as calls
from erelong.client.drafts import Options
from erelong.client.errors import Conflict, ErelongError, Forbidden, Invalid, Refused, Unauthenticated, refused_by
from erelong.client.kinds import Kind, KindDecorator
from erelong.client.worker import log
from erelong.client.worker.lease import Lease
from erelong.client.worker.reports import Reports

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

WAIT: Final = 30.0  # seconds that a request for jobs is held
MAX_PAUSE: Final = 30.0  # seconds between requests to a service that does not respond
PAUSE: Final = 1.0  # seconds after the system has started no thread


class Worker:
    """Runs jobs of pull kinds, `concurrency` at a time: coroutine functions on the loop, plain ones in threads.

    `lease` is how long a job stays with a worker that is frozen or cut off. The worker extends it by itself. With
    `once`, it works until no job is due, and ends.
    """

    def __init__(
        self,
        *kinds: Kind[..., Any, Any],
        queues: Sequence[str] = (),
        concurrency: int = 8,
        lease: float = 30.0,
        drain: float = 25.0,
        name: str | None = None,
        once: bool = False,
    ) -> None:
        self.kinds: dict[str, Kind[..., Any, Any]] = {kind.name: kind for kind in kinds}
        self.queues = [*queues]
        self.concurrency = concurrency
        self.lease = lease
        self.drain = drain
        self.name = name or f"{socket.gethostname()}/{os.getpid()}"[:100]
        self.once = once
        self.abandoned = 0
        self._has_no_thread = False
        self._running: dict[asyncio.Task[None], Lease] = {}
        self._is_stopping = False
        self._wake = asyncio.Event()
        self._poll: asyncio.Task[Any] | None = None

    def kind(self, name: str, **options: Unpack[Options]) -> KindDecorator:
        """Return a decorator that makes a kind of a function, as `erelong.kind` does, and runs its jobs here."""
        return _Registering(name, options, self.kinds)

    def run(self, make_client: Callable[[], AsyncClient] = AsyncClient, *, register: bool = False) -> int:
        """Work until SIGTERM or SIGINT, and return the exit code: 0 after a drain, 1 if all slots are abandoned.

        With `register`, declare the kinds to the service first.
        """
        return asyncio.run(self._run(make_client, register))

    async def _run(self, make_client: Callable[[], AsyncClient], must_register: bool) -> int:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._signalled, number)
        async with make_client() as client:
            if must_register:
                await self.register(client)
            await self.serve(client)
        return 1 if self.abandoned >= self.concurrency else 0

    def _signalled(self, number: int) -> None:
        if self._is_stopping:
            os._exit(128 + number)
        log.info("worker_draining", running=len(self._running), drain=self.drain)
        self.stop()

    async def register(self, client: AsyncClient) -> None:
        """Declare the kinds to the service, with the schemas of their params. Its settings may declare some already."""
        for kind in self.kinds.values():
            try:
                await client.kind(kind).put()
            except Conflict as problem:
                log.info("kind_fixed", kind=kind.name, detail=problem)
            else:
                log.info("kind_declared", kind=kind.name)

    def stop(self) -> None:
        """Take no more jobs, and let `serve` return when those that run have ended or `drain` seconds are over."""
        self._is_stopping = True
        self._wake.set()
        if self._poll is not None:
            self._poll.cancel()
        for lease in self._running.values():
            lease.attempt.worker_ends = True

    async def serve(self, client: AsyncClient) -> None:
        """Work until `stop` is called, all slots are abandoned, or `once` nothing is due and nothing runs."""
        if not self.kinds:
            raise ValueError("the worker has no kinds: give some, or decorate functions with @worker.kind(…)")
        reports = Reports(client=client, patience=self.lease)
        log.info("worker_started", name=self.name, kinds=",".join(self.kinds), concurrency=self.concurrency)
        try:
            await self._take_jobs(client, reports)
        finally:
            await self._drain()
        log.info("worker_ended", abandoned=self.abandoned)

    # taking jobs

    async def _take_jobs(self, client: AsyncClient, reports: Reports) -> None:
        failures = 0
        while not self._is_stopping and self.abandoned < self.concurrency:
            self._wake.clear()
            free = self.concurrency - self.abandoned - len(self._running)
            if not free:
                await self._wake.wait()
                continue
            if self._has_no_thread:
                self._has_no_thread = False
                await self._pause(PAUSE)
                continue
            try:
                leases = await self._ask(client, reports, free)
            except (Unauthenticated, Forbidden):
                raise
            except ErelongError as error:
                if self.once and isinstance(error, Invalid) and not self._running:
                    raise  # such as a kind that nobody has declared: waiting for it would never end
                failures += 1
                seconds = random.uniform(0.5, 1.0) * min(2.0 ** (failures - 1), MAX_PAUSE)
                log.warning("no_jobs", retry_in=seconds, detail=error)
                await self._pause(seconds)
                continue
            failures = 0
            for raw in leases:
                self._start(client, reports, raw)
            if self.once and not leases:
                if not self._running:
                    return
                await self._wake.wait()

    async def _ask(self, client: AsyncClient, reports: Reports, free: int) -> list[Any]:
        """Return leases as soon as there are some. `stop` ends the wait, and the service keeps the jobs."""
        name = reports.known({"worker": self.name}).get("worker")
        request = calls.lease([*self.kinds], self.queues, free, 0.0 if self.once else WAIT, self.lease, name)
        self._poll = asyncio.ensure_future(client.send(request))
        try:
            await asyncio.wait([self._poll])
            if self._poll.cancelled():
                return []
            leases: list[Any] = self._poll.result()["leases"]
        except Invalid as problem:
            if not reports.learn(problem):
                raise _explained(problem, [*self.kinds]) from None
            return await self._ask(client, reports, free)
        finally:
            if self._poll is not None:
                self._poll.cancel()
            self._poll = None
        return leases

    async def _pause(self, seconds: float) -> None:
        """Wait, at most until a function ends or the worker is stopped."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wake.wait()

    def _start(self, client: AsyncClient, reports: Reports, raw: Any) -> None:
        kind = self.kinds[raw["job"]["kind"]]
        lease = Lease(client=client, reports=reports, kind=kind, raw=raw, seconds=self.lease)
        lease.attempt.worker_ends = self._is_stopping
        task = asyncio.create_task(lease.run(), name=f"job {lease.attempt.id}")
        self._running[task] = lease
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        lease = self._running.pop(task)
        self._has_no_thread |= lease.has_no_thread
        if lease.abandoned is not None:
            self.abandoned += 1
            log.error("attempt_abandoned", kind=lease.attempt.kind, job=lease.attempt.id, total=self.abandoned)
            lease.abandoned.add_done_callback(self._returned)
        self._wake.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("worker_failed", error, job=lease.attempt.id)

    def _returned(self, call: asyncio.Future[Any]) -> None:
        """Take the slot of an abandoned function back, since it has ended after all."""
        if not call.cancelled():
            call.exception()  # nobody wants it: asyncio need not warn
        self.abandoned -= 1
        self._wake.set()

    # the end

    async def _drain(self) -> None:
        """Wait for running jobs, then release the rest without counting their attempts."""
        self._is_stopping = True
        if self._running:
            await asyncio.wait([*self._running], timeout=self.drain)
        rest = {**self._running}
        for lease in rest.values():
            log.info("attempt_released", kind=lease.attempt.kind, job=lease.attempt.id)
        await asyncio.gather(*(lease.release() for lease in rest.values()))
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)


def _explained(problem: Invalid, kinds: Sequence[str]) -> Refused:
    """Return a refusal that names the kinds which the service does not know, and how to declare them."""
    text = " ".join(str(error.get("detail", "")) for error in problem.errors)
    unknown = [kind for kind in kinds if f"{kind!r} is not a pull kind" in text]
    if not unknown:
        return problem
    remedy = (
        "declare them with --register (worker.run(register=True)), or add the lines of erelong schema to config.toml"
    )
    detail = f"not pull kinds of this service: {', '.join(unknown)}; {remedy}"
    return refused_by(problem.status, {**problem.problem, "detail": detail, "errors": []})


class _Registering(KindDecorator):
    """Makes a kind of a function, and adds it to a worker."""

    written = "worker.kind"

    def __init__(self, name: str, options: Options, kinds: dict[str, Kind[..., Any, Any]]) -> None:
        super().__init__(name, options)
        self._kinds = kinds

    def make(self, function: Callable[..., Any]) -> Kind[..., Any, Any]:
        made = super().make(function)
        self._kinds[made.name] = made
        return made
