"""POST …/retry with a body: the next attempts have other params, limits or another time."""

from __future__ import annotations

from typing import Any

import pytest

from erelong.settings.queues import QueueSettings
from tests.support.served import Answer, Serve, Served

FAILED = {"params": {"fail": "boom"}, "retry": {"max_attempts": 1, "delay": 9}}


async def retry(service: Served, id: str, json: Any = None, **options: Any) -> Answer:
    return await service.post(f"/v1/jobs/{id}/retry", json, **options)


async def failed(service: Served, **fields: Any) -> dict[str, Any]:
    job = await service.submit(**(FAILED | fields))
    return await service.until(job["id"], "failed")


async def test_retry_with_other_params_succeeds(service: Served) -> None:
    job = await failed(service)

    answer = await retry(service, job["id"], {"params": {"hello": "again"}})
    ended = await service.until(job["id"], "succeeded")

    assert (answer.status, answer.json["version"]) == (200, job["version"] + 1)
    assert answer.headers["ETag"] == f'"{job["version"] + 1}"'
    assert (ended["params"], ended["result"]) == ({"hello": "again"}, {"hello": "again"})
    assert [attempt["outcome"] for attempt in ended["attempts"]] == ["error", "succeeded"]


async def test_what_the_body_does_not_name_stays(service: Served) -> None:
    job = await failed(service, labels={"tenant": "t1"}, priority=3, timeout=7)

    revived = (await retry(service, job["id"], {"delay": 60})).json

    same = ("id", "params", "labels", "priority", "timeout", "retry", "attempts", "kind", "queue")
    assert {name: revived[name] for name in same} == {name: job[name] for name in same}


async def test_retry_at_another_time_starts_then(service: Served) -> None:
    job = await failed(service)

    delayed = (await retry(service, job["id"], {"delay": "30s", "params": {}})).json
    ended = await service.until(job["id"], "succeeded")

    assert (delayed["state"], delayed["attempt"], delayed["error"]) == ("scheduled", 0, None)
    assert delayed["execute_at"] == delayed["due_at"]
    assert "2026-01-01T00:00:30" < ended["started_at"] < "2026-01-01T00:00:31"
    assert ended["late_by"] < 0.01


async def test_retry_at_an_instant_keeps_it_as_the_requested_time(service: Served) -> None:
    job = await failed(service)

    later = (await retry(service, job["id"], {"execute_at": "2026-03-01T09:00:00+01:00"})).json

    assert (later["execute_at"], later["due_at"]) == ("2026-03-01T08:00:00.000Z",) * 2
    assert later["expires_at"] is None


async def test_time_of_a_retry_in_the_past_means_now(service: Served) -> None:
    job = await failed(service)

    assert (await retry(service, job["id"], {"execute_at": "2025-01-01T00:00:00Z", "params": {}})).status == 200

    await service.until(job["id"], "succeeded")


async def test_time_of_a_retry_is_spread_as_a_submitted_one(service: Served) -> None:
    job = await service.submit(**FAILED, spread=3_600)
    await service.post(f"/v1/jobs/{job['id']}/run")
    await service.until(job["id"], "failed")

    now = (await retry(service, job["id"])).json
    await service.until(job["id"], "failed")
    later = (await retry(service, job["id"], {"execute_at": "2026-03-01T00:00:00Z"})).json

    share = 3_600 * int(job["id"][-16:], 16) / 2**64
    minutes, seconds = divmod(share, 60)
    assert now["due_at"] < "2026-01-01T00:00:01"
    assert later["due_at"][:16] == f"2026-03-01T00:{int(minutes):02}"
    assert abs(float(later["due_at"][17:23]) - seconds) < 0.01


async def test_time_of_a_retry_replaces_a_local_time(service: Served) -> None:
    job = await failed(service, local_time="2026-01-01T01:00:00", zone="Europe/Berlin")

    kept = (await retry(service, job["id"])).json
    await service.until(job["id"], "failed")
    moved = (await retry(service, job["id"], {"delay": 60})).json

    assert kept["zone"] == "Europe/Berlin"
    assert not {"zone", "local_time"} & moved.keys()


async def test_retry_policy_is_merged_and_null_restores_the_defaults(serve: Serve) -> None:
    service = await serve(queues={"mail": QueueSettings.model_validate({"timeout": 11, "retry": {"max_attempts": 4}})})
    job = await failed(service, queue="mail", timeout=7)

    merged = (await retry(service, job["id"], {"retry": {"max_attempts": 3}, "timeout": 8, "delay": 60})).json
    await service.post(f"/v1/jobs/{job['id']}/cancel")
    reset = (await retry(service, job["id"], {"retry": None, "timeout": None, "params": None, "delay": 60})).json

    assert (merged["retry"]["max_attempts"], merged["retry"]["delay"], merged["timeout"]) == (3, 9.0, 8.0)
    assert (reset["retry"]["max_attempts"], reset["timeout"], reset["params"]) == (4, 11.0, {})


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"params": {"sleep": -1}}, "/params/sleep"),
        ({"params": {"text": "x" * 70_000}}, "/params"),
        ({"params": []}, "/params"),
        ({"timeout": "25h"}, "/timeout"),
        ({"timeout": 0}, "/timeout"),
        ({"retry": {"max_attempts": 0}}, "/retry/max_attempts"),
        ({"execute_at": None}, "/execute_at"),
        ({"delay": None}, "/delay"),
        ({"delay": "11y"}, "/delay"),
        ({"delay": 400_000_000}, "/delay"),
        ({"execute_at": "tomorrow"}, "/execute_at"),
        ({"execute_at": 1767225600, "delay": 1}, "/delay"),
        ({"priority": 5}, "/priority"),
        ({"kind": "http"}, "/kind"),
    ],
)
async def test_invalid_retry_is_refused_with_its_pointer(service: Served, change: dict[str, Any], pointer: str) -> None:
    job = await failed(service)

    answer = await retry(service, job["id"], change)

    assert (answer.status, answer.pointers) == (422, [pointer])
    assert await service.job(job["id"]) == job


async def test_unknown_field_of_a_retry_is_refused_with_the_known_ones(service: Served) -> None:
    job = await failed(service)

    (fault,) = (await retry(service, job["id"], {"priority": 5})).json["errors"]

    assert all(name in fault["detail"] for name in ("params", "timeout", "retry", "execute_at", "delay"))


@pytest.mark.parametrize("state", ["scheduled", "running", "succeeded"])
async def test_retry_with_a_body_in_another_state_changes_nothing(service: Served, state: str) -> None:
    job = await service.submit_into(state)

    answer = await retry(service, job["id"], {"params": {"sleep": -1}})

    assert (answer.status, answer.code) == (409, "wrong_state")
    assert await service.job(job["id"]) == job


async def test_version_is_checked_before_the_body_is_applied(service: Served) -> None:
    job = await failed(service)

    refused = await retry(service, job["id"], {"params": {}}, headers={"If-Match": '"99"'})
    taken = await retry(service, job["id"], {"params": {}}, headers={"If-Match": f'"{job["version"]}"'})

    assert [answer.status for answer in (refused, taken)] == [412, 200]


async def test_repeated_retry_is_refused_and_applies_its_body_once(service: Served) -> None:
    job = await failed(service)

    first = await retry(service, job["id"], {"delay": 60})
    second = await retry(service, job["id"], {"delay": 90})

    assert (first.status, second.status) == (200, 409)
    assert (await service.job(job["id"]))["due_at"] == first.json["due_at"]


async def test_retry_with_a_body_gives_its_key_no_second_holder(service: Served) -> None:
    job = await failed(service, key="k")
    holder = await service.submit(key="k", delay=60)

    answer = await retry(service, job["id"], {"params": {}})

    assert (answer.status, answer.code, answer.json["job"]["id"]) == (409, "key_taken", holder["id"])
    assert await service.job(job["id"]) == job
