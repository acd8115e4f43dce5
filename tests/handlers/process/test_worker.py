"""The service's side of a worker process."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from erelong.attempt import Attempt
from erelong.handlers.process.supervisor_client import ProcessEnvironment, SupervisorClient
from erelong.handlers.process.worker import start_process_worker

ATTEMPT = Attempt(1, "token", "number", "default", 1, 0, 0, 60.0)

pytestmark = [pytest.mark.real_loop("asyncio", "uvloop"), pytest.mark.timeout(30)]


@pytest.fixture
def no_collection() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_collection")
@pytest.mark.parametrize("is_answered", [True, False], ids=["after its call", "during a call"])
async def test_stopped_worker_is_freed_without_a_collection(is_answered: bool) -> None:
    processes = SupervisorClient()
    await processes.open()
    worker = await start_process_worker(
        processes=processes,
        process_environment=ProcessEnvironment(),
        functions={"number": "tests.handlers.process_functions:number"},
        max_result=65_536,
    )
    answer = worker.call("number", ATTEMPT, b"{}")
    if is_answered:
        assert (await answer).failure is None
    await worker.stop(0.0)
    if not is_answered:
        answer.exception()
    del answer

    left = weakref.ref(worker)
    del worker
    await processes.close()

    assert left() is None
