"""`erelong import` and `export`: formats, bad lines, busy services, interruptions."""

from __future__ import annotations

import gzip
import json
import secrets
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from erelong import Client
from tests.cli.conftest import Erelong
from tests.support.process import ServiceProcess

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def queue() -> str:
    """A queue of this test alone, since tests share the service."""
    return f"q-{secrets.token_hex(4)}"


def write(file: Path, *jobs: Any) -> str:
    lines = [job if isinstance(job, str) else json.dumps(job) for job in jobs]
    file.write_text("".join(line + "\n" for line in lines))
    return str(file)


def job(queue: str, **fields: Any) -> dict[str, Any]:
    return {"kind": "echo", "delay": 3_600, "queue": queue, **fields}


def stored(client: Client, queue: str) -> list[dict[str, Any]]:
    return [found.params for found in client.list(queue=queue, view="full", limit=1_000)][::-1]


def test_lines_are_imported_in_batches(erelong: Erelong, client: Client, queue: str, tmp_path: Path) -> None:
    file = write(tmp_path / "jobs.ndjson", *[job(queue, params={"n": n}) for n in range(4_500)])

    ended = erelong("import", file, "--parallel", "1")

    assert ended.code == 0
    assert "4,500 jobs" in ended.err
    assert stored(client, queue) == [{"n": n} for n in range(4_500)]
    assert [path.name for path in tmp_path.glob("jobs*")] == ["jobs.ndjson"]


def test_same_file_again_makes_no_job(erelong: Erelong, client: Client, queue: str, tmp_path: Path) -> None:
    file = write(tmp_path / "jobs.ndjson", *[job(queue)] * 10)

    codes = [erelong("import", file).code for _ in range(2)]

    assert (codes, len(stored(client, queue))) == ([0, 0], 10)


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
    assert "3 lines were rejected" in ended.err


def test_check_stores_nothing(erelong: Erelong, client: Client, queue: str, tmp_path: Path) -> None:
    ended = erelong("import", write(tmp_path / "jobs.ndjson", job(queue), job(queue, priority=999)), "--check")

    assert (ended.code, stored(client, queue)) == (1, [])


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


class Moody(BaseHTTPRequestHandler):
    """Answers batches with prepared statuses, and otherwise with 201; records their keys."""

    statuses: deque[int]
    keys: list[str]

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.keys.append(self.headers["Idempotency-Key"])
        status = self.statuses.popleft() if self.statuses else 201
        if status == 0:
            self.close_connection = True
            return
        tickets = {"jobs": [{"id": "x", "created": True} for _ in body["jobs"]]}
        answer = json.dumps(tickets if status == 201 else {"code": "backlog_full", "detail": "queue is full"})
        self.send_response(status)
        self.send_header("Content-Length", str(len(answer)))
        self.send_header("Retry-After", "0")
        self.end_headers()
        self.wfile.write(answer.replace(" ", "").encode().ljust(len(answer)))

    def log_message(self, *_: Any) -> None:
        pass


def test_full_backlog_and_lost_answers_are_waited_for(
    erelong: Erelong, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("erelong.cli.client.importing.PAUSE", 0.01)
    Moody.statuses, Moody.keys = deque([201, 429, 0, 503, 507, 0]), []
    server = ThreadingHTTPServer(("127.0.0.1", 0), Moody)
    Thread(target=server.serve_forever, daemon=True).start()
    file = write(tmp_path / "jobs.ndjson", *[job("q")] * 5_000)

    ended = erelong("import", file, "--parallel", "1", "--url", f"http://127.0.0.1:{server.server_port}")
    server.shutdown()
    server.server_close()

    assert ended.code == 0
    assert "5,000 jobs" in ended.err
    assert len(set(Moody.keys)) == 3
    assert len(Moody.keys) == 3 + 5  # answers to the three batches, and failures


def test_changed_file_is_not_resumed(erelong: Erelong, tmp_path: Path) -> None:
    file = write(tmp_path / "jobs.ndjson", job("q"))
    (tmp_path / "jobs.ndjson.import").write_text(json.dumps({"id": "other", "url": "x", "began": 0, "count": 1}))

    ended = erelong("import", file, "--resume")

    assert ended.code == 2
    assert "the file has changed" in ended.err


def progress_of(file: str) -> str | None:
    """What an import has written down so far."""
    progress = Path(f"{file}.import")
    return progress.read_text() if progress.exists() else None


def wait_for_progress(file: str, before: str | None) -> None:
    deadline = time.monotonic() + 20
    while progress_of(file) == before:
        assert time.monotonic() < deadline, "the import makes no progress"
        time.sleep(0.02)


def test_killed_and_interrupted_imports_resume_to_exactly_all_jobs(
    program: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    """The service is killed, too, and starts again on its file."""
    (tmp_path / "service").mkdir()
    service = ServiceProcess(folder=tmp_path / "service")
    service.start()
    service.keep_port()
    number = 60_000
    file = write(tmp_path / "jobs.ndjson", *[job("q", params={"n": n}) for n in range(number)])
    for kill in range(6):  # at a rate that would take 6 s, so that none of them comes to its end
        before = progress_of(file)
        process = program("import", file, "--resume", "--rate", "10000", ERELONG_URL=service.url)
        wait_for_progress(file, before)
        if kill == 3:
            service.kill()
            service.start()
        process.send_signal(signal.SIGINT if kill == 2 else signal.SIGKILL)
        assert process.wait(30) == (130 if kill == 2 else -9), process.communicate()
    process = program("import", file, "--resume", ERELONG_URL=service.url)
    _, err = process.communicate(timeout=50)

    with Client(service.url, key="") as client:
        counts = client.queue("q").get().counts
    service.kill()
    assert process.returncode == 0, err
    assert counts["scheduled"] == number


def test_wheel_has_no_other_imports() -> None:
    """The commands of the client import nothing that the base of the package does not bring."""
    script = (
        "import sys\n"
        "class Refuse:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name.partition('.')[0] in ('aiohttp', 'pydantic', 'orjson', 'apsw', 'yarl', 'typing_extensions'):\n"
        "            raise ModuleNotFoundError(name=name)\n"
        "sys.meta_path.insert(0, Refuse())\n"
        "from erelong.cli.commands import COMMANDS, main, parser_of\n"
        "[parser_of(name) for name, command in COMMANDS.items() if command.module != 'parser']\n"
        "import erelong.webhooks, erelong.testing, erelong\n"
        "erelong.Client, erelong.Executor, erelong.kind\n"
        "raise SystemExit(main(['serve']))\n"
    )
    ended = subprocess.run([sys.executable, "-c", script], env={"PYTHONPATH": "app"}, capture_output=True, text=True)

    assert ended.returncode == 78, ended.stderr
    assert "is not installed; run: pip install 'erelong[server]'" in ended.stderr
