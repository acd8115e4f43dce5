"""`submitted_by`: the API key behind a job."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.keyed import Keyed, Keys, serve_keyed
from tests.support.served import Serve, Served

JOB: dict[str, Any] = {"kind": "echo", "delay": 1_000}


@pytest.fixture
async def keyed(serve: Serve) -> Keyed:
    return await serve_keyed(serve, Keys().add("app").add("ops"), allow_anonymous=True)


async def submit(keyed: Keyed, by: str | None, **fields: Any) -> dict[str, Any]:
    with keyed.using(by) as service:
        answer = await service.post("/v1/jobs", JOB | fields)
    job: dict[str, Any] = answer.json
    return job


async def test_job_names_the_key_that_submitted_it(keyed: Keyed) -> None:
    jobs = [await submit(keyed, name) for name in ("app", "app", "ops", None, "app")]

    assert [job.get("submitted_by") for job in jobs] == ["app", "app", "ops", None, "app"]
    with keyed.using("ops") as service:
        (listed, *_) = (await service.get("/v1/jobs")).json["jobs"]
        assert listed["submitted_by"] == "app"


async def test_lines_and_batches_name_the_key(keyed: Keyed) -> None:
    with keyed.using("app") as service:
        await service.post("/v1/jobs/batch", {"jobs": [JOB, JOB]})
        await service.stream(JOB, JOB | {"spread": 60})
        listed = (await service.get("/v1/jobs")).json["jobs"]

    assert [job["submitted_by"] for job in listed] == ["app"] * 4


async def test_anonymous_job_has_no_such_field(service: Served) -> None:
    assert "submitted_by" not in await service.submit(**JOB)


async def test_patch_keeps_the_key_and_replace_renews_it(keyed: Keyed) -> None:
    id = (await submit(keyed, "app", key="k"))["id"]

    with keyed.using("ops") as service:
        patched = (await service.patch(f"/v1/jobs/{id}", {"priority": 5, "spread": 60})).json
    moved = await submit(keyed, "ops", key="k", on_conflict="reschedule")
    replaced = await submit(keyed, "ops", key="k", on_conflict="replace")
    anonymous = await submit(keyed, None, key="k", on_conflict="replace")

    assert [job["id"] for job in (patched, moved, replaced, anonymous)] == [id] * 4
    assert (patched["submitted_by"], moved["submitted_by"], replaced["submitted_by"]) == ("app", "app", "ops")
    assert "submitted_by" not in anonymous


async def test_job_stays_that_of_its_key_to_its_end(keyed: Keyed) -> None:
    id = (await submit(keyed, "app", delay=0))["id"]

    with keyed.using("ops") as service:
        ended = await service.until(id, "succeeded")

    assert (ended["submitted_by"], len(ended["attempts"])) == ("app", 1)


async def test_job_of_a_schedule_names_the_key_that_put_it(keyed: Keyed) -> None:
    path, schedule = "/v1/schedules/report", {"every": 60, "job": {"kind": "echo"}}
    with keyed.using("app") as service:
        await service.put(path, schedule)
    with keyed.using("ops") as service:
        await service.patch(path, {"every": 120})
        await service.put(path, schedule | {"every": 120})  # the same definition
        triggered = (await service.post(f"{path}/trigger")).json
        await service.put(path, schedule)
        again = (await service.post(f"{path}/trigger", {"overlap": "allow"})).json

    assert (triggered["submitted_by"], again["submitted_by"]) == ("app", "ops")
