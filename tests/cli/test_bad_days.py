"""Pipes that close, full disks, Ctrl-C anywhere, services that are away, hang, or are of another version."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
from argparse import Namespace
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

from erelong import Client, Draft
from erelong.cli import commands
from erelong.cli.console.session import Session
from tests.cli.conftest import Erelong, Program, Terminal, environment

pytestmark = pytest.mark.timeout(60)


def test_service_that_is_away_is_69(erelong: Erelong) -> None:
    ended = erelong("get", "x", "--url", "http://127.0.0.1:9", "--request-timeout", "0.2")

    assert ended.code == 69
    assert "no connection to http://127.0.0.1:9" in ended.err
    assert "start it with erelong serve, or give its address with --url or ERELONG_URL" in ended.err


@pytest.mark.parametrize("has_screen", [False, True])
def test_command_without_a_screen_says_that_it_keeps_trying(
    capsys: pytest.CaptureFixture[str], *, has_screen: bool
) -> None:
    options = Namespace(url="http://127.0.0.1:9", key_file=None, profile=None, verbose=False, request_timeout=1.0)
    session = Session(options, retries=True, has_screen=has_screen)

    session.warn("no connection to http://127.0.0.1:9; retrying")

    told = "erelong: no connection to http://127.0.0.1:9; retrying; Ctrl-C ends it\n"
    assert capsys.readouterr().err == ("" if has_screen else told)


def test_closed_pipe_is_quiet(program: Program, client: Client, queue: str) -> None:
    list(client.submit_many([Draft("echo", {"text": "x" * 500}, queue=queue, delay="1h")] * 2_000))
    process = program("list", "--queue", queue, "--all", "--json")
    assert process.stdout is not None
    assert process.stderr is not None

    process.stdout.readline()
    process.stdout.close()

    assert process.wait(20) == 141
    assert process.stderr.read() == ""


def test_unknown_command_suggests_one(erelong: Erelong) -> None:
    ended = erelong("subit")

    assert (ended.code, ended.out) == (2, "")
    assert ended.err == "erelong: no command 'subit'; did you mean submit?\n"


def test_help_lists_every_command(erelong: Erelong) -> None:
    ended = erelong("--help")

    assert ended.code == 0
    assert all(f"\n  {name} " in ended.out for name in commands.COMMANDS)


@pytest.mark.parametrize("name", [name for name, command in commands.COMMANDS.items() if command.module != "parser"])
def test_each_command_has_help(erelong: Erelong, name: str) -> None:
    ended = erelong(name, "--help")

    assert ended.code == 0
    assert f"usage: erelong {name}" in ended.out


# output that cannot be written


@pytest.mark.parametrize("line", ["list --all", "--help", "help times", "submit --help", "status"])
def test_full_disk_is_74(program: Program, service_url: str, tmp_path: Path, line: str) -> None:
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "erelong", *line.split()],
            env=environment(service_url, tmp_path),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )

    assert (ended.returncode, ended.stderr) == (74, "erelong: the output cannot be written: No space left on device\n")


@pytest.mark.parametrize(("closed", "code"), [("<&-", 0), (">&-", 0), ("2>&-", 0), ("<&- >&- 2>&-", 0)])
def test_closed_standard_streams_are_no_error(service_url: str, tmp_path: Path, closed: str, code: int) -> None:
    line = f"{sys.executable} -m erelong submit echo --in 1h {closed}"
    ended = subprocess.run(["bash", "-c", line], env=environment(service_url, tmp_path), capture_output=True, text=True)

    assert (ended.returncode, ended.stderr) == (code, "")


def test_text_that_the_terminal_cannot_show_becomes_question_marks(
    program: Program, client: Client, queue: str
) -> None:
    job = client.submit("echo", {"text": "→ ü"}, queue=queue, delay="1h")

    process = program("get", job.id, PYTHONIOENCODING="ascii")
    out, err = process.communicate(timeout=20)

    assert (process.returncode, err) == (0, "")
    assert '{"text":"? ?"}' in out


def test_closed_pipe_ends_help_quietly(service_url: str, tmp_path: Path) -> None:
    line = f"{sys.executable} -m erelong submit --help | true; echo ${{PIPESTATUS[0]}}"
    ended = subprocess.run(["bash", "-c", line], env=environment(service_url, tmp_path), capture_output=True, text=True)

    assert ended.stdout in ("141\n", "0\n")  # 0 if `true` has ended later than the command
    assert ended.stderr == ""


# Ctrl-C


@pytest.mark.parametrize(
    "line",
    [
        "get x",
        "submit echo",
        "list --all",
        "wait x",
        "cancel --queue q --yes --at-most 1",
        "queue q pause",
        "status",
        "export",
        "api GET /v1/jobs",
        "tail",
        "list --watch",
        "top --once",
        "listen --port 0",
    ],
)
def test_interrupt_ends_any_command_at_once(program: Program, line: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        process = program(*line.split(), ERELONG_URL=address)
        connection, _ = silent.accept()  # the command waits for an answer that never comes

        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=20)
        connection.close()

    assert process.returncode == 130
    assert "Traceback" not in err


def test_interrupt_of_a_question_changes_nothing(terminal: Terminal, client: Client, queue: str) -> None:
    client.submit("echo", queue=queue, delay="1h")
    screen = terminal("cancel", "--queue", queue)
    screen.wait_for("to confirm: ")

    screen.press("\x03")

    assert screen.wait() == 130
    assert "Traceback" not in screen.text
    assert client.queue(queue).get().counts["scheduled"] == 1


def test_interrupt_while_the_key_is_typed_leaves_the_terminal_as_it_was(terminal: Terminal) -> None:
    screen = terminal("login")
    screen.wait_for("API key for ")

    screen.press("\x03")

    assert screen.wait() == 130
    assert screen.is_restored


# services


class Other(BaseHTTPRequestHandler):
    """A service of another version: knows `answers`, and no other route."""

    answers: ClassVar[dict[str, Any]] = {}

    def _answer(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        path = self.path.partition("?")[0]
        problem = {"status": 404, "code": "no_such_route", "detail": f"there is no route {self.command} {path}"}
        found = self.answers.get(f"{self.command} {path}")
        body = json.dumps(problem if found is None else found).encode()
        self.send_response(404 if found is None else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _answer  # noqa: N815

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def other() -> Iterator[dict[str, Any]]:
    """The answers of a service of another version; `url` is its address."""
    Other.answers = {}
    server = ThreadingHTTPServer(("127.0.0.1", 0), Other)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    Other.answers["url"] = f"http://127.0.0.1:{server.server_port}"
    yield Other.answers
    server.shutdown()
    server.server_close()


OLD_JOB = {"id": "a", "state": "scheduled", "kind": "echo", "queue": "q", "due_at": "2026-12-01T09:00:00.000Z"}
OLD_STATS = {
    "version": "0.0.1",
    "started_at": "2026-11-01T00:00:00.000Z",
    "now": "2026-11-02T00:00:00.000Z",
    "ready": True,
    "jobs": {"scheduled": 3, "due": 1, "running": 0, "succeeded": 0, "failed": 0},
}


def test_older_service_is_named_where_it_lacks_something(erelong: Erelong, other: dict[str, Any]) -> None:
    other |= {"GET /v1/jobs": {"jobs": [OLD_JOB], "next": None}, "GET /v1/stats": OLD_STATS}
    url = other["url"]

    listed, status = erelong("list", "--url", url), erelong("status", "--url", url)
    due, schedules = erelong("due", "--url", url), erelong("schedules", "--url", url)
    screen = erelong("top", "--url", url)

    assert (listed.code, status.code, due.code, schedules.code, screen.code) == (0, 0, 5, 5, 0)
    assert listed.out.startswith("a\techo\tq\tscheduled\t")
    assert "erelong 0.0.1" in status.out
    assert "nothing needs attention" in status.out
    assert "it is older than this client" in due.err
    assert "waiting 3 │ due 1" in screen.out


def test_newer_service_keeps_its_fields_and_words(erelong: Erelong, other: dict[str, Any]) -> None:
    job = {**OLD_JOB, "state": "parked", "mood": {"good": True}, "waiting_for": "the moon"}
    other |= {"GET /v1/jobs": {"jobs": [job], "next": None}, "GET /v1/jobs/a": job}
    url = other["url"]

    assert json.loads(erelong("get", "a", "--json", "--url", url).out) == job
    assert "\tparked\t" in erelong("list", "--url", url).out
    assert erelong("list", "--url", url, "--fields", "mood.good,nothing").out == "true\t\n"


def test_something_else_at_the_address_is_named(erelong: Erelong, other: dict[str, Any]) -> None:
    other |= {"GET /v1/jobs": "<html>"}

    ended = erelong("get", "a", "--url", other["url"])

    assert ended.code == 5


def test_no_url_is_a_usage_error(erelong: Erelong) -> None:
    ended = erelong("list", "--url", "localhost:8080")

    assert (ended.code, ended.out) == (2, "")
    assert "'localhost:8080' is not the URL of a service" in ended.err
