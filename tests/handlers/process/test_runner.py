"""Functions in processes: calls, failures, output, and processes that die."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import orjson
import pytest

from erelong.errors import Invalid
from erelong.handlers.base import Result, Stop
from erelong.handlers.registry import make_kinds
from erelong.settings.section import ConfigError
from erelong.settings.sections import Config
from tests.handlers.attempts import FUNCTIONS, ID, handler_of, make_attempt
from tests.handlers.process_runs import OpenKind, OpenKinds, failure, in_process, run, until
from tests.support.alive import written

pytestmark = [pytest.mark.real_loop("asyncio", "uvloop"), pytest.mark.timeout(30)]


# Calls


async def test_function_gets_typed_arguments_and_its_result_is_json(open_kinds: OpenKinds) -> None:
    names = ("add", "postpone", "ship_tried")
    handlers = await open_kinds({name: in_process(name, module=FUNCTIONS) for name in names})

    assert (await run(handlers["add"], a="1")).json == b"3"
    assert (await run(handlers["postpone"], at="2026-12-01T09:00:00Z", by="PT5M")).json == b'"2026-12-01T09:05:00Z"'
    assert (await run(handlers["ship_tried"], number=7)).json == b'{"order":7,"attempt":4}'


async def test_function_receives_its_attempt(open_function: OpenKind) -> None:
    assert (await run(await open_function("number"))).json == b'{"id":"%b","number":4}' % ID.encode()


async def test_function_that_returns_nothing_has_no_result(open_function: OpenKind) -> None:
    assert await run(await open_function("nothing")) == Result(None, "")


async def test_long_result_is_truncated_to_the_kept_length(open_function: OpenKind) -> None:
    result = (await run(await open_function("long"), size=1_000_000)).json

    assert result is not None
    assert len(result) == 65_537


async def test_process_is_reused(open_function: OpenKind) -> None:
    handler = await open_function("calls")

    assert [(await run(handler)).json for _ in range(3)] == [b"1", b"2", b"3"]


async def test_kinds_share_processes_unless_their_environments_differ(open_kinds: OpenKinds) -> None:
    usual, own = in_process("pid"), in_process("pid", environment={"X": "1"})
    handlers = await open_kinds({"a": usual, "b": usual, "c": own, "d": own})

    a, b, c, d = [(await run(handlers[name])).json for name in "abcd"]

    assert a == b != c == d


async def test_timeout_does_not_count_while_an_attempt_waits_for_a_process(open_function: OpenKind) -> None:
    handler = await open_function("pid", processes=1)
    longest = make_attempt(timeout=0.05)

    results = await asyncio.gather(*(handler.run(longest) for _ in range(500)))

    assert len(set(results)) == 1


async def test_attempts_run_beside_one_another_in_processes_of_their_own(open_function: OpenKind, pids: Path) -> None:
    handler = await open_function("wait", processes=3)

    attempts = [asyncio.ensure_future(run(handler, pids=str(pids))) for _ in range(3)]
    await until(lambda: len(written(pids)) == 3)
    for attempt in attempts:
        attempt.cancel()
    await asyncio.wait(attempts)

    assert len(set(written(pids))) == 3


async def test_process_imports_only_the_modules_that_it_needs(open_function: OpenKind) -> None:
    modules = set(orjson.loads((await run(await open_function("modules"))).json or b""))

    assert modules.isdisjoint(
        {
            "aiohttp",
            "uvloop",
            "apsw",
            "erelong.settings.sections",
            "erelong.handlers.http.runner",
            "erelong.handlers.process.supervisor_client",
        }
    )


async def test_environment_has_only_declared_variables(
    open_function: OpenKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ERELONG_AUTH__SECRET", "s")
    monkeypatch.setenv("DATABASE_URL", "s")
    monkeypatch.setenv("TZ", "Europe/Berlin")
    handler = await open_function("environment", environment={"MODE": "test", "PATH": "/bin"})

    found = orjson.loads((await run(handler)).json or b"")

    assert found["MODE"] == "test"
    assert found["PATH"] == "/bin"
    assert found["TZ"] == "Europe/Berlin"
    allowed = {"MODE", "PATH", "TZ", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TMPDIR", "ERELONG_PROCESS"}
    assert found.keys() - allowed == set()


# Failures


async def test_failure_is_reported_and_its_traceback_kept_in_the_output(open_function: OpenKind) -> None:
    failed = await failure(await open_function("fail"))

    assert (failed.type, failed.message, failed.retryable) == ("exception", "ValueError: half a pair: ?", True)
    assert failed.output.startswith("before\nTraceback")
    assert "process_functions.py" in failed.output
    assert "erelong/handlers" not in failed.output


async def test_function_gives_up_across_the_boundary(open_function: OpenKind) -> None:
    failed = await failure(await open_function("give_up"))

    assert (failed.type, failed.message, failed.retryable) == ("give_up", "no such order", False)


async def test_function_that_calls_sys_exit_fails_and_its_process_stays(open_functions: OpenKinds) -> None:
    handlers = await open_functions("leave", "pid")
    before = await run(handlers["pid"])

    failed = await failure(handlers["leave"])

    assert (failed.type, failed.message) == ("exception", "SystemExit: 3")
    assert await run(handlers["pid"]) == before


async def test_result_that_is_not_json_fails_for_good(open_function: OpenKind) -> None:
    failed = await failure(await open_function("unserialisable"))

    assert failed.message.startswith("the function returned a value that is not JSON")
    assert not failed.retryable


async def test_params_that_no_longer_fit_fail_for_good(open_function: OpenKind) -> None:
    failed = await failure(await open_function("add"), a="x")

    assert failed.message.startswith('the params do not fit kind "call": /a: should be a valid integer')
    assert not failed.retryable


@pytest.mark.parametrize(
    ("function", "params", "message"),
    [
        ("die", {}, "the process that ran it ended with exit code 3"),
        ("die", {"code": 0}, "the process that ran it ended with exit code 0"),
        ("crash", {}, "the process that ran it was ended by SIGSEGV"),
        ("die_by", {"number": signal.SIGKILL}, "the process that ran it was ended by SIGKILL, perhaps because memory"),
        ("die_by", {"number": signal.SIGRTMIN + 1}, "the process that ran it was ended by signal 35"),
        ("close_all", {}, "the process that ran it ended with exit code 1"),
    ],
)
async def test_failure_says_how_a_function_ended_its_process(
    open_function: OpenKind, function: str, params: dict[str, Any], message: str
) -> None:
    handler = await open_function(function)

    failed = await failure(handler, **params)

    assert (failed.type, failed.retryable) == ("crashed", True)
    assert failed.message.startswith(message)


async def test_last_words_before_a_crash_are_kept(open_functions: OpenKinds) -> None:
    handlers = await open_functions("die", "crash")

    assert (await failure(handlers["die"])).output == "last words\n"
    assert "in string_at\n" in (await failure(handlers["crash"])).output


async def test_pool_is_complete_again_after_a_crash(open_functions: OpenKinds) -> None:
    handlers = await open_functions("die", "add")

    for _ in range(3):
        await failure(handlers["die"])
        assert (await run(handlers["add"], a=1)).json == b"3"


async def test_memory_limit_fails_the_attempt_and_replaces_the_process(open_functions: OpenKinds) -> None:
    handlers = await open_functions("eat", "pid", memory=200_000_000)
    before = await run(handlers["pid"])

    failed = await failure(handlers["eat"], size=300_000_000)

    assert (failed.type, failed.message) == ("exception", "MemoryError")
    assert (await run(handlers["eat"], size=10_000_000)).json == b"10000000"
    assert await run(handlers["pid"]) != before


async def test_process_that_holds_too_much_is_replaced(open_functions: OpenKinds) -> None:
    handlers = await open_functions("hold", "pid", memory=400_000_000)
    before = await run(handlers["pid"])

    await run(handlers["hold"], size=100_000_000)
    kept = await run(handlers["pid"])
    await run(handlers["hold"], size=250_000_000)
    replaced = await run(handlers["pid"])

    assert before == kept != replaced


async def test_process_is_replaced_after_a_thousand_calls(
    open_function: OpenKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("erelong.handlers.process.worker.MAX_CALLS", 3)
    handler = await open_function("calls")

    assert [(await run(handler)).json for _ in range(5)] == [b"1", b"2", b"3", b"1", b"2"]


# Output


async def test_all_output_is_kept_in_order(open_function: OpenKind) -> None:
    result = await run(await open_function("write_to_both"))

    assert result.output == "to stdout\nto stderr\nto the descriptor\nby a child\n"


async def test_output_belongs_to_one_attempt(open_function: OpenKind) -> None:
    handler = await open_function("add")

    assert [(await run(handler, a=number)).output for number in (1, 2)] == ["1 + 2\n", "2 + 2\n"]


@pytest.mark.parametrize("size", [0, 65_535, 1_000_000, 10_000_000])
async def test_only_the_end_of_long_output_is_kept(open_function: OpenKind, size: int) -> None:
    result = await run(await open_function("write"), size=size, last="é")

    assert result.output == "x" * min(size, 65_534) + "é"


# Declaring


def test_kind_has_its_stop_and_schema() -> None:
    kind = make_kinds(Config(kinds={"call": in_process("add")}))["call"]

    assert (kind.type, kind.isolation, kind.stop) == ("python", "process", Stop.KILL)
    assert kind.params_schema["required"] == ["a"]
    assert kind.result_schema == {"type": "integer"}
    assert handler_of(kind).abandoned == 0
    with pytest.raises(Invalid):
        kind.params.check(b"{}")


def test_coroutine_function_cannot_run_in_a_process() -> None:
    with pytest.raises(ConfigError, match='isolation = "process" needs a plain function, and this is an "async def"'):
        make_kinds(Config(kinds={"call": in_process("add_async", module=FUNCTIONS)}))


async def test_module_that_cannot_be_imported_in_the_process_stops_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "choosy.py").write_text("import os\nos.environ['CHOOSY']\ndef run() -> None: ...\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("CHOOSY", "yes")
    handler = handler_of(make_kinds(Config(kinds={"call": in_process("run", module="choosy")}))["call"])

    with pytest.raises(ConfigError, match=r'kinds\.call\.python = "choosy:run": importing "choosy" failed: KeyError'):
        await handler.open()


async def test_process_that_dies_at_its_start_stops_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = "import os\nif 'HOSTNAME2' not in os.environ: print('sorry'); os._exit(9)\ndef run() -> None: ...\n"
    (tmp_path / "deadly.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("HOSTNAME2", "yes")
    handler = handler_of(make_kinds(Config(kinds={"call": in_process("run", module="deadly")}))["call"])

    with pytest.raises(ConfigError, match=r"the process ended with exit code 9: sorry"):
        await handler.open()


async def test_attempt_fails_when_there_are_no_descriptors_for_its_process(
    open_function: OpenKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    handler = await open_function("die")
    before = len(os.listdir("/proc/self/fd"))

    def refuse() -> None:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr("erelong.handlers.process.worker.socketpair", refuse)
    await failure(handler)
    failed = await failure(handler)
    monkeypatch.undo()

    assert failed.message == "cannot start a process for it: [Errno 24] Too many open files"
    assert len(os.listdir("/proc/self/fd")) < before
    assert (await failure(handler)).type == "crashed"


async def test_pool_that_cannot_start_processes_fails_attempts_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "fleeting.py").write_text("import os\ndef run() -> None: os._exit(1)\n")
    monkeypatch.syspath_prepend(tmp_path)
    handler = handler_of(make_kinds(Config(kinds={"call": in_process("run", module="fleeting")}))["call"])
    await handler.open()
    (tmp_path / "fleeting.py").write_text("raise LookupError('it was here')\n")

    types = [(await failure(handler)).type for _ in range(6)]
    failed = await failure(handler)
    await handler.close()

    assert types[-1] == "exception"
    assert failed.message.startswith("cannot start a process for it: kinds.call.python")
    assert "LookupError: it was here" in failed.message
