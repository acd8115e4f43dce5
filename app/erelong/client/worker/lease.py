"""One leased job: its function runs, its lease is extended, and its outcome is reported."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from erelong.attempt import Cancelled, GiveUp, RetryAfter
from erelong.client.calls import leases as calls
from erelong.client.errors import ErelongError, LeaseLost, NotFound
from erelong.client.times import read_instant
from erelong.client.tracing import attempt_span
from erelong.client.worker import log
from erelong.client.worker.attempt import read_attempt
from erelong.client.worker.reports import type_of
from erelong.client.worker.threads import ThreadPerCall

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from erelong.client.aio.client import AsyncClient
    from erelong.client.kinds import Kind
    from erelong.client.worker.reports import Reports

GRACE: Final = 5.0  # seconds that a function gets to end after it was asked to


class Lease:
    """A leased job while it runs. `abandoned` is the call of a function that did not end when it was asked to."""

    def __init__(
        self,
        *,
        client: AsyncClient,
        reports: Reports,
        kind: Kind[..., Any, Any],
        raw: Mapping[str, Any],
        seconds: float,
    ) -> None:
        self._client = client
        self._reports = reports
        self._kind = kind
        self._seconds = seconds
        self._token: str = raw["token"]
        self._params: Mapping[str, Any] = raw["job"].get("params", {})
        self._is_lost = False
        self._call: asyncio.Future[Any] | None = None
        self.attempt = read_attempt(raw["job"], raw)
        self.abandoned: asyncio.Future[Any] | None = None
        self.has_no_thread = False

    async def run(self) -> None:
        """Run the function to its end, and report it."""
        began = self._client.tick()
        about = {"kind": self.attempt.kind, "job": self.attempt.id}
        log.info("attempt_started", **about, attempt=self.attempt.number)
        heartbeat = asyncio.create_task(self._extend(), name=f"heartbeat of {self.attempt.id}")
        try:
            outcome = await self._run_function()
            log.info("attempt_ended", **about, outcome=outcome, took=self._client.tick() - began)
        finally:
            heartbeat.cancel()
            with suppress(asyncio.CancelledError):
                await heartbeat

    def stop(self, reason: str) -> None:
        """Ask the function to stop: cancel a coroutine, let `attempt.check` raise in a thread."""
        self.attempt.stop_reason = reason
        if self._call is not None and self._kind.is_async:
            self._call.cancel()

    async def release(self) -> None:
        """Give the job back without counting the attempt, since the worker ends."""
        self._is_lost = True
        self.stop("the worker ends")
        await self._reports.released(self._token)

    async def _run_function(self) -> str:
        try:
            positional, named = self._kind.arguments(self._params, self.attempt)
        except Exception as error:  # noqa: BLE001 - params that do not fit now, for whatever reason, will not fit later
            return await self._fail(error, is_final=True)
        try:
            call = self._call = self._start(partial(self._kind.function, *positional, **named))
        except RuntimeError as error:  # out of threads: another worker may have some
            log.warning("no_thread", kind=self.attempt.kind, job=self.attempt.id, detail=error)
            self.has_no_thread = True
            await self._reports.released(self._token)
            return "released"
        await asyncio.wait([call], timeout=self.attempt.timeout)
        if not call.done():
            return await self._time_out(call)
        if self._is_lost:
            _read(call)
            return "lost"
        return await self._report(call)

    def _start(self, call: Callable[[], Any]) -> asyncio.Future[Any]:
        if self._kind.is_async:
            return asyncio.create_task(self._await(call))
        return asyncio.get_running_loop().run_in_executor(ThreadPerCall(), self._run, call)

    async def _await(self, call: Callable[[], Awaitable[Any]]) -> Any:
        with attempt_span(self.attempt):
            return await call()

    def _run(self, call: Callable[[], Any]) -> Any:
        with attempt_span(self.attempt):
            return call()

    async def _report(self, call: asyncio.Future[Any]) -> str:
        if call.cancelled():
            error: BaseException | None = Cancelled(self.attempt.stop_reason or "the function cancelled itself")
        else:
            error = call.exception()
        if error is not None:
            return await self._fail(error, has_traceback=not isinstance(error, GiveUp | RetryAfter | Cancelled))
        refusal = await self._reports.finished(self._token, call.result())
        return "succeeded" if refusal is None else await self._fail(refusal, is_final=True)

    async def _fail(
        self, error: BaseException, *, type: str | None = None, is_final: bool = False, has_traceback: bool = False
    ) -> str:
        """Report and log a failure, with the traceback of a function that has a bug."""
        job = await self._reports.failed(self._token, error, type=type, is_final=is_final)
        about = {"kind": self.attempt.kind, "job": self.attempt.id, "attempt": self.attempt.number}
        cause = error if has_traceback else None
        log.warning("attempt_failed", cause, **about, **_retry_of(job), error=type or _name_of(error), message=error)
        return "failed"

    async def _time_out(self, call: asyncio.Future[Any]) -> str:
        reason = f"exceeded {self.attempt.timeout:g} s"
        self.stop(reason)
        if not self._is_lost:
            await self._fail(TimeoutError(reason), type="timeout")
        await asyncio.wait([call], timeout=GRACE)
        if call.done():
            _read(call)
        else:
            self.abandoned = call
        return "timeout"

    async def _extend(self) -> None:
        """Extend the lease at a third of its time, and stop the function once it is lost or a cancel was requested."""
        until = self._client.tick() + self._seconds
        while True:
            await asyncio.sleep(self._seconds / 3)
            sent = self._client.tick()
            try:
                left = max(until - sent, 0.1)
                answer = await self._client.send(calls.extend(self._token, self._seconds), timeout=left)
            except (LeaseLost, NotFound) as problem:
                self._lose(str(problem))
                return
            except ErelongError as error:
                if self._client.tick() >= until:
                    self._lose(f"no heartbeat reached the service: {error}")
                    return
                continue
            until = sent + self._seconds
            if answer.get("cancel_requested") and self.attempt.stop_reason is None:
                self.stop("a cancel was requested")

    def _lose(self, reason: str) -> None:
        log.warning("lease_lost", kind=self.attempt.kind, job=self.attempt.id, detail=reason)
        self._is_lost = True
        self.stop(f"the lease is lost: {reason}")


def _name_of(error: BaseException) -> str:
    """Return the type of an error: that of the service, or of Python if the service knows it as an exception only."""
    word = type_of(error)
    return type(error).__name__ if word == "exception" else word


def _retry_of(job: Mapping[str, Any]) -> dict[str, float]:
    """Return the seconds until the next attempt at a job whose attempt has just failed."""
    if job.get("state") != "scheduled" or not job.get("attempts"):
        return {}
    delay = read_instant(job["due_at"]) - read_instant(job["attempts"][-1]["finished_at"])
    return {"retry_in": delay.total_seconds()}


def _read(call: asyncio.Future[Any]) -> None:
    """Take the outcome of a call that nobody wants, so that asyncio does not warn of it."""
    if not call.cancelled():
        call.exception()
