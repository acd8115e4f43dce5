"""Runs the kinds that are plain functions in worker processes, which can be killed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from erelong.handlers.base import AttemptFailed, Result, Stop
from erelong.handlers.kinds import Kind
from erelong.handlers.process.supervisor_client import crashed, shielded, timed_out
from erelong.handlers.process.worker import WorkerGone
from erelong.handlers.python.loading import import_function, is_coroutine_function
from erelong.handlers.python.runner import Function, FunctionRunner, attempt_of
from erelong.handlers.python.signature import InvalidKind, read_signature

if TYPE_CHECKING:
    from erelong.handlers.process.pool import ProcessPool
    from erelong.model.job import Job


def make_process_kind(*, name: str, path: str, pool: ProcessPool) -> Kind:
    """Make a kind of the function `path` ("module:function"); raise InvalidKind when it cannot be one."""
    function = import_function(path)
    if is_coroutine_function(function):
        raise InvalidKind(
            'isolation = "process" needs a plain function, and this is an "async def": leave isolation out'
        )
    pool.add(name, path)
    known = Function(function, read_signature(function))
    runner = ProcessRunner(name=name, function=known, pool=pool)
    return Kind(
        name=name,
        type="python",
        isolation="process",
        stop=Stop.KILL,
        params_schema=known.signature.params_schema,
        result_schema=known.signature.result_schema,
        params=runner,
        runner=runner,
    )


class ProcessRunner(FunctionRunner):
    """Calls a plain function in a worker process.

    An attempt waits for a free process, and its timeout counts from then.
    """

    def __init__(self, *, name: str, function: Function, pool: ProcessPool) -> None:
        super().__init__(name=name, function=function)
        self._pool = pool

    async def open(self) -> None:
        await self._pool.open()

    async def close(self) -> None:
        await self._pool.close()

    async def run(self, job: Job) -> Result:
        process = await self._pool.take()
        call = process.call(self._name, attempt_of(job), job.params)
        try:
            await asyncio.wait((call,), timeout=job.timeout)
        except asyncio.CancelledError:
            call.cancel()
            await shielded(self._pool.end(process))
            raise
        if not call.done():
            call.cancel()
            await shielded(self._pool.end(process))
            raise timed_out(job.timeout, process.output())
        try:
            answer = call.result()
        except WorkerGone:
            ended = await shielded(self._pool.end(process))
            raise crashed("the process that ran it", ended, process.output()) from None
        output = process.output()
        self._pool.give_back(process)
        if answer.failure is not None:
            raise AttemptFailed(**answer.failure, output=output)
        return Result(answer.result, output)
