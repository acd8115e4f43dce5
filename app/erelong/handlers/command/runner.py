"""The kinds that are commands: a program with its arguments, no shell, params on its stdin."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Final

import orjson

from erelong.handlers.base import AttemptFailed, Result, Stop
from erelong.handlers.command.template import CommandLine, read_command_line
from erelong.handlers.kinds import Kind
from erelong.handlers.param_errors import invalid
from erelong.handlers.process.supervisor_client import crashed, shielded, timed_out
from erelong.handlers.process.tail import Tail
from erelong.handlers.python.signature import Unfit

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from erelong.handlers.process.supervisor_client import Ended, Process, ProcessEnvironment, SupervisorClient
    from erelong.model.job import Job

GIVE_UP_CODE: Final = 100  # what qmail's programs, and others since, say for "it is of no use to try again"
SHOWN_LINES: Final = 3
SHOWN_CHARACTERS: Final = 500


def make_command_kind(
    *,
    name: str,
    command: Sequence[str],
    patterns: Mapping[str, str] | None,
    processes: SupervisorClient,
    process_environment: ProcessEnvironment,
    grace: float,
) -> Kind:
    """Read the command and see that it can be run; raise Unfit when it cannot."""
    line = read_command_line(command, patterns, process_environment.whole_environment)
    if process_environment.directory is not None and not os.path.isdir(process_environment.directory):
        raise Unfit(f'its directory "{process_environment.directory}" is not there: make it, or name another')
    runner = CommandRunner(
        name=name, line=line, processes=processes, process_environment=process_environment, grace=grace
    )
    return Kind(name=name, type="command", stop=Stop.KILL, params_schema=line.schema, params=runner, runner=runner)


class CommandRunner:
    """A program that is started for each attempt; what it leaves running ends with it."""

    abandoned = 0

    def __init__(
        self,
        *,
        name: str,
        line: CommandLine,
        processes: SupervisorClient,
        process_environment: ProcessEnvironment,
        grace: float,
    ) -> None:
        self._name = name
        self._line = line
        self._processes = processes
        self._surroundings = process_environment
        self._grace = grace

    def check(self, params: bytes) -> None:
        faults = self._line.find_faults(orjson.loads(params))
        if faults:
            raise invalid(self._name, faults)

    async def open(self) -> None:
        await self._processes.open()

    async def close(self) -> None:
        await self._processes.close()

    async def run(self, job: Job) -> Result:
        values = orjson.loads(job.params)
        faults = self._line.find_faults(values)
        if faults:  # accepted when its patterns were others
            raise AttemptFailed("exception", invalid(self._name, faults).detail, retryable=False)
        with Tail() as stdout, Tail() as stderr:
            process = await self._start(self._line.fill(values), job, stdout, stderr)
            try:
                await asyncio.wait((process.ended,), timeout=job.timeout)
            except asyncio.CancelledError:
                await shielded(process.stop(self._grace))
                raise
            if not process.ended.done():
                await shielded(process.stop(self._grace))
                raise timed_out(job.timeout, _joined(stdout, stderr))
            return self._judge(process.ended.result(), stdout, stderr)

    async def _start(self, words: list[str], job: Job, stdout: Tail, stderr: Tail) -> Process:
        stdin = os.memfd_create("params")
        try:
            os.write(stdin, job.params)
            os.lseek(stdin, 0, os.SEEK_SET)
            return await self._processes.start(
                words,
                path=self._line.path,
                process_environment=self._surroundings,
                descriptors=[stdin, stdout.writer, stderr.writer],
                extra={"ERELONG_JOB_ID": job.id, "ERELONG_ATTEMPT": str(job.attempt)},
            )
        except OSError as error:
            raise AttemptFailed("exception", f"{words[0]} could not be started: {error}") from error
        finally:
            os.close(stdin)
            stdout.let_go()
            stderr.let_go()

    def _judge(self, ended: Ended, stdout: Tail, stderr: Tail) -> Result:
        name = os.path.basename(self._line.path)
        if ended.code is None or ended.code < 0:
            raise crashed(name, ended, _joined(stdout, stderr))
        if ended.code > 0:
            is_final = ended.code == GIVE_UP_CODE
            raise AttemptFailed(
                "give_up" if is_final else "exception",
                f"{name} {ended}{_last_lines(stderr)}",
                retryable=not is_final,
                output=_joined(stdout, stderr),
            )
        result = _json(stdout)
        return Result(result, stderr.text() if result is not None else _joined(stdout, stderr))


def _json(stdout: Tail) -> bytes | None:
    """What was written if that is JSON, as a whole and as strictly as params are; else it is just output."""
    if stdout.is_cut:
        return None
    text = stdout.take().strip()
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    return text


def _joined(stdout: Tail, stderr: Tail) -> str:
    """One after the other: in which order they were written, nobody knows."""
    first, second = stdout.text(), stderr.text()
    return f"{first}\n{second}" if first and second and not first.endswith("\n") else first + second


def _last_lines(stderr: Tail) -> str:
    lines = stderr.text().strip().splitlines()[-SHOWN_LINES:]
    text = "\n".join(lines)[-SHOWN_CHARACTERS:]
    return f": {text}" if text else ""
