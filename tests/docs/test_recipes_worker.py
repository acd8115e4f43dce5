"""The pull worker of its page as a process of its own, which is killed, stalled and stopped; its leases are short."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.docs import recipes_pages, recipes_stage
from tests.docs.recipes_console import Console, free_port
from tests.docs.recipes_stage import Stage, looks

EAGER = {"max_attempts": 5, "delay": 0.05, "factor": 1}
StartWorker = Callable[..., subprocess.Popen[bytes]]

pytestmark = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """A service that keeps its port when it is started again."""
    with recipes_stage.running(tmp_path_factory.mktemp("worker"), port=free_port()) as stage:
        yield stage


@pytest.fixture
def console(stage: Stage) -> Iterator[Console]:
    with stage.console() as console:
        yield console


@pytest.fixture
def start_worker(stage: Stage, console: Console) -> StartWorker:
    """Start the worker of the page; only its LEASE is another."""

    def start(lease: int = 1) -> subprocess.Popen[bytes]:
        recipes_pages.read("worker").write(stage.folder)
        path = stage.folder / "worker.py"
        text = path.read_text().replace("\nLEASE = 30 ", f"\nLEASE = {lease} ")
        assert f"\nLEASE = {lease} " in text
        path.write_text(text)
        return console.start("python worker.py")

    return start


class Pipe:
    """A file that a worker reads as slowly as the test writes it."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self.path = path
        self.sha256 = hashlib.sha256(b"begin end").hexdigest()

    def begin(self) -> None:
        """Wait until a worker reads, and give it the first block."""
        self._file = self.path.open("wb", buffering=0)
        self._file.write(b"begin ")

    def end(self) -> None:
        """Give the worker the last block."""
        self._file.write(b"end")
        self.close()

    def feed_until_closed(self) -> None:
        """Give the worker block after block until it stops reading."""
        with suppress(BrokenPipeError):
            for _ in looks():
                self._file.write(b"more")

    def close(self) -> None:
        self._file.close()


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Pipe]:
    pipe = Pipe(tmp_path / "pipe")
    yield pipe
    pipe.close()


def submit(stage: Stage, path: Path, **fields: Any) -> str:
    job = {"kind": "checksum", "params": {"path": str(path)}, "retry": EAGER}
    status, answer = stage.ask("POST", "/v1/jobs", job | fields)
    assert status == 201, answer
    return str(answer["id"])


def submit_file(stage: Stage, tmp_path: Path) -> str:
    (tmp_path / "file").write_bytes(b"begin end")
    return submit(stage, tmp_path / "file")


def lease(stage: Stage) -> dict[str, Any]:
    """Take a job as another worker would."""
    _, answer = stage.ask("POST", "/v1/leases", {"kinds": ["checksum"], "wait": 5, "lease": 30})
    (lease,) = answer["leases"]
    return dict(lease)


def outcomes(job: dict[str, Any]) -> list[str]:
    return [attempt["outcome"] for attempt in job["attempts"]]


def test_worker_does_one_job_after_another(stage: Stage, start_worker: StartWorker, tmp_path: Path) -> None:
    start_worker()

    for _ in range(3):
        ended = stage.ended(submit_file(stage, tmp_path))
        assert (ended["state"], ended["result"]) == ("succeeded", {"sha256": hashlib.sha256(b"begin end").hexdigest()})


def test_long_work_keeps_its_lease(stage: Stage, start_worker: StartWorker, pipe: Pipe) -> None:
    start_worker()
    id = submit(stage, pipe.path)
    pipe.begin()
    began = stage.job(id)["version"]

    stage.until(id, version=began + 4)  # four heartbeats of a third of a second: longer than the lease
    pipe.end()

    ended = stage.ended(id)
    assert (outcomes(ended), ended["result"]) == (["succeeded"], {"sha256": pipe.sha256})


def test_job_of_a_killed_worker_is_done_by_another(stage: Stage, start_worker: StartWorker, pipe: Pipe) -> None:
    killed = start_worker()
    id = submit(stage, pipe.path)
    pipe.begin()

    killed.kill()
    killed.wait()  # until then it could still read from the pipe
    pipe.close()
    start_worker()
    pipe.begin()
    pipe.end()

    ended = stage.ended(id)
    assert (outcomes(ended), ended["result"]) == (["lost", "succeeded"], {"sha256": pipe.sha256})


def test_worker_that_lost_its_lease_drops_the_result_and_goes_on(
    stage: Stage, console: Console, start_worker: StartWorker, pipe: Pipe, tmp_path: Path
) -> None:
    stalled = start_worker()
    id = submit(stage, pipe.path)
    pipe.begin()

    stalled.send_signal(signal.SIGSTOP)
    stage.ask("POST", f"/v1/leases/{lease(stage)['token']}/finish", {"result": "of another worker"})
    stalled.send_signal(signal.SIGCONT)
    pipe.end()

    assert stage.ended(submit_file(stage, tmp_path))["state"] == "succeeded"
    ended = stage.job(id)
    assert (outcomes(ended), ended["result"]) == (["lost", "succeeded"], "of another worker")
    assert "result dropped: the lease is over" in console.output


def test_worker_survives_a_restart_of_the_service(
    stage: Stage, start_worker: StartWorker, pipe: Pipe, tmp_path: Path
) -> None:
    worker = start_worker(lease=5)
    id = submit(stage, pipe.path)
    pipe.begin()

    stage.service.kill()
    pipe.end()
    stage.service.start()

    ended = stage.ended(id)
    assert (outcomes(ended), ended["result"]) == (["succeeded"], {"sha256": pipe.sha256})
    assert stage.ended(submit_file(stage, tmp_path))["state"] == "succeeded"
    assert worker.poll() is None


def test_stopped_worker_releases_its_job(stage: Stage, start_worker: StartWorker, pipe: Pipe) -> None:
    worker = start_worker()
    id = submit(stage, pipe.path)
    pipe.begin()

    worker.terminate()
    pipe.feed_until_closed()  # a signal that comes just before a read does not interrupt it

    assert worker.wait(recipes_stage.PATIENCE) == 0
    job = stage.job(id)
    assert (job["state"], job["attempt"], outcomes(job)) == ("scheduled", 0, ["released"])
    stage.ask("DELETE", f"/v1/jobs/{id}")


def test_idle_worker_stops_at_once(stage: Stage, start_worker: StartWorker, tmp_path: Path) -> None:
    worker = start_worker()
    stage.ended(submit_file(stage, tmp_path))

    worker.terminate()

    assert worker.wait(recipes_stage.PATIENCE) == 0


def test_cancelled_work_stops(stage: Stage, start_worker: StartWorker, pipe: Pipe) -> None:
    start_worker()
    id = submit(stage, pipe.path)
    pipe.begin()

    status, _ = stage.ask("POST", f"/v1/jobs/{id}/cancel")
    assert status == 202
    pipe.feed_until_closed()

    ended = stage.ended(id)
    assert ended["state"] == "cancelled"
    assert ended["attempts"][-1]["error"]["type"] == "Stop"


def test_error_of_the_work_is_reported(stage: Stage, start_worker: StartWorker, tmp_path: Path) -> None:
    start_worker()

    ended = stage.ended(submit(stage, tmp_path / "missing", retry={"max_attempts": 2, "delay": 0.05}))

    assert (ended["state"], ended["error"]["type"]) == ("failed", "FileNotFoundError")
    assert outcomes(ended) == ["error", "error"]


def test_every_later_lease_of_a_job_has_a_higher_version(stage: Stage, tmp_path: Path) -> None:
    id = submit(stage, tmp_path / "none", retry={"max_attempts": 1})
    versions = []

    for end in ("release", "fail", "finish"):
        token, job = (given := lease(stage))["token"], given["job"]
        versions.append((job["version"], job["attempt"]))
        stage.ask("POST", f"/v1/leases/{token}/extend")
        stage.ask("POST", f"/v1/leases/{token}/{end}")
        if end == "fail":
            stage.ask("POST", f"/v1/jobs/{id}/retry")

    assert [attempt for _, attempt in versions] == [1, 1, 1]
    assert versions == sorted(set(versions))
    assert len({version for version, _ in versions}) == 3
