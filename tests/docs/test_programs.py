"""The programs of README and the guide, run against a real service: kinds, a worker, the commands of the data page."""

from __future__ import annotations

import json
import os
import shlex
import stat
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.docs.pages import blocks_of
from tests.support import ROOT, SOURCE
from tests.support.process import ServiceProcess

MakeService = Callable[..., ServiceProcess]

PG_DUMP = """#!/bin/sh
echo "[\\"$1\\", \\"$2\\"]"
"""

MAKE_THUMBNAIL = """
def make_thumbnail(image):
    if not image:
        raise ValueError("no image")
    return f"{image}-small"
"""

pytestmark = pytest.mark.timeout(60)


def call(service: ServiceProcess, path: str, **body: Any) -> dict[str, Any]:
    """POST a body, or GET without one."""
    data = json.dumps(body).encode() if body else None
    request = urllib.request.Request(service.url + path, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as response:
        answer: dict[str, Any] = json.load(response)
    return answer


def run(service: ServiceProcess, kind: str, **params: Any) -> dict[str, Any]:
    """Submit a job, and wait for its end or its first failure."""
    id = call(service, "/v1/jobs", kind=kind, params=params)["id"]
    job = call(service, f"/v1/jobs/{id}?wait=0")
    while job["state"] not in ("succeeded", "failed") and not job["attempts"]:
        job = call(service, f"/v1/jobs/{id}?wait=0.05")
    return job


def declare(page: str, folder: Path) -> str:
    """Write the module of a page into the folder of a service, and return its settings."""
    (module,) = [block for block in blocks_of(page, "python") if block.text.startswith("# my_jobs.py")]
    (folder / "my_jobs.py").write_text(module.text)
    return "\n".join(block.text for block in blocks_of(page, "toml"))


def test_kind_of_readme_runs(make_service: MakeService, tmp_path: Path) -> None:
    service = make_service(config=declare("README.md", tmp_path))
    service.start()

    job = run(service, "remind", user=7, text="pay")

    assert (job["state"], job["result"]) == ("succeeded", "reminded 7: pay")
    assert (job["timeout"], job["retry"]["max_attempts"]) == (30.0, 3)


def test_test_of_readme_passes(tmp_path: Path) -> None:
    (program,) = [block for block in blocks_of("README.md", "python") if "# test_reminder.py" in block.text]
    (tmp_path / "test_reminder.py").write_text(program.text)
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["erelong.testing"]\n')
    command = tmp_path / "erelong"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m erelong "$@"\n')
    command.chmod(stat.S_IRWXU)
    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": str(SOURCE)}

    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
    )

    assert ended.returncode == 0, ended.stdout
    assert "1 passed" in ended.stdout


@pytest.fixture
def kinds(make_service: MakeService, tmp_path: Path) -> ServiceProcess:
    """A service with the kinds of docs/kinds.md; a script replaces pg_dump."""
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "pg_dump").write_text(PG_DUMP)
    (programs / "pg_dump").chmod(stat.S_IRWXU)
    path = f"{programs}:{os.environ['PATH']}"
    service = make_service(config=declare("docs/kinds.md", tmp_path), environment={"PATH": path})
    service.start()
    return service


def test_kinds_of_the_guide_run(kinds: ServiceProcess) -> None:
    results = {
        "remind": run(kinds, "remind", user=7, text="pay"),
        "shout": run(kinds, "shout", text="hey"),
        "crunch": run(kinds, "crunch", numbers=[3.0, 4.0]),
        "dump": run(kinds, "dump", database="shop"),
    }

    assert {kind: job["result"] for kind, job in results.items()} == {
        "remind": "reminded 7 on attempt 1: pay",
        "shout": "HEY",
        "crunch": 25.0,
        "dump": ["--file=/backups/shop.sql", "shop"],
    }


def test_kinds_of_the_guide_fail_as_described(kinds: ServiceProcess) -> None:
    given_up = run(kinds, "remind", user=7, text="")
    later = run(kinds, "remind", user=0, text="pay")
    with pytest.raises(urllib.error.HTTPError) as refused:
        run(kinds, "remind", user="x", text="pay")

    assert (given_up["state"], given_up["error"]["type"]) == ("failed", "give_up")
    assert (later["state"], later["error"]["message"]) == ("scheduled", "user 0 sleeps")
    assert json.load(refused.value)["errors"][0]["pointer"] == "/params/user"


@pytest.fixture
def worker(make_service: MakeService, tmp_path: Path) -> Iterator[ServiceProcess]:
    """A service with the kind of docs/workers.md, and the worker of that page in a process."""
    (code,) = blocks_of("docs/workers.md", "python")
    service = make_service(config="\n".join(block.text for block in blocks_of("docs/workers.md", "toml")))
    service.start()
    script = tmp_path / "worker.py"
    script.write_text(MAKE_THUMBNAIL + code.text.replace("http://127.0.0.1:8080", service.url))
    process = subprocess.Popen([sys.executable, script])
    yield service
    process.kill()
    process.wait()


def test_worker_of_the_guide_works(worker: ServiceProcess) -> None:
    done, failed = run(worker, "thumbnail", image="cat"), run(worker, "thumbnail", image="")

    assert (done["state"], done["result"]) == ("succeeded", "cat-small")
    assert failed["error"] == {"type": "ValueError", "message": "no image", "retryable": True}
    assert failed["attempts"][0]["output"].endswith("ValueError: no image\n")
    assert done["attempts"][0]["worker"] == failed["attempts"][0]["worker"]


def erelong(line: str, folder: Path, *options: str) -> str:
    """Run a line of a page; the folder replaces its folders."""
    words = [word.replace("/backups", str(folder)) for word in shlex.split(line, comments=True)]
    assert words[0] == "erelong"
    command = [sys.executable, "-m", "app", *words[1:], *options]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout


def test_backup_is_restored(make_service: MakeService, tmp_path: Path) -> None:
    service = make_service()
    service.start()
    id = call(service, "/v1/jobs", kind="echo", delay=3_600)["id"]
    backup, restore = next(blocks_of("docs/data.md", "sh")).text.splitlines()

    erelong(backup, tmp_path, "--data", str(service.data))
    service.stop()
    erelong(restore, tmp_path, "--data", str(service.data))
    service.start()

    assert call(service, f"/v1/jobs/{id}")["state"] == "scheduled"


def test_new_key_prints_the_lines_of_the_guide(tmp_path: Path) -> None:
    (command,) = [block.text for block in blocks_of("docs/security.md", "sh")]
    (settings,) = [block.text for block in blocks_of("docs/security.md", "toml")]

    printed = erelong(command, tmp_path)

    assert [line for line in settings.splitlines() if not line.startswith("sha256")] == [
        line for line in printed.splitlines() if line.startswith(("[auth", "scopes", "queues", "rate"))
    ]
