"""Completion of commands, options and what the service has, in each shell."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from erelong import Client
from erelong.cli.client.completion import candidates
from tests.cli.conftest import Erelong, environment
from tests.support.needs import report_missing
from tests.support.shells import complete

pytestmark = pytest.mark.timeout(60)

TRIES = 10
"""A Tab waits for the service only briefly, which a busy machine may not keep."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of programs that has `erelong`."""
    program = tmp_path / "bin" / "erelong"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m erelong "$@"\n')
    program.chmod(0o755)
    return program.parent


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shell_completes_commands_options_and_values(
    shell: str, folder: Path, client: Client, queue: str, service_url: str, tmp_path: Path
) -> None:
    if shutil.which(shell) is None:
        report_missing(f"NOT TESTED: completion in {shell}, which is not installed")
    client.queue(queue).pause()
    variables = environment(service_url, tmp_path)

    def completed(line: str) -> list[str]:
        return complete(shell, line, folder, variables)

    assert completed("erelong resch") == ["reschedule"]
    assert completed("erelong submit --on") == ["--on-conflict", "--on-finish"]
    assert completed("erelong submit echo --on-conflict re") == ["reject", "replace", "reschedule"]
    assert completed("erelong queue mail pa") == ["pause"]
    assert any(completed(f"erelong queue {queue[:6]}") == [queue] for _ in range(TRIES))
    assert completed("erelong help exit") == ["exit-codes"]


def test_words_of_the_service_are_known(
    client: Client, queue: str, erelong: Erelong, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("erelong.cli.client.completion.PATIENCE", 20.0)
    job = client.submit("echo", queue=queue, delay="1h")
    operation = client.operations.cancel(queue=f"{queue}-none", at_most=0)
    erelong("schedule", queue, "put", "--kind", "echo", "--every", "1h")
    erelong("login", "--name", "prod", stdin="\n")

    assert candidates(["submit", "ec"]) == ["echo"]
    assert job.id in candidates(["cancel", ""])
    assert job.id in candidates(["get", "x", job.id[:20]])
    assert candidates(["list", "--queue", queue]) == [queue]
    assert operation.id in candidates(["operations", ""])
    assert candidates(["schedule", queue]) == [queue]
    assert candidates(["status", "--profile", "p"]) == ["prod"]
    assert candidates(["list", "--state", "f"]) == ["failed"]
    assert candidates(["api", "P"]) == ["PATCH", "POST", "PUT"]
    assert candidates(["help", "exit"]) == ["exit-codes"]
    erelong("schedule", queue, "delete")


def test_no_service_leaves_what_needs_none(erelong: Erelong, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ERELONG_URL", "http://127.0.0.1:9")

    assert candidates(["queue", ""]) == []
    assert candidates(["sub"]) == ["submit"]
    assert candidates(["nonsense", ""]) == []
    assert candidates(["serve", ""]) == []
    assert candidates([""])[0] == "--help"


def test_completion_names_the_shell_that_is_missing(erelong: Erelong) -> None:
    assert erelong("completion").code == 2
    assert erelong("completion", "tcsh").code == 2
    assert 'eval "$(erelong completion bash)"' in erelong("completion", "--help").out


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_script_is_valid(shell: str, erelong: Erelong) -> None:
    if shutil.which(shell) is None:
        report_missing(f"NOT TESTED: completion in {shell}, which is not installed")

    checked = subprocess.run([shell, "-n"], input=erelong("completion", shell).out, capture_output=True, text=True)

    assert (checked.returncode, checked.stderr) == (0, "")
