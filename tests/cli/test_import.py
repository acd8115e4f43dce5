"""`erelong import`: formats, bad lines, and lines of other shapes."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from erelong import Client
from tests.cli.conftest import Erelong
from tests.cli.lines import job, stored, write

pytestmark = pytest.mark.timeout(60)


def test_lines_are_imported_in_batches(erelong: Erelong, client: Client, queue: str, tmp_path: Path) -> None:
    file = write(tmp_path / "jobs.ndjson", *[job(queue, params={"n": n}) for n in range(4_500)])

    ended = erelong("import", file, "--parallel", "1")

    assert ended.code == 0
    assert "4,500 jobs" in ended.err
    assert stored(client, queue) == [{"n": n} for n in range(4_500)]
    assert [path.name for path in tmp_path.glob("jobs*")] == ["jobs.ndjson"]


def test_same_file_again_makes_no_job(erelong: Erelong, client: Client, queue: str, tmp_path: Path) -> None:
    file = write(tmp_path / "jobs.ndjson", *[job(queue)] * 10)

    first, again = [erelong("import", file) for _ in range(2)]

    assert (first.code, again.code, len(stored(client, queue))) == (0, 0, 10)
    assert "earlier run" not in first.err
    assert "10 of the jobs had been stored by an earlier run; to import the file once more, touch it" in again.err


def test_same_file_with_other_options_makes_other_jobs(
    erelong: Erelong, client: Client, queue: str, tmp_path: Path
) -> None:
    file = write(tmp_path / "jobs.ndjson", {"delay": "1h"})

    codes = [erelong("import", file, "--kind", "echo", "--queue", f"{queue}{n}").code for n in range(2)]

    assert codes == [0, 0]
    assert [len(stored(client, f"{queue}{n}")) for n in range(2)] == [1, 1]


@pytest.mark.parametrize("name", ["jobs.ndjson.gz", "jobs.csv", "-"])
def test_other_formats_are_read(erelong: Erelong, client: Client, queue: str, tmp_path: Path, name: str) -> None:
    file, text = tmp_path / name, ""
    if name.endswith(".gz"):
        file.write_bytes(gzip.compress(json.dumps(job(queue, params={"n": 1, "text": "a"})).encode()))
    elif name == "jobs.csv":
        file.write_text(
            f"kind,delay,queue,labels.tenant,params.n,params.text,params.list:json,key\necho,1h,{queue},7,1,a,,\n"
        )
    else:
        text = json.dumps(job(queue, params={"n": 1, "text": "a"})) + "\n\n"

    ended = erelong("import", "-" if name == "-" else str(file), stdin=text)

    assert (ended.code, stored(client, queue)) == (0, [{"n": 1, "text": "a"}])


def test_missing_fields_come_from_options(erelong: Erelong, client: Client, queue: str, tmp_path: Path) -> None:
    file = write(tmp_path / "jobs.ndjson", {"delay": "1h", "labels": {"a": "b"}}, {"kind": "http", "queue": "x"})

    ended = erelong("import", file, "--kind", "echo", "--queue", queue, "--label", "tenant=t1")

    (found,) = client.list(queue=queue)
    assert ended.code == 1
    assert (found.kind, found.labels) == ("echo", {"a": "b", "tenant": "t1"})


def test_bad_lines_are_set_aside_and_the_rest_is_stored(
    erelong: Erelong, client: Client, queue: str, tmp_path: Path
) -> None:
    client.submit("echo", queue=queue, key="held", delay="1h")
    good = [job(queue, params={"n": n}) for n in range(3)]
    lines = [good[0], job(queue, kind="emial"), "not json", good[1], job(queue, key="held"), "", good[2]]

    ended = erelong("import", write(tmp_path / "jobs.ndjson", *lines))

    rejected = [json.loads(line) for line in (tmp_path / "jobs.ndjson.rejected").read_text().splitlines()]
    assert ended.code == 1
    assert stored(client, queue)[1:] == [{"n": 0}, {"n": 1}, {"n": 2}]
    assert sorted((line["line"], line["code"]) for line in rejected) == [
        (2, "invalid"),
        (3, "malformed_json"),
        (5, "key_taken"),
    ]
    assert rejected[1]["errors"][0]["pointer"] == "/kind"
    assert "3 lines rejected" in ended.err


def test_lines_that_are_not_one_job_are_found(erelong: Erelong, client: Client, queue: str, tmp_path: Path) -> None:
    two = f"{json.dumps(job(queue, params={'n': 8}))},{json.dumps(job(queue, params={'n': 9}))}"
    lines = [job(queue, params={"n": 0}), two, job(queue, kind="emial"), job(queue, params={"n": 1}), "[]", '"text"']

    ended = erelong("import", write(tmp_path / "jobs.ndjson", *lines))

    rejected = [json.loads(line)["line"] for line in (tmp_path / "jobs.ndjson.rejected").read_text().splitlines()]
    assert (ended.code, sorted(rejected)) == (1, [2, 3, 5, 6])
    assert stored(client, queue) == [{"n": 0}, {"n": 1}]


def test_file_may_begin_with_a_byte_order_mark(erelong: Erelong, client: Client, queue: str, tmp_path: Path) -> None:
    file = tmp_path / "jobs.ndjson"
    file.write_bytes(b"\xef\xbb\xbf" + json.dumps(job(queue, params={"n": 1})).encode())

    assert erelong("import", str(file)).code == 0
    assert stored(client, queue) == [{"n": 1}]


# other shapes


def test_map_takes_fields_from_others(erelong: Erelong, client: Client, queue: str, tmp_path: Path) -> None:
    lines = [
        {"link": {"href": "https://a.example"}, "when": 3_600, "order": "o-1", "kind": "invoice", "more": [1]},
        {"link": {"href": "https://b.example"}, "when": "2h", "order": None, "a.b": 7},
    ]
    maps = ("-m", "params.url=link.href", "--map", "delay=when", "-m", "key=order", "-m", "labels.n=a.b")

    ended = erelong("import", write(tmp_path / "x.ndjson", *lines), "--kind", "http", "--queue", queue, *maps)

    assert (ended.code, ended.err.partition(" job")[0]) == (1, "1")  # a label is text, not 7
    (found,) = client.list(queue=queue, view="full")
    assert (found.kind, found.key, found.params["url"]) == ("http", "o-1", "https://a.example")


@pytest.mark.parametrize("map_", ["params.url", "=link", "params.url=", "colour=link"])
def test_map_that_makes_no_sense_is_a_usage_error(erelong: Erelong, tmp_path: Path, map_: str) -> None:
    assert erelong("import", write(tmp_path / "x.ndjson"), "--map", map_).code == 2


def test_csv_is_mapped_and_typed_by_the_schema_of_the_kind(
    erelong: Erelong, client: Client, queue: str, tmp_path: Path
) -> None:
    file = tmp_path / "people.csv"
    file.write_text(
        "link,text,rank,when,phone\n"
        "https://a.example,123,3,3600,007\n"
        '"https://b.example/\nx",45,,1h,\n'
        "https://c.example,46,[oops,1h,\n"
        "https://d.example,,,2h,\n"
    )
    maps = ("params.url=link", "params.body=text", "delay=when", "key=phone", "priority:json=rank")

    options = [word for pair in maps for word in ("--map", pair)]
    ended = erelong("import", str(file), "--kind", "http", "--queue", queue, *options)

    rejected = [json.loads(line) for line in (tmp_path / "people.csv.rejected").read_text().splitlines()]
    jobs = [*client.list(queue=queue, view="full")]
    assert ended.code == 1
    assert {(line["line"], line["code"]) for line in rejected} == {(4, "invalid"), (5, "malformed_json")}
    assert [(found.params["url"], found.params.get("body"), found.key, found.priority) for found in jobs] == [
        ("https://d.example", None, None, 0),
        ("https://a.example", "123", "007", 3),
    ]


def test_schedules_are_not_taken_for_jobs(erelong: Erelong, queue: str, tmp_path: Path) -> None:
    erelong("schedule", f"{queue}-a", "put", "--kind", "echo", "--queue", queue, "--every", "10m")
    lines = [line for line in erelong("export", "--schedules").out.splitlines() if queue in line]
    file = write(tmp_path / "s.ndjson", *lines)

    ended = erelong("import", file)

    assert ended.code == 2
    assert "line 1 is a schedule, not a job: import schedules with --schedules" in ended.err
    assert "continue with" not in ended.err
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("s.")] == ["s.ndjson"]


def test_schedules_are_exported_and_imported(erelong: Erelong, client: Client, queue: str, tmp_path: Path) -> None:
    put = ("--kind", "echo", "--queue", queue, "--zone", "Europe/Berlin", "--missed", "skip", "n:=1")
    erelong("schedule", f"{queue}-a", "put", *put, "--cron", "0 9 * * MON-FRI")
    erelong("schedule", f"{queue}-b", "put", "--kind", "echo", "--queue", queue, "--every", "10m")
    erelong("schedule", f"{queue}-b", "pause", "--reason", "why")
    before = [found.raw for found in client.schedules.list(queue=queue)]
    lines = [line for line in erelong("export", "--schedules").out.splitlines() if queue in line]
    for name in ("a", "b"):
        client.schedules.delete(f"{queue}-{name}")
    file = write(tmp_path / "s.ndjson", *lines, "", {"name": f"{queue}-c", "cron": "nonsense"}, "[]")

    checked = erelong("import", file, "--schedules", "--check")
    none = [*client.schedules.list(queue=queue)]
    ended = erelong("import", file, "--schedules")
    again = erelong("import", file, "--schedules")

    after = [found.raw for found in client.schedules.list(queue=queue)]
    kept = ("name", "cron", "every", "zone", "missed", "paused", "reason", "job")
    assert (checked.code, none, ended.code, again.code) == (1, [], 1, 1)
    assert [{name: found[name] for name in kept} for found in after] == [
        {name: found[name] for name in kept} for found in before
    ]
    rejected = [json.loads(line) for line in (tmp_path / "s.ndjson.rejected").read_text().splitlines()]
    assert [line["line"] for line in rejected] == [4, 5]
    assert erelong("import", file, "--schedules", "--queue", "x").code == 2


def test_check_stores_nothing(erelong: Erelong, client: Client, queue: str, tmp_path: Path) -> None:
    ended = erelong("import", write(tmp_path / "jobs.ndjson", job(queue), job(queue, priority=999)), "--check")

    assert (ended.code, stored(client, queue)) == (1, [])
