"""Extras and system labels: fields that only the jobs that have them show, and labels that clients cannot write."""

from __future__ import annotations

from typing import Any

import pytest

from erelong.model.extras import Extras
from erelong.model.job import Job
from erelong.model.query import Query
from erelong.model.submission import NewJob
from erelong.service.factory import Submission
from tests.support.builders import make_job, put
from tests.support.served import Served

SHOWN = {"schedule": "report", "occurrence": "2026-01-01T00:00:00.000Z", "callback_of": "0000000001aaaaaaaaaaaaaaaa"}


async def submit_with(service: Served, extras: Extras, **fields: object) -> Job:
    """Store a job with extras that clients cannot submit, as the engine does."""
    now, services = service.clock.now(), service.node.services
    submission: Submission = {"kind": "echo", "execute_at": now + 60_000_000, **fields}  # type: ignore[typeddict-item]
    job = services.factory.make(submission, now, extras)
    (entry,) = (await services.jobs.add([NewJob(job)], now=now)).entries
    assert entry is not None
    return entry.job


async def submit_scheduled(service: Served) -> Job:
    extras: Extras = {"schedule": "report", "occurrence": service.clock.now(), "callback_of": SHOWN["callback_of"]}
    return await submit_with(service, extras, labels={"tenant": "t1"})


async def test_job_shows_its_extras_wherever_it_is_shown(service: Served) -> None:
    job = await submit_scheduled(service)

    (listed,) = (await service.get("/v1/jobs")).json["jobs"]
    (full,) = (await service.get("/v1/jobs?view=full")).json["jobs"]
    for shown in (await service.job(job.id), listed, full):
        assert {name: shown[name] for name in SHOWN} == SHOWN
        assert shown["labels"] == {"tenant": "t1"}
        assert not {"on_finish", "local_time", "zone", "spread"} & shown.keys()


async def test_extras_of_a_newer_version_are_not_shown(service: Served) -> None:
    job = await submit_with(service, {"schedule": "report", "invented": 1})  # type: ignore[typeddict-unknown-key]

    shown = await service.job(job.id)

    assert shown["schedule"] == "report"
    assert "invented" not in shown


# extras that cannot be read any more, which stores replace by empty ones


async def submit_lost(service: Served, extras: bytes = b" {}") -> Job:
    job = make_job(now=service.clock.now(), delay=60, key="k", labels={"tenant": "t1"})._replace(extras=extras)
    return (await put(service.store, job, now=service.clock.now()))[0]


@pytest.mark.parametrize(
    "change",
    [{"spread": 60}, {"on_finish": {"url": "https://app.example"}}, {"on_finish": None}, {"zone": "Europe/Berlin"}],
    ids=lambda change: next(iter(change)),
)
async def test_patch_of_lost_extras_is_refused(service: Served, change: dict[str, Any]) -> None:
    job = await submit_lost(service)

    refused = await service.patch(f"/v1/jobs/{job.id}", change)

    assert (refused.status, refused.pointers) == (422, [f"/{next(iter(change))}"])
    assert "cannot be read; cancel it" in refused.json["errors"][0]["detail"]
    assert (await service.store.get([job.seq]))[job.seq] == job


async def test_no_change_makes_a_job_with_lost_extras_look_sound(service: Served) -> None:
    job = await submit_lost(service)
    await service.patch(f"/v1/jobs/{job.id}", {"priority": 5, "delay": 100, "labels": {"tenant": "t2"}})
    moved = {"kind": "echo", "key": "k", "on_conflict": "reschedule", "delay": 50, "spread": 10}
    await service.post("/v1/jobs", moved)
    shift = {"action": "patch", "filter": {"all": True}, "at_most": 1, "shift": "1h"}
    id = (await service.post("/v1/operations", shift)).json["id"]
    await service.get(f"/v1/operations/{id}?wait=60")

    stored = (await service.store.get([job.seq]))[job.seq]

    assert stored.version == job.version + 3
    assert stored.extras == job.extras


async def test_damaged_on_finish_can_be_replaced(service: Served) -> None:
    job = await submit_lost(service, b'{"on_finish":{"url":1},"submitted_by":"ops"}')

    changed = await service.patch(f"/v1/jobs/{job.id}", {"on_finish": {"url": "https://app.example"}})

    assert (changed.status, changed.json["on_finish"]["job"]) == (200, None)
    assert changed.json["submitted_by"] == "ops"


@pytest.mark.parametrize("name", ["@zone", "@schedule", "@occurrence", "@"])
async def test_client_cannot_write_or_list_by_a_system_label(service: Served, name: str) -> None:
    job = await submit_scheduled(service)
    labels = {"labels": {name: "report"}}

    answers = [
        await service.post("/v1/jobs", {"kind": "echo", **labels}),
        await service.patch(f"/v1/jobs/{job.id}", labels),
        await service.get(f"/v1/jobs?label.{name}=report"),
    ]

    assert [answer.status for answer in answers] == [422, 422, 422]
    assert [answer.pointers for answer in answers[:2]] == [[f"/labels/{name}"]] * 2
    assert name in answers[2].json["errors"][0]["pointer"]


async def test_system_labels_do_not_count_and_survive_a_patch(service: Served) -> None:
    job = await submit_scheduled(service)
    labels = {f"l{number}": "x" for number in range(16)}

    changed = await service.patch(f"/v1/jobs/{job.id}", {"labels": labels})
    cleared = await service.patch(f"/v1/jobs/{job.id}", {"labels": None})

    assert (changed.status, changed.json["labels"]) == (200, labels)
    assert (cleared.status, cleared.json["labels"]) == (200, {})
    assert cleared.json["schedule"] == "report"
    found = await service.node.services.jobs.list(Query(labels={"@schedule": "report"}))
    assert [found.id for found in found] == [job.id]


async def test_extras_stay_through_a_failure_and_a_retry(service: Served) -> None:
    job = await submit_with(service, {"schedule": "report"}, params={"fail": "boom"}, retry=None)
    await service.post(f"/v1/jobs/{job.id}/cancel")
    await service.until(job.id, "cancelled")

    revived = await service.post(f"/v1/jobs/{job.id}/retry")

    assert (revived.status, revived.json["schedule"], revived.json["state"]) == (200, "report", "scheduled")
