"""Command kinds: input, output, stopping and declaration."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path

import orjson
import pytest

from erelong.errors import Invalid
from erelong.handlers.base import Result, Stop
from erelong.handlers.registry import make_kinds
from erelong.settings.kinds import KindSettings
from erelong.settings.section import ConfigError
from erelong.settings.sections import Config
from tests.handlers.attempts import ID, make_attempt
from tests.handlers.process_runs import OpenKind, failure, run, until
from tests.support.alive import alive, written

pytestmark = [pytest.mark.real_loop("asyncio", "uvloop"), pytest.mark.timeout(30)]

ANY = {"x": "(?s:.*)"}
PIDS = {"pids": ".*"}


# Input


async def test_params_arrive_on_stdin_unchanged(open_command: OpenKind) -> None:
    handler = await open_command("cat")
    params = b'{"list": [1, 2.50], "text": "\\u00e9"}'

    result = await handler.run(make_attempt(params))

    assert result == Result(params)


@pytest.mark.parametrize("size", [1_000_000, 65_000])
async def test_large_params_need_not_be_read(open_command: OpenKind, size: int) -> None:
    assert await run(await open_command("true"), text="x" * size) == Result(None)


async def test_params_fill_its_arguments(open_command: OpenKind) -> None:
    handler = await open_command("printf", "[%s]", "-{x}-", "{x}", params=ANY)

    assert (await run(handler, x="a b;$(id)\n")).output == "[-a b;$(id)\n-][a b;$(id)\n]"


async def test_environment_has_only_declared_variables_and_the_identity_of_the_attempt(
    open_command: OpenKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET", "s")
    handler = await open_command("env", environment={"MODE": "x=y", "LANG": "C"})

    lines = (await run(handler)).output.splitlines()

    assert {"MODE=x=y", "LANG=C", f"ERELONG_JOB_ID={ID}", "ERELONG_ATTEMPT=4"} <= set(lines)
    assert not any(line.startswith("SECRET") for line in lines)


async def test_command_runs_in_its_directory(open_command: OpenKind, tmp_path: Path) -> None:
    assert (await run(await open_command("pwd", directory=tmp_path))).output == f"{tmp_path}\n"
    assert (await run(await open_command("pwd"))).output == f"{Path.cwd()}\n"


async def test_memory_is_limited(open_command: OpenKind) -> None:
    handler = await open_command(sys.executable, "-c", "bytearray(10**9)", memory=100_000_000)

    failed = await failure(handler)

    assert (failed.type, failed.message.splitlines()[-1]) == ("exception", "MemoryError")


async def test_command_has_only_its_three_descriptors(open_command: OpenKind) -> None:
    result = await run(await open_command("sh", "-c", "for fd in /proc/$$/fd/*; do echo ${{fd##*/}}; done"))

    assert set(result.output.split()) <= {"0", "1", "2", "3", "10", "255"}  # 3 and above: the shell's own


# Outcome


@pytest.mark.parametrize(
    ("written", "result"),
    [
        ('{"a": [1, 2]}\n', b'{"a": [1, 2]}'),
        ("  null ", b"null"),
        ('"text"', b'"text"'),
        ("12", b"12"),
        ("", None),
        ("done", None),
        ("NaN", None),
        ('{"a": 1}{"b": 2}', None),
        ("1\nprogress", None),
    ],
)
async def test_stdout_is_the_result_if_it_is_json_and_otherwise_output(
    open_command: OpenKind, written: str, result: bytes | None
) -> None:
    handler = await open_command("sh", "-c", 'printf %s "$1"; echo note >&2', "sh", "{x}", params=ANY)

    expected = "note\n" if result is not None or not written else f"{written}\nnote\n"
    assert await run(handler, x=written) == Result(result, expected)


async def test_only_the_end_of_long_output_is_kept(open_command: OpenKind) -> None:
    handler = await open_command("sh", "-c", "yes | head -c 5000000; echo end")

    result = await run(handler)

    assert result.json is None
    assert len(result.output) == 65_536
    assert result.output.endswith("y\nend\n")


async def test_output_that_is_not_utf8_is_shown_with_replacements(open_command: OpenKind) -> None:
    assert (await run(await open_command("printf", r"\377\000a"))).output == "�\0a"


async def test_exit_code_fails_the_attempt_with_the_last_lines_of_stderr(open_command: OpenKind) -> None:
    handler = await open_command("sh", "-c", "echo out; for n in 1 2 3 4 5; do echo line $n >&2; done; exit 3")

    failed = await failure(handler)

    assert (failed.type, failed.retryable) == ("exception", True)
    assert failed.message == "sh ended with exit code 3: line 3\nline 4\nline 5"
    assert failed.output == "out\nline 1\nline 2\nline 3\nline 4\nline 5\n"


async def test_exit_code_100_gives_up(open_command: OpenKind) -> None:
    failed = await failure(await open_command("sh", "-c", "exit 100"))

    assert (failed.type, failed.message, failed.retryable) == ("give_up", "sh ended with exit code 100", False)


async def test_death_by_a_signal_is_a_crash(open_command: OpenKind) -> None:
    failed = await failure(await open_command("sh", "-c", "echo last; kill -SEGV $$"))

    assert failed.type == "crashed"
    assert failed.message.startswith("sh was ended by SIGSEGV")
    assert failed.output == "last\n"


async def test_program_deleted_after_the_start_fails_the_attempt(open_command: OpenKind, tmp_path: Path) -> None:
    program = tmp_path / "run"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o700)
    handler = await open_command(str(program))

    program.unlink()
    failed = await failure(handler)

    assert failed.type == "exception"
    assert failed.message == f"cannot start {program}: {program}: No such file or directory"


async def test_arguments_that_are_too_long_fail_the_attempt(open_command: OpenKind) -> None:
    handler = await open_command("echo", "{x}", params=ANY)

    for size in (200_000, 1_000_000):  # above the limits of the kernel and of a packet
        failed = await failure(handler, x="x" * size)
        assert failed.message.startswith("cannot start echo: ")
    assert (await run(handler, x="short")).output == "short\n"


# Stopping

NASTY = {
    "waits": 'echo $$ >> "$1"; exec sleep 600',
    "spins": 'echo $$ >> "$1"; while :; do :; done',
    "ignores": 'trap "" TERM; echo $$ >> "$1"; while :; do sleep 1; done',
    "forks": 'trap "" TERM; for n in 1 2 3; do sh -c "echo \\$\\$ >> $1; exec sleep 600" & done; echo $$ >> "$1"; wait',
    "leaves": 'setsid sh -c "echo \\$\\$ >> $1; trap : TERM; sleep 600; sleep 600" & echo $$ >> "$1"; wait',
    "hides": 'setsid env -i sh -c "echo \\$\\$ >> $1; exec sleep 600" & echo $$ >> "$1"; exec timeout 600 sleep 600',
}


@pytest.mark.parametrize("way", NASTY)
async def test_command_over_its_timeout_is_dead_with_all_it_started(
    open_command: OpenKind, pids: Path, way: str
) -> None:
    handler = await open_command(
        "sh", "-c", NASTY[way].replace("{", "{{").replace("}", "}}"), "sh", "{pids}", params=PIDS
    )
    began = time.monotonic()

    failed = await failure(handler, 0.5, pids=str(pids))

    took = time.monotonic() - began
    assert (failed.type, failed.message) == ("timeout", "it did not end within 0.5 s")
    assert 0.5 <= took < 0.5 + 0.2 + 1.0
    assert written(pids)
    assert alive(pids) == []


@pytest.mark.parametrize("way", NASTY)
async def test_cancelled_command_is_dead_with_all_it_started(open_command: OpenKind, pids: Path, way: str) -> None:
    handler = await open_command("sh", "-c", NASTY[way], "sh", "{pids}", params=PIDS)
    attempt = asyncio.ensure_future(run(handler, pids=str(pids)))
    await until(lambda: bool(written(pids)))

    attempt.cancel()
    with pytest.raises(asyncio.CancelledError):
        await attempt

    assert alive(pids) == []


async def test_command_cancelled_before_its_start_leaves_nothing(open_command: OpenKind, pids: Path) -> None:
    handler = await open_command("sh", "-c", NASTY["ignores"], "sh", "{pids}", params=PIDS)
    attempt = asyncio.ensure_future(run(handler, pids=str(pids)))
    await asyncio.sleep(0)

    attempt.cancel()
    with pytest.raises(asyncio.CancelledError):
        await attempt

    assert alive(pids) == []


async def test_processes_that_a_command_leaves_running_end_with_it(open_command: OpenKind, pids: Path) -> None:
    script = 'sleep 600 & echo $! >> "$1"; setsid sh -c "echo \\$\\$ >> $1; exec sleep 600" & sleep 0.1; echo 1'
    handler = await open_command("sh", "-c", script, "sh", "{pids}", params=PIDS)

    result = await run(handler, pids=str(pids))

    assert result.json == b"1"
    assert len(written(pids)) == 2
    assert alive(pids) == []


async def test_output_of_a_command_that_was_stopped_is_kept(open_command: OpenKind) -> None:
    handler = await open_command("sh", "-c", "echo begun; echo why >&2; sleep 600")

    assert (await failure(handler, 0.3)).output == "begun\nwhy\n"


async def test_command_may_use_its_grace(open_command: OpenKind) -> None:
    handler = await open_command("sh", "-c", 'trap "echo tidied up; exit" TERM; sleep 600 & wait', grace=20.0)

    assert (await failure(handler, 0.3)).output == "tidied up\n"


async def test_many_commands_run_beside_one_another_and_leave_no_descriptors(open_command: OpenKind) -> None:
    handler = await open_command("cat")
    await run(handler)
    before = len(os.listdir("/proc/self/fd"))

    results = await asyncio.gather(*(run(handler, number=number) for number in range(100)))

    assert [orjson.loads(result.json or b"") for result in results] == [{"number": number} for number in range(100)]
    assert len(os.listdir("/proc/self/fd")) == before


# Declaring


def test_command_kind_has_its_stop_and_schema() -> None:
    kind = make_kinds(Config(kinds={"call": KindSettings(command=["true", "{x}"], params=ANY)}))["call"]

    assert (kind.type, kind.isolation, kind.stop) == ("command", None, Stop.KILL)
    assert kind.params_schema["required"] == ["x"]
    assert kind.result_schema is None
    kind.params.check(b'{"x": "y"}')
    with pytest.raises(Invalid, match='the params do not fit kind "call": /x: is required'):
        kind.params.check(b"{}")


def test_command_that_cannot_be_run_stops_the_start() -> None:
    kinds = {"a": KindSettings(command=["/no/such"]), "b": KindSettings(command=["true"], directory=Path("/no/such"))}

    with pytest.raises(ConfigError) as refused:
        make_kinds(Config(kinds=kinds))

    assert refused.value.problems == (
        'kinds.a.command: "/no/such" is missing, or not executable',
        'kinds.b.command: its directory "/no/such" does not exist: create it, or name another',
    )
