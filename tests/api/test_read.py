"""GET /v1/jobs/{id}: reads, known versions, waits for the end or for a change."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from erelong.settings.sections import LimitsSection
from tests.support.served import Serve, Served


class Stopwatch:
    """Measures seconds on the service's clock."""

    def __init__(self, service: Served) -> None:
        self._service = service
        self._began_at = service.clock.now()

    @property
    def seconds(self) -> float:
        return (self._service.clock.now() - self._began_at) / 1e6


def tag(job: dict[str, Any]) -> dict[str, str]:
    return {"If-None-Match": f'"{job["version"]}"'}


async def test_succeeded_job_shows_its_result_and_attempts(service: Served) -> None:
    job = await service.submit(params={"a": 1, "sleep": 2}, delay=5)

    job = await service.until(job["id"], "succeeded")

    assert (job["result"], job["error"], job["due_at"], job["waiting_for"]) == ({"a": 1, "sleep": 2}, None, None, None)
    assert (job["attempt"], job["version"]) == (1, 3)
    (attempt,) = job["attempts"]
    assert attempt == {
        "number": 1,
        "started_at": job["started_at"],
        "finished_at": job["finished_at"],
        "late_by": job["late_by"],
        "outcome": "succeeded",
        "error": None,
    }
    assert "2026-01-01T00:00:05" in job["started_at"]


async def test_failed_job_keeps_its_error_and_its_attempts(service: Served) -> None:
    retry = {"max_attempts": 2, "delay": 10, "jitter": 0}
    job = await service.submit(params={"fail": "boom"}, retry=retry)

    between = (await service.get(f"/v1/jobs/{job['id']}?wait=5")).json
    job = await service.until(job["id"], "failed")

    assert (between["state"], between["attempt"], between["waiting_for"]) == ("scheduled", 1, "time")
    assert job["error"] == {"type": "exception", "message": "boom", "retryable": True}
    assert [(entry["number"], entry["outcome"]) for entry in job["attempts"]] == [(1, "error"), (2, "error")]


@pytest.mark.parametrize(
    "id", ["nope", "0" * 26, "0" * 25 + "g", "%00", "%FF", "a%2Fb", "..", "A" * 5_000, "batch", "%F0%9F%92%A5"]
)
async def test_malformed_id_is_not_found(service: Served, id: str) -> None:
    answer = await service.get(f"/v1/jobs/{id}")

    assert (answer.status, answer.code) == (404, "job_not_found")


async def test_id_with_a_wrong_token_is_not_found(service: Served) -> None:
    job = await service.submit(delay=9)
    guess = job["id"][:-1] + ("0" if job["id"][-1] != "0" else "1")

    assert (await service.get(f"/v1/jobs/{guess}")).code == "job_not_found"


async def test_known_version_is_not_modified(service: Served) -> None:
    job = await service.submit(delay=9)

    answer = await service.get(f"/v1/jobs/{job['id']}", headers=tag(job))

    assert (answer.status, answer.body, answer.headers["ETag"]) == (304, b"", '"1"')


@pytest.mark.parametrize("known", ["*", '"7", W/"1"'])
async def test_known_version_is_not_sent_in_other_forms_either(service: Served, known: str) -> None:
    job = await service.submit(delay=9)

    assert (await service.get(f"/v1/jobs/{job['id']}", headers={"If-None-Match": known})).status == 304


@pytest.mark.parametrize(
    "known", ['"7"', '"7", "8"', "1", '"one"', '"1" "2"', "", '"' + "9" * 30 + '"', "\u00ff", '"33a64df5"']
)
async def test_other_version_is_sent(service: Served, known: str) -> None:
    job = await service.submit(delay=9)

    assert (await service.get(f"/v1/jobs/{job['id']}", headers={"If-None-Match": known})).status == 200


async def test_head_is_like_get_without_the_body(service: Served) -> None:
    job = await service.submit(delay=9)

    answer = await service.call("HEAD", f"/v1/jobs/{job['id']}")

    assert (answer.status, answer.headers["ETag"], answer.body) == (200, '"1"', b"")


async def test_wait_ends_with_the_job(service: Served) -> None:
    job = await service.submit(delay=5)
    watch = Stopwatch(service)

    answer = await service.get(f"/v1/jobs/{job['id']}?wait=30")

    assert answer.json["state"] == "succeeded"
    assert watch.seconds == pytest.approx(5, abs=0.1)


async def test_wait_that_is_over_returns_the_current_job(service: Served) -> None:
    job = await service.submit(delay=500)
    watch = Stopwatch(service)

    answer = await service.get(f"/v1/jobs/{job['id']}?wait=30")

    assert (answer.status, answer.json["state"]) == (200, "scheduled")
    assert watch.seconds == pytest.approx(30, abs=0.1)


async def test_wait_for_a_final_job_takes_no_time(service: Served) -> None:
    job = await service.submit_into("succeeded")
    watch = Stopwatch(service)

    await service.get(f"/v1/jobs/{job['id']}?wait=30")

    assert watch.seconds < 0.1


@pytest.mark.parametrize("wait", ["300", "5m", "PT5M", "1e3"])
async def test_wait_is_capped(serve: Serve, wait: str) -> None:
    service = await serve(limits=LimitsSection(max_wait=20.0))
    job = await service.submit(delay=500)
    watch = Stopwatch(service)

    assert (await service.get(f"/v1/jobs/{job['id']}?wait={wait}")).status == 200

    assert watch.seconds == pytest.approx(20, abs=0.1)


@pytest.mark.parametrize("query", ["wait=-1", "wait=soon", "wait=", "wait=1&wait=2", "wiat=5"])
async def test_invalid_wait_is_refused(service: Served, query: str) -> None:
    job = await service.submit(delay=500)

    answer = await service.get(f"/v1/jobs/{job['id']}?{query}")

    assert (answer.status, answer.pointers) == (422, [f"/{query[:4]}"])


async def test_wait_by_preference_is_confirmed(service: Served) -> None:
    job = await service.submit(delay=5)

    answer = await service.get(f"/v1/jobs/{job['id']}", headers={"Prefer": "respond-async, wait=30"})

    assert (answer.json["state"], answer.headers["Preference-Applied"]) == ("succeeded", "wait=30")


async def test_capped_preference_is_confirmed_as_it_was_applied(service: Served) -> None:
    job = await service.submit(delay=500)

    answer = await service.get(f"/v1/jobs/{job['id']}", headers={"Prefer": "wait=1000000"})

    assert answer.headers["Preference-Applied"] == "wait=60"


async def test_parameter_overrides_the_preference(service: Served) -> None:
    job = await service.submit(delay=500)
    watch = Stopwatch(service)

    answer = await service.get(f"/v1/jobs/{job['id']}?wait=3", headers={"Prefer": "wait=30"})

    assert "Preference-Applied" not in answer.headers
    assert watch.seconds == pytest.approx(3, abs=0.1)


@pytest.mark.parametrize("preference", ["handling=strict", "wait=abc", "await=30", "wait", "wait=1.5"])
async def test_unknown_preference_is_ignored(service: Served, preference: str) -> None:
    job = await service.submit(delay=500)
    watch = Stopwatch(service)

    answer = await service.get(f"/v1/jobs/{job['id']}", headers={"Prefer": preference})

    assert "Preference-Applied" not in answer.headers
    assert watch.seconds < 0.1


async def test_wait_with_a_known_version_ends_with_the_next_version(service: Served) -> None:
    job = await service.submit(delay=500)
    waiting = asyncio.create_task(service.get(f"/v1/jobs/{job['id']}?wait=60", headers=tag(job)))
    await asyncio.sleep(1)

    await service.patch(f"/v1/jobs/{job['id']}", {"priority": 5})

    answer = await waiting
    assert (answer.status, answer.json["version"], answer.json["priority"]) == (200, 2, 5)


async def test_wait_with_a_known_version_that_stays_is_not_modified(service: Served) -> None:
    job = await service.submit(delay=500)
    watch = Stopwatch(service)

    answer = await service.get(f"/v1/jobs/{job['id']}?wait=10", headers=tag(job))

    assert answer.status == 304
    assert watch.seconds == pytest.approx(10, abs=0.1)


async def test_wait_without_a_version_is_not_ended_by_a_change(service: Served) -> None:
    job = await service.submit(delay=500)
    waiting = asyncio.create_task(service.get(f"/v1/jobs/{job['id']}?wait=60"))
    await asyncio.sleep(1)

    await service.patch(f"/v1/jobs/{job['id']}", {"delay": 5})
    answer = await waiting

    assert answer.json["state"] == "succeeded"


async def test_long_poll_ends_with_the_deletion_of_its_job(service: Served) -> None:
    job = await service.submit(delay=500)
    waiting = asyncio.create_task(service.get(f"/v1/jobs/{job['id']}?wait=60"))
    await asyncio.sleep(1)

    await service.delete(f"/v1/jobs/{job['id']}")

    assert (await waiting).code == "job_not_found"


async def test_one_waiter_too_many_is_answered_at_once(serve: Serve) -> None:
    service = await serve(limits=LimitsSection(max_waiters=2))
    job = await service.submit(delay=50)
    waiting = [asyncio.create_task(service.get(f"/v1/jobs/{job['id']}?wait=60")) for _ in range(2)]
    await asyncio.sleep(1)
    watch = Stopwatch(service)

    third = await service.get(f"/v1/jobs/{job['id']}?wait=60")

    assert (third.status, third.json["state"]) == (200, "scheduled")
    assert watch.seconds < 0.1
    assert [answer.json["state"] for answer in await asyncio.gather(*waiting)] == ["succeeded"] * 2
    assert (await service.get(f"/v1/jobs/{job['id']}?wait=60")).json["state"] == "succeeded"


async def test_all_long_polls_of_a_job_are_woken(service: Served) -> None:
    job = await service.submit(delay=5)

    answers = await asyncio.gather(*[service.get(f"/v1/jobs/{job['id']}?wait=60") for _ in range(20)])

    assert [answer.json["state"] for answer in answers] == ["succeeded"] * 20


async def test_result_that_is_too_long_is_truncated_and_marked(serve: Serve) -> None:
    service = await serve(limits=LimitsSection(max_result=50))
    job = await service.submit_into("succeeded", params={"a": "x" * 100})

    assert job["result_truncated"] is True
    assert job["result"].startswith('{"a":"xxx')
