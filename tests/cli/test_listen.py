"""`erelong listen`: its output, its answers, and its hints about the service."""

from __future__ import annotations

import argparse
import http.client
import json
import secrets
import socket
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path

import pytest

from erelong import Client
from erelong.cli.live.answers import MAX_KNOWN, Answers, plan
from tests.cli.conftest import Erelong, Program, Terminal
from tests.support.process import ServiceProcess

pytestmark = pytest.mark.timeout(60)

SECRET = f"whsec_{b64encode(bytes(32)).decode()}"


# the plan


def test_plan_lists_statuses() -> None:
    assert plan("200") == [200]
    assert plan("503x2,200") == [503, 503, 200]
    assert plan("500, 429x3,204") == [500, 429, 429, 429, 204]


@pytest.mark.parametrize("text", ["", "ok", "199", "600", "200x0", "200x9999", "200,,200", "503x", "-1"])
def test_plan_that_makes_no_sense_is_named(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="write statuses from 200 to 599"):
        plan(text)


def test_each_webhook_goes_through_the_plan_by_itself() -> None:
    answers = Answers([503, 503, 200])

    assert [answers.next_for("a") for _ in range(4)] == [503, 503, 200, 200]
    assert [answers.next_for("b"), answers.next_for("a")] == [503, 200]


def test_forgotten_webhooks_begin_again() -> None:
    answers = Answers([503, 200])
    for number in range(MAX_KNOWN + 1):
        answers.next_for(str(number))

    assert [answers.next_for("0"), answers.next_for(str(MAX_KNOWN))] == [503, 200]


# with a service


@pytest.fixture(scope="module")
def open_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a service that signs webhooks and may call this machine."""
    config = (
        f'[store]\nkind = "memory"\n[webhooks]\nallow_networks = ["127.0.0.0/8"]\nsigning_secrets = ["{SECRET}"]\n'
        '[jobs.retry]\ndelay = "10ms"\n'
    )
    service = ServiceProcess(folder=tmp_path_factory.mktemp("open"), config=config)
    service.start()
    yield service.url
    service.kill()


def listening(process: object) -> str:
    """Return the address that a receiver prints at its start."""
    line: str = process.stderr.readline()  # type: ignore[attr-defined]  # a process with text pipes
    assert line.startswith("erelong: listening on "), line
    return line.removeprefix("erelong: listening on ").partition(";")[0]


def test_webhook_is_shown_verified_and_answered_as_planned(program: Program, open_service: str) -> None:
    process = program(
        *("listen", "--port", "0", "--answer", "503x2,200", "--secret", SECRET, "--limit", "6"),
        ERELONG_URL=open_service,
    )
    url = listening(process)

    def submitted(order: int) -> str:
        with Client(open_service, key="") as client:
            job = client.submit("http", {"url": f"{url}hello", "json": {"order": order}}).wait(timeout=20)
        assert job.state == "succeeded"
        return job.id

    ids = [submitted(7), submitted(8)]
    out, err = process.communicate(timeout=20)

    rows = [line.split("\t") for line in out.splitlines()]
    assert [row[1:] for row in rows] == [
        ["POST", "/hello", id, str(attempt), "signature ok", status, f'{{"order":{order}}}']
        for id, order in zip(ids, (7, 8), strict=True)
        for attempt, status in ((1, "503"), (2, "503"), (3, "200"))
    ]
    assert "allow_networks" not in err


def test_webhook_in_json_has_everything(program: Program, open_service: str, tmp_path: Path) -> None:
    (tmp_path / "secrets").write_text(f"whsec_{b64encode(bytes([1] * 32)).decode()}\n")
    process = program(
        *("listen", "--port", "0", "--secret-file", "secrets", "--limit", "1", "--json"), ERELONG_URL=open_service
    )
    url = listening(process)

    with Client(open_service, key="") as client:
        client.submit("http", {"url": url, "method": "put", "body": "text", "headers": {"X-Tenant": "t1"}})
    out, _ = process.communicate(timeout=20)

    received = json.loads(out)
    assert (received["method"], received["path"], received["body"], received["status"]) == ("PUT", "/", "text", 200)
    assert received["headers"]["x-tenant"] == "t1"
    assert received["signature"].startswith("the signature is wrong")


def test_terminal_shows_webhooks_for_people(terminal: Terminal, open_service: str) -> None:
    screen = terminal("listen", "--port", "0", "--headers", "--answer", "204", size=(110, 40), ERELONG_URL=open_service)
    url = screen.wait_for("json.n:=1").split("listening on ")[1].partition(";")[0]

    with Client(open_service, key="") as client:
        job = client.submit("http", {"url": f"{url}remind", "json": {"text": "\x1b[31m"}}).wait(timeout=20)
    shown = screen.wait_for("answered 204")
    screen.press("\x03")

    assert screen.wait() == 130
    assert f"POST /remind  job {job.id}, attempt 1, " in shown
    assert " ms after it was due" in shown
    assert "content-type: application/json" in shown
    assert "signed, not verified: give --secret" in shown
    assert '{"text":"\\u001b[31m"}' in shown


def test_missing_network_is_named_with_its_line(program: Program) -> None:
    process = program("listen", "--port", "0")
    listening(process)
    assert process.stderr is not None

    lines = [process.stderr.readline() for _ in range(4)]

    assert "the service does not call 127.0.0.1 yet. Add this to its config.toml" in lines[0]
    assert lines[2:] == ["[webhooks]\n", 'allow_networks = ["127.0.0.0/8"]\n']


def test_service_that_is_away_is_named(program: Program) -> None:
    process = program("listen", "--port", "0", ERELONG_URL="http://127.0.0.1:9")
    listening(process)
    assert process.stderr is not None

    assert process.stderr.readline() == "erelong: no service responds; start one with: erelong serve\n"


def test_port_in_use_is_a_usage_error(erelong: Erelong) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ended = erelong("listen", "--port", str(listener.getsockname()[1]))

    assert ended.code == 2
    assert "is in use: give another --port" in ended.err


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 411),
        (b"POST / HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n", 413),
        (b"POST / HTTP/1.1\r\nContent-Length: x\r\n\r\n", 413),
        (b"GET / HTTP/1.1\r\nX: %b\r\n\r\n" % (b"x" * 70_000), 431),
        (b"GET /%00?a=b HTTP/1.1\r\n\r\n", 200),
    ],
)
def test_odd_requests_are_answered(program: Program, request_: bytes, status: int) -> None:
    process = program("listen", "--port", "0")
    url = listening(process)
    port = int(url.rstrip("/").rpartition(":")[2])

    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        connection.sendall(request_)
        answer = http.client.HTTPResponse(connection)
        answer.begin()

    assert answer.status == status


def test_webhooks_of_one_connection_are_all_taken(program: Program) -> None:
    process = program("listen", "--port", "0", "--limit", "50", "-q")
    port = int(listening(process).rstrip("/").rpartition(":")[2])
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)

    for _ in range(50):
        connection.request("POST", f"/{secrets.token_hex(2)}", b"x")
        connection.getresponse().read()
    connection.close()
    out, _ = process.communicate(timeout=20)

    assert (process.returncode, len(out.splitlines())) == (0, 50)
