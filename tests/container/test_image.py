"""The image of the Dockerfile, run as by compose.yaml: with a read-only root and no privileges."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path, PurePath

import pytest

from erelong.dashboard.face import read_files
from tests.container.boxes import Box
from tests.container.engines import CallFailedError, Engine

MAX_ADDED = 76_000  # KiB on top of the base; the driver of PostgreSQL with its libraries is some 12,000 of them
MAX_START = 10.0  # seconds
STATUS = ("Uid", "Gid", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs")

Figure = Callable[[str, object], None]

pytestmark = [pytest.mark.real_loop, pytest.mark.timeout(900)]


def test_image_adds_little_to_the_base(box: Box, figure: Figure) -> None:
    added = int(box.run("du", "-sk", "/opt").split()[0])

    figure("KiB over the base", added)
    assert added < MAX_ADDED


def test_container_has_no_privileges(box: Box) -> None:
    status = dict(line.split(":", 1) for line in box.run("cat", "/proc/1/status").splitlines())

    user, group, *capabilities, is_bound = (set(status[name].split()) for name in STATUS)
    assert (user, group) == ({"10001"}, {"10001"})
    assert capabilities == [{"0" * 16}] * 5
    assert is_bound == {"1"}


@pytest.mark.parametrize("folder", ["/", "/tmp", "/etc/erelong", "/opt/erelong"])
def test_container_writes_only_to_its_data(box: Box, folder: str) -> None:
    with pytest.raises(CallFailedError, match="Read-only file system"):
        box.run("touch", f"{folder}/file")

    assert "erelong.db" in box.run("ls", "/data")


def test_container_becomes_healthy(make_box: Callable[..., Box], figure: Figure) -> None:
    seconds = make_box().start()

    figure("seconds until healthy", f"{seconds:.2f}")
    assert seconds < MAX_START


def test_a_job_runs(box: Box) -> None:
    job = box.run_job(kind="echo", params={"hello": "world"}, delay="50ms")

    assert (job["state"], job["result"]) == ("succeeded", {"hello": "world"})


def test_dashboard_and_all_its_files_are_served(box: Box) -> None:
    page = box.text("/")
    served = {PurePath(file).name: box.text(f"/{file}") for file in re.findall(r'"(ui/[^"]+)"', page)}

    assert page == read_files().page.plain.decode()
    assert served == {name: file.plain.decode() for name, file in read_files().others.items()}


def test_container_can_be_configured_by_the_environment_alone(make_box: Callable[..., Box], tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    environment = {"ERELONG_AUTH__ALLOW_ANONYMOUS": "true", "ERELONG_QUEUES__MAIL__CONCURRENCY": "3"}
    box = make_box(folder=str(tmp_path), environment=environment)
    box.start()

    assert box.ask("GET", "/v1/queues/mail")["settings"]["concurrency"] == 3


def test_container_refuses_anonymous_access_by_default(make_box: Callable[..., Box]) -> None:
    box = make_box(environment={})
    box.launch()

    assert box.exit_code() == 78
    assert "server.host" in box.log()


def test_container_with_unreadable_settings_does_not_start(make_box: Callable[..., Box], folder: Path) -> None:
    folder.chmod(0o700)
    box = make_box(folder=str(folder))
    box.launch()

    assert box.exit_code() == 78
    assert "config.toml: cannot be read" in box.log()


@pytest.mark.parametrize("kind", ["thread", "process"])
def test_orphans_are_reaped(make_box: Callable[..., Box], folder: Path, kind: str) -> None:
    box = make_box(folder=str(folder))
    box.start()

    job = box.run_job(kind=kind)

    assert job["state"] == "succeeded"
    box.wait_until(lambda: job["result"] not in box.processes(), "reaped")


def test_orphans_of_exec_commands_are_reaped(box: Box) -> None:
    orphan = int(box.run("sh", "-c", "sleep 0.3 >/dev/null 2>&1 & echo $!"))

    box.wait_until(lambda: orphan not in box.processes(), "reaped")

    assert orphan not in box.processes()


def test_own_kinds_can_be_part_of_an_image(
    make_box: Callable[..., Box], engine: Engine, image: str, folder: Path
) -> None:
    (folder / "Dockerfile").write_text(f"FROM {image}\nCOPY config.toml functions.py ./\n")
    engine.build("erelong-test-derived", folder)
    shutil.rmtree(folder)

    box = make_box(image="erelong-test-derived")
    box.start()

    assert box.run_job(kind="process")["state"] == "succeeded"


def test_idle_container_stops_at_once(box: Box, figure: Figure) -> None:
    ended = box.stop()

    figure("seconds to stop when idle", f"{ended.seconds:.2f}")
    assert ended.code == 0
    assert ended.seconds < 2


def test_running_job_ends_before_the_stop_and_all_jobs_are_in_the_next_container(make_box: Callable[..., Box]) -> None:
    box = make_box()
    box.start()
    running = box.ask("POST", "/v1/jobs", {"kind": "echo", "params": {"sleep": 2.0}})["id"]
    waiting = box.ask("POST", "/v1/jobs", {"kind": "echo", "delay": "1h"})["id"]
    box.wait_until(lambda: box.ask("GET", f"/v1/jobs/{running}")["state"] == "running", "running")

    ended = box.stop()
    following = make_box()
    following.start()

    assert ended.code == 0
    assert following.ask("GET", f"/v1/jobs/{running}")["state"] == "succeeded"
    assert following.ask("GET", f"/v1/jobs/{waiting}")["state"] == "scheduled"
