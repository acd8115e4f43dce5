"""Workers in Python are killed, frozen and drained, and the service is killed: every future is settled once, by the
result of a call that the service has accepted."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import as_completed, wait
from functools import partial
from typing import Any

import pytest

from erelong import Client, Executor
from erelong.client.executor.future import JobFuture
from tests.support.process import ServiceProcess
from tests.system.python_crew import PythonCrew
from tests.system.python_worker import in_thread, on_loop
from tests.system.trials import sized

JOBS = sized(400, 20_000)
CREW = 8
PAUSE = sized(0.3, 0.5)  # seconds between harms
LIMIT = sized(90, 1_800)

pytestmark = pytest.mark.timeout(LIMIT + 30)


def test_every_future_is_settled_once_by_an_accepted_result(
    make_service: Callable[..., ServiceProcess], figure: Callable[[str, object], None]
) -> None:
    service = make_service(config="[queues.default]\nconcurrency = 1000\n")
    service.start()
    service.keep_port()
    log = service.folder / "calls.txt"
    settled: Counter[str] = Counter()

    with Client(service.url, timeout=60) as client:
        for kind in (in_thread, on_loop):
            client.kind(kind).put()
        pool = Executor(client, max_pending=JOBS)
        futures = [pool.submit((in_thread, on_loop)[n % 2], n=n) for n in range(JOBS)]
        for future in futures:
            future.add_done_callback(partial(_count, settled, future.job_id))
        began = time.perf_counter()
        with PythonCrew(url=service.url, size=CREW, log=log, pause=PAUSE) as crew:
            _wait_for(futures, JOBS // 2)
            service.kill()
            service.start()
            _wait_for(futures, JOBS * 9 // 10)
            crew.spare()  # otherwise the last jobs are lost repeatedly
            wait(futures, LIMIT)
            took = time.perf_counter() - began
        results = {future.job_id: future.result(0) for future in futures}
        pool.shutdown()
        jobs = {job.id: job.raw for job in client.list(view="full")}
        found = Executor.attach(pool.id, client)
        again = {future.job_id: future.result(60) for future in found.futures}
        found.shutdown()

    assert settled == Counter(dict.fromkeys(results, 1))
    assert [results[future.job_id]["n"] for future in futures] == [*range(JOBS)]
    assert again == results == {id: job["result"] for id, job in jobs.items()}
    _each_result_is_of_one_call(jobs, log.read_text().split())
    _show(figure, crew, jobs, took)
    assert set(crew.drained) <= {0}


def _count(settled: Counter[str], id: str, _: object) -> None:
    settled[id] += 1


def _wait_for(futures: list[JobFuture[dict[str, object]]], count: int) -> None:
    """Wait until so many futures are done."""
    for number, _ in enumerate(as_completed(futures, LIMIT)):
        if number >= count:
            return


def _each_result_is_of_one_call(jobs: Mapping[str, Mapping[str, Any]], words: list[str]) -> None:
    """Assert that each job has succeeded once, with the result of a call that ran for it, and for no other job."""
    calls = dict(zip(words[1::3], words[::3], strict=True))
    for id, job in jobs.items():
        outcomes = [attempt["outcome"] for attempt in job["attempts"]]
        assert (job["state"], outcomes.count("succeeded"), outcomes[-1]) == ("succeeded", 1, "succeeded"), job
        assert calls[job["result"]["call"]] == id
    assert len({job["result"]["call"] for job in jobs.values()}) == len(jobs)


def _show(
    figure: Callable[[str, object], None], crew: PythonCrew, jobs: Mapping[str, Mapping[str, Any]], took: float
) -> None:
    outcomes = Counter(attempt["outcome"] for job in jobs.values() for attempt in job["attempts"])
    figure(f"{len(jobs)} jobs by {CREW} workers, s, jobs/s", f"{took:.1f}, {len(jobs) / took:,.0f}")
    figure("harm to workers", dict(crew.done))
    figure("attempts by outcome", dict(outcomes))
    assert outcomes["lost"] > 0, "no lease ran out: the trial shows nothing"
