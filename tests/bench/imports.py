"""Imports from the command line, beside the same batches sent as they are."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from http.client import HTTPConnection
from pathlib import Path
from queue import Empty, SimpleQueue

from tests.bench.ground import Ground, port_of
from tests.bench.jobs import ECHO, webhook
from tests.bench.load import HOST
from tests.bench.verdicts import Findings, Measure
from tests.support import SOURCE
from tests.support.process import ServiceProcess

COUNT = 2_000  # lines of a batch, as the command sends them
PARALLEL = 4
MILLION = 1_000_000


async def measure_imports(ground: Ground, number: int) -> Findings:
    """Import plain lines, then webhooks, each on an empty store, and send the batches of the webhooks by hand."""
    plain, real = ground.folder / "plain.ndjson", ground.folder / "real.ndjson"
    plain.write_bytes(b"".join(b"%b\n" % ECHO for _ in range(number)))
    real.write_bytes(b"".join(b"%b\n" % webhook(index, "import") for index in range(number)))
    seconds = await asyncio.to_thread(_timed, ground, "import-plain", plain, _import)
    imported = await asyncio.to_thread(_timed, ground, "import-real", real, _import)
    sent = await asyncio.to_thread(_timed, ground, "import-by-hand", real, _send)
    return Findings(
        measures=[
            Measure(
                name=f"import of {number:.0e} plain lines: a million takes",
                must=12.0,
                goal=8.0,
                figure=seconds * MILLION / number,
                unit="s",
                detail=f"{number / seconds:,.0f} jobs/s",
            ),
            Measure(
                name="import of webhooks: time / the same batches without the command",
                must=1.3,
                goal=1.1,
                figure=imported / sent,
                unit="×",
                detail=f"{imported:.1f} s, {sent:.1f} s",
            ),
        ]
    )


def _timed(ground: Ground, name: str, file: Path, load: Callable[[ServiceProcess, Path], None]) -> float:
    with ground.service(name) as service:
        began = time.perf_counter()
        load(service, file)
        return time.perf_counter() - began


def _import(service: ServiceProcess, file: Path) -> None:
    environment = os.environ | {"PYTHONPATH": str(SOURCE), "ERELONG_URL": service.url}
    command = [sys.executable, "-m", "erelong", "import", str(file), "--parallel", str(PARALLEL)]
    subprocess.run(command, env=environment, check=True, capture_output=True)


def _send(service: ServiceProcess, file: Path) -> None:
    lines = file.read_bytes().splitlines()
    bodies: SimpleQueue[bytes] = SimpleQueue()
    for start in range(0, len(lines), COUNT):
        bodies.put(b'{"jobs":[%b]}' % b",".join(lines[start : start + COUNT]))
    threads = [threading.Thread(target=_drain, args=(bodies, port_of(service))) for _ in range(PARALLEL)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _drain(bodies: SimpleQueue[bytes], port: int) -> None:
    connection = HTTPConnection(HOST, port)
    while True:
        try:
            body = bodies.get_nowait()
        except Empty:
            connection.close()
            return
        connection.request("POST", "/v1/jobs/batch", body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        answer.read()
        assert answer.status == 201
