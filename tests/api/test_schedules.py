"""Schedules over HTTP: put, changed, read, listed, paused, triggered, previewed and deleted."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import orjson
import pytest

from erelong.errors import StorageFull
from erelong.model.caller import ANYBODY
from erelong.model.job import Job
from erelong.settings.kinds import KindSettings
from erelong.settings.queues import QueueSettings
from erelong.settings.sections import SchedulesSection
from erelong.stores.base import Verdicts
from tests.support.keyed import Keyed, Keys, serve_keyed
from tests.support.kinds import FakeRunner, for_ever
from tests.support.served import Answer, Serve, Served, ServedStore
from tests.support.virtual import VirtualClock

Fields = dict[str, Any]

STEADY: Fields = {"cron": "*/5 * * * *", "job": {"kind": "echo", "params": {"a": 1}}}
YEARLY: Fields = {"cron": "0 0 1 7 *", "job": {"kind": "echo"}}
MINUTE = 60.0
PATH = "/v1/schedules/report"


async def put(service: Served, name: str = "report", **fields: Any) -> dict[str, Any]:
    answer = await service.put(f"/v1/schedules/{name}", YEARLY | fields)
    assert answer.status in (200, 201), answer.body
    schedule: dict[str, Any] = answer.json
    return schedule


async def read(service: Served, name: str = "report") -> dict[str, Any]:
    schedule: dict[str, Any] = (await service.get(f"/v1/schedules/{name}")).json
    return schedule


async def jobs_of(service: Served, schedule: str = "report") -> list[dict[str, Any]]:
    """Return the jobs of a schedule, the oldest first."""
    listed: list[dict[str, Any]] = (await service.get(f"/v1/jobs?schedule={schedule}&limit=1000&view=full")).json[
        "jobs"
    ]
    return listed[::-1]


# put


async def test_schedule_makes_a_job_at_each_occurrence(service: Served) -> None:
    answer = await service.put(PATH, STEADY | {"zone": "Europe/Berlin"})
    await asyncio.sleep(16 * MINUTE)

    jobs = await jobs_of(service)

    assert answer.status == 201
    assert answer.headers["Location"] == PATH
    assert [(job["occurrence"], job["state"], job["late_by"]) for job in jobs] == [
        ("2026-01-01T00:05:00.000Z", "succeeded", 0.0),
        ("2026-01-01T00:10:00.000Z", "succeeded", 0.0),
        ("2026-01-01T00:15:00.000Z", "succeeded", 0.0),
    ]
    assert all(job["execute_at"] == job["created_at"] == job["occurrence"] for job in jobs)
    assert {job["schedule"] for job in jobs} == {"report"}
    assert (await read(service))["counts"] == {"made": 3, "skipped": 0, "missed": 0}


async def test_interval_counts_from_1970_or_its_anchor(service: Served) -> None:
    plain = await put(service, "plain", cron=None, every="7m")
    anchored = await put(service, "anchored", cron=None, every=600, anchor="2026-01-01T00:00:07Z")

    assert plain["next"][0] == "2026-01-01T00:07:00.000Z"
    assert anchored["next"][:2] == ["2026-01-01T00:00:07.000Z", "2026-01-01T00:10:07.000Z"]
    assert (plain["every"], plain["zone"], plain["gap"], plain["fold"]) == (420.0, None, None, None)
    assert (plain["anchor"], plain["described"]) == ("1970-01-01T00:00:00.000Z", "Every 7m")


async def test_response_of_a_put_has_every_default(service: Served) -> None:
    schedule = await put(service)

    assert schedule == {
        "name": "report",
        "cron": "0 0 1 7 *",
        "every": None,
        "anchor": None,
        "zone": "UTC",
        "gap": "shift",
        "fold": "first",
        "starts_at": None,
        "ends_at": None,
        "spread": 0.0,
        "missed": "once",
        "catchup": None,
        "overlap": "skip",
        "job": {"kind": "echo"},
        "paused": False,
        "reason": None,
        "version": 1,
        "described": "At 00:00 on July 1",
        "next_at": "2026-07-01T00:00:00.000Z",
        "queued": None,
        "next": [f"{year}-07-01T00:00:00.000Z" for year in range(2026, 2031)],
        "live": [],
        "recent": [],
        "counts": {"made": 0, "skipped": 0, "missed": 0},
        "created_at": "2026-01-01T00:00:00.000Z",
        "changed_at": "2026-01-01T00:00:00.000Z",
    }


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"cron": "*/5 * * * *", "zone": "UTC", "gap": "skip", "fold": "both"},
        {"missed": "once", "overlap": "skip", "spread": 0, "catchup": None},
        {"job": {"kind": "echo", "params": {"a": 1}, "queue": "default", "priority": 0, "labels": {}, "timeout": None}},
    ],
)
async def test_same_definition_again_changes_nothing(service: Served, fields: dict[str, Any]) -> None:
    await put(service, **STEADY)
    await asyncio.sleep(4 * MINUTE)

    again = await service.put(PATH, STEADY | fields)
    await asyncio.sleep(2 * MINUTE)

    assert (again.status, again.json["version"], again.headers["ETag"]) == (200, 1, '"1"')
    assert again.json["changed_at"] == "2026-01-01T00:00:00.000Z"
    assert len(await jobs_of(service)) == 1


async def test_same_durations_in_other_units_are_the_same_definition(service: Served) -> None:
    await put(service, cron=None, every="10m", catchup="1h")

    again = await put(service, cron=None, every=600, catchup=3_600)

    assert again["version"] == 1


async def test_other_definition_applies_from_now_on_and_keeps_the_history(service: Served) -> None:
    await put(service, **STEADY)
    await asyncio.sleep(6 * MINUTE)

    answer = await service.put(PATH, STEADY | {"cron": "*/3 * * * *"})
    await asyncio.sleep(7 * MINUTE)

    assert (answer.status, answer.json["version"]) == (200, 2)
    assert [job["occurrence"][11:16] for job in await jobs_of(service)] == ["00:05", "00:09", "00:12"]
    assert (await read(service))["counts"]["made"] == 3


async def test_occurrence_at_the_instant_of_a_put_is_not_made(service: Served) -> None:
    await asyncio.sleep(5 * MINUTE)
    assert service.clock.now() % 300_000_000 == 0

    schedule = await put(service, **STEADY)

    assert schedule["next_at"] == "2026-01-01T00:10:00.000Z"


async def test_occurrence_that_is_due_at_an_edit_is_made_by_the_definition_before(service: Served) -> None:
    await put(service, **STEADY)
    held = service.store.hold("add")
    await asyncio.sleep(5 * MINUTE)
    edit = asyncio.create_task(service.put(PATH, STEADY | {"job": {"kind": "echo", "params": {"b": 2}}}))
    await asyncio.sleep(0.1)
    service.store.held.clear()
    held.set()
    await edit
    await asyncio.sleep(5 * MINUTE)

    assert [(job["occurrence"][11:16], job["params"]) for job in await jobs_of(service)] == [
        ("00:05", {"a": 1}),
        ("00:10", {"b": 2}),
    ]


async def test_schedule_without_occurrences_left_stays(service: Served) -> None:
    await put(service, **STEADY, ends_at="2026-01-01T00:10:00Z")
    await asyncio.sleep(20 * MINUTE)

    schedule = await read(service)

    assert (schedule["next_at"], schedule["next"], schedule["counts"]["made"]) == (None, [], 1)


async def test_spread_makes_jobs_at_their_occurrence_and_due_later(service: Served) -> None:
    schedule = await put(service, **STEADY, spread="2m")
    await asyncio.sleep(11 * MINUTE)

    first, second = await jobs_of(service)

    assert schedule["next_at"] == first["occurrence"] == first["created_at"] == "2026-01-01T00:05:00.000Z"
    assert "2026-01-01T00:05:00.000Z" < first["execute_at"] < "2026-01-01T00:07:00.000Z"
    assert second["execute_at"][17:] == first["execute_at"][17:]
    preview = (await service.get(f"{PATH}/preview?count=1")).json["occurrences"]
    assert preview[0]["due_at"][17:] == first["execute_at"][17:]


# refusals


@pytest.mark.parametrize(
    ("fields", "pointer", "detail"),
    [
        ({"cron": "0 9 30 2 *"}, "/cron", "matches no time"),
        ({"cron": "? ? * * *"}, "/cron", "*"),
        ({"cron": "@reboot"}, "/cron", "reboot"),
        ({"cron": None}, "/cron", "is required"),
        ({"zone": "Europe/Berln"}, "/zone", "Europe/Berlin"),
        ({"every": 600}, "/every", "cron"),
        ({"cron": None, "every": 0.5}, "/every", "1 s"),
        ({"cron": None, "every": 600, "zone": "UTC"}, "/zone", "cron"),
        ({"gap": "leap"}, "/gap", "shift"),
        ({"spread": "25h"}, "/spread", "86400"),
        ({"starts_at": "2026-02-01T00:00:00Z", "ends_at": "2026-01-01T00:00:00Z"}, "/ends_at", "after"),
        ({"starts_at": "2026-02-01T00:00:00"}, "/starts_at", "offset"),
        ({"missed": "all", "catchup": "1h"}, "/missed", "overlap"),
        ({"missed": "all", "overlap": "allow"}, "/catchup", "is required with missed all"),
        ({"missed": "skip", "catchup": "1h"}, "/catchup", "skip"),
        ({"overlap": "maybe"}, "/overlap", "skip"),
        ({"nme": "x"}, "/nme", "known fields"),
        ({"job": None}, "/job", "object"),
        ({"job": {}}, "/job/kind", "is required"),
        ({"job": {"kind": "emial"}}, "/job/kind", "no kind 'emial'"),
        ({"job": {"kind": "http", "params": {}}}, "/job/params/url", "is required"),
        ({"job": {"kind": "echo", "delay": 5}}, "/job/delay", "cron or every"),
        ({"job": {"kind": "echo", "key": "k"}}, "/job/key", "overlap"),
        ({"job": {"kind": "echo", "timeout": "25h"}}, "/job/timeout", "86400"),
    ],
)
async def test_put_refuses(service: Served, fields: dict[str, Any], pointer: str, detail: str) -> None:
    answer = await service.put(PATH, YEARLY | fields)

    assert answer.status == 422
    (fault,) = answer.json["errors"]
    assert fault["pointer"] == pointer
    assert detail in fault["detail"]
    assert (await service.get(PATH)).code == "schedule_not_found"


async def test_put_without_a_job_is_refused(service: Served) -> None:
    answer = await service.put(PATH, {"cron": "@daily"})

    assert answer.pointers == ["/job"]


async def test_name_with_other_characters_is_refused(service: Served) -> None:
    answer = await service.put("/v1/schedules/a%20b", YEARLY)

    assert answer.status == 422
    assert "a b" in answer.json["detail"]


async def test_more_schedules_than_the_limit_are_refused(serve: Serve) -> None:
    service = await serve(schedules=SchedulesSection(max=2))
    await put(service, "a")
    await put(service, "b")

    third = await service.put("/v1/schedules/c", YEARLY)
    again = await service.put("/v1/schedules/b", YEARLY | {"cron": "@daily"})
    await service.delete("/v1/schedules/a")
    after = await service.put("/v1/schedules/c", YEARLY)

    assert (third.status, third.code) == (429, "too_many")
    assert "2 schedules" in third.json["detail"]
    assert (again.status, after.status) == (200, 201)


# conditions


async def test_if_match_guards_every_edit(service: Served) -> None:
    await put(service)
    stale, current = {"If-Match": '"7"'}, {"If-Match": '"1"'}

    refused = [
        await service.put(PATH, STEADY, headers=stale),
        await service.patch(PATH, {"spread": 1}, headers=stale),
        await service.post(f"{PATH}/pause", headers=stale),
        await service.post(f"{PATH}/resume", headers=stale),
        await service.delete(PATH, headers=stale),
    ]
    changed = await service.put(PATH, STEADY, headers=current)

    assert [(answer.status, answer.code) for answer in refused] == [(412, "version_mismatch")] * 5
    assert (changed.status, changed.json["version"]) == (200, 2)


async def test_if_match_of_a_schedule_that_does_not_exist_is_refused(service: Served) -> None:
    answers = [await service.put(PATH, YEARLY, headers={"If-Match": tag}) for tag in ("*", '"1"')]

    assert [answer.status for answer in answers] == [412, 412]


async def test_if_none_match_only_creates(service: Served) -> None:
    first = await service.put(PATH, YEARLY, headers={"If-None-Match": "*"})
    second = await service.put(PATH, STEADY, headers={"If-None-Match": "*"})

    assert (first.status, second.status, second.code) == (201, 412, "version_mismatch")


async def test_get_with_the_known_version_is_a_304(service: Served) -> None:
    await put(service)

    known = await service.get(PATH, headers={"If-None-Match": '"1"'})
    other = await service.get(PATH, headers={"If-None-Match": '"2"'})

    assert (known.status, known.body, other.status) == (304, b"", 200)


# patch


async def test_patch_changes_only_what_is_named(service: Served) -> None:
    before = await put(service, job={"kind": "echo", "params": {"a": 1}, "priority": 3, "retry": {"max_attempts": 2}})

    after = (
        await service.patch(
            PATH, {"spread": "1m", "job": {"params": {"b": 2}, "priority": None, "retry": {"delay": 9}}}
        )
    ).json

    assert after["job"] == {"kind": "echo", "params": {"b": 2}, "retry": {"delay": 9.0, "max_attempts": 2}}
    assert (after["version"], after["spread"]) == (2, 60.0)
    assert {name for name in before if before[name] != after[name]} == {"job", "spread", "version"}


async def test_patch_of_nothing_changes_nothing(service: Served) -> None:
    await put(service)

    answer = await service.patch(PATH, {})

    assert (answer.status, answer.json["version"]) == (200, 1)


async def test_patch_of_every_takes_the_place_of_cron_and_back(service: Served) -> None:
    await put(service, zone="Europe/Berlin")

    every = (await service.patch(PATH, {"every": "10m"})).json
    cron = (await service.patch(PATH, {"cron": "@daily"})).json

    assert [every[name] for name in ("cron", "zone", "gap", "fold", "every")] == [None, None, None, None, 600.0]
    assert [cron[name] for name in ("cron", "zone", "every", "anchor")] == ["@daily", "UTC", None, None]


async def test_patch_of_cron_renews_the_gap_and_fold_that_were_not_given(service: Served) -> None:
    await put(service, "plain", cron="0 9 * * *")
    await put(service, "given", cron="0 9 * * *", gap="shift", fold="second")

    plain = (await service.patch("/v1/schedules/plain", {"cron": "*/5 * * * *"})).json
    given = (await service.patch("/v1/schedules/given", {"cron": "*/5 * * * *"})).json
    cleared = (await service.patch("/v1/schedules/given", {"gap": None})).json

    assert (plain["gap"], plain["fold"]) == ("skip", "both")
    assert (given["gap"], given["fold"]) == ("shift", "second")
    assert (cleared["gap"], cleared["fold"]) == ("skip", "second")


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"cron": None}, "/cron"),
        ({"job": {"kind": "emial"}}, "/job/kind"),
        ({"job": {"kind": None}}, "/job/kind"),
        ({"job": None}, "/job"),
        ({"zone": "Mars"}, "/zone"),
        ({"paused": True}, "/paused"),
    ],
)
async def test_patch_refuses(service: Served, change: dict[str, Any], pointer: str) -> None:
    await put(service)

    answer = await service.patch(PATH, change)

    assert (answer.status, answer.pointers) == (422, [pointer])
    assert (await read(service))["version"] == 1


# damage


async def damage(service: Served) -> None:
    """Make the stored schedule unreadable."""
    await put(service)
    document = service.store._documents["schedule", "report"]
    service.store._documents["schedule", "report"] = document._replace(text=b"{")


async def test_damaged_schedule_can_be_replaced(service: Served) -> None:
    await damage(service)

    refused = [await service.get(PATH), await service.patch(PATH, {"spread": 60}), await service.post(f"{PATH}/pause")]
    replaced = await service.put(PATH, STEADY)
    await asyncio.sleep(6 * MINUTE)

    assert [(answer.status, answer.code) for answer in refused] == [(503, "store_unavailable")] * 3
    assert all("PUT it again, or DELETE it" in answer.json["detail"] for answer in refused)
    assert (replaced.status, replaced.json["version"]) == (200, 2)
    assert len(await jobs_of(service)) == 1
    assert (await service.patch(PATH, {"spread": 60})).status == 200
    assert service.node.health.checks()["recurrences"] == "ok"


async def test_damaged_schedule_can_be_deleted(service: Served) -> None:
    await damage(service)

    assert (await service.delete(PATH)).status == 204
    assert (await service.get(PATH)).status == 404
    assert (await service.put(PATH, YEARLY)).status == 201


@pytest.mark.parametrize(
    "headers", [{"If-Match": '"1"'}, {"If-Match": "*"}, {"If-None-Match": "*"}, {"If-None-Match": '"1"'}], ids=str
)
async def test_damaged_schedule_has_no_version_that_a_condition_could_name(
    service: Served, headers: dict[str, str]
) -> None:
    await damage(service)

    answer = await service.put(PATH, YEARLY, headers=headers)

    assert answer.status == (200 if headers == {"If-Match": "*"} else 412)


async def test_damaged_schedule_is_left_alone_by_a_dry_run(service: Served) -> None:
    await damage(service)

    assert (await service.put(f"{PATH}?dry_run=true", YEARLY)).status == 200
    assert (await service.get(PATH)).status == 503


async def test_damaged_schedule_is_unknown_to_a_key_that_is_limited_to_queues(keyed: Keyed) -> None:
    with keyed.using("root") as service:
        await damage(service)

    with keyed.using("mail") as service:
        answers = [
            await service.put(PATH, YEARLY | {"job": {"kind": "echo", "queue": "mail"}}),
            await service.delete(PATH),
            await service.get(PATH),
        ]

    assert [answer.status for answer in answers] == [404] * 3


# pause


async def test_pause_makes_no_jobs_and_resume_leaves_out_what_passed(service: Served) -> None:
    await put(service, **STEADY)
    paused = (await service.post(f"{PATH}/pause", {"reason": "stocktaking"})).json
    await asyncio.sleep(12 * MINUTE)
    still = await read(service)

    resumed = (await service.post(f"{PATH}/resume")).json
    await asyncio.sleep(4 * MINUTE)

    assert (paused["paused"], paused["reason"], paused["next_at"], paused["version"]) == (True, "stocktaking", None, 2)
    assert still["counts"] == {"made": 0, "skipped": 0, "missed": 0}
    assert (resumed["paused"], resumed["reason"], resumed["version"]) == (False, None, 3)
    assert [job["occurrence"][11:16] for job in await jobs_of(service)] == ["00:15"]


async def test_repeated_pause_and_resume_change_nothing(service: Served) -> None:
    await put(service)

    versions = [
        (await service.post(f"{PATH}/{call}", body)).json["version"]
        for call, body in (
            ("pause", None),
            ("pause", None),
            ("pause", {"reason": "x"}),
            ("resume", None),
            ("resume", None),
        )
    ]

    assert versions == [2, 2, 3, 4, 4]


async def test_put_of_a_paused_schedule_leaves_it_paused(service: Served) -> None:
    await put(service)
    await service.post(f"{PATH}/pause", {"reason": "stocktaking"})

    schedule = await put(service, **STEADY)

    assert (schedule["paused"], schedule["reason"], schedule["version"]) == (True, "stocktaking", 3)


# trigger


async def test_trigger_makes_a_job_now_also_while_paused(service: Served) -> None:
    await put(service, spread="1h")
    await service.post(f"{PATH}/pause")
    await asyncio.sleep(30)

    answer = await service.post(f"{PATH}/trigger")
    job = await service.until(answer.json["id"], "succeeded")
    schedule = await read(service)

    assert (answer.status, answer.headers["Location"]) == (201, f"/v1/jobs/{job['id']}")
    assert job["execute_at"] == job["occurrence"] == "2026-01-01T00:00:30.000Z"
    assert schedule["counts"]["made"] == 1
    assert schedule["recent"] == [
        {"occurrence": job["occurrence"], "outcome": "made", "job": job["id"], "reason": "trigger"}
    ]
    assert schedule["version"] == 2


async def test_trigger_with_the_same_idempotency_key_is_replayed(service: Served) -> None:
    await put(service, overlap="allow")
    key = {"Idempotency-Key": "k"}
    submitted = await service.post("/v1/jobs", {"kind": "echo"}, headers=key)

    first = await service.post(f"{PATH}/trigger", headers=key)
    second = await service.post(f"{PATH}/trigger", headers=key)
    other = await service.post(f"{PATH}/trigger", {"overlap": "skip"}, headers=key)

    assert (submitted.status, first.status, second.status) == (201, 201, 200)
    assert second.json["id"] == first.json["id"]
    assert second.headers["Idempotency-Replayed"] == "true"
    assert (other.status, other.code) == (409, "idempotency_mismatch")
    assert len(await jobs_of(service)) == 1


@pytest.mark.parametrize("overlap", ["skip", "queue_one"])
async def test_trigger_while_a_job_is_live_is_refused(service: Served, overlap: str) -> None:
    await put(service, overlap=overlap, job={"kind": "endless", "timeout": 3_600})
    first = (await service.post(f"{PATH}/trigger")).json

    second = await service.post(f"{PATH}/trigger")
    allowed = await service.post(f"{PATH}/trigger", {"overlap": "allow"})

    assert (second.status, second.code, second.json["job"]["id"]) == (409, "overlap", first["id"])
    assert allowed.status == 201
    assert (await read(service))["live"] == [first["id"], allowed.json["id"]]


async def test_triggers_that_allow_overlap_keep_no_ended_jobs(service: Served) -> None:
    await service.put(PATH, YEARLY)
    for _ in range(30):
        await service.post(f"{PATH}/trigger", {"overlap": "allow"})
        await asyncio.sleep(1)

    document = await service.store.document("schedule", "report")

    assert document is not None
    assert len(orjson.loads(document.text or b"")["live"]) <= 1
    assert (await service.get(PATH)).json["live"] == []


async def test_trigger_that_replaces_cancels_the_live_job(service: Served) -> None:
    await put(service, overlap="replace", job={"kind": "endless", "timeout": 3_600})
    first = (await service.post(f"{PATH}/trigger")).json
    await service.until(first["id"], "running")

    second = (await service.post(f"{PATH}/trigger")).json
    ended = await service.until(first["id"], "cancelled")

    assert (await service.until(second["id"], "running"))["id"] != first["id"]
    assert "replaced" in ended["error"]["message"]


async def test_trigger_that_replaces_cancels_a_job_that_changes_meanwhile(service: Served) -> None:
    await put(service, cron="*/5 * * * *", overlap="replace", job={"kind": "echo"}, spread="1h")
    await asyncio.sleep(5 * MINUTE + 1)
    (live,) = (await read(service))["live"]
    save = service.store.save

    async def change_before(jobs: Sequence[Job], **others: Any) -> Verdicts:
        service.store.save = save  # type: ignore[method-assign]
        (stored,) = (await service.store.get([jobs[0].seq])).values()
        await save([stored._replace(priority=5, version=stored.version + 1)])
        return await save(jobs, **others)

    service.store.save = change_before  # type: ignore[method-assign]
    await service.post(f"{PATH}/trigger")

    assert (await service.get(f"/v1/jobs/{live}")).json["state"] == "cancelled"


async def test_trigger_whose_job_is_refused_cancels_nothing(clock: VirtualClock) -> None:
    store = ServedStore()
    strict = {"type": "object", "required": ["width"]}
    async with Served(clock=clock, store=store, declared={"work": KindSettings(pull=True)}) as service:
        await put(service, overlap="replace", job={"kind": "work"})
        live = (await service.post(f"{PATH}/trigger")).json["id"]

    async with Served(
        clock=clock, store=store, declared={"work": KindSettings(pull=True, params_schema=strict)}
    ) as after:
        answer = await after.post(f"{PATH}/trigger")

        assert answer.status == 422
        assert (await after.get(f"/v1/jobs/{live}")).json["state"] == "scheduled"


async def test_trigger_that_the_backlog_refuses_cancels_nothing(serve: Serve) -> None:
    service = await serve(kinds={"work": FakeRunner(for_ever)}, queues={"small": QueueSettings(max_backlog=1)})
    await put(service, overlap="replace", job={"kind": "work", "timeout": 3_600, "queue": "small"})
    live = (await service.post(f"{PATH}/trigger")).json["id"]
    await service.until(live, "running")
    await service.submit(queue="small", delay=1_000)

    answer = await service.post(f"{PATH}/trigger")

    assert (answer.status, answer.code) == (429, "backlog_full")
    running = await service.job(live)
    assert (running["state"], running["cancel_requested"]) == ("running", False)


async def test_trigger_that_cannot_be_stored_cancels_nothing(service: Served) -> None:
    await put(service, overlap="replace", job={"kind": "endless", "timeout": 3_600})
    live = (await service.post(f"{PATH}/trigger")).json["id"]
    await service.until(live, "running")
    service.store.broken["add"] = StorageFull("the disk is full")

    answer = await service.post(f"{PATH}/trigger")

    assert answer.status == 507
    assert (await service.job(live))["cancel_requested"] is False


async def test_trigger_in_a_full_queue_takes_the_place_of_the_waiting_job(serve: Serve) -> None:
    service = await serve(queues={"small": QueueSettings(max_backlog=1)})
    await service.post("/v1/queues/small/pause")
    await put(service, overlap="replace", job={"kind": "echo", "queue": "small"})
    first = (await service.post(f"{PATH}/trigger")).json["id"]

    second = await service.post(f"{PATH}/trigger")

    assert second.status == 201
    assert (await service.job(first))["state"] == "cancelled"
    assert (await service.get("/v1/queues/small")).json["counts"]["scheduled"] == 1


async def test_trigger_of_a_full_queue_is_refused(serve: Serve) -> None:
    service = await serve(queues={"small": QueueSettings(max_backlog=1)})
    await service.submit(queue="small", delay=1_000)
    await put(service, job={"kind": "echo", "queue": "small"})

    answer = await service.post(f"{PATH}/trigger")

    assert (answer.status, answer.code) == (429, "backlog_full")
    assert (await read(service))["counts"]["made"] == 0


# reading


async def test_list_is_by_name_in_pages_and_brief(service: Served) -> None:
    for name in ("c", "a", "b"):
        await put(service, name, job={"kind": "echo", "params": {"x": 1}})

    first = await service.get("/v1/schedules?limit=2")
    second = await service.get(f"/v1/schedules?limit=2&cursor={first.json['next']}")
    other = await service.get(f"/v1/schedules?limit=2&paused=true&cursor={first.json['next']}")

    assert [item["name"] for item in first.json["schedules"] + second.json["schedules"]] == ["a", "b", "c"]
    assert second.json["next"] is None
    assert 'rel="next"' in first.headers["Link"]
    assert first.json["schedules"][0]["job"] == {"kind": "echo"}
    assert first.json["schedules"][0]["next_at"] == "2026-07-01T00:00:00.000Z"
    assert (other.status, other.code) == (400, "bad_cursor")


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("queue=mail", ["b"]),
        ("queue=mail&queue=default", ["a", "b", "c"]),
        ("kind=endless", ["c"]),
        ("paused=true", ["a"]),
        ("paused=false&kind=echo", ["b"]),
    ],
)
async def test_list_is_filtered(service: Served, query: str, names: list[str]) -> None:
    await put(service, "a")
    await put(service, "b", job={"kind": "echo", "queue": "mail"})
    await put(service, "c", job={"kind": "endless"})
    await service.post("/v1/schedules/a/pause")

    listed = (await service.get(f"/v1/schedules?{query}")).json["schedules"]

    assert [schedule["name"] for schedule in listed] == names


async def test_jobs_are_found_by_schedule_and_occurrence(service: Served) -> None:
    await put(service, "a", **STEADY)
    await put(service, "b", **STEADY)
    await asyncio.sleep(11 * MINUTE)

    listed = (await service.get("/v1/jobs?schedule=a&occurrence=2026-01-01T00:10:00Z")).json["jobs"]

    assert [(job["schedule"], job["occurrence"]) for job in listed] == [("a", "2026-01-01T00:10:00.000Z")]
    assert listed[0]["labels"] == {}


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", ""),
        ("PATCH", ""),
        ("DELETE", ""),
        ("POST", "/pause"),
        ("POST", "/resume"),
        ("POST", "/trigger"),
        ("GET", "/preview"),
    ],
)
async def test_unknown_schedule_is_a_404(service: Served, method: str, path: str) -> None:
    answer = await service.call(method, PATH + path, {} if method == "PATCH" else None)

    assert (answer.status, answer.code) == (404, "schedule_not_found")


async def test_deleted_schedule_makes_no_more_jobs_and_keeps_those_it_made(service: Served) -> None:
    await put(service, **STEADY)
    await asyncio.sleep(6 * MINUTE)

    answer = await service.delete(PATH)
    await asyncio.sleep(10 * MINUTE)

    assert answer.status == 204
    assert len(await jobs_of(service)) == 1


async def test_schedule_that_is_deleted_and_put_again_makes_no_occurrence_twice(service: Served) -> None:
    await put(service, **STEADY)
    await asyncio.sleep(6 * MINUTE)
    await service.delete(PATH)
    await put(service, **STEADY)
    await asyncio.sleep(5 * MINUTE)

    assert [job["occurrence"][11:16] for job in await jobs_of(service)] == ["00:05", "00:10"]


# keys that are limited to queues


@pytest.fixture
async def keyed(serve: Serve) -> Keyed:
    """A service with a key for everything (root), and one for each of two queues (mail, other)."""
    keys = Keys().add("root").add("mail", queues=["mail", "callbacks"]).add("other", queues=["other"])
    return await serve_keyed(serve, keys)


async def test_key_sees_only_the_schedules_of_its_queues(keyed: Keyed) -> None:
    with keyed.using("root") as service:
        await put(service, "m", job={"kind": "echo", "queue": "mail"})
        await put(service, "o", job={"kind": "echo", "queue": "other"})

    with keyed.using("mail") as service:
        assert [item["name"] for item in (await service.get("/v1/schedules")).json["schedules"]] == ["m"]
        assert (await service.get("/v1/schedules?queue=other")).json["schedules"] == []
        assert (await service.get("/v1/schedules/o")).code == "schedule_not_found"
        assert (await service.delete("/v1/schedules/o")).code == "schedule_not_found"


async def test_key_puts_schedules_only_into_its_queues(keyed: Keyed) -> None:
    with keyed.using("root") as service:
        await put(service, "taken", job={"kind": "echo", "queue": "other"})

    with keyed.using("mail") as service:
        foreign = await service.put(PATH, YEARLY | {"job": {"kind": "echo", "queue": "other"}})
        default = await service.put(PATH, YEARLY)
        taken = await service.put("/v1/schedules/taken", YEARLY | {"job": {"kind": "echo", "queue": "mail"}})
        own = await service.put(PATH, YEARLY | {"job": {"kind": "echo", "queue": "mail"}})
        moved = await service.patch(PATH, {"job": {"queue": "other"}})

    assert [(answer.status, answer.code) for answer in (foreign, default)] == [(403, "forbidden")] * 2
    assert foreign.pointers == ["/job/queue"]
    assert (taken.status, taken.code) == (404, "schedule_not_found")
    assert "knows no schedule 'taken': it sees those of its queues, callbacks, mail" in taken.json["detail"]
    assert (own.status, moved.status) == (201, 403)


async def test_key_triggers_only_the_schedules_of_its_queues(keyed: Keyed) -> None:
    with keyed.using("root") as service:
        await put(service, job={"kind": "echo", "queue": "mail"})

    with keyed.using("other") as service:
        assert (await service.post(f"{PATH}/trigger")).status == 404
    with keyed.using("mail") as service:
        assert (await service.post(f"{PATH}/trigger")).status == 201


# preview


async def test_preview_shows_gaps_and_folds(service: Served) -> None:
    await put(service, cron="30 2 * * *", zone="Europe/Berlin", fold="both")

    spring = (await service.get(f"{PATH}/preview?from=2026-03-29T00:00:00Z&count=1")).json
    autumn = (await service.get(f"{PATH}/preview?from=2026-10-25T00:00:00Z&count=2")).json["occurrences"]

    assert spring["occurrences"] == [
        {
            "occurrence": "2026-03-29T01:30:00.000Z",
            "local": "2026-03-29T03:30:00+02:00",
            "due_at": "2026-03-29T01:30:00.000Z",
            "note": "gap",
        }
    ]
    assert [(item["local"], item["note"]) for item in autumn] == [
        ("2026-10-25T02:30:00+02:00", "fold"),
        ("2026-10-25T02:30:00+01:00", "fold"),
    ]
    assert spring["tzdb"]


async def test_preview_begins_at_its_first_instant_and_may_lie_in_the_past(service: Served) -> None:
    await put(service, cron="@hourly")

    shown = (await service.get(f"{PATH}/preview?from=2025-06-01T10:00:00Z&count=2")).json["occurrences"]

    assert [item["occurrence"][:13] for item in shown] == ["2025-06-01T10", "2025-06-01T11"]


@pytest.mark.parametrize(("query", "pointer"), [("count=0", "/count"), ("count=1001", "/count"), ("from=x", "/from")])
async def test_preview_refuses(service: Served, query: str, pointer: str) -> None:
    await put(service)

    answer = await service.get(f"{PATH}/preview?{query}")

    assert answer.pointers == [pointer]


async def test_paused_schedule_has_a_preview(service: Served) -> None:
    await put(service)
    await service.post(f"{PATH}/pause")

    assert len((await service.get(f"{PATH}/preview")).json["occurrences"]) == 10


@contextmanager
def count_turns() -> Iterator[list[int]]:
    """Count the turns of the event loop until the block ends."""
    turns = [0]

    def turn() -> None:
        turns[0] += 1
        turning[0] = asyncio.get_running_loop().call_soon(turn)

    turning = [asyncio.get_running_loop().call_soon(turn)]
    try:
        yield turns
    finally:
        turning[0].cancel()


async def test_long_preview_lets_other_tasks_run(service: Served) -> None:
    await put(service)
    schedules = service.node.services.schedules
    with count_turns() as few:
        await schedules.preview("report", None, 5, ANYBODY)

    with count_turns() as many:
        previews, _ = await schedules.preview("report", None, 1_000, ANYBODY)

    assert len(previews) == 1_000
    assert many[0] >= few[0] + 30


async def test_long_list_lets_other_tasks_run(service: Served) -> None:
    for number in range(200):
        await put(service, f"s{number:03}")
    with count_turns() as few:
        await service.get("/v1/schedules?limit=1")

    with count_turns() as many:
        listed = (await service.get("/v1/schedules?limit=200")).json["schedules"]

    assert len(listed) == 200
    assert many[0] >= few[0] + 12


# dry runs


async def test_dry_put_shows_the_schedule_and_stores_nothing(service: Served) -> None:
    answer = await service.put(f"{PATH}?dry_run=true", STEADY)
    faulty = await service.put(f"{PATH}?dry_run=true", {**STEADY, "zone": "Mars"})

    assert (answer.status, answer.headers["Dry-Run"]) == (200, "true")
    assert answer.json["next"][0] == "2026-01-01T00:05:00.000Z"
    assert faulty.pointers == ["/zone"]
    assert (await service.get(PATH)).status == 404


async def test_dry_put_of_an_existing_schedule_leaves_it(service: Served) -> None:
    before = await put(service)

    answer = await service.put(f"{PATH}?dry_run=true", STEADY)

    assert (answer.json["cron"], answer.json["version"]) == ("*/5 * * * *", 2)
    assert await read(service) == before


# bad days


async def test_draining_service_refuses_edits_and_makes_nothing(service: Served) -> None:
    await put(service, **STEADY)
    service.node.engine.drain()
    await asyncio.sleep(6 * MINUTE)

    answers: list[Answer] = [
        await service.put(PATH, YEARLY),
        await service.patch(PATH, {}),
        await service.post(f"{PATH}/resume"),
        await service.post(f"{PATH}/trigger"),
    ]
    paused = await service.post(f"{PATH}/pause")

    assert [(answer.status, answer.code) for answer in answers] == [(503, "draining")] * 4
    assert (paused.status, await jobs_of(service)) == (200, [])


async def test_metrics_count_schedules_and_occurrences(service: Served) -> None:
    await put(service, **STEADY)
    await put(service, "other")
    await service.post("/v1/schedules/other/pause")
    await asyncio.sleep(6 * MINUTE)

    page = (await service.get("/metrics")).body.decode()

    assert 'erelong_schedules{state="active"} 1.0' in page
    assert 'erelong_schedules{state="paused"} 1.0' in page
    assert 'erelong_occurrences_total{outcome="made"} 1.0' in page
