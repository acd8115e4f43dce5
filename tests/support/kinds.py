"""A kind that runs a function of the test and records its attempts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from erelong.attempt import Attempt
from erelong.handlers.base import Stop
from erelong.handlers.kinds import Kind
from erelong.handlers.python.runner import attempt_of
from erelong.model.job import Job

Work = Callable[[Attempt], Awaitable[bytes | None]]


async def nothing(_: Attempt) -> None:
    """Succeed at once."""


async def for_ever(_: Attempt) -> None:
    """Run until it is stopped."""
    await asyncio.Event().wait()


def lasting(seconds: float, result: bytes | None = None) -> Work:
    async def work(_: Attempt) -> bytes | None:
        await asyncio.sleep(seconds)
        return result

    return work


def raising(*errors: BaseException | None) -> Work:
    """Raise each error in turn and then repeat the last; None succeeds."""
    left = list(errors)

    async def work(_: Attempt) -> None:
        error = left.pop(0) if len(left) > 1 else left[0]
        if error is not None:
            raise error

    return work


class FakeRunner:
    """Calls `work` and counts; `let_go` ends attempts in `swallow`. `kind` returns a kind that it runs."""

    abandoned = 0

    def __init__(self, work: Work = nothing, *, stop: Stop = Stop.COOPERATIVE, life: list[str] | None = None) -> None:
        self.work = work
        self.stop = stop
        self.attempts: list[Attempt] = []
        self.running = 0
        self.most_running = 0
        self.let_go = asyncio.Event()
        self._life = [] if life is None else life

    def kind(self, name: str) -> Kind:
        return Kind(name=name, type="fake", stop=self.stop, params_schema={}, params=self, runner=self)

    def check(self, params: bytes) -> None:
        """Take any params."""

    async def open(self) -> None:
        self._life.append("open kind")

    async def close(self) -> None:
        self._life.append("close kind")

    async def run(self, job: Job) -> bytes | None:
        attempt = attempt_of(job)
        self.attempts.append(attempt)
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        try:
            return await self.work(attempt)
        finally:
            self.running -= 1

    async def swallow(self, _: object = None) -> bytes:
        """Ignore every cancellation until `let_go` is set."""
        while not self.let_go.is_set():
            try:
                await self.let_go.wait()
            except asyncio.CancelledError:
                continue
        return b'"late"'
