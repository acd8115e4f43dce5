"""`local_time` and `zone` of submits and changes: resolved, kept in the job, and refused with a remedy."""

from __future__ import annotations

from typing import Any

import pytest

from erelong.settings.sections import JobsSection
from tests.support.served import Serve, Served

# The clock stands at 2026-01-01T00:00:00Z.

BERLIN = {"local_time": "2026-07-01T09:00:00", "zone": "Europe/Berlin"}
IN_UTC = "2026-07-01T07:00:00.000Z"
NO_ZONE = 'is required with local_time: send an IANA name, such as "Europe/Berlin"'
NO_LOCAL_TIME = "applies only to local_time: remove it, or send local_time in place of execute_at or delay"
ONLY_ONE = "give execute_at, delay or local_time, only one of them"
AS_LOCAL = 'send a local time without an offset, such as "2027-03-28T09:00:00"'


def times_of(job: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(job.get(name) for name in ("execute_at", "due_at", "local_time", "zone"))


@pytest.mark.parametrize(
    ("local_time", "zone", "execute_at"),
    [
        ("2026-02-01T09:00:00", "Europe/Berlin", "2026-02-01T08:00:00.000Z"),
        ("2026-07-01T09:00:00", "Europe/Berlin", IN_UTC),
        ("2026-07-01T09:00:00.25", "Asia/Kolkata", "2026-07-01T03:30:00.250Z"),
        ("2026-03-29T02:30:00", "Europe/Berlin", "2026-03-29T01:30:00.000Z"),  # a gap: 03:30
        ("2026-10-25T02:30:00", "Europe/Berlin", "2026-10-25T00:30:00.000Z"),  # a fold: the first
        ("2026-10-04T02:15:00", "Australia/Lord_Howe", "2026-10-03T15:45:00.000Z"),  # a gap of half an hour
        ("2026-02-01 09:00:00", "UTC", "2026-02-01T09:00:00.000Z"),
    ],
)
async def test_local_time_is_resolved_in_its_zone(service: Served, local_time: str, zone: str, execute_at: str) -> None:
    job = await service.submit(local_time=local_time, zone=zone)

    assert (job["execute_at"], job["due_at"], job["zone"]) == (execute_at, execute_at, zone)
    assert job["local_time"].startswith(local_time.replace(" ", "T"))
    assert (job["labels"], await service.job(job["id"])) == ({}, job)


async def test_job_starts_at_its_local_time(service: Served) -> None:
    job = await service.submit(local_time="2026-01-01T01:00:30", zone="Europe/Berlin", spread=5)

    done = await service.until(job["id"], "succeeded")

    assert done["execute_at"] == "2026-01-01T00:00:30.000Z"
    assert job["execute_at"] <= job["due_at"] <= done["started_at"] <= "2026-01-01T00:00:35.1"
    assert times_of(done)[2:] == ("2026-01-01T01:00:30", "Europe/Berlin")


async def test_past_local_time_is_due_now(service: Served) -> None:
    job = await service.submit(local_time="2025-01-01T00:00:00", zone="UTC")

    assert (job["execute_at"], job["due_at"]) == ("2025-01-01T00:00:00.000Z", "2026-01-01T00:00:00.000Z")


REFUSED = [
    ({"zone": "UTC"}, "/zone", NO_LOCAL_TIME),
    ({"local_time": "2026-07-01T09:00:00"}, "/zone", NO_ZONE),
    ({**BERLIN, "zone": "Berlin"}, "/zone", 'no time zone "Berlin"; the closest is "Europe/Berlin"'),
    ({**BERLIN, "zone": "../../etc/passwd"}, "/zone", "no time zone"),
    ({**BERLIN, "zone": None}, "/zone", "should be a valid string, not null"),
    ({**BERLIN, "local_time": None}, "/local_time", f"null is not a local time: {AS_LOCAL}"),
    ({**BERLIN, "local_time": "2026-07-01T09:00:00Z"}, "/local_time", f"is not a local time: {AS_LOCAL}"),
    ({**BERLIN, "local_time": "2026-02-30T09:00:00"}, "/local_time", "does not exist: this month has 28 days"),
    ({**BERLIN, "local_time": 1796115600}, "/local_time", f"1796115600 is not a local time: {AS_LOCAL}"),
    ({**BERLIN, "execute_at": "2026-07-01T09:00:00Z"}, "/local_time", ONLY_ONE),
    ({**BERLIN, "delay": 5}, "/local_time", ONLY_ONE),
    (
        {**BERLIN, "local_time": "2037-01-01T09:00:00"},
        "/local_time",
        '"2037-01-01T09:00:00" in Europe/Berlin is too far ahead: send a time before 2035-12-30T00:00:00.000Z',
    ),
    (
        {**BERLIN, "local_time": "2015-01-01T09:00:00"},
        "/local_time",
        '"2015-01-01T09:00:00" in Europe/Berlin is more than 10 years ago: send a time after 2016-01-02T00:00:00.000Z',
    ),
    ({**BERLIN, "local_time": "0001-01-01T00:00:00"}, "/local_time", "more than 10 years ago"),
    ({**BERLIN, "local_time": "9999-12-31T23:59:59"}, "/local_time", "too far ahead"),
]


@pytest.mark.parametrize(("fields", "pointer", "detail"), REFUSED)
async def test_bad_local_time_is_refused_in_its_field_with_a_remedy(
    service: Served, fields: dict[str, Any], pointer: str, detail: str
) -> None:
    job = await service.submit(delay=1_000)

    for answer in (
        await service.post("/v1/jobs", {"kind": "echo", **fields}),
        await service.patch(f"/v1/jobs/{job['id']}", fields),
    ):
        assert (answer.status, answer.pointers) == (422, [pointer])
        assert detail in answer.json["errors"][0]["detail"]
    assert (await service.job(job["id"]))["version"] == 1


async def test_local_time_is_bounded_by_max_horizon(serve: Serve) -> None:
    service = await serve(jobs=JobsSection(max_horizon=86_400.0))

    inside = await service.post("/v1/jobs", {"kind": "echo", "local_time": "2026-01-02T00:00:00", "zone": "UTC"})
    beyond = await service.post("/v1/jobs", {"kind": "echo", "local_time": "2026-01-02T00:00:01", "zone": "UTC"})

    assert (inside.status, beyond.status) == (201, 422)


async def test_batch_names_each_bad_local_time(service: Served) -> None:
    good, bad = {"kind": "echo", **BERLIN}, {"kind": "echo", **BERLIN, "zone": "Berlin"}

    batch = await service.post("/v1/jobs/batch", {"jobs": [good, bad, {"kind": "echo", "zone": "UTC"}]})
    stream = await service.stream(good, bad, good)

    assert (batch.status, batch.pointers) == (422, ["/jobs/1/zone", "/jobs/2/zone"])
    assert [line.get("problem", {}).get("errors") for line in stream.lines] == [
        None,
        [{"pointer": "/zone", "detail": 'no time zone "Berlin"; the closest is "Europe/Berlin"'}],
        None,
    ]
    assert [times_of(await service.job(stream.lines[index]["id"])) for index in (0, 2)] == [
        (IN_UTC, IN_UTC, *BERLIN.values())
    ] * 2


async def test_equal_bodies_are_resolved_each(service: Served) -> None:
    tickets = (await service.post("/v1/jobs/batch", {"jobs": [{"kind": "echo", **BERLIN}] * 3})).json["jobs"]

    assert [job["execute_at"] for job in tickets] == [IN_UTC] * 3


@pytest.mark.parametrize("fields", [{"execute_at": "2026-08-01T00:00:00Z"}, {"delay": 60}])
async def test_patch_of_an_instant_drops_the_local_time(service: Served, fields: dict[str, Any]) -> None:
    job = await service.submit(**BERLIN, labels={"tenant": "t1"})

    moved = (await service.patch(f"/v1/jobs/{job['id']}", fields)).json

    assert moved["execute_at"] == moved["due_at"] != IN_UTC
    assert not {"local_time", "zone"} & moved.keys()
    assert moved["labels"] == {"tenant": "t1"}


@pytest.mark.parametrize(
    ("fields", "execute_at"),
    [
        ({"local_time": "2026-07-01T10:30:00"}, "2026-07-01T08:30:00.000Z"),
        ({"zone": "America/New_York"}, "2026-07-01T13:00:00.000Z"),
        ({"local_time": "2026-07-01T10:30:00", "zone": "UTC"}, "2026-07-01T10:30:00.000Z"),
    ],
)
async def test_patch_of_a_local_time_or_zone_renews_it(
    service: Served, fields: dict[str, Any], execute_at: str
) -> None:
    job = await service.submit(**BERLIN, expires_after=0)

    moved = (await service.patch(f"/v1/jobs/{job['id']}", fields)).json

    assert times_of(moved) == (execute_at, execute_at, *(BERLIN | fields).values())
    assert (moved["version"], moved["expires_at"]) == (2, moved["due_at"])


async def test_patch_gives_a_plain_job_a_local_time(service: Served) -> None:
    job = await service.submit(delay=60)

    moved = (await service.patch(f"/v1/jobs/{job['id']}", BERLIN)).json

    assert times_of(moved) == (IN_UTC, IN_UTC, *BERLIN.values())


async def test_patch_of_other_fields_keeps_the_local_time(service: Served) -> None:
    job = await service.submit(**BERLIN)

    changed = (await service.patch(f"/v1/jobs/{job['id']}", {"priority": 5, "labels": {"tenant": "t1"}})).json

    assert times_of(changed) == times_of(job)


async def test_patch_of_a_local_time_moves_a_retry(service: Served) -> None:
    job = await service.submit(params={"fail": "boom"}, retry={"delay": 1000, "jitter": 0})
    waiting = await service.job(job["id"])
    while waiting["attempt"] == 0 or waiting["state"] == "running":
        known = {"If-None-Match": f'"{waiting["version"]}"'}
        waiting = (await service.get(f"/v1/jobs/{job['id']}?wait=60", headers=known)).json

    moved = (await service.patch(f"/v1/jobs/{job['id']}", BERLIN)).json

    assert times_of(moved)[:2] == (IN_UTC, IN_UTC)


async def test_reschedule_and_replace_take_the_local_time_of_the_new_submit(service: Served) -> None:
    plain = {"kind": "echo", "key": "k", "delay": 60}
    await service.submit(**plain)

    states = []
    for on_conflict in ("reschedule", "replace"):
        for body in ({"kind": "echo", "key": "k", **BERLIN}, plain):
            answer = await service.post("/v1/jobs", {**body, "on_conflict": on_conflict})
            assert answer.status == 200
            states.append(times_of(answer.json)[2:])

    assert states == [tuple(BERLIN.values()), (None, None)] * 2


async def test_dry_submit_shows_the_instant(service: Served) -> None:
    dry = (await service.post("/v1/jobs?dry_run=true", {"kind": "echo", **BERLIN})).json

    assert (dry["id"], *times_of(dry)) == (None, IN_UTC, IN_UTC, *BERLIN.values())
