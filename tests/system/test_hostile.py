"""Clients that send nonsense, too much or too little: none gets a 5xx, and other clients are not slowed."""

from __future__ import annotations

import asyncio
import random
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support import ROOT
from tests.support.process import ServiceProcess
from tests.support.raw_requests import CORPUS, answers_in, check_raw, mutated
from tests.system.client import Client
from tests.system.trials import IS_FULL, percentile, sized

EXAMPLES = sized(3, 400)  # for each operation
CASES = sized(50, 10_000)
RAW, AT_ONCE = sized(600, 92_000), 100
SILENCE = 0.2  # seconds without a byte that end the wait for a response
SLOW, ROUNDS, ROUND = sized(40, 500), sized(1, 5), sized(0.5, 10.0)
NORMAL, PAUSE = 8, 0.02
CONFIG = """
[kinds.resize]
pull = true

[webhooks]
connect_timeout = 0.2
"""

pytestmark = [pytest.mark.real_loop, pytest.mark.timeout(sized(60, 900))]


def test_requests_generated_from_the_openapi_document_are_answered_as_it_says(
    make_service: Callable[..., ServiceProcess], figure: Callable[[str, object], None], tmp_path: Path
) -> None:
    service = make_service(config=CONFIG)
    service.start()

    ran = subprocess.run(_schemathesis(service), cwd=tmp_path, capture_output=True, text=True, timeout=sized(60, 840))

    match = re.search(r"(\d+) generated", ran.stdout)
    cases = int(match[1]) if match else 0
    figure("requests made from the document", cases)
    assert ran.returncode == 0, ran.stdout[-8_000:] + ran.stderr[-2_000:]
    assert cases >= CASES
    _check_calm(service)


async def test_malformed_requests_are_answered_or_disconnected(
    make_service: Callable[..., ServiceProcess], figure: Callable[[str, object], None]
) -> None:
    service = make_service(config=CONFIG)
    service.start()
    port = int(service.url.rpartition(":")[2])
    chance = random.Random(20_261_118)
    texts = [*CORPUS.values()]
    requests = iter([*texts, *(mutated(chance.choice(texts), chance) for _ in range(RAW - len(texts)))])

    answered = sum(await asyncio.gather(*(_send_all(port, requests) for _ in range(AT_ONCE))))

    figure("requests sent, answers seen", f"{RAW}, {answered}")
    assert answered > RAW / 4
    _check_calm(service)


async def test_slow_clients_do_not_slow_the_others(
    make_service: Callable[..., ServiceProcess],
    make_client: Callable[[ServiceProcess], Client],
    figure: Callable[[str, object], None],
) -> None:
    service = make_service(config=CONFIG)
    service.start()
    client = make_client(service)
    await client.submit_batch([{"kind": "echo", "delay": 9_999, "params": {"a": "x" * 10_000}} for _ in range(80)])
    command = [sys.executable, "-m", "tests.system.slow_clients", service.url.rpartition(":")[2], str(SLOW)]

    alone, beside = [], []
    for _ in range(ROUNDS):
        alone.append(await _measure(client))
        slow = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdout=subprocess.PIPE)
        assert slow.stdout is not None
        await slow.stdout.readline()
        beside.append(await _measure(client))
        slow.kill()
        await slow.wait()

    figure("ms p50, p99 of each round alone", ", ".join(map(_spread, alone)))
    figure(f"ms p50, p99 of each round beside {SLOW} slow clients", ", ".join(map(_spread, beside)))
    assert min(map(_p99, beside)) < (2 if IS_FULL else 10) * min(map(_p99, alone))  # the machine may have other load
    _check_calm(service)


def _schemathesis(service: ServiceProcess) -> list[str]:
    checks = "not_a_server_error,status_code_conformance,content_type_conformance,response_headers_conformance,"
    return [
        *(sys.executable, "-m", "schemathesis.cli", "run", f"{service.url}/openapi.json", "--no-color"),
        *("--phases", "coverage,fuzzing" if IS_FULL else "fuzzing", "--max-examples", str(EXAMPLES)),
        *("--checks", checks + "response_schema_conformance", "--continue-on-failure", "--seed", "4"),
        *("--generation-database", "none", "--suppress-health-check", "all", "--request-timeout", "30"),
        *("--exclude-path", "/v1/events"),  # an endless stream
    ]


async def _send_all(port: int, requests: Any) -> int:
    """Send the remaining inputs, one after another; return the number of responses."""
    answered = 0
    for request in requests:
        answers = answers_in(await _exchange(port, request))
        for answer in answers:
            check_raw(answer)
        answered += len(answers)
    return answered


async def _exchange(port: int, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    answer = b""
    try:
        writer.write(request)
        while True:
            async with asyncio.timeout(SILENCE):
                part = await reader.read(65_536)
            if not part:
                break
            answer += part
    except (TimeoutError, ConnectionError):
        pass  # the server waits for more, or closed the connection meanwhile
    finally:
        writer.transport.abort()
    return answer


async def _measure(client: Client) -> list[float]:
    """Return the milliseconds that normal requests take."""
    until = time.perf_counter() + ROUND
    rows = await asyncio.gather(*(_be_normal(client, until) for _ in range(NORMAL)))
    return [ms for row in rows for ms in row]


async def _be_normal(client: Client, until: float) -> list[float]:
    took = []
    while time.perf_counter() < until:
        began = time.perf_counter()
        job = await client.submit(kind="echo", delay=9_999)
        await client.read(job["id"])
        took.append((time.perf_counter() - began) * 1_000)
        await asyncio.sleep(PAUSE * random.random() * 2)
    return took


def _check_calm(service: ServiceProcess) -> None:
    """Assert that the service runs, sent no 5xx and logged nothing above info but suppressed lines."""
    with urllib.request.urlopen(f"{service.url}/metrics", timeout=10) as response:
        page = response.read().decode()
    assert re.findall(r'erelong_http_requests_total\{.*status="5.*', page) == []
    unusual = [line for line in service.log_text().splitlines() if '"level":"info"' not in line]
    assert [line for line in unusual if '"event":"log_lines_suppressed"' not in line] == []


def _p99(took: list[float]) -> float:
    return percentile(took, 0.99)


def _spread(took: list[float]) -> str:
    return f"{percentile(took, 0.5):.2f} {_p99(took):.2f}"
