"""Runs the kinds that are commands: a program with arguments, params on stdin, no shell."""

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
from erelong.handlers.python.signature import InvalidKind

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from erelong.handlers.process.supervisor_client import Ended, Process, ProcessEnvironment, SupervisorClient
    from erelong.model.job import Job

GIVE_UP_CODE: Final = 100  # the exit code by which qmail's programs report a permanent failure
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
    """Make a command kind; raise InvalidKind when the command cannot run."""
    command_line = read_command_line(command, patterns, process_environment.whole_environment)
    if process_environment.directory is not None and not os.path.isdir(process_environment.directory):
        raise InvalidKind(f'its directory "{process_environment.directory}" does not exist: create it, or name another')
    runner = CommandRunner(
        name=name, command_line=command_line, processes=processes, process_environment=process_environment, grace=grace
    )
    return Kind(
        name=name, type="command", stop=Stop.KILL, params_schema=command_line.schema, params=runner, runner=runner
    )


class CommandRunner:
    """Starts a program for each attempt; the processes that it leaves running end with it."""

    abandoned = 0

    def __init__(
        self,
        *,
        name: str,
        command_line: CommandLine,
        processes: SupervisorClient,
        process_environment: ProcessEnvironment,
        grace: float,
    ) -> None:
        self._name = name
        self._command_line = command_line
        self._processes = processes
        self._process_environment = process_environment
        self._grace = grace

    def check(self, params: bytes) -> None:
        faults = self._command_line.find_faults(orjson.loads(params))
        if faults:
            raise invalid(self._name, faults)

    async def open(self) -> None:
        await self._processes.open()

    async def close(self) -> None:
        await self._processes.close()

    async def run(self, job: Job) -> Result:
        params = orjson.loads(job.params)
        faults = self._command_line.find_faults(params)
        if faults:  # the patterns changed after the submit
            raise AttemptFailed("exception", invalid(self._name, faults).detail, retryable=False)
        with Tail() as stdout, Tail() as stderr:
            process = await self._start(self._command_line.fill(params), job, stdout, stderr)
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
                path=self._command_line.path,
                process_environment=self._process_environment,
                descriptors=[stdin, stdout.writer, stderr.writer],
                extra={"ERELONG_JOB_ID": job.id, "ERELONG_ATTEMPT": str(job.attempt)},
            )
        except OSError as error:
            raise AttemptFailed("exception", f"cannot start {words[0]}: {error}") from error
        finally:
            os.close(stdin)
            stdout.close_writer()
            stderr.close_writer()

    def _judge(self, ended: Ended, stdout: Tail, stderr: Tail) -> Result:
        name = os.path.basename(self._command_line.path)
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
    """Return the whole stdout if it is strict JSON; otherwise None, and it is only output."""
    if stdout.is_cut:
        return None
    text = stdout.take().strip()
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    return text


def _joined(stdout: Tail, stderr: Tail) -> str:
    """Return stdout, then stderr: the order in which they were written is unknown."""
    first, second = stdout.text(), stderr.text()
    return f"{first}\n{second}" if first and second and not first.endswith("\n") else first + second


def _last_lines(stderr: Tail) -> str:
    lines = stderr.text().strip().splitlines()[-SHOWN_LINES:]
    text = "\n".join(lines)[-SHOWN_CHARACTERS:]
    return f": {text}" if text else ""
