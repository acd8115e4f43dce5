"""Submits, the end of an executor and its thread in every order: each submit is refused or its future is settled."""

from __future__ import annotations

import json
import threading
from concurrent.futures import Future
from typing import Any, cast

import pytest

from erelong import Client, Executor
from erelong.client.executor import executor as executor_module
from erelong.client.executor import follower as follower_module
from erelong.client.records import JobRecord
from erelong.client.requests import Request
from tests.support.interleavings import Condition, Scheduler, explore
from tests.system.trials import sized

pytestmark = pytest.mark.timeout(sized(30, 900))


class QuickService:
    """A service in which every job has ended at once."""

    def __init__(self) -> None:
        self._count = 0

    def submit(self, _: Any) -> JobRecord:
        self._count += 1
        return JobRecord({"id": f"{self._count}", "state": "scheduled", "version": 1})

    def send(self, request: Request) -> dict[str, Any]:
        assert request.body is not None
        ids = json.loads(request.body)["jobs"]
        ended = [{"id": id, "kind": "k", "state": "succeeded", "result": id} for id in ids]
        return {"ended": ended, "missing": [], "pending": []}


class NoThread:
    """Stands for the thread of an executor, whose work an actor does."""

    def __init__(self, **_: Any) -> None:
        pass

    def start(self) -> None:
        pass


class NoThreads:
    """Stands for the module `threading` of an executor."""

    Thread = NoThread
    Condition = threading.Condition
    current_thread = staticmethod(threading.current_thread)


class Case:
    """One run of an executor."""

    def __init__(self, scheduler: Scheduler, max_pending: int) -> None:
        self.pool = Executor(cast(Client, QuickService()), max_pending=max_pending)
        self.pool._changed = cast(Any, Condition(scheduler=scheduler))
        self.pool._follower._changed = cast(Any, Condition(scheduler=scheduler))
        self.taken: list[Future[Any]] = []
        self.refused = 0
        self._scheduler = scheduler

    def submit(self) -> None:
        try:
            self.taken.append(self.pool.submit("k"))
        except RuntimeError:
            self.refused += 1

    def shut_down(self) -> None:
        self._scheduler.step()
        self.pool.shutdown(wait=False)

    def follow(self) -> None:
        self.pool._follower.run()


@pytest.mark.parametrize("max_pending", [1, 2])
@pytest.mark.parametrize(("submits", "preemptions"), [(1, sized(1, 2)), (2, sized(0, 1))])
def test_no_future_is_left_behind(
    monkeypatch: pytest.MonkeyPatch, max_pending: int, submits: int, preemptions: int
) -> None:
    monkeypatch.setattr(executor_module, "threading", NoThreads)
    found: set[tuple[int, int]] = set()

    def run(scheduler: Scheduler) -> None:
        case = Case(scheduler, max_pending)
        scheduler.run(*[case.submit] * submits, case.shut_down, case.follow)
        assert len(case.taken) + case.refused == submits
        assert all(future.done() for future in case.taken)
        assert case.pool._unfinished == 0
        found.add((len(case.taken), case.refused))

    explore(run, modules=[executor_module, follower_module], preemptions=preemptions)
    assert {(submits, 0), (0, submits)} <= found
