"""The programs of docs/events.md, run against a real service: curl, and a client in Python that survives a restart."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.docs.pages import blocks_of
from tests.support.process import ServiceProcess

PAGE = "docs/events.md"

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def service(make_service: Callable[..., ServiceProcess]) -> ServiceProcess:
    service = make_service()
    service.start()
    return service


@pytest.fixture
def programs() -> Iterator[list[subprocess.Popen[str]]]:
    """Programs to end after the test."""
    programs: list[subprocess.Popen[str]] = []
    yield programs
    for program in programs:
        program.kill()
        program.communicate()


def submit(service: ServiceProcess, **fields: Any) -> str:
    body = json.dumps({"kind": "echo", "params": {"fail": "boom"}, "retry": {"max_attempts": 1}, **fields}).encode()
    request = urllib.request.Request(f"{service.url}/v1/jobs", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as response:
        id: str = json.load(response)["id"]
        return id


def streams(service: ServiceProcess) -> int:
    with urllib.request.urlopen(f"{service.url}/metrics") as response:
        (number,) = re.findall(r"^erelong_streams (\d+)", response.read().decode(), re.MULTILINE)
    return int(number)


def wait_for_stream(service: ServiceProcess) -> None:
    while not streams(service):
        time.sleep(0.02)


def test_curl_prints_the_stream_of_the_page(service: ServiceProcess, programs: list[subprocess.Popen[str]]) -> None:
    (command,), (shown,) = blocks_of(PAGE, "sh"), blocks_of(PAGE, "sse")
    words = shlex.split(command.text.replace("localhost:8080", service.url.removeprefix("http://")))
    curl = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    programs.append(curl)
    wait_for_stream(service)

    submit(service, queue="other")
    submit(service, queue="mail")

    assert curl.stdout is not None
    for line in shown.text.splitlines():
        printed = curl.stdout.readline().rstrip("\n")
        assert re.sub(r"[0-9a-f]{8}-\d+", "", line.partition("{")[0]) == re.sub(
            r"[0-9a-f]{8}-\d+", "", printed.partition("{")[0]
        )
        for member in re.findall(r'"(?:type|state)":"[^"]*"', line):
            assert member in printed


def test_python_client_continues_after_a_restart(
    service: ServiceProcess, programs: list[subprocess.Popen[str]], tmp_path: Path
) -> None:
    (program,) = blocks_of(PAGE, "python")
    text = program.text.replace("http://127.0.0.1:8080", service.url).replace("time.sleep(2)", "time.sleep(0.05)")
    (tmp_path / "follow.py").write_text(text)
    client = subprocess.Popen([sys.executable, tmp_path / "follow.py"], stdout=subprocess.PIPE, text=True)
    programs.append(client)
    wait_for_stream(service)

    first = submit(service)
    assert client.stdout is not None
    printed = [client.stdout.readline()]
    service.keep_port()
    service.kill()
    service.start()
    wait_for_stream(service)
    second = submit(service)
    printed += [client.stdout.readline(), client.stdout.readline()]

    assert printed == [f"job.failed {first} boom\n", "read the jobs again: restarted\n", f"job.failed {second} boom\n"]
