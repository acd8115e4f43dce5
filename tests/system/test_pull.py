"""Pull workers and the service are killed and stopped: every job ends, finished only by the holder of its lease."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any, NamedTuple

import pytest

from tests.support.process import ServiceProcess
from tests.system.client import Client, looks
from tests.system.crew import Answer, Crew
from tests.system.trials import IS_FULL, percentile, sized

JOBS = sized(2_000, 100_000)
CREW = 8
WORK = sized(0.003, 0.0005)
HARM_PAUSE = sized(0.12, 0.2)
KILLS = sized(1, 2)
ASKS = sized(60, 500)
AHEAD = 0.02
LATE_SHARE, MOST_LATE = sized((0.5, 50), (0.99, 10))  # ms; a quiet machine keeps the promise
HISTORY = 20
CONFIG = "[kinds.work]\npull = true\nretry = { max_attempts = 1000, delay = 0.1, factor = 1.0 }\n\n"
CONFIG += "[kinds.kept]\npull = true\n\n[queues.default]\nconcurrency = 10000\n"
OUTCOMES = {"finish": "succeeded", "fail": "error", "release": "released"}

pytestmark = [pytest.mark.real_loop, pytest.mark.timeout(sized(60, 900))]


class Restart(NamedTuple):
    """The instants at which the service was killed and answered again."""

    killed_at: float
    ready_at: float


@pytest.fixture
def make_crew() -> Iterator[Callable[..., Crew]]:
    made: list[Crew] = []

    def make(**given: Any) -> Crew:
        made.append(Crew(**given))
        return made[-1]

    yield make
    for crew in made:
        crew.dismiss()


async def test_each_job_is_finished_by_the_holder_of_its_lease_despite_kills(
    make_service: Callable[..., ServiceProcess],
    make_client: Callable[[ServiceProcess], Client],
    make_crew: Callable[..., Crew],
    figure: Callable[[str, object], None],
) -> None:
    service = make_service(config=CONFIG)
    service.start()
    client = make_client(service)
    acknowledged = {answer["id"] async for answer in client.stream({"kind": "work"} for _ in range(JOBS))}

    began = time.perf_counter()
    crew = make_crew(service=service, size=CREW, work=WORK)
    harassing = asyncio.create_task(crew.harass(HARM_PAUSE))
    restarts = [await _restart_when_done(client, service, crew, turn / (KILLS + 1)) for turn in range(1, KILLS + 1)]
    await _wait_until_done(client, 0.9)
    harassing.cancel()  # otherwise the last jobs are lost repeatedly
    await client.wait_until_done()
    took = time.perf_counter() - began
    crew.dismiss()
    jobs = {job["id"]: job for job in await client.list_all("view=full&kind=work")}
    answers = crew.answers()

    assert jobs.keys() == acknowledged
    _every_job_is_done(jobs)
    _every_answer_is_right(answers, jobs)
    survived = _begun_before_ended_after(jobs, restarts)
    _show(figure, crew, answers, jobs, took)
    figure("restarts, s", " ".join(f"{restart.ready_at - restart.killed_at:.2f}" for restart in restarts))
    figure("leases from before a restart that were answered after it", survived)
    assert service.events("leases_failed") == []


async def test_due_job_reaches_a_waiting_worker_at_once(
    make_service: Callable[..., ServiceProcess],
    make_client: Callable[[ServiceProcess], Client],
    figure: Callable[[str, object], None],
) -> None:
    service = make_service(config=CONFIG)
    service.start()
    client = make_client(service)
    late = []

    for _ in range(ASKS):
        ask = asyncio.create_task(client.ask("POST", "/v1/leases", {"kinds": ["work"], "wait": 10, "lease": 60}))
        due_at = round(time.time() + AHEAD, 6)
        job = await client.submit(kind="work", execute_at=due_at)
        _, answer = await ask
        late.append((time.time() - due_at) * 1000)
        (lease,) = answer["leases"]
        assert lease["job"]["id"] == job["id"]
        await client.ask("POST", f"/v1/leases/{lease['token']}/finish")

    spread = (min(late), percentile(late, 0.5), percentile(late, 0.99), max(late))
    figure(f"ms from due to the worker, {ASKS} times: least, p50, p99, most", " ".join(f"{ms:.2f}" for ms in spread))
    assert min(late) >= 0
    assert percentile(late, LATE_SHARE) <= MOST_LATE


async def _wait_until_done(client: Client, share: float) -> None:
    """Wait until this share of all jobs is done and others are leased."""
    async for _ in looks(sized(40.0, 800.0), 0.02):
        counts = await client.counts()
        if counts["succeeded"] >= share * JOBS and counts["running"]:
            return


async def _restart_when_done(client: Client, service: ServiceProcess, crew: Crew, share: float) -> Restart:
    """Kill the service once this share of all jobs is done; a long lease must survive the kill."""
    await _wait_until_done(client, share)
    await client.submit(kind="kept", queue="kept")
    _, answer = await client.ask("POST", "/v1/leases", {"kinds": ["kept"], "wait": 10, "lease": 60})
    (lease,) = answer["leases"]
    killed_at = time.time()
    service.kill()
    await asyncio.to_thread(service.start)
    ready_at = time.time()
    crew.write_port()
    status, job = await client.ask("POST", f"/v1/leases/{lease['token']}/finish")
    assert status == 200, job
    assert (job["state"], job["attempt"]) == ("succeeded", 1)
    return Restart(killed_at, ready_at)


def _every_job_is_done(jobs: dict[str, dict[str, Any]]) -> None:
    """Assert that every job succeeded once and that no history is truncated."""
    for job in jobs.values():
        outcomes = [attempt["outcome"] for attempt in job["attempts"]]
        assert job["state"] == "succeeded", job
        assert len(outcomes) < HISTORY, "the history is truncated, so it cannot confirm every response"
        assert outcomes.count("succeeded") == 1, job
        assert outcomes[-1] == "succeeded", job
        finals = [attempt["number"] for attempt in job["attempts"] if attempt["outcome"] != "released"]
        assert finals == list(range(1, job["attempt"] + 1)), job


def _every_answer_is_right(answers: list[Answer], jobs: dict[str, dict[str, Any]]) -> None:
    """Assert that each 200 is in the history once, each 409 as lost, and that there is no other response."""
    taken: dict[tuple[str, int, str], set[str]] = defaultdict(set)
    refused: dict[tuple[str, int], set[str]] = defaultdict(set)
    for answer in answers:
        match answer.status, answer.code:
            case 200, _ if answer.verb in OUTCOMES:
                taken[answer.id, answer.attempt, OUTCOMES[answer.verb]].add(answer.token)
            case 200, _:
                pass
            case 409, "lease_lost":
                refused[answer.id, answer.attempt].add(answer.token)
            case _:
                pytest.fail(f"a worker got {answer}")
    history = {id: Counter((made["number"], made["outcome"]) for made in job["attempts"]) for id, job in jobs.items()}
    for (id, attempt, outcome), tokens in taken.items():
        assert len(tokens) <= history[id][attempt, outcome], f"{tokens} of {jobs[id]}"
        assert outcome != "succeeded" or tokens == {jobs[id]["result"]}, f"{tokens} of {jobs[id]}"
    for (id, attempt), tokens in refused.items():
        assert len(tokens) <= history[id][attempt, "lost"], f"{tokens} of {jobs[id]}"
    over = {token for tokens in taken.values() for token in tokens}
    assert over.isdisjoint(token for tokens in refused.values() for token in tokens)


def _begun_before_ended_after(jobs: dict[str, dict[str, Any]], restarts: list[Restart]) -> int:
    """Count attempts that began before a kill and were answered after the restart."""
    answered = [made for job in jobs.values() for made in job["attempts"] if made["outcome"] in OUTCOMES.values()]
    return sum(
        _seconds(made["started_at"]) < killed_at and _seconds(made["finished_at"]) > ready_at
        for made in answered
        for killed_at, ready_at in restarts
    )


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def _show(
    figure: Callable[[str, object], None],
    crew: Crew,
    answers: list[Answer],
    jobs: dict[str, dict[str, Any]],
    took: float,
) -> None:
    outcomes = Counter(attempt["outcome"] for job in jobs.values() for attempt in job["attempts"])
    taken = [answer for answer in answers if answer.verb in ("finish", "fail") and answer.status == 200]
    results = Counter((answer.id, answer.attempt) for answer in taken)
    figure(f"{JOBS} jobs by {CREW} workers, s, jobs/s", f"{took:.1f}, {JOBS / took:,.0f}")
    figure("harm to workers", dict(crew.done))
    figure("jobs by state", dict(Counter(job["state"] for job in jobs.values())))
    figure("attempts by outcome", dict(outcomes))
    figure("answers by call and status", dict(Counter(f"{answer.verb} {answer.status}" for answer in answers)))
    figure("most accepted results of one attempt", max(results.values()))
    assert outcomes["lost"] > 0, "no lease ran out: the trial shows nothing"
    assert not IS_FULL or any(answer.status == 409 for answer in answers), "no late answer: the trial shows nothing"
