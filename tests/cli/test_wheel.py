"""The built wheel in an environment of its own: the base needs no other package, and the service is complete.

Exit codes, output and completion are tested here with the installed program.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from erelong.settings.api_keys import fingerprint_of, new_key
from tests.support.needs import report_missing
from tests.support.shells import complete
from tests.support.terminal import OnTerminal
from tests.support.wheel import build, install, packages_of

pytestmark = pytest.mark.timeout(240)

MODULES = ("inspect", "dataclasses", "asyncio", "subprocess", "pydantic", "aiohttp", "difflib", "concurrent.futures")
READER = new_key()
CONFIG = f"""\
[store]
kind = "memory"
[auth]
allow_anonymous = true
[auth.keys.reader]
sha256 = "{fingerprint_of(READER)}"
scopes = ["read"]
"""

Installed = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of programs of an environment that has the wheel and nothing else."""
    folder = tmp_path_factory.mktemp("wheel")
    return install(build(folder), folder / "venv")


@pytest.fixture(scope="module")
def url(environment: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a service from the wheel, with the packages of `erelong[server]` and no other."""
    folder = tmp_path_factory.mktemp("service")
    packages = packages_of("server", environment, folder / "packages")
    (folder / "config.toml").write_text(CONFIG)
    command = [str(environment / "erelong"), "serve", "--port", "0"]
    log = (folder / "log").open("w")
    variables = clean() | {"PYTHONPATH": str(packages), "ERELONG_LOG__FORMAT": "json"}
    with subprocess.Popen(command, env=variables, cwd=folder, stderr=log) as process:
        while '"listening"' not in (text := (folder / "log").read_text()):
            assert process.poll() is None, text
            time.sleep(0.05)
        yield text.partition('"url":"')[2].partition('"')[0]
        process.terminate()
    log.close()


@pytest.fixture
def erelong(environment: Path, url: str, tmp_path: Path) -> Installed:
    """Run the installed program on the service: `erelong("get", id)`."""

    def call(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [environment / "erelong", *arguments],
            env=clean() | {"ERELONG_URL": url, "XDG_CONFIG_HOME": str(tmp_path)} | variables,
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )

    return call


def clean() -> dict[str, str]:
    """Return the variables of the test without those of Python and erelong."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("ERELONG_", "PYTHON"))}


def run(program: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([program, *arguments], env=clean() | variables, capture_output=True, text=True)


def test_help_needs_no_other_package(environment: Path) -> None:
    ended = run(environment / "erelong", "--help")

    assert (ended.returncode, ended.stderr) == (0, "")
    assert "submit a job" in ended.stdout


def test_commands_that_need_extras_say_so(environment: Path) -> None:
    serve, work = run(environment / "erelong", "serve"), run(environment / "erelong", "work", "x:y")
    client = run(environment / "python", "-c", "from erelong import AsyncClient")

    assert (serve.returncode, work.returncode) == (78, 2)
    assert "pip install 'erelong[server]'" in serve.stderr
    assert "pip install 'erelong[async]'" in work.stderr
    assert "pip install 'erelong[async]'" in client.stderr


def test_client_and_commands_work(environment: Path, url: str) -> None:
    script = "from erelong import Client; print(Client().submit('echo', {'n': 1}).result(timeout=10))"
    client = run(environment / "python", "-c", script, ERELONG_URL=url)
    command = run(environment / "erelong", "submit", "echo", "n:=1", "--wait", "--fields", "state", ERELONG_URL=url)

    assert (client.stdout, client.stderr) == ("{'n': 1}\n", "")
    assert (command.stdout, command.returncode) == ("succeeded\n", 0)


def test_pages_of_the_service_are_in_the_wheel(url: str) -> None:
    for path in ("/docs", "/openapi.json", "/readyz"):
        with urllib.request.urlopen(url + path) as response:
            assert response.status == 200


def test_command_starts_without_modules_that_it_does_not_use(environment: Path) -> None:
    script = (
        "import sys; from erelong.cli.commands import main; main(['get', 'x', '--request-timeout', '0.01']);"
        f"print(*[name for name in {MODULES} if name in sys.modules])"
    )
    ended = run(environment / "python", "-c", script, ERELONG_URL="http://127.0.0.1:9")

    assert ended.stdout == "\n"


# exit codes


def test_every_exit_code(erelong: Installed, tmp_path: Path) -> None:
    (tmp_path / "bad.ndjson").write_text('{"kind": "nonsense"}\n')
    waiting = erelong("submit", "echo", "--in", "1h", "--key", "held").stdout.strip()
    away, reader, stranger = {"ERELONG_URL": "http://127.0.0.1:9"}, {"ERELONG_KEY": READER}, {"ERELONG_KEY": new_key()}

    codes = {
        "success": erelong("get", waiting).returncode,
        "refused": erelong("submit", "nonsense").returncode,
        "rejected lines": erelong("import", "bad.ndjson").returncode,
        "no such option": erelong("get", waiting, "--nonsense").returncode,
        "no such command": erelong("nonsense").returncode,
        "arguments that do not fit": erelong("cancel").returncode,
        "failed job": erelong("submit", "echo", "fail=x", "--retry", "max_attempts=1", "--wait").returncode,
        "unknown key": erelong("list", **stranger).returncode,
        "no scope": erelong("submit", "echo", **reader).returncode,
        "not found": erelong("get", "nonsense").returncode,
        "key taken": erelong("submit", "echo", "--key", "held", "--in", "1h").returncode,
        "wrong state": erelong("retry", waiting).returncode,
        "other version": erelong("cancel", waiting, "--version", "99").returncode,
        "too many": erelong("cancel", "--state", "scheduled", "--yes", "--at-most", "0").returncode,
        "away": erelong("get", waiting, "--request-timeout", "0.2", **away).returncode,
        "timeout": erelong("wait", waiting, "--timeout", "0.1").returncode,
        "extra is missing": erelong("serve").returncode,
    }

    assert codes == {
        "success": 0,
        "refused": 1,
        "rejected lines": 1,
        "failed job": 3,
        "unknown key": 4,
        "no scope": 4,
        "not found": 5,
        "away": 69,
        "timeout": 124,
        "extra is missing": 78,
        **dict.fromkeys(["no such option", "no such command", "arguments that do not fit"], 2),
        **dict.fromkeys(["key taken", "wrong state", "other version", "too many"], 6),
    }


def test_exit_codes_of_pipes_disks_and_interrupts(environment: Path, url: str) -> None:
    variables = clean() | {"ERELONG_URL": url}
    with Path("/dev/full").open("w") as full:
        disk = subprocess.run([environment / "erelong", "status"], env=variables, stdout=full, stderr=subprocess.PIPE)
    program = environment / "erelong"
    line = f"{program} list --all; {program} --help | true; echo ${{PIPESTATUS[0]}}"
    pipe = subprocess.run(["bash", "-c", line], env=variables, capture_output=True, text=True)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        variables["ERELONG_URL"] = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with subprocess.Popen([environment / "erelong", "tail"], env=variables, stderr=subprocess.PIPE) as process:
            connection, _ = silent.accept()
            process.send_signal(signal.SIGINT)
            assert process.stderr is not None
            interrupted = process.wait(20), process.stderr.read()
            connection.close()

    assert interrupted == (130, b"")
    assert disk.returncode == 74
    assert pipe.stdout.split()[-1] in ("141", "0")  # 0 if `true` has ended later than the command
    assert pipe.stderr == ""


# output


def test_output_of_pipes_and_json(erelong: Installed) -> None:
    id = erelong("submit", "echo", "text=hi", "--in", "1h", "--queue", "piped").stdout

    row = erelong("list", "--queue", "piped").stdout
    shown = erelong("get", id.strip(), "--json", "--fields", "state,params").stdout
    refused = erelong("submit", "http", "url=ftp://x")

    assert len(id) == 27
    assert row.split("\t")[:4] == [id.strip(), "echo", "piped", "scheduled"]
    assert json.loads(shown) == {"state": "scheduled", "params": {"text": "hi"}}
    assert (refused.stdout, refused.stderr[:40]) == ("", 'erelong: the params do not fit kind "htt')
    assert refused.stderr.endswith(" (invalid)\n")


def test_output_of_a_terminal(environment: Path, url: str, erelong: Installed, tmp_path: Path) -> None:
    erelong("submit", "echo", "fail=x", "--retry", "max_attempts=1", "--wait", "--queue", "shown")
    command = [str(environment / "erelong"), "list", "--queue", "shown"]
    variables = clean() | {"ERELONG_URL": url, "XDG_CONFIG_HOME": str(tmp_path)}

    with OnTerminal(command, folder=tmp_path, environment=variables) as screen:
        assert screen.wait() == 0
        plain = [*screen.screen.splitlines()]
        assert "\x1b[31m" in screen.text
    with OnTerminal(command, folder=tmp_path, environment=variables | {"NO_COLOR": "1"}) as screen:
        assert screen.wait() == 0
        assert screen.text.splitlines()[0] == plain[0]

    assert plain[0].split() == ["ID", "KIND", "QUEUE", "STATE", "DUE_AT", "ATTEMPT", "WAITING_FOR", "MESSAGE"]
    assert len(plain) == 2


# completion


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shell_completes(shell: str, environment: Path, url: str, erelong: Installed, tmp_path: Path) -> None:
    if shutil.which(shell) is None:
        report_missing(f"NOT TESTED: completion in {shell}, which is not installed")
    erelong("queue", "invoices", "pause")
    variables = clean() | {"ERELONG_URL": url, "XDG_CONFIG_HOME": str(tmp_path)}

    assert complete(shell, "erelong sched", environment, variables) == ["schedule", "schedules"]
    assert complete(shell, "erelong list --state f", environment, variables) == ["failed"]
    asked = (complete(shell, "erelong queue invo", environment, variables) for _ in range(10))
    assert ["invoices"] in asked  # a Tab waits for the service only briefly, which a busy machine may not keep


# nothing else


def test_commands_need_no_package_of_the_server(environment: Path) -> None:
    """Every command but those of the service and `work` is there without them."""
    script = (
        "from erelong.cli.commands import COMMANDS, main, parser_of\n"
        "[parser_of(name) for name, command in COMMANDS.items() if command.module != 'parser']\n"
        "import erelong.cli.live.top, erelong.cli.live.terminal, erelong.webhooks, erelong.testing, erelong\n"
        "erelong.Client, erelong.Executor, erelong.kind\n"
    )
    ended = run(environment / "python", "-c", script)

    assert (ended.returncode, ended.stderr) == (0, "")


def test_everything_but_what_needs_an_extra_works_without_other_packages(environment: Path, url: str) -> None:
    script = """
import sys
from erelong import Client, Executor, kind
from erelong.testing import Recorder
from erelong.webhooks import InvalidSignature, verify

@kind("echo")
def echo(n: int) -> dict[str, int]:
    return {"n": n}

with Client() as client, Executor(client) as pool:
    print(sorted(result["n"] for result in pool.map(echo, range(3))))
    print(client.kind("mine").put().declared, next(client.list()).kind, client.stats()["now"][:2])
recorder = Recorder(echo)
recorder.client.submit(echo.job(7), delay="2h")
print(recorder.run_due(advance="2h")[0].result())
try:
    verify({}, b"", "whsec_" + "a" * 32)
except InvalidSignature as error:
    print(error)
print([name for name in ("aiohttp", "pydantic", "orjson", "pytest") if name in sys.modules])
"""
    ended = run(environment / "python", "-c", script, ERELONG_URL=url)

    assert ended.stderr == ""
    assert ended.stdout.splitlines()[:2] == ["[0, 1, 2]", "api echo 20"]
    assert ended.stdout.splitlines()[2] == "{'n': 7}"
    assert "webhook-id is missing" in ended.stdout.splitlines()[3]
    assert ended.stdout.splitlines()[4] == "[]"
