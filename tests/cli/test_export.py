"""`erelong export`: its output, and how it continues."""

from __future__ import annotations

import csv
import io
import json
import signal
from pathlib import Path
from typing import Any

import pytest

from erelong import Client, Draft
from erelong.cli.files import exporting
from erelong.cli.files.exporting import as_submit
from tests.cli.conftest import Erelong, Program

pytestmark = pytest.mark.timeout(60)


def test_export_is_read_by_import(erelong: Erelong, client: Client, queue: str, tmp_path: Path) -> None:
    for n in range(3):
        client.submit("echo", {"n": n}, queue=queue, delay="1h", labels={"a": "b"}, priority=n)
    exported = erelong("export", "--queue", queue, "--as-jobs")
    client.operations.delete(queue=queue, at_most=3).wait(timeout=20)

    file = tmp_path / "again.ndjson"
    file.write_text(exported.out)
    ended = erelong("import", str(file))

    assert ended.code == 0
    assert sorted((found.priority, found.labels["a"]) for found in client.list(queue=queue)) == [
        (0, "b"),
        (1, "b"),
        (2, "b"),
    ]
    assert erelong("export", "--queue", queue, "--format", "csv").out.startswith("id,kind,queue,state,key")


@pytest.mark.parametrize("options", [[], ["--format", "csv"]])
def test_exported_jobs_are_made_again_as_they_were(
    erelong: Erelong, client: Client, queue: str, tmp_path: Path, options: list[str]
) -> None:
    client.submit(
        *("echo", {"text": 'a, "b"\n', "n": 7}),
        queue=queue,
        delay="3h",
        key="007",
        labels={"tenant": "t1"},
        timeout=9,
        spread="1s",
        retry={"max_attempts": 2},
        expires_after=600,
        priority=-3,
        on_finish={"url": "https://app.example/done"},
    )
    client.submit("echo", queue=queue, local_time="2027-03-28T09:00:00", zone="Europe/Berlin")
    before = [job.raw for job in client.list(queue=queue, view="full")]
    file = tmp_path / ("jobs.csv" if options else "jobs.ndjson")
    file.write_text(erelong("export", "--queue", queue, "--as-jobs", *options).out)
    client.queue(queue).purge()

    ended = erelong("import", str(file))

    after = [job.raw for job in client.list(queue=queue, view="full", state="scheduled")]
    kept = ("kind", "params", "queue", "priority", "timeout", "retry", "labels", "key", "execute_at", "zone", "spread")
    assert (ended.code, ended.err.count("rejected")) == (0, 0)
    assert [{name: job.get(name) for name in kept} for job in reversed(after)] == [
        {name: job.get(name) for name in kept} for job in before
    ]
    assert [job["on_finish"]["url"] for job in after if "on_finish" in job] == ["https://app.example/done"]


def test_submit_of_a_job_leaves_out_what_it_does_not_have() -> None:
    job: dict[str, Any] = {"kind": "echo", "params": {}, "execute_at": "2026-12-01T09:00:00.000Z", "key": None}
    expiring = {**job, "due_at": None, "expires_at": "2026-12-01T08:00:00.000Z"}

    assert as_submit(job) == {"kind": "echo", "params": {}, "execute_at": "2026-12-01T09:00:00.000Z"}
    assert as_submit(expiring)["expires_after"] == 0.001


def test_csv_has_a_header_and_json_in_its_cells(erelong: Erelong, client: Client, queue: str) -> None:
    client.submit("echo", {"text": "a,\nb"}, queue=queue, delay="1h")

    (row,) = csv.DictReader(io.StringIO(erelong("export", "--queue", queue, "--format", "csv").out))

    assert (row["kind"], json.loads(row["params"]), row["error"]) == ("echo", {"text": "a,\nb"}, "")


@pytest.fixture
def many(client: Client, queue: str) -> list[str]:
    """The ids of more jobs than a page has, newest first."""
    tickets = list(client.submit_many([Draft("echo", {"n": n}, queue=queue, delay="1h") for n in range(2_500)]))
    return [ticket.id for ticket in reversed(tickets)]


def ids_in(file: Path) -> list[str]:
    return [json.loads(line)["id"] for line in file.read_text().splitlines()]


def test_export_to_a_file_leaves_nothing_else(
    erelong: Erelong, many: list[str], queue: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    ended = erelong("export", "--queue", queue, "-o", "out.ndjson")

    assert (ended.code, ended.out, ended.err) == (0, "", "2,500 jobs in out.ndjson\n")
    assert ids_in(tmp_path / "out.ndjson") == many
    assert [path.name for path in tmp_path.glob("out*")] == ["out.ndjson"]


def test_interrupted_export_continues_after_the_last_whole_page(
    erelong: Erelong, many: list[str], queue: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "out.ndjson"
    command = ("export", "--queue", queue, "-o", str(file))
    note, pages = exporting._note, []

    def interrupt(path: Path, place: exporting.Place) -> None:
        note(path, place)
        pages.append(place)
        if len(pages) == 2:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(exporting, "_note", interrupt)
        cut = erelong(*command)
    file.write_text(2 * file.read_text() + '{"half of a line')

    begun_again = erelong(*command)
    other = erelong(*command, "--state", "failed", "--resume")
    resumed = erelong(*command, "--resume")

    assert (cut.code, begun_again.code, other.code, resumed.code) == (130, 2, 2, 0)
    assert f"continue with: erelong export --queue {queue} -o {file} --resume" in cut.err
    assert ids_in(file) == many


@pytest.mark.parametrize("line", ["export --resume", "export -o x --schedules --resume", "export -o x --resume"])
def test_resume_needs_an_interrupted_export(
    erelong: Erelong, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    assert erelong(*line.split()).code == 2


def test_killed_export_is_resumed(
    program: Program, erelong: Erelong, many: list[str], queue: str, tmp_path: Path
) -> None:
    file = tmp_path / "out.ndjson"
    process = program("export", "--queue", queue, "-o", str(file))
    notes = tmp_path / "out.ndjson.export"
    while process.poll() is None and not notes.exists():
        pass
    process.send_signal(signal.SIGKILL)
    process.wait(20)

    if notes.exists():  # otherwise it has come to its end before the kill
        assert erelong("export", "--queue", queue, "-o", str(file), "--resume").code == 0
    assert ids_in(file) == many
