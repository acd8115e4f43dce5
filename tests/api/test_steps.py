"""PATCH, cancel, run, retry, DELETE: the effect in each state. The version is checked first."""

from __future__ import annotations

from typing import Any

import pytest

from erelong.handlers.base import Stop
from erelong.settings.queues import QueueSettings, RetryPatch
from tests.support.kinds import FakeRunner, lasting
from tests.support.served import Answer, Serve, Served

STATES = ("scheduled", "running", "succeeded", "failed", "cancelled", "expired")
STEPS = {
    "patch": ("PATCH", ""),
    "cancel": ("POST", "/cancel"),
    "run": ("POST", "/run"),
    "retry": ("POST", "/retry"),
    "delete": ("DELETE", ""),
}
TAKEN = {
    ("patch", "scheduled"): 200,
    ("cancel", "scheduled"): 200,
    ("cancel", "running"): 202,
    ("cancel", "cancelled"): 200,
    ("run", "scheduled"): 200,
    ("retry", "failed"): 200,
    ("retry", "cancelled"): 200,
    ("retry", "expired"): 200,
    **{("delete", state): 204 for state in STATES if state != "running"},
}


async def step(service: Served, name: str, id: str, json: Any = None, **options: Any) -> Answer:
    method, path = STEPS[name]
    body = {} if name == "patch" and json is None else json
    return await service.call(method, f"/v1/jobs/{id}{path}", body, **options)


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("name", STEPS)
async def test_step_is_accepted_or_refused_by_the_state(service: Served, name: str, state: str) -> None:
    job = await service.submit_into(state)

    answer = await step(service, name, job["id"])

    assert answer.status == TAKEN.get((name, state), 409)
    if answer.status == 409:
        assert answer.code == "wrong_state"
        assert answer.json["job"] == await service.job(job["id"])
        assert answer.json["job"]["version"] == job["version"]
        assert f" job {job['id']}: it is {state}; " in answer.json["detail"]


@pytest.mark.parametrize("state", STATES)
async def test_refused_step_names_the_allowed_ones(service: Served, state: str) -> None:
    job = await service.submit_into(state)
    refused = next(name for name in STEPS if (name, state) not in TAKEN)
    taken = [name for name in STEPS if (name, state) in TAKEN and (name, state) != ("cancel", "cancelled")]

    remedy = (await step(service, refused, job["id"])).json["detail"].partition("; ")[2].lower()

    assert [name for name in STEPS if name in remedy] == taken


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("name", STEPS)
async def test_version_is_checked_before_the_state(service: Served, name: str, state: str) -> None:
    job = await service.submit_into(state)

    answer = await step(service, name, job["id"], headers={"If-Match": '"99"'})

    assert (answer.status, answer.code) == (412, "version_mismatch")
    assert f'"{job["version"]}"' in answer.json["detail"]
    assert await service.job(job["id"]) == job


@pytest.mark.parametrize("match", ['"1"', '"7", "1"', '"7","1","8"', "*", 'W/"1"'])
@pytest.mark.parametrize("name", ["patch", "cancel", "run", "delete"])
async def test_matching_version_is_let_through(service: Served, name: str, match: str) -> None:
    job = await service.submit_into("scheduled")

    assert (await step(service, name, job["id"], headers={"If-Match": match})).status in (200, 204)


@pytest.mark.parametrize("match", ["1", '"x"', "", '"1" "2"', "**"])
@pytest.mark.parametrize("name", STEPS)
async def test_invalid_if_match_is_a_bad_header_and_changes_nothing(service: Served, name: str, match: str) -> None:
    job = await service.submit_into("scheduled")

    answer = await step(service, name, job["id"], headers={"If-Match": match})

    assert (answer.status, answer.code) == (400, "bad_header")
    assert (await service.job(job["id"]))["version"] == 1


@pytest.mark.parametrize("name", STEPS)
async def test_step_on_an_unknown_job_is_not_found(service: Served, name: str) -> None:
    answer = await step(service, name, "0" * 26, headers={"If-Match": '"1"'})

    assert (answer.status, answer.code) == (404, "job_not_found")


@pytest.mark.parametrize("name", STEPS)
async def test_unknown_parameter_of_a_step_is_refused(service: Served, name: str) -> None:
    job = await service.submit_into("scheduled")

    answer = await service.call(STEPS[name][0], f"/v1/jobs/{job['id']}{STEPS[name][1]}?force=1", {})

    assert (answer.status, answer.pointers) == (422, ["/force"])
    assert (await service.job(job["id"]))["version"] == 1


async def test_every_change_counts_the_version_and_tags_the_answer(service: Served) -> None:
    names = ("patch", "cancel", "retry")
    job = await service.submit_into("scheduled")

    answers = [await step(service, name, job["id"], {"priority": 1} if name == "patch" else None) for name in names]

    assert [answer.json["version"] for answer in answers] == [2, 3, 4]
    assert [answer.headers["ETag"] for answer in answers] == ['"2"', '"3"', '"4"']
    assert (await service.until(job["id"], "succeeded"))["version"] == 6  # including its start and its end


# cancel


async def test_cancelled_job_has_a_reason_and_never_runs(service: Served) -> None:
    job = await service.submit(delay=5)

    answer = await step(service, "cancel", job["id"], {"reason": "changed my mind"})

    assert answer.json["error"] == {"type": "cancelled", "message": "changed my mind", "retryable": False}
    assert (answer.json["due_at"], answer.json["attempt"]) == (None, 0)
    assert (await service.get(f"/v1/jobs/{job['id']}?wait=20")).json == answer.json


async def test_second_cancel_changes_nothing(service: Served) -> None:
    job = await service.submit_into("cancelled")

    answer = await step(service, "cancel", job["id"], {"reason": "again"})

    assert (answer.status, answer.json) == (200, job)


async def test_running_job_is_stopped_as_its_kind_allows(service: Served) -> None:
    job = await service.submit_into("running")

    answer = await step(service, "cancel", job["id"], {"reason": "enough"})
    job = await service.until(job["id"], "cancelled")

    assert (answer.status, answer.json["state"], answer.json["cancel_requested"]) == (202, "running", True)
    assert job["error"] == {"type": "cancelled", "message": "enough", "retryable": False}
    assert [entry["outcome"] for entry in job["attempts"]] == ["cancelled"]


async def test_cancel_of_a_job_that_cannot_be_stopped_is_accepted_and_may_be_too_late(serve: Serve) -> None:
    service = await serve(kinds={"deaf": FakeRunner(lasting(5, b'"done"'), stop=Stop.NONE)})
    job = await service.submit_into("running", kind="deaf")

    first, second = await step(service, "cancel", job["id"]), await step(service, "cancel", job["id"])
    job = (await service.get(f"/v1/jobs/{job['id']}?wait=20")).json

    assert (first.status, second.status, first.json["version"] == second.json["version"]) == (202, 202, True)
    assert (job["state"], job["result"], job["cancel_requested"]) == ("succeeded", "done", True)


@pytest.mark.parametrize("body", [{"reason": "x" * 501}, {"reason": 7}, {"because": "x"}, []])
async def test_cancel_with_an_invalid_reason_is_refused(service: Served, body: Any) -> None:
    job = await service.submit_into("scheduled")

    assert (await service.post(f"/v1/jobs/{job['id']}/cancel", body)).status == 422
    assert (await service.post(f"/v1/jobs/{job['id']}/cancel", {"reason": None})).status == 200


# run, retry, delete


async def test_run_makes_a_job_due_now_and_keeps_its_execute_at(service: Served) -> None:
    job = await service.submit(delay=1_000)

    answer = await step(service, "run", job["id"])
    job = await service.until(job["id"], "succeeded")

    assert answer.json["execute_at"] == job["execute_at"] == "2026-01-01T00:16:40.000Z"
    assert answer.json["due_at"] < "2026-01-01T00:00:01"
    assert job["started_at"] < "2026-01-01T00:00:01"


async def test_run_does_not_bypass_a_pause(service: Served) -> None:
    await service.post("/v1/queues/mail/pause")
    job = await service.submit(delay=1_000, queue="mail")

    await step(service, "run", job["id"])

    assert (await service.get(f"/v1/jobs/{job['id']}?wait=5")).json["waiting_for"] == "pause"


@pytest.mark.parametrize("state", ["failed", "cancelled", "expired"])
async def test_retry_starts_again_with_the_history_kept(service: Served, state: str) -> None:
    await service.post("/v1/queues/mail/pause")
    job = await service.submit_into(state, **({} if state == "failed" else {"queue": "mail"}))
    await service.post("/v1/queues/default/pause")

    again = (await step(service, "retry", job["id"])).json

    assert (again["state"], again["attempt"], again["error"], again["result"]) == ("scheduled", 0, None, None)
    assert (again["expires_at"], again["finished_at"], again["cancel_requested"]) == (None, None, False)
    assert (again["id"], again["attempts"], again["version"]) == (job["id"], job["attempts"], job["version"] + 1)


async def test_retried_job_numbers_its_attempts_from_one(service: Served) -> None:
    job = await service.submit_into("failed")

    await step(service, "retry", job["id"])
    job = (await service.get(f"/v1/jobs/{job['id']}?wait=5")).json

    assert (job["state"], job["attempt"]) == ("failed", 1)
    assert [entry["number"] for entry in job["attempts"]] == [1, 1]


async def test_retry_of_a_job_whose_key_has_a_new_holder_is_refused_with_the_holder(service: Served) -> None:
    job = await service.submit_into("cancelled", key="k")
    holder = await service.submit(key="k", delay=1_000)

    answer = await step(service, "retry", job["id"])

    assert (answer.status, answer.code) == (409, "key_taken")
    assert answer.json["job"] == holder


@pytest.mark.parametrize("state", ["scheduled", "succeeded", "failed", "cancelled", "expired"])
async def test_deleted_job_is_gone(service: Served, state: str) -> None:
    job = await service.submit_into(state)

    answer = await step(service, "delete", job["id"])

    assert (answer.status, answer.body) == (204, b"")
    assert (await service.get(f"/v1/jobs/{job['id']}")).code == "job_not_found"
    assert (await service.get("/v1/jobs")).json["jobs"] == []


async def test_deleted_job_never_runs(service: Served, serve: Serve) -> None:
    handler = FakeRunner()
    service = await serve(kinds={"counted": handler})
    job = await service.submit(kind="counted", delay=5)

    await step(service, "delete", job["id"])
    await service.submit(delay=10)
    await service.until((await service.submit(delay=10))["id"], "succeeded")

    assert handler.attempts == []


# patch


@pytest.mark.parametrize(
    ("change", "is_now"),
    [
        ({"priority": 7}, {"priority": 7}),
        ({"params": {"b": 2}}, {"params": {"b": 2}}),
        ({"labels": {"x": "y"}}, {"labels": {"x": "y"}}),
        ({"timeout": "5m"}, {"timeout": 300.0}),
        ({"execute_at": "2026-01-02T00:00:00Z"}, {"due_at": "2026-01-02T00:00:00.000Z"}),
        ({"execute_at": "2025-01-02T00:00:00Z"}, {"execute_at": "2025-01-02T00:00:00.000Z"}),
        ({"delay": 60}, {"expires_at": "2026-01-01T00:01:10.000Z"}),
        ({"expires_after": 20}, {"expires_at": "2026-01-01T00:17:00.000Z"}),
        ({"priority": None}, {"priority": 0}),
        ({"params": None}, {"params": {}}),
        ({"labels": None}, {"labels": {}}),
        ({"timeout": None}, {"timeout": 60.0}),
        ({"expires_after": None}, {"expires_at": None}),
    ],
)
async def test_patch_changes_only_its_fields(service: Served, change: dict[str, Any], is_now: dict[str, Any]) -> None:
    await service.post("/v1/queues/default/pause")
    fields = {"params": {"a": 1}, "labels": {"t": "1"}, "priority": 5, "timeout": 9, "expires_after": 10}
    before = await service.submit(delay=1_000, **fields)

    after = (await step(service, "patch", before["id"], change)).json

    moved = {"execute_at", "due_at", "expires_at", "waiting_for"} if {"execute_at", "delay"} & set(change) else set()
    assert {name: after[name] for name in is_now} == is_now
    rest = set(before) - set(is_now) - moved - {"version"}
    assert {name: after[name] for name in rest} == {name: before[name] for name in rest}
    assert after["version"] == 2


async def test_empty_patch_changes_nothing(service: Served) -> None:
    job = await service.submit_into("scheduled")

    assert (await step(service, "patch", job["id"], {})).json == job


async def test_retry_policy_is_merged_and_null_restores_the_default(serve: Serve) -> None:
    service = await serve(queues={"mail": QueueSettings(retry=RetryPatch(delay=7.0, max_attempts=3))})
    job = await service.submit(delay=1_000, queue="mail", retry={"delay": 1, "factor": 1, "max_attempts": 9})

    first = (await step(service, "patch", job["id"], {"retry": {"factor": 2, "delay": None}})).json["retry"]
    second = (await step(service, "patch", job["id"], {"retry": None})).json["retry"]

    assert (first["delay"], first["factor"], first["max_attempts"]) == (7.0, 2.0, 9)
    assert (second["delay"], second["factor"], second["max_attempts"]) == (7.0, 3.0, 3)


async def test_patch_moves_a_job_to_an_earlier_time(service: Served) -> None:
    job = await service.submit(delay=1_000)

    await step(service, "patch", job["id"], {"delay": 5})
    job = await service.until(job["id"], "succeeded")

    assert job["started_at"].startswith("2026-01-01T00:00:05")


async def test_patch_postpones_a_due_job(service: Served) -> None:
    await service.post("/v1/queues/default/pause")
    job = await service.submit()
    await service.get(f"/v1/jobs/{job['id']}?wait=1")

    await step(service, "patch", job["id"], {"delay": 100})
    await service.post("/v1/queues/default/resume")

    assert (await service.get(f"/v1/jobs/{job['id']}?wait=5")).json["waiting_for"] == "time"


async def test_patch_accepts_merge_patch(service: Served) -> None:
    job = await service.submit_into("scheduled")

    answer = await step(service, "patch", job["id"], {"priority": 3}, type="application/merge-patch+json")

    assert (answer.status, answer.json["priority"]) == (200, 3)


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"execute_at": None}, "/execute_at"),
        ({"delay": None}, "/delay"),
        ({"execute_at": 1767225600, "delay": 1}, "/delay"),
        ({"kind": "http"}, "/kind"),
        ({"queue": "mail"}, "/queue"),
        ({"key": "k"}, "/key"),
        ({"priority": 101}, "/priority"),
        ({"params": {"sleep": -1}}, "/params/sleep"),
        ({"timeout": "25h"}, "/timeout"),
        ({"retry": {"jitter": 2}}, "/retry/jitter"),
        ({"retry": {"max_delay": "36000d"}}, "/retry/max_delay"),
        ({"labels": {"a": 1}}, "/labels/a"),
    ],
)
async def test_invalid_patch_is_refused_with_its_pointer(service: Served, change: dict[str, Any], pointer: str) -> None:
    job = await service.submit_into("scheduled")

    answer = await step(service, "patch", job["id"], change)

    assert (answer.status, answer.pointers) == (422, [pointer])
    assert await service.job(job["id"]) == job
