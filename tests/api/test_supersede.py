"""A submit whose key a running job holds: a new job takes over the key, and the running one is not retried."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from erelong.handlers.base import AttemptFailed
from erelong.settings.kinds import KindSettings
from erelong.settings.sections import ServerSection
from tests.support.kinds import FakeRunner, Work, for_ever, lasting
from tests.support.served import Answer, Serve, Served
from tests.support.takeovers import NEWER, TAKEOVERS, begin, take_over

SUPERSEDED = "superseded"


def failing_after(seconds: float, error: Exception) -> Work:
    async def work(_: object) -> None:
        await asyncio.sleep(seconds)
        raise error

    return work


# the takeover


@pytest.mark.parametrize("on_conflict", TAKEOVERS)
async def test_new_job_takes_the_key_of_a_running_one(service: Served, on_conflict: str) -> None:
    holder = await begin(service)

    answer = await service.post("/v1/jobs", NEWER | {"on_conflict": on_conflict, "params": {"n": 2}})

    newer = answer.json
    assert (answer.status, answer.headers["Location"]) == (201, f"/v1/jobs/{newer['id']}")
    assert newer["id"] != holder["id"]
    assert (newer["state"], newer["key"], newer["params"], newer["version"]) == ("scheduled", "k", {"n": 2}, 1)
    assert await service.job(holder["id"]) == holder | {"key": None, "version": holder["version"] + 1}


async def test_key_finds_the_newer_job_after_a_takeover(service: Served) -> None:
    await begin(service)

    newer = await take_over(service)

    assert (await service.get("/v1/jobs/~k")).json["id"] == newer["id"]
    assert [job["id"] for job in (await service.get("/v1/jobs?key=k")).json["jobs"]] == [newer["id"]]
    assert (await service.post("/v1/jobs", NEWER | {"on_conflict": "reject"})).json["job"]["id"] == newer["id"]
    assert (await service.post("/v1/jobs", NEWER | {"on_conflict": "keep"})).json["id"] == newer["id"]
    assert (await service.post("/v1/jobs", NEWER)).status == 200


async def test_long_poll_for_a_change_shows_the_loss_of_the_key(service: Served) -> None:
    holder = await begin(service)
    known = {"If-None-Match": f'"{holder["version"]}"'}
    waiting = asyncio.create_task(service.get(f"/v1/jobs/{holder['id']}?wait=60", headers=known))
    await asyncio.sleep(1)

    await take_over(service)
    await asyncio.sleep(1)

    assert waiting.done()
    assert ((await waiting).json["state"], (await waiting).json["key"]) == ("running", None)


async def test_long_poll_by_key_stays_with_the_superseded_job(service: Served) -> None:
    holder = await begin(service, kind="endless", timeout=30)
    waiting = asyncio.create_task(service.get("/v1/jobs/~k?wait=60"))
    await asyncio.sleep(1)

    await take_over(service)

    assert ((await waiting).json["id"], (await waiting).json["state"]) == (holder["id"], "failed")


async def test_each_takeover_of_a_running_job_leaves_one_holder(service: Served) -> None:
    first = await begin(service)
    second = await take_over(service, kind="endless", delay=0, timeout=3_600)
    await service.until(second["id"], "running")

    third = await take_over(service)

    jobs = {job["id"]: job["key"] for job in (await service.get("/v1/jobs")).json["jobs"]}
    assert jobs == {third["id"]: "k", second["id"]: None, first["id"]: None}


async def test_other_queue_has_its_own_holder(service: Served) -> None:
    holder = await begin(service)

    await service.submit(key="k", on_conflict="replace", queue="mail", delay=1_000)

    assert await service.job(holder["id"]) == holder


# how the superseded job ends


async def test_success_of_a_superseded_job_is_a_success(serve: Serve) -> None:
    service = await serve(kinds={"work": FakeRunner(lasting(5, b'"done"'))})
    holder = await begin(service, kind="work")

    newer = await take_over(service)
    job = await service.until(holder["id"], "succeeded")

    assert (job["result"], job["error"], job["key"], job["attempt"]) == ("done", None, None, 1)
    assert (await service.job(newer["id"]))["state"] == "scheduled"


@pytest.mark.parametrize("type", ["connection", "crashed", "timeout"])
async def test_failure_of_a_superseded_job_is_its_last(serve: Serve, type: str) -> None:
    handler = FakeRunner(failing_after(5, AttemptFailed(type, "boom")))
    service = await serve(kinds={"work": handler})
    holder = await begin(service, kind="work", retry={"max_attempts": 5, "delay": 1})

    await take_over(service)
    job = await service.until(holder["id"], "failed")
    await asyncio.sleep(100)

    assert job["error"] == {"type": type, "message": "boom", "retryable": True}
    assert (job["attempt"], len(handler.attempts)) == (1, 1)
    assert service.node.metrics.finished.values["work", "failed"] == 1


async def test_timeout_of_a_superseded_job_is_its_last(service: Served) -> None:
    holder = await begin(service, timeout=30, retry={"max_attempts": 5})

    await take_over(service)
    job = await service.until(holder["id"], "failed")

    assert (job["error"]["type"], job["attempts"][-1]["outcome"]) == ("timeout", "timeout")


async def test_superseded_job_is_cancelled_by_its_id_with_the_reason(service: Served) -> None:
    holder = await begin(service)
    newer = await take_over(service)

    answer = await service.post(f"/v1/jobs/{holder['id']}/cancel", {"reason": "paid"})
    job = await service.until(holder["id"], "cancelled")

    assert answer.status == 202
    assert job["error"] == {"type": "cancelled", "message": "paid", "retryable": False}
    assert (await service.job(newer["id"]))["state"] == "scheduled"


async def test_cancel_requested_before_the_takeover_stays_a_cancel(serve: Serve) -> None:
    service = await serve(kinds={"work": FakeRunner(failing_after(5, ValueError()))})
    holder = await begin(service, kind="work")
    gate = service.store.hold("finish")
    await service.post(f"/v1/jobs/{holder['id']}/cancel", {"reason": "paid"})

    await take_over(service)
    gate.set()

    assert (await service.until(holder["id"], "cancelled"))["error"]["message"] == "paid"


async def test_superseded_job_that_a_drain_releases_is_cancelled(serve: Serve) -> None:
    service = await serve(server=ServerSection(drain_timeout=5.0))
    holder, other = await begin(service), await service.submit_into("running")
    newer = await take_over(service, delay=0, kind="endless")

    await service.node.stop()

    jobs = {job.id: job for job in service.store._jobs.values()}
    assert jobs[holder["id"]].state.word == "cancelled"
    assert b'"superseded"' in (jobs[holder["id"]].error or b"")
    assert [jobs[job["id"]].state.word for job in (other, newer)] == ["scheduled", "scheduled"]


# leases


async def lease_out(serve: Serve, **fields: Any) -> tuple[Served, dict[str, Any]]:
    """Return a service and a lease of the job that holds the key `k`."""
    service = await serve(declared={"resize": KindSettings(pull=True)})
    await service.submit(kind="resize", key="k", retry={"max_attempts": 5, "delay": 1}, **fields)
    (lease,) = (await service.post("/v1/leases", {"kinds": ["resize"], "wait": 5, "lease": 30})).json["leases"]
    return service, lease


async def report(service: Served, lease: dict[str, Any], answer: str, json: Any = None) -> Answer:
    return await service.post(f"/v1/leases/{lease['token']}/{answer}", json)


@pytest.mark.parametrize(
    ("answer", "body", "state", "error", "attempt"),
    [
        ("finish", {"result": 7}, "succeeded", None, 1),
        ("fail", {"error": {"type": "broken"}}, "failed", "broken", 1),
        ("fail", {"error": {"type": "broken"}, "delay": 60}, "failed", "broken", 1),
        ("release", None, "cancelled", SUPERSEDED, 0),
    ],
)
async def test_outcome_of_a_lease_ends_its_superseded_job(
    serve: Serve, answer: str, body: Any, state: str, error: str | None, attempt: int
) -> None:
    service, lease = await lease_out(serve)
    newer = await take_over(service)

    first, second = await report(service, lease, answer, body), await report(service, lease, answer, body)

    job = first.json
    assert (first.status, job["state"], job["key"], job["attempt"]) == (200, state, None, attempt)
    assert job["error"] is None if error is None else job["error"]["type"] == error
    assert (second.status, second.json) == (200, job)
    assert (await service.post("/v1/leases", {"kinds": ["resize"]})).json["leases"] == []
    assert (await service.job(newer["id"]))["state"] == "scheduled"


async def test_superseded_job_whose_lease_runs_out_is_cancelled(serve: Serve) -> None:
    service, lease = await lease_out(serve)
    await take_over(service)

    assert (await report(service, lease, "extend", {"lease": 40})).json["cancel_requested"] is False
    job = await service.until(lease["job"]["id"], "cancelled")

    assert (job["error"]["type"], job["error"]["retryable"]) == (SUPERSEDED, False)
    assert job["attempts"][-1]["outcome"] == "lost"
    assert (await report(service, lease, "finish")).code == "lease_lost"
    assert service.node.metrics.finished.values["resize", "cancelled"] == 1


async def test_cancel_of_a_leased_job_that_is_superseded_stays_a_cancel(serve: Serve) -> None:
    service, lease = await lease_out(serve)
    await service.post(f"/v1/jobs/{lease['job']['id']}/cancel", {"reason": "paid"})
    await take_over(service)

    job = (await report(service, lease, "release")).json

    assert (job["state"], job["error"]["message"]) == ("cancelled", "paid")


# afterwards


async def test_retry_of_a_superseded_job_runs_it_again_without_the_key(serve: Serve) -> None:
    handler = FakeRunner(failing_after(5, ValueError("boom")))
    service = await serve(kinds={"work": handler})
    holder = await begin(service, kind="work", retry={"max_attempts": 2, "delay": 1, "jitter": 0})
    newer = await take_over(service)
    await service.until(holder["id"], "failed")

    again = await service.post(f"/v1/jobs/{holder['id']}/retry")
    job = await service.until(holder["id"], "failed")

    assert (again.status, again.json["key"], again.json["state"]) == (200, None, "scheduled")
    assert (job["attempt"], len(handler.attempts)) == (2, 3)
    assert (await service.get("/v1/jobs/~k")).json["id"] == newer["id"]


async def test_superseded_job_that_has_ended_is_deleted_like_any_other(serve: Serve) -> None:
    service, lease = await lease_out(serve)
    newer = await take_over(service)
    await report(service, lease, "release")

    assert (await service.delete(f"/v1/jobs/{lease['job']['id']}")).status == 204
    assert [job["id"] for job in (await service.get("/v1/jobs")).json["jobs"]] == [newer["id"]]


# the log


async def test_log_names_both_jobs_and_says_why_a_failure_was_the_last(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    service = await serve(kinds={"work": FakeRunner(failing_after(5, ValueError("boom")))})
    holder = await begin(service, kind="work")
    caplog.set_level("DEBUG")
    newer = await take_over(service)
    await service.until(holder["id"], "failed")

    lines = {record.getMessage(): record.__dict__["fields"] for record in caplog.records if "fields" in record.__dict__}
    assert lines["job_superseded"] == {
        "job": holder["id"],
        "kind": "work",
        "queue": "default",
        "attempt": 1,
        "key": "k",
        "by": newer["id"],
    }
    assert lines["job_failed"]["superseded"] is True


async def test_endless_job_is_superseded_repeatedly(serve: Serve) -> None:
    """A debounced job that takes longer than the interval between its events."""
    handler = FakeRunner(for_ever)
    service = await serve(kinds={"work": handler})
    for _ in range(5):
        await service.post("/v1/jobs", NEWER | {"kind": "work", "delay": 0, "timeout": 20})
        await asyncio.sleep(5)
    await asyncio.sleep(60)

    jobs = (await service.get("/v1/jobs")).json["jobs"]
    assert len(handler.attempts) >= 5
    assert [job["key"] for job in jobs] == ["k", None, None, None, None]
    assert {job["state"] for job in jobs[1:]} == {"failed"}
