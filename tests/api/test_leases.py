"""Leases: external workers lease jobs, report their outcomes, and lose them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from erelong.clock.instants import SECOND, parse_instant
from erelong.errors import StoreUnavailable
from erelong.lanes import pollers
from erelong.model.ended_leases import MAX_ENDED_LEASES
from erelong.model.ids import seq_of_lease
from erelong.settings.kinds import KindSettings
from erelong.settings.queues import QueueSettings
from tests.support.served import Answer, Serve, Served
from tests.support.virtual import VirtualClock

SCHEMA = {"type": "object", "properties": {"width": {"type": "integer"}}}


async def pulled(serve: Serve, **fields: Any) -> Served:
    declared = {name: KindSettings(pull=True, params_schema=SCHEMA) for name in ("resize", "crop")}
    return await serve(declared=declared, **fields)


async def lease_jobs(service: Served, *kinds: str, **fields: Any) -> list[dict[str, Any]]:
    answer = await service.post("/v1/leases", {"kinds": kinds or ["resize"], **fields})
    assert answer.status == 200, answer.body
    leases: list[dict[str, Any]] = answer.json["leases"]
    return leases


async def lease_one(service: Served, **fields: Any) -> dict[str, Any]:
    (lease,) = await lease_jobs(service, **fields)
    return lease


async def report(service: Served, lease: dict[str, Any], answer: str, json: Any = None) -> Answer:
    return await service.post(f"/v1/leases/{lease['token']}/{answer}", json)


async def test_due_job_is_leased_and_finished(serve: Serve) -> None:
    service = await pulled(serve)
    job = await service.submit(kind="resize", params={"width": 7})

    lease = await lease_one(service)
    done = await report(service, lease, "finish", {"result": {"size": 3}})

    assert (lease["job"]["id"], lease["job"]["state"], lease["job"]["attempt"]) == (job["id"], "running", 1)
    assert lease["job"]["params"] == {"width": 7}
    assert (done.status, done.json["state"], done.json["result"]) == (200, "succeeded", {"size": 3})
    assert [attempt["outcome"] for attempt in done.json["attempts"]] == ["succeeded"]


async def test_waiting_worker_gets_a_job_at_its_due_time(serve: Serve, clock: VirtualClock) -> None:
    service = await pulled(serve)
    waiting = asyncio.create_task(lease_jobs(service, wait=30))
    job = await service.submit(kind="resize", delay=5)
    began = clock.now()

    (lease,) = await waiting

    assert lease["job"]["id"] == job["id"]
    assert 4_999_000 <= clock.now() - began <= 5_010_000


async def test_lease_request_without_jobs_returns_nothing_after_its_wait(serve: Serve, clock: VirtualClock) -> None:
    service = await pulled(serve)
    began = clock.now()

    assert await lease_jobs(service, wait=5) == []

    assert 5_000_000 <= clock.now() - began <= 5_010_000


async def test_job_is_leased_to_one_worker(serve: Serve) -> None:
    service = await pulled(serve)
    waiting = [asyncio.create_task(lease_jobs(service, wait=10)) for _ in range(5)]
    await service.submit(kind="resize", delay=1)

    leases = await asyncio.gather(*waiting)

    assert sorted(map(len, leases)) == [0, 0, 0, 0, 1]


async def test_each_waiting_worker_gets_a_job_when_many_become_due(serve: Serve) -> None:
    service = await pulled(serve)
    waiting = [asyncio.create_task(lease_jobs(service, wait=10)) for _ in range(5)]
    for _ in range(5):
        await service.submit(kind="resize", delay=1)

    leases = await asyncio.gather(*waiting)

    assert [len(lease) for lease in leases] == [1] * 5


async def test_lease_request_leaves_other_queues_and_kinds(serve: Serve) -> None:
    service = await pulled(serve)
    await service.submit(kind="resize", queue="a")
    await service.submit(kind="crop", queue="b")
    await service.submit(kind="echo", queue="b")

    assert await lease_jobs(service, "resize", queues=["b"], max=9) == []
    assert [lease["job"]["kind"] for lease in await lease_jobs(service, "crop", "resize", queues=["b"], max=9)] == [
        "crop"
    ]
    assert [lease["job"]["queue"] for lease in await lease_jobs(service, "crop", "resize", max=9)] == ["a"]


async def test_jobs_of_all_queues_are_leased_by_priority_then_time(serve: Serve) -> None:
    service = await pulled(serve)
    jobs = [
        await service.submit(kind="resize", queue=queue, priority=priority)
        for queue, priority in (("a", 0), ("b", 5), ("a", 9), ("b", 0))
    ]

    leases = await lease_jobs(service, max=4)

    assert [lease["job"]["id"] for lease in leases] == [jobs[place]["id"] for place in (2, 1, 0, 3)]


async def test_queue_limits_apply_to_external_workers(serve: Serve) -> None:
    settings = QueueSettings.model_validate({"concurrency": 3, "label_concurrency": {"label": "tenant", "limit": 1}})
    service = await pulled(serve, queues={"default": settings})
    for tenant in ("x", "x", "y", "z", "w"):
        await service.submit(kind="resize", labels={"tenant": tenant})

    leases = await lease_jobs(service, max=9)
    await report(service, leases[0], "finish")
    more = await lease_jobs(service, max=9)

    assert [lease["job"]["labels"]["tenant"] for lease in leases] == ["x", "y", "z"]
    assert len(more) == 1


async def test_new_lease_of_a_job_frees_the_slot_of_the_old_one(serve: Serve) -> None:
    service = await pulled(serve)
    await service.submit(kind="resize")
    lease = await lease_one(service)
    (job,) = (await service.store.get([seq_of_lease(lease["token"]) or 0])).values()
    lanes, leases = service.node.engine.lanes, service.node.engine.leases

    leases.hold(job, lanes.occupy(job), 30)  # as if the end of the first lease had been missed
    await report(service, lease, "extend", {"lease": 30})

    assert lanes._lanes["default"].running == 1


async def test_rate_limit_applies_to_a_waiting_worker(serve: Serve, clock: VirtualClock) -> None:
    settings = QueueSettings.model_validate({"rate": {"per_second": 0.5, "burst": 1}})
    service = await pulled(serve, queues={"default": settings})
    for _ in range(3):
        await service.submit(kind="resize")
    began = clock.now()

    for _ in range(3):
        await lease_one(service, wait=10)

    assert 3_990_000 <= clock.now() - began <= 4_050_000


@pytest.mark.parametrize("way", ["extend", "finish", "fail", "release"])
async def test_forged_token_of_a_job_with_many_leases_reveals_nothing(serve: Serve, way: str) -> None:
    service = await pulled(serve)
    job = await service.submit(kind="resize", params={"width": 7})
    for _ in range(MAX_ENDED_LEASES):
        await report(service, await lease_one(service, wait=5), "release")

    answer = await report(service, {"token": job["id"][:10] + "0" * 32}, way)

    assert (answer.status, answer.code) == (409, "lease_lost")
    assert "job" not in answer.json
    assert job["id"] not in answer.body.decode()


async def test_lease_that_runs_out_is_lost_and_counted(serve: Serve) -> None:
    service = await pulled(serve)
    job = await service.submit(kind="resize", retry={"max_attempts": 2, "delay": 1, "jitter": 0})
    lease = await lease_one(service, lease=10)

    again = await lease_one(service, wait=30, lease=10)
    late = await report(service, lease, "finish", {"result": 1})
    over = await service.until(job["id"], "failed")

    assert again["job"]["attempt"] == 2
    assert (late.status, late.code) == (409, "lease_lost")
    assert [attempt["outcome"] for attempt in over["attempts"]] == ["lost", "lost"]
    assert over["error"]["type"] == "lost"


async def test_extended_lease_outlives_its_first_end(serve: Serve) -> None:
    service = await pulled(serve)
    await service.submit(kind="resize", timeout=1)
    lease = await lease_one(service, lease=10)

    for _ in range(5):
        await asyncio.sleep(8)
        kept = await report(service, lease, "extend", {"lease": 10})
        assert (kept.status, kept.json["cancel_requested"]) == (200, False)
    done = await report(service, lease, "finish")

    assert done.json["state"] == "succeeded"


async def test_lease_is_extended_by_the_length_that_it_last_had(serve: Serve, clock: VirtualClock) -> None:
    service = await pulled(serve)
    await service.submit(kind="resize")
    lease = await lease_one(service, lease=120)
    ends = []

    for json in (None, {"lease": None}, {"lease": 600}, {}):
        extended = await report(service, lease, "extend", json)
        ends.append(round(parse_instant(extended.json["lease_until"], clock.now(), 1e6) - clock.now(), -6) // SECOND)

    assert ends == [120, 120, 600, 600]


async def test_length_of_a_lease_survives_a_restart_and_ends_with_it(serve: Serve) -> None:
    service = await pulled(serve)
    job = await service.submit(kind="resize")
    lease = await lease_one(service, lease=120)
    await service.node.stop()

    after = await pulled(serve, store=service.store)
    await report(after, lease, "extend")
    await asyncio.sleep(100)
    released = await report(after, lease, "release")

    assert (released.status, released.json["id"]) == (200, job["id"])
    (stored,) = (await service.store.get([seq_of_lease(lease["token"]) or 0])).values()
    assert stored.extras is None


async def test_lease_request_without_queues_is_for_all_of_them(serve: Serve) -> None:
    service = await pulled(serve)
    await service.submit(kind="resize", queue="a")

    assert len(await lease_jobs(service, queues=None)) == 1


async def test_step_of_the_wall_clock_ends_no_lease(serve: Serve, clock: VirtualClock) -> None:
    service = await pulled(serve)
    await service.submit(kind="resize")
    lease = await lease_one(service, lease=10)

    clock.step(3600)
    await asyncio.sleep(8)

    assert (await report(service, lease, "finish")).status == 200


async def test_outcome_repeated_after_a_later_lease_changes_nothing(serve: Serve) -> None:
    service = await pulled(serve)
    await service.submit(kind="resize")
    first = await lease_one(service)
    await report(service, first, "release")
    done = await report(service, await lease_one(service), "finish")

    repeated, other = await report(service, first, "release"), await report(service, first, "finish")

    assert (repeated.status, repeated.json["state"], repeated.json["version"]) == (
        200,
        "succeeded",
        done.json["version"],
    )
    assert (other.status, other.json["code"]) == (409, "lease_lost")


@pytest.mark.parametrize(
    ("answer", "json", "state"),
    [("finish", {}, "succeeded"), ("fail", {"retryable": False}, "failed"), ("release", None, "scheduled")],
)
async def test_repeated_outcome_changes_nothing(serve: Serve, answer: str, json: Any, state: str) -> None:
    service = await pulled(serve)
    await service.submit(kind="resize")
    lease = await lease_one(service)

    first = await report(service, lease, answer, json)
    second = await report(service, lease, answer, json)

    assert (first.status, second.status) == (200, 200)
    assert first.json["state"] == state
    assert second.json == {**first.json, "waiting_for": second.json["waiting_for"]}


@pytest.mark.parametrize("answer", ["extend", "finish", "fail", "release"])
async def test_other_outcome_after_the_end_is_refused(serve: Serve, answer: str) -> None:
    service = await pulled(serve)
    job = await service.submit(kind="resize")
    lease = await lease_one(service)
    await report(service, lease, "fail" if answer == "finish" else "finish")
    before = await service.job(job["id"])

    late = await report(service, lease, answer)

    assert (late.status, late.code) == (409, "lease_lost")
    assert (await service.job(job["id"]))["version"] == before["version"]


async def test_released_job_is_due_at_once_and_not_counted(serve: Serve) -> None:
    service = await pulled(serve)
    await service.submit(kind="resize")
    lease = await lease_one(service)

    released = await report(service, lease, "release")
    again = await lease_one(service)

    assert (released.json["state"], released.json["attempt"]) == ("scheduled", 0)
    assert again["job"]["attempt"] == 1
    assert again["token"] != lease["token"]


async def test_failure_is_retried_by_the_policy_or_after_the_given_delay(serve: Serve, clock: VirtualClock) -> None:
    service = await pulled(serve)
    await service.submit(kind="resize", retry={"delay": 100, "jitter": 0})
    error = {"type": "oom", "message": "too big"}

    answer = await report(service, await lease_one(service), "fail", {"error": error, "delay": 5})
    began = clock.now()
    await report(service, await lease_one(service, wait=10), "fail")
    first = clock.now() - began
    await lease_jobs(service, wait=60)
    left = await lease_jobs(service, wait=60)

    assert answer.json["error"] == {**error, "retryable": True}
    assert 4_990_000 < first < 5_010_000
    assert left == []


async def test_cancel_reaches_the_worker_with_its_next_heartbeat(serve: Serve) -> None:
    service = await pulled(serve)
    job = await service.submit(kind="resize")
    lease = await lease_one(service)

    cancel = await service.post(f"/v1/jobs/{job['id']}/cancel")
    kept = await report(service, lease, "extend")
    failed = await report(service, lease, "fail")

    assert cancel.status == 202
    assert kept.json["cancel_requested"] is True
    assert failed.json["state"] == "cancelled"


async def test_finish_despite_a_cancel_is_a_success(serve: Serve) -> None:
    service = await pulled(serve)
    job = await service.submit(kind="resize")
    lease = await lease_one(service)
    await service.post(f"/v1/jobs/{job['id']}/cancel")

    assert (await report(service, lease, "finish")).json["state"] == "succeeded"


async def test_lost_lease_of_a_cancelled_job_cancels_it(serve: Serve) -> None:
    service = await pulled(serve)
    job = await service.submit(kind="resize")
    await lease_one(service, lease=5)
    await service.post(f"/v1/jobs/{job['id']}/cancel")

    over = await service.until(job["id"], "cancelled")

    assert [attempt["outcome"] for attempt in over["attempts"]] == ["lost"]


async def test_job_waits_for_a_worker_while_none_polls(serve: Serve) -> None:
    service = await pulled(serve)
    job = await service.submit(kind="resize")
    await asyncio.sleep(0.01)

    before = await service.job(job["id"])
    await service.post("/v1/queues/default/pause")
    paused = await service.job(job["id"])
    await lease_jobs(service)
    await service.post("/v1/queues/other/pause")

    assert (before["waiting_for"], paused["waiting_for"]) == ("worker", "pause")


@pytest.mark.parametrize("token", ["x", "0" * 42, "0000000001" + "a" * 32])
async def test_unknown_token_is_not_found(serve: Serve, token: str) -> None:
    service = await pulled(serve)
    await service.submit(kind="resize")

    answer = await report(service, {"token": token}, "finish")

    assert (answer.status, answer.code) == (404, "lease_not_found")


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({}, "/kinds"),
        ({"kinds": []}, "/kinds"),
        ({"kinds": ["echo"]}, "/kinds"),
        ({"kinds": ["nobody"]}, "/kinds"),
        ({"kinds": ["resize"], "queues": []}, "/queues"),
        ({"kinds": ["resize"], "max": 0}, "/max"),
        ({"kinds": ["resize"], "max": 1001}, "/max"),
        ({"kinds": ["resize"], "lease": 0.5}, "/lease"),
        ({"kinds": ["resize"], "lease": "13h"}, "/lease"),
        ({"kinds": ["resize"], "wait": -1}, "/wait"),
        ({"kinds": ["resize"], "kindz": 1}, "/kindz"),
    ],
)
async def test_invalid_lease_request_names_the_field(serve: Serve, body: dict[str, Any], pointer: str) -> None:
    service = await pulled(serve)

    answer = await service.post("/v1/leases", body)

    assert answer.status == 422
    assert answer.pointers == [pointer]


async def test_params_are_checked_against_the_schema_at_submit(serve: Serve) -> None:
    service = await pulled(serve)

    answer = await service.post("/v1/jobs", {"kind": "resize", "params": {"width": "wide"}})

    assert (answer.status, answer.pointers) == (422, ["/params/width"])


async def test_drain_leases_nothing_but_accepts_outcomes(serve: Serve) -> None:
    service = await pulled(serve)
    await service.submit(kind="resize")
    lease = await lease_one(service)
    waiting = asyncio.create_task(lease_jobs(service, wait=30))
    await asyncio.sleep(1)

    service.node.engine.drain()
    refused = await service.post("/v1/leases", {"kinds": ["resize"]})
    done = await report(service, lease, "finish")

    assert await waiting == []
    assert (refused.status, refused.code) == (503, "draining")
    assert done.json["state"] == "succeeded"


async def test_lease_survives_a_restart(serve: Serve) -> None:
    service = await pulled(serve, queues={"default": QueueSettings(concurrency=1)})
    for _ in range(2):
        await service.submit(kind="resize")
    lease = await lease_one(service, lease=60)
    await service.node.stop()

    after = await pulled(serve, queues={"default": QueueSettings(concurrency=1)}, store=service.store)
    full = await lease_jobs(after)
    done = await report(after, lease, "finish")
    more = await lease_jobs(after)

    assert full == []
    assert done.json["state"] == "succeeded"
    assert len(more) == 1


async def test_lease_that_runs_out_after_a_restart_is_lost(serve: Serve) -> None:
    service = await pulled(serve)
    job = await service.submit(kind="resize")
    await lease_one(service, lease=60)
    await service.node.stop()

    after = await pulled(serve, store=service.store)
    await asyncio.sleep(58)
    before = await after.job(job["id"])
    await asyncio.sleep(4)
    over = await after.job(job["id"])

    assert before["state"] == "running"
    assert [attempt["outcome"] for attempt in over["attempts"]] == ["lost"]


async def test_job_whose_lease_failed_is_due_again_and_not_counted(serve: Serve) -> None:
    service = await pulled(serve)
    await service.submit(kind="resize")
    service.store.broken["save"] = StoreUnavailable("it fails")

    refused = await service.post("/v1/leases", {"kinds": ["resize"]})
    service.store.broken.clear()
    lease = await lease_one(service, wait=10)

    assert refused.status == 503
    assert lease["job"]["attempt"] == 1


async def test_worker_is_woken_despite_an_earlier_one_of_another_queue(serve: Serve) -> None:
    service = await pulled(serve)
    other = asyncio.create_task(lease_jobs(service, wait=30, queues=["a"]))
    await asyncio.sleep(0.1)
    waiting = asyncio.create_task(lease_jobs(service, wait=30, queues=["b"]))
    await asyncio.sleep(0.1)
    await service.submit(kind="resize", queue="b", delay=1)

    leases = await asyncio.wait_for(waiting, 2)

    assert len(leases) == 1
    assert await other == []


async def test_heartbeats_leak_no_memory(serve: Serve) -> None:
    service = await pulled(serve)
    await service.submit(kind="resize")
    lease = await lease_one(service, lease=3600)

    for _ in range(50):
        await report(service, lease, "extend", {"lease": 3600})

    assert len(service.node.engine.leases._deadlines) == 1


async def test_heartbeat_wakes_a_request_that_waits_for_a_change(serve: Serve, clock: VirtualClock) -> None:
    service = await pulled(serve)
    await service.submit(kind="resize")
    lease = await lease_one(service, lease=60)
    job = await service.job(lease["job"]["id"])
    known = {"If-None-Match": f'"{job["version"]}"'}
    waiting = asyncio.create_task(service.get(f"/v1/jobs/{job['id']}?wait=25", headers=known))
    await asyncio.sleep(1)
    began = clock.now()

    await report(service, lease, "extend", {"lease": 60})

    assert (await waiting).json["version"] == job["version"] + 1
    assert clock.now() - began < 1_000_000


async def test_leased_attempts_are_counted(serve: Serve) -> None:
    service = await pulled(serve)
    await service.submit(kind="resize")
    lease = await lease_one(service)
    running = (await service.get("/metrics")).body
    await report(service, lease, "finish")
    ended = (await service.get("/metrics")).body

    assert b"erelong_attempts_running 1.0" in running
    assert b'erelong_attempts_ended_total{kind="resize",outcome="succeeded"} 1.0' in ended


async def test_lease_of_a_kind_that_is_no_longer_declared_is_kept(serve: Serve) -> None:
    service = await pulled(serve)
    await service.submit(kind="resize")
    lease = await lease_one(service, lease=3600)
    lost = await service.submit(kind="crop")
    await lease_jobs(service, "crop", lease=10)
    await service.node.stop()

    after = await serve(store=service.store)
    finished = await report(after, lease, "finish")
    waiting = await after.until(lost["id"], "scheduled")

    assert (finished.status, finished.json["state"]) == (200, "succeeded")
    assert [attempt["outcome"] for attempt in waiting["attempts"]] == ["lost"]


async def test_kind_that_is_no_longer_declared_cannot_be_leased(serve: Serve) -> None:
    service = await pulled(serve)
    await service.submit(kind="resize", delay=1)
    await service.node.stop()

    after = await serve(store=service.store)
    answer = await after.post("/v1/leases", {"kinds": ["resize"]})

    assert (answer.status, answer.pointers) == (422, ["/kinds"])


async def test_past_lease_requests_leak_no_memory(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pollers, "MAX_KEPT", 20)
    service = await pulled(serve)

    for number in range(50):
        await lease_jobs(service, queues=[f"queue-{number}"])
        await asyncio.sleep(1)

    assert len(service.node.engine.pollers._polled_at) == 20
    assert len(service.node.engine.pollers._served_since) == 20


async def test_long_message_of_a_failure_is_cut(serve: Serve) -> None:
    service = await pulled(serve)
    await service.submit(kind="resize")

    failed = await report(service, await lease_one(service), "fail", {"error": {"message": "x" * 3_000}})

    assert (failed.status, failed.json["error"]["message"]) == (200, "x" * 2_000)


# names of workers, and their output


async def test_worker_is_shown_while_it_has_the_job_and_with_its_attempt(serve: Serve) -> None:
    service = await pulled(serve)
    job = await service.submit(kind="resize")

    lease = await lease_one(service, worker="host-1/4711")
    running = await service.job(job["id"])
    done = await report(service, lease, "finish")

    assert (lease["job"]["worker"], running["worker"]) == ("host-1/4711", "host-1/4711")
    assert "worker" not in done.json
    assert [attempt["worker"] for attempt in done.json["attempts"]] == ["host-1/4711"]
    assert (await service.job(job["id"]))["attempts"] == done.json["attempts"]


async def test_each_attempt_names_its_own_worker(serve: Serve) -> None:
    service = await pulled(serve)
    job = await service.submit(kind="resize", retry={"max_attempts": 4, "delay": 0})

    await report(service, await lease_one(service, worker="a"), "fail")
    await report(service, await lease_one(service, wait=5), "fail")
    await lease_one(service, worker="c", lease=1, wait=5)  # this lease runs out
    lost = await service.until(job["id"], "scheduled")
    await report(service, await lease_one(service, worker="d", wait=5), "release")

    ended = await service.job(job["id"])
    assert "worker" not in lost
    assert [attempt.get("worker") for attempt in ended["attempts"]] == ["a", None, "c", "d"]
    assert [attempt["outcome"] for attempt in ended["attempts"]] == ["error", "error", "lost", "released"]


async def test_job_of_a_worker_without_a_name_shows_none(serve: Serve) -> None:
    service = await pulled(serve)
    await service.submit(kind="resize")

    lease = await lease_one(service, worker=None)
    done = await report(service, lease, "finish")

    assert "worker" not in lease["job"]
    assert [attempt.keys() & {"worker", "output"} for attempt in done.json["attempts"]] == [set()]


@pytest.mark.parametrize("worker", ["", "x" * 101, "a\nb", "\x7f", 7, ["a"]])
async def test_bad_name_of_a_worker_is_refused(serve: Serve, worker: object) -> None:
    service = await pulled(serve)

    answer = await service.post("/v1/leases", {"kinds": ["resize"], "worker": worker})

    assert (answer.status, answer.pointers) == (422, ["/worker"])


async def test_name_of_a_worker_has_up_to_100_characters_of_any_language(serve: Serve) -> None:
    service = await pulled(serve)
    await service.submit(kind="resize")

    done = await report(service, await lease_one(service, worker="ä" * 100), "finish")

    assert done.json["attempts"][0]["worker"] == "ä" * 100


async def test_output_of_a_failure_is_kept_with_the_attempt(serve: Serve) -> None:
    service = await pulled(serve)
    job = await service.submit(kind="resize")

    failed = await report(service, await lease_one(service), "fail", {"output": "Traceback: boom"})

    assert failed.json["attempts"][0]["output"] == "Traceback: boom"
    assert (await service.job(job["id"]))["attempts"][0]["output"] == "Traceback: boom"


@pytest.mark.parametrize(
    ("output", "kept"),
    [
        ("x" * 300_000 + "last", "x" * 65_532 + "last"),
        ("a" + "é" * 40_000, "é" * 32_768),
        ("é" * 40_000 + "a", "é" * 32_767 + "a"),  # without half a character
    ],
)
async def test_last_64_kib_of_an_output_are_kept(serve: Serve, output: str, kept: str) -> None:
    service = await pulled(serve)
    await service.submit(kind="resize")

    failed = await report(service, await lease_one(service), "fail", {"output": output})

    assert failed.json["attempts"][0]["output"] == kept


@pytest.mark.parametrize("output", ["", None])
async def test_empty_output_is_not_shown(serve: Serve, output: str | None) -> None:
    service = await pulled(serve)
    await service.submit(kind="resize")

    failed = await report(service, await lease_one(service), "fail", {"output": output})

    assert "output" not in failed.json["attempts"][0]


async def test_lease_without_tracing_has_no_traceparent(serve: Serve) -> None:
    service = await pulled(serve)
    await service.submit(kind="resize")

    assert (await lease_one(service))["traceparent"] is None
