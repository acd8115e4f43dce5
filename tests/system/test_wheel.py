"""The built wheel in an environment of its own: the base needs no other package, and the service is complete."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import ROOT
from tests.support.needs import report_missing

pytestmark = pytest.mark.timeout(240)

PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")
MODULES = ("inspect", "dataclasses", "asyncio", "subprocess", "pydantic", "aiohttp", "difflib", "concurrent.futures")


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of programs of an environment that has the wheel and nothing else."""
    folder = tmp_path_factory.mktemp("wheel")
    tree = folder / "tree"
    shutil.copytree(ROOT / "app", tree / "app", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree)
    built = subprocess.run([*PIP, "wheel", "--no-deps", "--wheel-dir", folder, tree], capture_output=True, text=True)
    if built.returncode:
        report_missing(f"NOT TESTED: the wheel needs setuptools from an index to be built: {built.stderr[-300:]}")
    (wheel,) = folder.glob("*.whl")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True)
    python = folder / "venv" / "bin" / "python"
    subprocess.run([*PIP, "--python", python, "install", "--no-index", "--no-deps", wheel], check=True)
    return python.parent


@pytest.fixture(scope="module")
def url(environment: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a service from the wheel; the packages of `erelong[server]` are those of the checkout."""
    folder = tmp_path_factory.mktemp("service")
    packages = sysconfig.get_path("purelib")
    command = [str(environment / "erelong"), "serve", "--port", "0", "--data", str(folder / "data")]
    log = (folder / "log").open("w")
    variables = clean() | {"PYTHONPATH": packages, "ERELONG_LOG__FORMAT": "json"}
    with subprocess.Popen(command, env=variables, cwd=folder, stderr=log) as process:
        while '"listening"' not in (text := (folder / "log").read_text()):
            assert process.poll() is None, text
            time.sleep(0.05)
        yield text.partition('"url":"')[2].partition('"')[0]
        process.terminate()
    log.close()


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
    completion = run(environment / "erelong", "completion", "bash")

    assert (client.stdout, client.stderr) == ("{'n': 1}\n", "")
    assert (command.stdout, command.returncode) == ("succeeded\n", 0)
    assert "complete -o filenames" in completion.stdout


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
