"""`erelong import` of files that are not what it reads, and what it says about rejected lines."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from erelong import Client
from tests.cli.conftest import Erelong
from tests.cli.lines import job, stored, write

pytestmark = pytest.mark.timeout(60)

SCHEDULE = {"name": "x", "cron": "0 9 * * *", "job": {"kind": "emial"}}


def test_first_reason_is_printed(erelong: Erelong, queue: str, tmp_path: Path) -> None:
    lines = [job(queue), "not json", job(queue, kind="emial")]

    ended = erelong("import", write(tmp_path / "jobs.ndjson", *lines))

    assert ended.code == 1
    assert "2 lines rejected: see" in ended.err
    assert ended.err.splitlines()[-1].startswith("  line 2: not JSON: ")


def test_import_that_mends_a_file_leaves_no_rejected_lines(erelong: Erelong, queue: str, tmp_path: Path) -> None:
    file = write(tmp_path / "jobs.ndjson", job(queue, kind="emial"))
    first = erelong("import", file)
    write(tmp_path / "jobs.ndjson", job(queue, kind="echo"))

    again = erelong("import", file)

    assert (first.code, again.code) == (1, 0)
    assert [path.name for path in tmp_path.glob("jobs*")] == ["jobs.ndjson"]


def test_csv_may_have_semicolons(erelong: Erelong, client: Client, queue: str, tmp_path: Path) -> None:
    file = tmp_path / "jobs.csv"
    file.write_text(f"kind;delay;queue;params.text\necho;1h;{queue};a, b\n")

    assert erelong("import", str(file)).code == 0
    assert stored(client, queue) == [{"text": "a, b"}]


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("jobs.json", b'[\n  {"kind": "echo"}\n]\n', "jobs.json is a JSON array, not one object per line"),
        ("jobs.ndjson", '{"kind": "echo"}\n'.encode("utf-16"), "jobs.ndjson is in UTF-16: convert it with: iconv"),
        ("jobs.csv", "kind\necho\n".encode("utf-16"), "jobs.csv is in UTF-16: convert it with: iconv"),
        ("jobs.csv", "kind,key\necho,Käse\n".encode("latin-1"), "the file is not UTF-8"),
    ],
)
def test_file_of_another_form_is_refused(
    erelong: Erelong, tmp_path: Path, name: str, content: bytes, told: str
) -> None:
    (tmp_path / name).write_bytes(content)

    ended = erelong("import", str(tmp_path / name))

    assert ended.code == 2
    assert told in ended.err
    assert [path.name for path in tmp_path.glob("jobs*")] == [name]


def test_mapped_column_that_does_not_exist_is_refused(erelong: Erelong, tmp_path: Path) -> None:
    (tmp_path / "jobs.csv").write_text("link,name\na,b\n")

    close = erelong("import", str(tmp_path / "jobs.csv"), "--kind", "echo", "--map", "params.url=lnk")
    other = erelong("import", str(tmp_path / "jobs.csv"), "--kind", "echo", "--map", "params.url=address")

    assert (close.code, other.code) == (2, 2)
    assert "--map: the file has no column 'lnk'; did you mean link?" in close.err
    assert "the file has no column 'address'; columns: link, name" in other.err


def test_jobs_are_no_schedules(erelong: Erelong, queue: str, tmp_path: Path) -> None:
    ended = erelong("import", write(tmp_path / "jobs.ndjson", job(queue)), "--schedules")

    assert ended.code == 2
    assert "line 1 is a job, not a schedule: import jobs without --schedules" in ended.err


def test_first_reason_of_schedules_is_printed_and_goes_with_it(erelong: Erelong, tmp_path: Path) -> None:
    file = write(tmp_path / "s.ndjson", SCHEDULE)
    first = erelong("import", file, "--schedules")
    write(tmp_path / "s.ndjson", {**SCHEDULE, "job": {"kind": "echo"}})
    again = erelong("import", file, "--schedules", "--check")

    assert (first.code, again.code) == (1, 0)
    assert f"see {file}.rejected; line 1: /job/kind: no kind 'emial'" in first.err
    assert [path.name for path in tmp_path.glob("s.*")] == ["s.ndjson"]


def test_resumed_import_keeps_the_lines_rejected_before(erelong: Erelong, queue: str, tmp_path: Path) -> None:
    file = write(tmp_path / "jobs.ndjson", job(queue))
    rejected = tmp_path / "jobs.ndjson.rejected"
    rejected.write_text(json.dumps({"line": 7}) + "\n")

    assert erelong("import", file, "--resume").code == 0
    assert rejected.exists()
