"""`erelong import` on bad days: busy services, interruptions, resumed imports."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import time
from collections import deque
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from erelong import Client
from erelong.cli.files.importer import Importer
from erelong.cli.files.lines import Batch
from erelong.cli.files.meter import Meter
from erelong.cli.files.progress import MAX_AGE, Progress
from erelong.cli.files.sending import Sender
from tests.cli.conftest import Erelong, Program
from tests.cli.lines import job, stored, write
from tests.support.process import ServiceProcess
from tests.system.trials import sized

pytestmark = pytest.mark.timeout(60)


class Moody(BaseHTTPRequestHandler):
    """Answers batches with prepared statuses, and otherwise with 201; records their keys and the jobs it took.

    A queue has no room for more than `room` jobs at once.
    """

    statuses: deque[int]
    keys: list[str]
    room = 10_000
    taken: list[Any]

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.keys.append(self.headers["Idempotency-Key"])
        status = self.statuses.popleft() if self.statuses else (201 if len(body["jobs"]) <= self.room else 429)
        if status == 0:
            self.close_connection = True
            return
        tickets = {"jobs": [{"id": "x", "created": True} for _ in body["jobs"]]}
        if status == 201:
            self.taken += body["jobs"]
        code = {429: "backlog_full", 503: "draining", 507: "storage_full"}.get(status, "odd")
        answer = json.dumps(tickets if status == 201 else {"code": code, "detail": "not now"})
        self.send_response(status)
        self.send_header("Content-Length", str(len(answer)))
        self.send_header("Retry-After", "0")
        self.end_headers()
        self.wfile.write(answer.replace(" ", "").encode().ljust(len(answer)))

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def moody(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a moody service, before which nobody pauses long."""
    monkeypatch.setattr("erelong.cli.files.sending.PAUSE", 0.01)
    monkeypatch.setattr("erelong.cli.files.sending.FIRST_PAUSE", 0.01)
    Moody.statuses, Moody.keys, Moody.room, Moody.taken = deque(), [], 10_000, []
    server = ThreadingHTTPServer(("127.0.0.1", 0), Moody)
    Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_full_backlog_and_lost_answers_are_waited_for(erelong: Erelong, tmp_path: Path, moody: str) -> None:
    Moody.statuses.extend([201, 429, 0, 503, 507, 0, 408, 504])
    file = write(tmp_path / "jobs.ndjson", *[job("q")] * 5_000)

    ended = erelong("import", file, "--parallel", "1", "--url", moody)

    assert ended.code == 0
    assert "5,000 jobs" in ended.err
    assert len(set(Moody.keys)) == 3
    assert len(Moody.keys) == 3 + 7  # answers to the three batches, and failures


def test_batch_is_split_for_a_queue_with_less_room(erelong: Erelong, tmp_path: Path, moody: str) -> None:
    Moody.room = 300
    file = write(tmp_path / "jobs.ndjson", *[job("q", params={"n": n}) for n in range(2_500)])

    ended = erelong("import", file, "--parallel", "1", "--url", moody)

    assert ended.code == 0
    assert [taken["params"]["n"] for taken in Moody.taken] == [*range(2_500)]


def test_parts_of_a_split_batch_are_the_same_after_a_resume(erelong: Erelong, tmp_path: Path, moody: str) -> None:
    file = write(tmp_path / "jobs.ndjson", *[job("q", params={"n": n}) for n in range(2_000)])
    progress = Progress(path=Path(file), url=moody, count=2_000, made_by=None, is_resumed=False)
    progress.reject(Batch(0, [], 0), [0, 1_999])
    progress.split(Batch(0, [], 0))
    progress.reject(Batch(0, [], 0, path="b"), [0])

    ended = erelong("import", file, "--resume", "--url", moody)

    assert ended.code == 0
    assert Moody.keys == [f"imp-{progress.id}-0a-0", f"imp-{progress.id}-0b-1"]
    assert [taken["params"]["n"] for taken in Moody.taken] == [*range(1, 1_000), *range(1_001, 1_999)]


# interruptions


def test_changed_file_or_options_are_not_resumed(erelong: Erelong, tmp_path: Path) -> None:
    file = write(tmp_path / "jobs.ndjson", job("q"))
    (tmp_path / "jobs.ndjson.import").write_text(json.dumps({"id": "other", "url": "x", "began": 0, "count": 1}))

    ended = erelong("import", file, "--resume")

    assert ended.code == 2
    assert "are not those that the import began with" in ended.err


@pytest.mark.parametrize(
    ("text", "message"), [("{", "is damaged"), ('{"url": "http://other"}', "the import began with")]
)
def test_progress_that_does_not_fit_is_named(erelong: Erelong, tmp_path: Path, text: str, message: str) -> None:
    file = write(tmp_path / "jobs.ndjson", job("q"))
    (tmp_path / "jobs.ndjson.import").write_text(text)

    ended = erelong("import", file, "--resume")

    assert ended.code == 2
    assert message in ended.err


def test_interrupted_import_is_not_begun_again_by_accident(erelong: Erelong, tmp_path: Path) -> None:
    file = write(tmp_path / "jobs.ndjson", job("q"))
    (tmp_path / "jobs.ndjson.import").write_text("{}")

    ended = erelong("import", file)

    assert ended.code == 2
    assert "add --resume to continue it" in ended.err


def test_standard_input_is_not_resumed(erelong: Erelong) -> None:
    ended = erelong("import", "-", "--resume")

    assert ended.code == 2
    assert "standard input cannot be resumed" in ended.err


def test_old_import_is_resumed_only_with_keys(erelong: Erelong, client: Client, queue: str, tmp_path: Path) -> None:
    with_keys = write(tmp_path / "a.ndjson", *[job(queue, key=f"k{n}") for n in range(3)])
    without = write(tmp_path / "b.ndjson", job(queue, key="k"), job(queue))
    for file in (with_keys, without):
        progress = Progress(path=Path(file), url=client.url, count=2, made_by=None, is_resumed=False)
        progress._state["began"] -= MAX_AGE + 1
        progress.save()

    good, bad = erelong("import", with_keys, "--resume"), erelong("import", without, "--resume")

    assert (good.code, bad.code, len(stored(client, queue))) == (0, 2, 3)
    assert "line 2 has none" in bad.err


def test_round_without_bad_lines_is_sent_again_after_a_resume(
    erelong: Erelong, client: Client, queue: str, tmp_path: Path
) -> None:
    """The bad line has become valid since, and the other lines may be stored already."""
    file = write(
        tmp_path / "jobs.ndjson", job(queue, params={"n": 0}), job(queue, key="k"), job(queue, params={"n": 1})
    )
    holder = client.submit("echo", queue=queue, key="k", delay="1h")
    erelong("import", file)
    client.delete(holder)
    progress = Progress(path=Path(file), url=client.url, count=2_000, made_by=None, is_resumed=False)
    progress.reject(Batch(0, [], 0), [1])

    ended = erelong("import", file, "--resume")

    assert (ended.code, stored(client, queue)) == (0, [{"n": 0}, {"n": 1}])


def test_interrupt_in_a_full_backlog_ends_at_once_and_tells_how_to_continue(
    program: Program, client: Client, erelong: Erelong, queue: str, tmp_path: Path
) -> None:
    client.queue(queue).set(max_backlog=2_000)
    lines = [job(queue, params={"n": n}) for n in range(4_000)]
    file = write(tmp_path / "jobs.ndjson", *lines)
    process = program("import", file, "--parallel", "1")
    assert process.stderr is not None
    while "waiting jobs; at most" not in (line := process.stderr.readline()):
        assert line

    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=20)
    client.queue(queue).set(max_backlog=4_000)
    resumed = erelong("import", file, "--resume")

    assert process.returncode == 130
    assert f"continue with: erelong import {file} --parallel 1 --resume" in err
    assert (resumed.code, stored(client, queue)) == (0, [{"n": n} for n in range(4_000)])


def test_second_interrupt_leaves_batches_without_an_answer(program: Program, tmp_path: Path) -> None:
    file = write(tmp_path / "jobs.ndjson", job("q"))
    with socket.create_server(("127.0.0.1", 0)) as silent:
        process = program("import", file, ERELONG_URL=f"http://127.0.0.1:{silent.getsockname()[1]}")
        connection, _ = silent.accept()
        assert process.stderr is not None
        process.send_signal(signal.SIGINT)
        while "Ctrl-C again leaves them" not in (line := process.stderr.readline()):
            assert line
        process.send_signal(signal.SIGINT)

        assert process.wait(20) == 130
        connection.close()
    assert (tmp_path / "jobs.ndjson.import").exists()


class Stopped(Sender):
    """Leaves the first batch when it is stopped, and stores the others once the importer has noted that."""

    def __init__(self, *, stop: Event) -> None:
        self.stop = stop
        self.importer: Importer

    def send(self, batch: Batch) -> bool:
        self.stop.wait()
        while batch.offset and any(running.offset == 0 for running in [*self.importer._running.values()]):
            time.sleep(0.01)
        return batch.offset > 0


def test_batch_that_was_left_before_a_stored_one_is_not_taken_for_stored(tmp_path: Path) -> None:
    path, stop = Path(write(tmp_path / "jobs.ndjson", job("q"), job("q"))), Event()
    progress = Progress(path=path, url="http://x", count=1, made_by=None, is_resumed=False)
    sender = Stopped(stop=stop)
    sender.importer = Importer(sender=sender, progress=progress, meter=Meter(total=0), stop=stop, parallel=3, rate=None)

    def interrupted() -> Iterator[Batch]:
        yield from (Batch(offset, [(1, b"{}")], 3) for offset in (0, 3))
        raise KeyboardInterrupt

    is_whole = sender.importer.run(interrupted())

    assert (is_whole, progress.has(0), progress.has(3)) == (False, False, True)


def test_refused_import_tells_how_to_continue(erelong: Erelong, tmp_path: Path, moody: str) -> None:
    Moody.statuses.extend([201, 401])
    file = write(tmp_path / "jobs.ndjson", *[job("q")] * 5_000)

    ended = erelong("import", file, "--parallel", "1", "--url", moody)

    assert ended.code == 4
    assert f"continue with: erelong import {file}" in ended.err
    assert (tmp_path / "jobs.ndjson.import").exists()


def progress_of(file: str) -> str | None:
    """What an import has written down so far."""
    progress = Path(f"{file}.import")
    return progress.read_text() if progress.exists() else None


def wait_for_progress(file: str, before: str | None) -> None:
    deadline = time.monotonic() + 60
    while progress_of(file) == before:
        assert time.monotonic() < deadline, "the import makes no progress"
        time.sleep(0.02)


@pytest.mark.timeout(sized(120, 1_800))
def test_killed_and_interrupted_imports_resume_to_exactly_all_jobs(program: Program, tmp_path: Path) -> None:
    """The service is killed, too, and starts again on its file, and its queue is full for a while."""
    (tmp_path / "service").mkdir()
    service = ServiceProcess(folder=tmp_path / "service")
    service.start()
    service.keep_port()
    number, kills, rate = sized((60_000, 7, 10_000), (1_000_000, 10, 50_000))
    file = write(tmp_path / "jobs.ndjson", *[job("q", params={"n": n}) for n in range(number)])
    for kill in range(kills):  # at a rate at which none of them comes to its end
        before = progress_of(file)
        if kill == 4:
            fill(service.url)
        process = program("import", file, "--resume", "--rate", str(rate), ERELONG_URL=service.url)
        if kill == 4:
            wait_for_line(process, "waiting jobs; at most")
        else:
            wait_for_progress(file, before)
        if kill == 3:
            service.kill()
            service.start()
        process.send_signal(signal.SIGINT if kill == 2 else signal.SIGKILL)
        assert process.wait(30) == (130 if kill == 2 else -9), process.communicate()
        if kill == 4:
            fill(service.url, more=10_000_000)
    process = program("import", file, "--resume", ERELONG_URL=service.url)
    _, err = process.communicate(timeout=sized(100, 600))

    with Client(service.url, key="") as client:
        counts = client.queue("q").get().counts
        params = {found.params["n"] for found in client.list(queue="q", view="full", limit=1_000)}
    service.kill()
    assert process.returncode == 0, err
    assert counts["scheduled"] == number
    assert params == {*range(number)}


def fill(url: str, more: int = 0) -> None:
    """Set the bound of the queue to its number of jobs and `more`."""
    with Client(url, key="") as client:
        queue = client.queue("q")
        queue.set(max_backlog=queue.get().counts["scheduled"] + more)


def wait_for_line(process: subprocess.Popen[str], text: str) -> None:
    assert process.stderr is not None
    while text not in (line := process.stderr.readline()):
        assert line, "the import has ended"
