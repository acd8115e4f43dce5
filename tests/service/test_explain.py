"""Explain says what holds a job, how many start before it, and when it is likely to start."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from erelong.clock.instants import parse_instant
from erelong.errors import StorageFull, StoreUnavailable
from erelong.lanes import lane as lane_module
from erelong.settings.kinds import KindSettings
from erelong.settings.queues import QueueSettings
from erelong.settings.sections import JobsSection, WorkersSection
from tests.support.builders import NOW
from tests.support.served import Serve, Served
from tests.support.virtual import EPOCH

LATE = {"delay": 60, "factor": 1, "max_delay": 60, "jitter": 0}
NOTHING = {"earliest": None, "likely": None, "basis": None}


async def explain(service: Served, id: str) -> dict[str, Any]:
    answer = await service.get(f"/v1/jobs/{id}/explain")
    assert answer.status == 200, answer.body
    explanation: dict[str, Any] = answer.json
    return explanation


async def explain_soon(service: Served, **fields: Any) -> dict[str, Any]:
    """Submit a job; a second later, explain it."""
    job = await service.submit(**fields)
    await asyncio.sleep(1)
    return await explain(service, job["id"])


async def serve_queue(serve: Serve, **settings: Any) -> Served:
    return await serve(queues={"default": QueueSettings.model_validate(settings)})


async def serve_pulled(serve: Serve, **options: Any) -> Served:
    return await serve(declared={"resize": KindSettings(pull=True)}, **options)


def instant(text: str) -> int:
    return parse_instant(text, NOW, 10**9)


# blockers


async def test_job_that_is_not_due(service: Served) -> None:
    answer = await explain_soon(service, delay=61)

    assert answer["at"] == "2026-01-01T00:00:01.000Z"
    assert answer["summary"] == "due at 00:01:01Z"
    (blocker,) = answer["blockers"]
    due_at = "2026-01-01T00:01:01.000Z"
    assert (blocker["type"], blocker["value"], blocker["limit"]) == ("time", 60.0, due_at)
    assert (blocker["clears_at"], blocker["clears_by"]) == (due_at, None)
    assert answer["start"] == {"earliest": due_at, "likely": due_at, "basis": None}
    assert "params" not in answer["job"]


async def test_job_due_on_another_day_shows_the_date(service: Served) -> None:
    assert (await explain_soon(service, delay=86_400))["summary"] == "due at 2026-01-02 00:00:00Z"


async def test_job_between_attempts(service: Served) -> None:
    answer = await explain_soon(service, params={"fail": "boom"}, retry=LATE)

    (blocker,) = answer["blockers"]
    assert (blocker["type"], blocker["value"], blocker["limit"]) == ("retry", 59.0, "2026-01-01T00:01:00.000Z")
    assert answer["summary"] == "retry at 00:01:00Z after attempt 1 (exception)"
    assert answer["job"]["waiting_for"] == "time"


async def test_paused_queue_with_jobs_ahead(serve: Serve) -> None:
    service = await serve_queue(serve, rate={"per_second": 50})
    await service.post("/v1/queues/default/pause")
    for _ in range(12):
        await service.submit()

    answer = await explain_soon(service)

    pause, ahead = answer["blockers"]
    assert (pause["type"], pause["value"], pause["clears_at"]) == ("pause", "2026-01-01T00:00:00.000Z", None)
    assert pause["clears_by"] == "resume"
    assert (ahead["type"], ahead["value"], ahead["limit"]) == ("ahead", 12, None)
    assert (answer["ahead"], answer["ahead_is_more"], answer["start"]) == (12, False, NOTHING)
    assert answer["summary"] == "paused since 00:00:00Z; then 12 ahead at 50/s"


async def test_start_of_a_pause_is_known_after_a_restart(serve: Serve) -> None:
    service = await serve()
    await service.post("/v1/queues/default/pause")
    job = await service.submit()
    await service.node.stop()
    await asyncio.sleep(10)

    after = await serve(store=service.store)

    assert (await explain(after, job["id"]))["summary"] == "paused since 00:00:00Z"


async def test_pull_kind_without_worker(serve: Serve) -> None:
    service = await serve_pulled(serve)
    job = await service.submit(kind="resize")

    (never,) = (await explain(service, job["id"]))["blockers"]
    (lease,) = (await service.post("/v1/leases", {"kinds": ["resize"]})).json["leases"]
    await service.post(f"/v1/leases/{lease['token']}/release")
    await asyncio.sleep(60)
    (asked,) = (await explain(service, job["id"]))["blockers"]

    assert (never["type"], never["value"], never["clears_by"]) == ("worker", None, "worker")
    assert (asked["type"], asked["value"]) == ("worker", "2026-01-01T00:00:00.000Z")


async def test_kind_that_is_no_longer_declared(serve: Serve) -> None:
    service = await serve_pulled(serve)
    job = await service.submit(kind="resize")
    await service.node.stop()

    answer = await explain(await serve(store=service.store), job["id"])

    (blocker,) = answer["blockers"]
    assert (blocker["type"], blocker["clears_by"], answer["summary"]) == ("worker", "declaration", "no kind resize")


async def test_limits_show_what_runs_and_what_may(serve: Serve) -> None:
    limits = {"rate": {"per_second": 0.1}, "concurrency": 1, "label_concurrency": {"label": "tenant", "limit": 1}}
    service = await serve(
        queues={"default": QueueSettings.model_validate(limits)}, workers=WorkersSection(concurrency=1)
    )
    await service.submit_into("running", labels={"tenant": "a"})

    answer = await explain_soon(service, labels={"tenant": "a"})

    shown = [(blocker["type"], blocker["value"], blocker["limit"]) for blocker in answer["blockers"]]
    rate = {"per_second": 0.1, "burst": 1.0}
    assert shown == [("rate", 0.1, rate), ("label", 1, 1), ("slot", 1, 1), ("workers", 1, 1)]
    ends = [blocker["clears_at"] for blocker in answer["blockers"]]
    assert ends == ["2026-01-01T00:00:10.000Z", None, None, None]
    details = [blocker["detail"] for blocker in answer["blockers"][1:]]
    assert [detail.split(",")[0] for detail in details] == [
        "1 job with label tenant 'a' runs in queue 'default'",
        "1 job of queue 'default' runs",
        "1 job of all queues runs",
    ]
    assert answer["start"] == {"earliest": ends[0], "likely": None, "basis": None}
    assert answer["summary"] == (
        "rate of 0.1/s used up; 1 of 1 jobs with tenant a run; 1 of 1 slots in use; 1 of 1 workers busy"
    )


async def test_outcomes_that_cannot_be_saved(serve: Serve) -> None:
    service = await serve(workers=WorkersSection(max_unsaved=1))
    service.store.broken["finish"] = StoreUnavailable("the disk fails")
    ended = await service.submit()
    await asyncio.sleep(1)

    answer = await explain_soon(service)

    (blocker,) = answer["blockers"]
    assert (blocker["type"], blocker["value"], blocker["limit"]) == ("disk", 1, 1)
    assert (blocker["clears_at"], blocker["clears_by"], answer["job"]["waiting_for"]) == (None, "operator", None)
    running = await explain(service, ended["id"])
    assert running["summary"] == (
        "running since 00:00:00Z, attempt 1; timeout 60 s; its attempt is over, but its outcome is not saved yet"
    )
    assert running["blockers"] == []


async def test_store_that_refuses_to_start_jobs(service: Served) -> None:
    service.store.broken["claim"] = StorageFull("the disk is full")

    answer = await explain_soon(service)

    (blocker,) = answer["blockers"]
    assert (blocker["type"], blocker["value"]) == ("disk", "the store refuses to start jobs: the disk is full")
    del service.store.broken["claim"]
    await service.until(answer["job"]["id"], "succeeded")
    assert (await explain_soon(service, delay=60))["summary"] == "due at 00:01:01Z"


async def test_job_that_the_store_refuses_alone(service: Served) -> None:
    bad = await service.submit(delay=1)
    service.store.refuse("claim", int(bad["id"][:10], 16))
    await asyncio.sleep(2)

    (blocker,) = (await explain(service, bad["id"]))["blockers"]

    assert (blocker["type"], blocker["value"]) == ("disk", "the store refuses this job")


async def test_full_disk_that_refuses_only_submits_holds_no_job(service: Served) -> None:
    job = await service.submit(delay=60)
    service.store.ails = "ok, but the disk is full: submits are refused until there is room"

    assert [blocker["type"] for blocker in (await explain(service, job["id"]))["blockers"]] == ["time"]


async def test_drain_holds_jobs_of_every_kind_until_the_restart(serve: Serve) -> None:
    service = await serve_pulled(serve)
    running = await service.submit_into("running")
    jobs = [await service.submit(kind=kind, delay=1) for kind in ("echo", "resize")]
    service.node.engine.drain()
    await asyncio.sleep(2)

    answers = [await explain(service, job["id"]) for job in jobs]

    held = [(blocker["type"], blocker["clears_by"]) for answer in answers for blocker in answer["blockers"]]
    assert held == [("workers", "restart"), ("worker", "restart")]
    assert [answer["summary"] for answer in answers] == ["the service is stopping"] * 2
    assert [answer["job"]["waiting_for"] for answer in answers] == ["slot", "worker"]
    assert (await explain(service, running["id"]))["summary"].endswith("; the service is stopping")


async def test_drain_holds_a_pull_job_whose_worker_asked_just_now(serve: Serve) -> None:
    service = await serve_pulled(serve, queues={"default": QueueSettings(concurrency=1)})
    jobs = [await service.submit(kind="resize") for _ in range(2)]
    await service.post("/v1/leases", {"kinds": ["resize"]})

    before = await explain(service, jobs[1]["id"])
    service.node.engine.drain()
    after = await explain(service, jobs[1]["id"])

    assert [blocker["type"] for blocker in before["blockers"]] == ["slot"]
    assert [blocker["type"] for blocker in after["blockers"]] == ["worker", "slot"]
    assert after["start"] == NOTHING


async def test_job_that_starts_now_has_no_blocker(serve: Serve) -> None:
    service = await serve_queue(serve, concurrency=1)
    release = service.store.hold("claim")

    answer = await explain_soon(service)  # it has the only slot
    release.set()

    assert (answer["summary"], answer["blockers"], answer["job"]["waiting_for"]) == ("starts now", [], None)
    assert answer["start"] == {"earliest": answer["at"], "likely": answer["at"], "basis": None}


async def test_expiry_before_the_start_is_in_the_summary(serve: Serve) -> None:
    service = await serve_queue(serve, rate={"per_second": 0.01})
    await service.until((await service.submit())["id"], "succeeded")

    answer = await explain_soon(service, expires_after=60)

    assert answer["summary"] == "rate of 0.01/s used up; expires before that, at 00:01:00Z"


async def test_summary_says_that_the_clock_is_frozen(serve: Serve) -> None:
    service = await serve(virtual_from=NOW)
    job = await service.submit(delay=60)

    frozen = await explain(service, job["id"])
    await service.post("/v1/clock", {"frozen": False})
    flowing = await explain(service, job["id"])

    assert frozen["summary"] == "due at 00:01:00Z; the clock is frozen at 00:00:00Z"
    assert [blocker["type"] for blocker in frozen["blockers"]] == ["time"]
    assert flowing["summary"] == "due at 00:01:00Z"


# jobs that do not wait


async def test_running_job(serve: Serve) -> None:
    service = await serve(jobs=JobsSection(max_timeout=2e6))
    job = await service.submit_into("running", timeout=1_234_567)

    answer = await explain(service, job["id"])
    await service.post(f"/v1/jobs/{job['id']}/cancel")
    service.node.engine.dispatcher.cancel = lambda seq: None  # type: ignore[method-assign]  # it would end at once

    assert answer["summary"] == "running since 00:00:00Z, attempt 1; timeout 1234567 s"
    assert (answer["blockers"], answer["ahead"], answer["start"]) == ([], 0, NOTHING)


async def test_running_job_that_was_asked_to_stop(serve: Serve) -> None:
    service = await serve_pulled(serve)
    job = await service.submit(kind="resize")
    await service.post("/v1/leases", {"kinds": ["resize"], "lease": 60})
    await service.post(f"/v1/jobs/{job['id']}/cancel")

    answer = await explain(service, job["id"])

    assert answer["summary"] == (
        "running since 00:00:00Z, attempt 1; leased to a worker until 00:01:00Z; asked to stop"
    )


@pytest.mark.parametrize(
    ("state", "summary"),
    [
        ("succeeded", "succeeded at 00:00:00Z, attempt 1"),
        ("failed", "failed at 00:00:00Z, attempt 1: exception: boom"),
        ("cancelled", "cancelled at 00:00:00Z: cancelled: cancelled on request"),
        ("expired", "expired at 00:00:00Z: expired: "),
    ],
)
async def test_final_job(service: Served, state: str, summary: str) -> None:
    answer = await explain(service, (await service.submit_into(state))["id"])

    assert answer["summary"].startswith(summary)
    assert (answer["blockers"], answer["ahead"], answer["start"]) == ([], 0, NOTHING)


async def test_long_error_is_one_short_line(service: Served) -> None:
    failed = await service.submit_into("failed", params={"fail": "a\nb" + "x" * 1_000})

    summary = (await explain(service, failed["id"]))["summary"]

    assert "\n" not in summary
    assert len(summary) < 300


# which jobs


async def test_job_is_found_by_its_key(service: Served) -> None:
    await service.submit(key="order-7", queue="mail", delay=60)

    assert (await service.get("/v1/jobs/~order-7/explain?queue=mail")).json["summary"] == "due at 00:01:00Z"
    assert (await service.get("/v1/jobs/~order-8/explain?queue=mail")).code == "job_not_found"


@pytest.mark.parametrize("id", ["0" * 26, "x", "~"])
async def test_unknown_job_is_not_found(service: Served, id: str) -> None:
    assert (await service.get(f"/v1/jobs/{id}/explain")).code == "job_not_found"


async def test_unknown_parameter_is_refused(service: Served) -> None:
    job = await service.submit(delay=60)

    assert (await service.get(f"/v1/jobs/{job['id']}/explain?wait=5")).pointers == ["/wait"]


async def test_explaining_changes_nothing(serve: Serve) -> None:
    service = await serve_queue(serve, rate={"per_second": 0.01})
    await service.post("/v1/queues/default/pause")
    job = await service.submit()
    before = await service.job(job["id"])
    writes = [call for call in service.store.calls if call not in ("get", "peek", "due", "list")]

    for _ in range(5):
        await explain(service, job["id"])

    assert await service.job(job["id"]) == before
    assert [call for call in service.store.calls if call not in ("get", "peek", "due", "list")] == writes


# ahead


async def test_jobs_ahead_are_counted_by_priority(service: Served) -> None:
    await service.post("/v1/queues/default/pause")
    jobs = [await service.submit(priority=priority) for priority in (0, 0, 5, 5, -5)]
    later = await service.submit(delay=60)
    await asyncio.sleep(1)

    ahead = [(await explain(service, job["id"]))["ahead"] for job in [*jobs, later]]

    assert ahead == [2, 3, 0, 1, 4, 4]


async def test_job_spilled_to_the_store_has_more_ahead(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lane_module, "MAX_DUE", 90)
    service = await serve_queue(serve, concurrency=1)
    await service.post("/v1/queues/default/pause")
    batch = (await service.post("/v1/jobs/batch", {"jobs": [{"kind": "echo"}] * 200})).json["jobs"]
    await asyncio.sleep(1)

    held, spilled = [await explain(service, batch[place]["id"]) for place in (79, 199)]

    assert (held["ahead"], held["ahead_is_more"]) == (79, False)
    assert (spilled["ahead"], spilled["ahead_is_more"]) == (80, True)
    assert spilled["blockers"][-1]["detail"].startswith("more than 80 due jobs of queue 'default' before it")


async def test_job_that_is_read_after_a_start_may_have_more_ahead(serve: Serve) -> None:
    service = await serve()
    await service.post("/v1/queues/default/pause")
    jobs = [await service.submit() for _ in range(3)]
    await service.node.stop()
    await asyncio.sleep(1)
    release = service.store.hold("peek")

    after = await serve(store=service.store)
    reading = await explain(after, jobs[2]["id"])
    release.set()
    await asyncio.sleep(1)

    assert (reading["ahead"], reading["ahead_is_more"]) == (0, True)
    assert (await explain(after, jobs[2]["id"]))["ahead"] == 2


# the likely start


async def assert_likely(service: Served, ids: list[str], basis: str) -> None:
    """Check that jobs start within a fifth of the explained wait."""
    explained = [await explain(service, id) for id in ids]
    for answer in explained:
        assert answer["start"]["basis"] == basis, answer
        done = answer["job"]
        while done["state"] == "scheduled":
            done = (await service.get(f"/v1/jobs/{done['id']}?wait=60")).json
        at, likely = instant(answer["at"]), instant(answer["start"]["likely"])
        wait = instant(done["started_at"]) - at
        assert abs(instant(done["started_at"]) - likely) <= 0.2 * wait + 2_000, (answer["start"], done["started_at"])


async def submit_batch(service: Served, number: int, **fields: Any) -> list[str]:
    batch = (await service.post("/v1/jobs/batch", {"jobs": [{"kind": "echo", **fields}] * number})).json["jobs"]
    return [job["id"] for job in batch]


@pytest.mark.parametrize("rate", [{"per_second": 5}, {"per_second": 0.5}, {"per_second": 20, "burst": 1}], ids=str)
async def test_likely_start_in_a_queue_with_a_rate(serve: Serve, rate: dict[str, float]) -> None:
    service = await serve_queue(serve, rate=rate)
    jobs = await submit_batch(service, 200)
    await asyncio.sleep(1.5)

    await assert_likely(service, [jobs[place] for place in (40, 60, 100, 150, 199)], "rate")


async def test_likely_start_with_labels_in_turn_and_a_rate(serve: Serve) -> None:
    service = await serve_queue(serve, rate={"per_second": 5}, label_concurrency={"label": "tenant", "limit": 2})
    many = await submit_batch(service, 100, labels={"tenant": "many"})
    few = await submit_batch(service, 10, labels={"tenant": "few"})
    await asyncio.sleep(0.5)

    await assert_likely(service, [few[5], few[9], many[20], many[60], many[99]], "rate")


async def test_likely_start_of_a_job_that_is_not_due_yet(serve: Serve) -> None:
    service = await serve_queue(serve, rate={"per_second": 10})
    soon = [(await service.submit(delay=delay))["id"] for delay in (30, 90)]
    await submit_batch(service, 600)
    await asyncio.sleep(1)

    await assert_likely(service, soon, "rate")


async def test_likely_start_by_the_starts_seen(serve: Serve) -> None:
    service = await serve_queue(serve, concurrency=2)
    jobs = await submit_batch(service, 100, params={"sleep": 1})
    await asyncio.sleep(0.5)
    unknown = await explain(service, jobs[50])
    await asyncio.sleep(20)

    assert unknown["start"] == {"earliest": unknown["at"], "likely": None, "basis": None}
    await assert_likely(service, [jobs[place] for place in (60, 80, 99)], "starts")


async def test_pause_does_not_slow_the_likely_start(serve: Serve) -> None:
    service = await serve_queue(serve, concurrency=2)
    jobs = await submit_batch(service, 100, params={"sleep": 1})
    await asyncio.sleep(10)
    await service.post("/v1/queues/default/pause")
    await asyncio.sleep(120)
    await service.post("/v1/queues/default/resume")
    await asyncio.sleep(10)

    await assert_likely(service, [jobs[60], jobs[99]], "starts")


async def test_likely_start_by_the_leases_seen(serve: Serve) -> None:
    service = await serve_pulled(serve, queues={"default": QueueSettings(concurrency=1)})
    jobs = await submit_batch(service, 60, kind="resize")
    await asyncio.sleep(3_600)  # without a worker

    for _ in range(30):
        (lease,) = (await service.post("/v1/leases", {"kinds": ["resize"], "wait": 10})).json["leases"]
        await asyncio.sleep(2)
        await service.post(f"/v1/leases/{lease['token']}/finish")
    await service.post("/v1/leases", {"kinds": ["resize"]})
    answer = await explain(service, jobs[50])

    assert [blocker["type"] for blocker in answer["blockers"]] == ["slot", "ahead"]
    assert (answer["ahead"], answer["start"]["basis"]) == (19, "starts")
    assert instant(answer["start"]["likely"]) - instant(answer["at"]) == pytest.approx(40_000_000, rel=0.2)


async def test_queue_that_two_kinds_share_has_no_likely_start(serve: Serve) -> None:
    service = await serve_pulled(serve, queues={"default": QueueSettings.model_validate({"rate": {"per_second": 1}})})
    await submit_batch(service, 20)
    job = (await submit_batch(service, 20, kind="resize"))[-1]
    polling = asyncio.create_task(service.post("/v1/leases", {"kinds": ["resize"], "wait": 20, "max": 1}))
    await polling

    answer = await explain(service, job)

    assert answer["start"]["likely"] is None


def test_virtual_time_begins_on_the_first_day_of_a_year() -> None:
    assert EPOCH == NOW == instant("2026-01-01T00:00:00Z")
