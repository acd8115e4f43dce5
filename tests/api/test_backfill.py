"""Backfills: the jobs of past occurrences of a schedule, made by an operation."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from erelong.clock.instants import parse_start
from erelong.errors import StoreRefused
from erelong.model.caller import Scope
from erelong.model.extras import read_extras
from erelong.model.submission import NewJob, Receipt
from erelong.service.operations import backfills
from erelong.settings.queues import QueueSettings
from tests.support.keyed import Keys, serve_keyed
from tests.support.served import Serve, Served
from tests.support.virtual import VirtualClock

HOURLY = {"cron": "0 * * * *", "job": {"kind": "echo", "queue": "reports"}}
FIRST, END = "2025-12-31T20:00:00Z", "2026-01-01T00:00:00Z"
HOURS = [f"2025-12-31T{hour}:00:00.000Z" for hour in (20, 21, 22, 23)]


async def put(service: Served, **fields: Any) -> None:
    assert (await service.put("/v1/schedules/report", HOURLY | fields)).status == 201


async def backfill(service: Served, first: str = FIRST, end: str = END, **headers: str) -> dict[str, Any]:
    """Backfill the schedule, and wait for the end."""
    answer = await service.post("/v1/schedules/report/backfill", {"from": first, "to": end}, headers=headers)
    assert answer.status == 202, answer.body
    assert answer.headers["Location"] == f"/v1/operations/{answer.json['id']}"
    ended: dict[str, Any] = (await service.get(f"/v1/operations/{answer.json['id']}?wait=60")).json
    assert ended["finished_at"] is not None
    return ended


async def occurrences(service: Served) -> list[str]:
    """Return the occurrences of the jobs of the schedule, in the order in which they were made."""
    jobs = (await service.get("/v1/jobs?schedule=report&limit=1000")).json["jobs"]
    return [job["occurrence"] for job in reversed(jobs)]


def counts(operation: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(operation[name] for name in ("state", "matches", "done", "skipped", "failed"))


async def test_occurrences_in_the_range_are_made_oldest_first_and_due_at_once(serve: Serve) -> None:
    service = await serve()
    await put(service, spread="24h")

    operation = await backfill(service)

    assert counts(operation) == ("succeeded", 4, 4, 0, 0)
    assert (operation["action"], operation["schedule"], operation["by"]) == ("backfill", "report", "")
    assert (operation["from"], operation["to"]) == ("2025-12-31T20:00:00.000Z", "2026-01-01T00:00:00.000Z")
    assert await occurrences(service) == HOURS
    jobs = (await service.get("/v1/jobs?schedule=report&view=full")).json["jobs"]
    assert {(await service.until(job["id"], "succeeded"))["started_at"][:16] for job in jobs} == {"2026-01-01T00:00"}
    schedule = (await service.get("/v1/schedules/report")).json
    assert (schedule["counts"]["made"], schedule["recent"], schedule["version"]) == (0, [], 1)


async def test_second_backfill_makes_nothing_again(serve: Serve) -> None:
    service = await serve()
    await put(service)
    await backfill(service, end="2025-12-31T22:00:00Z")

    operation = await backfill(service)

    assert counts(operation) == ("succeeded", 4, 2, 2, 0)
    assert await occurrences(service) == HOURS


@pytest.mark.parametrize(("refused", "made"), [(HOURS[2:3], [*HOURS[:2], HOURS[3]]), (HOURS, [])], ids=["one", "all"])
async def test_occurrence_whose_job_the_store_refuses_has_failed(
    refused: list[str], made: list[str], serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = await serve()
    await put(service)
    add = service.store.add

    async def refuse(new_jobs: Sequence[NewJob], **others: Any) -> Receipt:
        occurrences = {read_extras(new_job.job.extras).get("occurrence") for new_job in new_jobs}
        if not occurrences.isdisjoint(map(parse_start, refused)):
            raise StoreRefused("the store refuses this job")
        return await add(new_jobs, **others)

    monkeypatch.setattr(service.store, "add", refuse)
    operation = await backfill(service)

    assert counts(operation) == ("succeeded", 4, len(made), 0, len(refused))
    assert [error["code"] for error in operation["errors"]] == ["store_unavailable"] * len(refused)
    assert await occurrences(service) == made


async def test_occurrence_that_the_schedule_made_is_skipped(serve: Serve, clock: VirtualClock) -> None:
    service = await serve()
    await put(service)
    clock.step(2 * 3_600)
    await asyncio.sleep(5)

    operation = await backfill(service, end="2026-01-01T02:00:00Z")

    made = await occurrences(service)
    assert len(made) == len({*made}) >= 5
    assert operation["done"] + operation["skipped"] == operation["matches"]


async def test_clock_that_is_set_back_makes_no_backfilled_occurrence_again(serve: Serve, clock: VirtualClock) -> None:
    service = await serve()
    await put(service, overlap="allow", missed="all", catchup="10d")
    await backfill(service)

    clock.step(-3 * 3_600)
    await asyncio.sleep(4 * 3_600)

    made = await occurrences(service)
    assert len(made) == len({*made})
    assert {*HOURS} <= {*made}


async def test_backfill_follows_the_definition_at_its_request(serve: Serve) -> None:
    service = await serve()
    await put(service)

    answer = await service.post("/v1/schedules/report/backfill", {"from": FIRST, "to": END})
    changed = await service.put("/v1/schedules/report", {"cron": "30 * * * *", "job": {"kind": "echo"}})
    await service.get(f"/v1/operations/{answer.json['id']}?wait=60")

    assert changed.status == 200
    assert await occurrences(service) == HOURS


async def test_full_backlog_ends_a_backfill_as_failed(serve: Serve) -> None:
    service = await serve(queues={"reports": QueueSettings(max_backlog=3)})
    await service.post("/v1/queues/reports/pause")
    await put(service)

    operation = await backfill(service)

    assert (operation["state"], operation["done"]) == ("failed", 0)
    assert operation["errors"] == [{"job": None, "code": "backlog_full"}]


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"from": FIRST}, "/to"),
        ({"to": END}, "/from"),
        ({"from": END, "to": END}, "/to"),
        ({"from": FIRST, "to": "2026-01-01T01:00:00Z"}, "/to"),
        ({"from": None, "to": END}, "/from"),
        ({"from": FIRST, "to": END, "form": 1}, "/form"),
        ({"from": "2020-01-01T00:00:00Z", "to": END}, "/from"),
    ],
)
async def test_bad_range_names_its_field_and_makes_nothing(serve: Serve, body: Any, pointer: str) -> None:
    service = await serve()
    await put(service)

    answer = await service.post("/v1/schedules/report/backfill", body)

    assert (answer.status, answer.pointers) == (422, [pointer])
    assert (await service.get("/v1/operations")).json["operations"] == []


async def test_too_many_occurrences_are_refused_with_their_bound(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backfills, "MAX_OCCURRENCES", 3)
    service = await serve()
    await put(service)

    answer = await service.post("/v1/schedules/report/backfill", {"from": FIRST, "to": END})

    assert (answer.status, answer.pointers) == (422, ["/from"])
    assert "more than 3 occurrences" in answer.json["detail"]


async def test_occurrence_that_the_schedule_keeps_is_left_out(serve: Serve) -> None:
    service = await serve()
    job = {"kind": "endless", "timeout": 86_400}
    await put(service, overlap="queue_one", job=job)
    await asyncio.sleep(2.5 * 3_600)
    assert (await service.get("/v1/schedules/report")).json["queued"] == "2026-01-01T02:00:00.000Z"

    operation = await backfill(service, "2026-01-01T00:00:00Z", "2026-01-01T02:00:01Z")

    assert counts(operation) == ("succeeded", 3, 1, 2, 0)
    assert await occurrences(service) == ["2026-01-01T01:00:00.000Z", "2026-01-01T00:00:00.000Z"]


async def test_backfilled_occurrence_is_not_made_again_after_a_step_back(serve: Serve, clock: VirtualClock) -> None:
    service = await serve()
    await put(service, overlap="allow")
    await service.post("/v1/schedules/report/pause")
    await asyncio.sleep(2.5 * 3_600)
    await backfill(service, "2026-01-01T00:30:00Z", "2026-01-01T02:30:00Z")
    clock.step(-2 * 3_600)
    await service.post("/v1/schedules/report/resume")
    await asyncio.sleep(3 * 3_600)

    assert await occurrences(service) == [f"2026-01-01T0{hour}:00:00.000Z" for hour in (1, 2, 3)]


async def test_unknown_schedule_is_not_found(serve: Serve) -> None:
    service = await serve()

    answer = await service.post("/v1/schedules/report/backfill", {"from": FIRST, "to": END})

    assert (answer.status, answer.code) == (404, "schedule_not_found")


async def test_dry_run_counts_and_makes_nothing(serve: Serve) -> None:
    service = await serve()
    await put(service)

    answer = await service.post("/v1/schedules/report/backfill?dry_run=true", {"from": FIRST, "to": END})

    assert (answer.status, answer.headers["Dry-Run"], answer.json["matches"]) == (200, "true", 4)
    assert answer.json["by"] == {"state": {"scheduled": 4}, "queue": {"reports": 4}, "kind": {"echo": 4}}
    assert (await service.get("/v1/operations")).json["operations"] == []
    assert await occurrences(service) == []


async def test_repeated_request_with_an_idempotency_key_returns_the_operation(serve: Serve) -> None:
    service = await serve()
    await put(service)
    ended = await backfill(service, **{"Idempotency-Key": "k"})

    again = await service.post(
        "/v1/schedules/report/backfill", {"from": FIRST, "to": END}, headers={"Idempotency-Key": "k"}
    )

    assert (again.status, again.json) == (200, ended)


async def test_backfill_can_be_cancelled_only_with_the_scope_submit(serve: Serve) -> None:
    keyed = await serve_keyed(serve, Keys().add("root").add("cancel", Scope.CANCEL))
    with keyed.using("root") as service:
        await put(service)
        operation = (await service.post("/v1/schedules/report/backfill", {"from": FIRST, "to": END})).json
    with keyed.using("cancel") as service:
        refused = await service.post(f"/v1/operations/{operation['id']}/cancel")
    with keyed.using("root") as service:
        stopped = await service.post(f"/v1/operations/{operation['id']}/cancel")

    assert refused.code == "forbidden"
    assert stopped.json["by"] == "root"
