"""Cancels, the follower and the service in every order: each future is settled once, by what became of its job."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, cast

import pytest

from erelong import Changed, Client, JobCancelled, NoAnswer, NotFound, WrongState
from erelong.client.executor import future as module
from erelong.client.executor.future import JobFuture
from erelong.client.records import JobRecord
from erelong.client.requests import Request
from tests.support.interleavings import Condition, Lock, Scheduler, explore
from tests.system.trials import sized

PREEMPTIONS = sized(2, 3)

pytestmark = pytest.mark.timeout(sized(30, 900))


class OneJob:
    """A service with one job, as a client sees it."""

    def __init__(self) -> None:
        self.job: dict[str, Any] | None = {"id": "x", "state": "scheduled", "kind": "k", "attempt": 0, "version": 1}
        self.loses_answers = False

    def get(self, _: str) -> JobRecord:
        if self.job is None:
            raise NotFound(404, {})
        return JobRecord({**self.job})

    def send(self, request: Request) -> dict[str, Any]:
        """Cancel the job if it is in the version of the request."""
        job = self.get("x").raw
        if job["state"] not in ("scheduled", "running"):
            raise WrongState(409, {})
        if request.headers["If-Match"] != f'"{job["version"]}"':
            raise Changed(412, {})
        self.change(state="cancelled", error={"type": "cancelled", "message": "by a client"})
        if self.loses_answers:
            raise NoAnswer("cut", maybe_done=True)
        return {**self.get("x").raw}

    def change(self, **fields: Any) -> None:
        if self.job is not None:
            self.job = {**self.job, **fields, "version": self.job["version"] + 1}

    @property
    def is_over(self) -> bool:
        return self.job is None or self.job["state"] not in ("scheduled", "running")

    # what others do

    def begin(self) -> None:
        if not self.is_over:
            self.change(state="running", attempt=1)

    def succeed(self) -> None:
        if not self.is_over:
            self.change(state="succeeded", result=7)

    def cancel(self) -> None:
        if not self.is_over:
            self.change(state="cancelled")


class Case:
    """One run: a job, its future, and what each cancel returned."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.service = OneJob()
        self.future: JobFuture[int] = JobFuture(client=cast(Client, self.service), job_id="x", returns=int, version=1)
        self.future._lock = cast(Any, Lock(scheduler=scheduler))
        self.future._condition = cast(Any, Condition(scheduler=scheduler))
        self.calls: list[Future[int]] = []
        self.returned: list[bool] = []
        self.future.add_done_callback(self.calls.append)
        self._scheduler = scheduler

    def cancel(self) -> None:
        try:
            self.returned.append(self.future.cancel())
        except NoAnswer:
            assert self.service.loses_answers

    def follow(self) -> None:
        """Settle the future as the thread of an executor does."""
        self._scheduler.wait(lambda: self.service.is_over)
        if self.service.job is None:
            self.future.fail(NotFound(404, {}))
        else:
            self.future.settle(self.service.get("x"))

    def act(self, *actions: Callable[[], None]) -> Callable[[], None]:
        """Return an actor that does this step by step."""

        def act() -> None:
            for action in actions:
                self._scheduler.step()
                action()

        return act

    def check(self) -> None:
        """Check what holds in any order."""
        assert self.future.done()
        assert self.future._state in ("CANCELLED_AND_NOTIFIED", "FINISHED")
        assert self.calls == [self.future]
        assert all(returned is self.future.cancelled() for returned in self.returned)
        assert not self.future.cancelled() or self.state == "cancelled"

    @property
    def state(self) -> str | None:
        return None if self.service.job is None else self.service.job["state"]


def test_cancel_against_an_attempt_that_begins() -> None:
    ends: set[str | None] = set()

    def run(scheduler: Scheduler) -> None:
        case = Case(scheduler)
        scheduler.run(case.cancel, case.follow, case.act(case.service.begin, case.service.succeed))
        case.check()
        assert case.future.cancelled() == (case.state == "cancelled")
        assert case.future.cancelled() or case.future.result(0) == 7
        ends.add(case.state)

    assert explore(run, modules=[module], preemptions=PREEMPTIONS) > 100
    assert ends == {"cancelled", "succeeded"}


def test_two_cancels_of_a_waiting_job() -> None:
    def run(scheduler: Scheduler) -> None:
        case = Case(scheduler)
        scheduler.run(case.cancel, case.cancel, case.follow)
        case.check()
        assert case.returned == [True, True]

    assert explore(run, modules=[module], preemptions=PREEMPTIONS - 1) > 100


def test_cancel_of_a_job_that_somebody_edits_and_that_begins() -> None:
    def run(scheduler: Scheduler) -> None:
        case = Case(scheduler)
        service = case.service
        scheduler.run(case.cancel, case.follow, case.act(service.change, service.begin, service.succeed))
        case.check()
        assert case.future.cancelled() == (case.state == "cancelled")

    assert explore(run, modules=[module], preemptions=PREEMPTIONS) > 100


def test_cancel_while_somebody_else_cancels() -> None:
    ends: set[bool] = set()

    def run(scheduler: Scheduler) -> None:
        case = Case(scheduler)
        scheduler.run(case.cancel, case.follow, case.act(case.service.cancel))
        case.check()
        ends.add(case.future.cancelled())
        if not case.future.cancelled():
            assert isinstance(case.future.exception(0), JobCancelled)

    explore(run, modules=[module], preemptions=PREEMPTIONS)
    assert ends == {True, False}


def test_cancel_of_a_running_job_that_somebody_stops() -> None:
    def run(scheduler: Scheduler) -> None:
        case = Case(scheduler)
        scheduler.run(case.cancel, case.follow, case.act(case.service.begin, case.service.cancel))
        case.check()
        if case.service.get("x").attempt:
            assert isinstance(case.future.exception(0), JobCancelled)

    explore(run, modules=[module], preemptions=PREEMPTIONS)


def test_cancel_of_a_job_that_somebody_deletes() -> None:
    def run(scheduler: Scheduler) -> None:
        case = Case(scheduler)

        def delete() -> None:
            if not case.service.is_over:
                case.service.job = None

        scheduler.run(case.cancel, case.follow, case.act(delete))
        case.check()
        if case.state is None:
            assert isinstance(case.future.exception(0), NotFound)

    explore(run, modules=[module], preemptions=PREEMPTIONS)


def test_cancel_whose_answer_is_lost() -> None:
    def run(scheduler: Scheduler) -> None:
        case = Case(scheduler)
        case.service.loses_answers = True
        scheduler.run(case.cancel, case.follow, case.act(case.service.begin, case.service.succeed))
        case.check()
        assert case.future.cancelled() == (case.state == "cancelled")

    assert explore(run, modules=[module], preemptions=PREEMPTIONS) > 100
