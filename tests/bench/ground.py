"""The setup of the benchmark: starts, measures and ends the service and its yardsticks."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

import orjson

from tests.bench.load import HOST
from tests.support import ROOT
from tests.support.postgres import PostgresServer
from tests.support.process import ServiceProcess, cpu_seconds

FUNCTIONS = "async def nothing() -> None:\n    pass\n"
CONFIG = '[%s]\nallow_networks = ["127.0.0.0/8"]\n\n[kinds.nothing]\npython = "bench_functions:nothing"\n'
POSTGRES = {"listen_addresses": "", "shared_buffers": "256MB"}
YARDSTICKS = [sys.executable, "-m", "tests.bench.yardsticks"]


class Ground(AbstractContextManager["Ground"]):
    """Owns every process of the benchmark, and on exit ends them and deletes their files."""

    def __init__(self, *, folder: Path | None, rounds: int, cpu: int | None, store: str = "sqlite") -> None:
        self.rounds = rounds
        self._store = store
        self._folder = folder
        self._cpu = cpu
        self._open = ExitStack()

    def __enter__(self) -> Ground:
        self.folder = Path(self._open.enter_context(tempfile.TemporaryDirectory(prefix="bench-", dir=self._folder)))
        if self._store == "postgres":
            self._server = PostgresServer(POSTGRES)
            self._open.callback(self._server.remove)
        self.bare_pid, self.bare_port = self._yardstick("server")
        self.sink_pid, self.sink_port = self._yardstick("sink")
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    @contextmanager
    def service(self, name: str, *, root: Path = ROOT, store: str = "") -> Iterator[ServiceProcess]:
        """Start a service of a tree on an empty store, the usual one or another, with default settings except for
        calls to this machine.
        """
        folder = self.folder / name
        folder.mkdir()
        (folder / "bench_functions.py").write_text(FUNCTIONS)
        section = "webhooks" if "[webhooks]" in (root / "config.toml").read_text() else "http"  # its name in old trees
        config = CONFIG % section + self._store_section(name, store or self._store)
        service = ServiceProcess(folder=folder, config=config, root=root)
        with self._on_cpu():
            service.start()
        try:
            yield service
        finally:
            service.kill()

    def database_seconds(self) -> float:
        """Return the CPU time of all processes of the database server."""
        return self._server.cpu_seconds()

    def _store_section(self, name: str, store: str) -> str:
        if store != "postgres":
            return ""
        return f'\n[store]\nkind = "postgres"\nurl = "{self._server.make_database(name)}"\n'

    @contextmanager
    def _on_cpu(self) -> Iterator[None]:
        """Pin processes started inside to the chosen CPU."""
        usual = os.sched_getaffinity(0)
        try:
            os.sched_setaffinity(0, usual if self._cpu is None else {self._cpu})
            yield
        finally:
            os.sched_setaffinity(0, usual)

    def bare_client(self, number: int) -> float:
        """Return the CPU microseconds of a bare client per call to the sink."""
        url = f"http://{HOST}:{self.sink_port}"
        command = [*YARDSTICKS, "client", url, str(number)]
        return float(subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout)

    @contextmanager
    def bare_timer(self, instants: list[int]) -> Iterator[Callable[[], list[int]]]:
        """Start a bare `call_at` for these instants; yield a function that returns how late each was."""
        command = [*YARDSTICKS, "timer"]
        with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdin is not None
            process.stdin.write(orjson.dumps(instants))
            process.stdin.close()
            process.stdin = None
            yield lambda: list(orjson.loads(process.communicate()[0]))

    def _yardstick(self, which: str) -> tuple[int, int]:
        command = [*YARDSTICKS, which]
        process = self._open.enter_context(subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE))
        self._open.callback(process.kill)
        assert process.stdout is not None
        return process.pid, int(process.stdout.readline())


class Cpu:
    """The CPU time of a process since a start."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._before = cpu_seconds(pid)

    def microseconds(self) -> float:
        return (cpu_seconds(self._pid) - self._before) * 1e6


def port_of(service: ServiceProcess) -> int:
    return int(service.url.rpartition(":")[2])


async def get(port: int, path: str) -> Any:
    """Send one GET on a new connection."""
    return orjson.loads(await fetch(port, path))


async def fetch(port: int, path: str) -> bytes:
    reader, writer = await asyncio.open_connection(HOST, port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n".encode())
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().split(b"content-length:")[1].split(b"\r\n", 1)[0])
    body = await reader.readexactly(length)
    writer.close()
    await writer.wait_closed()
    return body


async def wait_until_done(service: ServiceProcess, queue: str, timeout: float = 300.0) -> None:
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        counts = (await get(port_of(service), f"/v1/queues/{queue}"))["counts"]
        if not counts["scheduled"] and not counts["running"]:
            return
        await asyncio.sleep(0.1)
    raise TimeoutError(f"queue {queue} was not done within {timeout:g} s")
