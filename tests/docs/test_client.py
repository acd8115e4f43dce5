"""The programs of the pages about the client."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from erelong import Client, JobFailed
from tests.docs.pages import blocks_of
from tests.support import SOURCE
from tests.support.process import ServiceProcess

MakeService = Callable[..., ServiceProcess]

MY_JOBS = """
def remind(user: int) -> str:
    return f"reminded {user}"
"""

TEST_REMIND = """
def test_reminder(erelong_service):
    job = erelong_service.client.submit("remind", {"user": 7}, delay="31d")
    erelong_service.advance("31d")
    assert job.result(timeout=5) == "reminded 7"
"""

pytestmark = pytest.mark.timeout(60)


def write(page: str, folder: Path) -> Path:
    """Write the program of a page, under the name in its first line."""
    *_, program = blocks_of(page, "python")
    file = folder / program.text.splitlines()[0].removeprefix("# ")
    file.write_text(program.text)
    return file


def environment(service: ServiceProcess) -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(SOURCE), "ERELONG_URL": service.url}


def run(page: str, folder: Path, service: ServiceProcess) -> list[str]:
    """Run the program of a page; return its output."""
    command = [sys.executable, str(write(page, folder))]
    ended = subprocess.run(command, cwd=folder, env=environment(service), capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.splitlines()


@pytest.fixture
def service(make_service: MakeService) -> ServiceProcess:
    service = make_service(config="\n".join(block.text for block in blocks_of("docs/python-workers.md", "toml")))
    service.start()
    return service


def test_program_of_the_client_page_runs(service: ServiceProcess, tmp_path: Path) -> None:
    failure, results = run("docs/client.md", tmp_path, service)

    assert failure.endswith("of kind echo failed: exception: boom")
    assert sorted(results[2:-2].split("}, {")) == ["'user': 0", "'user': 1", "'user': 2", "'user': 7, 'text': 'hi'"]


def test_program_of_the_executor_page_runs(service: ServiceProcess, tmp_path: Path) -> None:
    assert run("docs/executor.md", tmp_path, service) == ["104", str(sum(range(4)) + sum(range(100)))]


def test_test_of_the_testing_page_passes(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(write("docs/testing.md", tmp_path))]
    ended = subprocess.run(
        command, cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(SOURCE)}, capture_output=True, text=True
    )

    assert "1 passed" in ended.stdout, ended.stdout


def test_conftest_of_the_testing_page_declares_a_kind(tmp_path: Path) -> None:
    conftest, _ = blocks_of("docs/testing.md", "python")
    (tmp_path / "conftest.py").write_text(conftest.text)
    (tmp_path / "my_jobs.py").write_text(MY_JOBS)
    (tmp_path / "test_remind.py").write_text(TEST_REMIND)

    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    ended = subprocess.run(
        command, cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(SOURCE)}, capture_output=True, text=True
    )

    assert "1 passed" in ended.stdout, ended.stdout


def test_worker_of_the_workers_page_runs_jobs_and_drains(service: ServiceProcess, tmp_path: Path) -> None:
    command = [sys.executable, str(write("docs/python-workers.md", tmp_path))]
    with Client(service.url) as client, subprocess.Popen(command, cwd=tmp_path, env=environment(service)) as worker:
        results = [
            client.submit("thumbnail", {"image": "cat.png"}).result(timeout=20),
            client.submit("notify", {"user": 7}).result(timeout=20),
        ]
        with pytest.raises(JobFailed, match="no image"):
            client.submit("thumbnail", {"image": ""}).result(timeout=20)
        worker.terminate()

        assert worker.wait(20) == 0
    assert results == [{"name": "e8f4a26c"}, "notified 7 on attempt 2"]


def run_lines(lines: list[str], folder: Path, service: ServiceProcess) -> str:
    """Run commands of a page; return the output of the last."""
    ended = None
    for line in lines:
        words = shlex.split(line)
        assert words[0] == "erelong"
        command = [sys.executable, "-m", *words]
        ended = subprocess.run(command, cwd=folder, env=environment(service), capture_output=True, text=True)
        assert ended.returncode == 0, (line, ended.stderr)
    assert ended is not None
    return ended.stdout


def test_first_steps_of_readme_run_in_python_and_in_the_shell(service: ServiceProcess, tmp_path: Path) -> None:
    (program,) = [block for block in blocks_of("README.md", "python") if "first_steps" in block.text]
    (shell,) = [block for block in blocks_of("README.md", "sh") if "erelong submit" in block.text]
    (tmp_path / "first_steps.py").write_text(program.text)

    command = [sys.executable, "first_steps.py"]
    printed = subprocess.run(command, cwd=tmp_path, env=environment(service), capture_output=True, text=True).stdout
    listed = run_lines(shell.text.splitlines()[:-1], tmp_path, service)

    assert printed == "{'hello': 'moon'}\n"
    assert listed.split("\t")[2] == "default"
