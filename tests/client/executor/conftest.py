"""Pools: threads of the standard library, and jobs that a worker of this process runs."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Iterator
from concurrent import futures
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest

from erelong import Client, Executor, JobFailed, kind
from erelong.client.requests import send
from tests.support.working import WorkerThread

_gates: dict[str, threading.Event] = {}
_calls: list[str] = []


@kind("add", retry={"max_attempts": 1})
def add(a: int, b: int = 1) -> int:
    return a + b


@kind("fail", retry={"max_attempts": 1})
def fail(text: str) -> int:
    raise ValueError(text)


@kind("leave", retry={"max_attempts": 1})
def leave() -> None:
    raise SystemExit(3)


@kind("hold", timeout=60)
def hold(gate: str) -> str:
    """Note the call, and return when the gate is opened."""
    _calls.append(gate)
    _gates[gate].wait(30)
    return gate


KINDS = (add, fail, leave, hold)


class Gate:
    """Holds calls of `hold` until it is opened."""

    def __init__(self) -> None:
        self.name = secrets.token_hex(4)
        _gates[self.name] = threading.Event()

    @property
    def calls(self) -> int:
        return _calls.count(self.name)

    def open(self) -> None:
        _gates[self.name].set()

    def wait_for_calls(self, count: int) -> None:
        while self.calls < count:
            time.sleep(0.002)


@dataclass
class Pool:
    """An executor, and which exception stands for that of a function."""

    executor: futures.Executor
    error: type[Exception]
    has_buffers: bool

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        return self.executor.submit(fn, *args, **kwargs)

    def map(self, fn: Any, *iterables: Any, **options: Any) -> Iterator[Any]:
        return self.executor.map(fn, *iterables, **options)


@pytest.fixture
def client(real_service: str) -> Iterator[Client]:
    with Client(real_service) as client:
        yield client


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate()
    yield gate
    gate.open()


@pytest.fixture
def second_gate() -> Iterator[Gate]:
    gate = Gate()
    yield gate
    gate.open()


@pytest.fixture(params=["threads", "jobs"])
def make_pool(request: pytest.FixtureRequest) -> Iterator[Callable[[int], Pool]]:
    """Makes pools that run some calls at a time."""
    client = request.getfixturevalue("client") if request.param == "jobs" else None  # closed after the pools
    with ExitStack() as stack:

        def make_threads(size: int) -> Pool:
            return _threads(size, stack)

        def make_jobs(size: int) -> Pool:
            assert client is not None
            return _jobs(size, client, stack)

        yield make_threads if request.param == "threads" else make_jobs
        for gate in _gates.values():
            gate.set()


def _threads(size: int, stack: ExitStack) -> Pool:
    executor = ThreadPoolExecutor(size)
    stack.callback(executor.shutdown, cancel_futures=True)
    return Pool(executor, ValueError, has_buffers="buffersize" in (executor.map.__kwdefaults__ or {}))


def _jobs(size: int, client: Client, stack: ExitStack) -> Pool:
    queue = f"q-{secrets.token_hex(4)}"
    for made in KINDS:
        client.send(send("PUT", f"/v1/kinds/{made.name}", {}))
    stack.enter_context(WorkerThread(*KINDS, url=client.url, queue=queue, concurrency=size))
    executor = Executor(client).options(queue=queue)
    stack.callback(executor.shutdown, cancel_futures=True)
    return Pool(executor, JobFailed, has_buffers=True)


@pytest.fixture
def pool(make_pool: Callable[[int], Pool]) -> Pool:
    """A pool that runs two calls at a time."""
    return make_pool(2)


@pytest.fixture
def narrow(make_pool: Callable[[int], Pool]) -> Pool:
    """A pool that runs one call at a time."""
    return make_pool(1)
