"""Schedules at work: missed occurrences, overlap, refused jobs, steps of the clock, restarts and failures."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta, timezone
from itertools import pairwise
from typing import Any

import pytest

from erelong.clock.instants import SECOND
from erelong.engine.recurrences import duty
from erelong.engine.recurrences.making import MAX_JOBS, Making
from erelong.errors import StorageFull
from erelong.model.job import Job
from erelong.model.schedules import occurrences
from erelong.model.schedules.occurrences import pass_downtime
from erelong.model.schedules.schedule import Schedule
from erelong.model.times.catchup import AT_ONCE, Deciding
from erelong.service import services
from erelong.settings.kinds import KindSettings
from erelong.settings.queues import QueueSettings
from tests.support.kinds import FakeRunner, for_ever
from tests.support.served import Serve, Served, ServedStore
from tests.support.virtual import VirtualClock

PATH = "/v1/schedules/report"
MINUTE = 60.0
STEADY: dict[str, Any] = {"cron": "*/5 * * * *", "job": {"kind": "echo"}}
LONG: dict[str, Any] = {"kind": "endless", "timeout": 86_400}


async def put(service: Served, name: str = "report", **fields: Any) -> None:
    answer = await service.put(f"/v1/schedules/{name}", STEADY | fields)
    assert answer.status in (200, 201), answer.body


async def read(service: Served, name: str = "report") -> dict[str, Any]:
    schedule: dict[str, Any] = (await service.get(f"/v1/schedules/{name}")).json
    return schedule


async def made(service: Served, schedule: str = "report") -> list[str]:
    """Return the times of day of the occurrences that have jobs, in the order in which these were made."""
    jobs = (await service.get(f"/v1/jobs?schedule={schedule}&limit=1000")).json["jobs"]
    return [job["occurrence"][11:16] for job in reversed(jobs)]


async def fates(service: Served, schedule: str = "report") -> list[tuple[str, str, str | None]]:
    """Return time, outcome and reason of the latest occurrences, the first of them first."""
    recent = (await read(service, schedule))["recent"]
    return [(line["occurrence"][11:16], line["outcome"], line["reason"]) for line in reversed(recent)]


class Host:
    """Runs one service after another on the same store and clock."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.store = ServedStore()

    @asynccontextmanager
    async def serving(self, **given: Any) -> AsyncIterator[Served]:
        async with Served(clock=self.clock, store=self.store, **given) as service:
            yield service


class FaultyView:
    """A store, apart from some methods."""

    def __init__(self, store: Any, **methods: Any) -> None:
        self._store = store
        self._methods = methods

    def __getattr__(self, name: str) -> Any:
        return self._methods.get(name) or getattr(self._store, name)


@pytest.fixture
async def host(clock: VirtualClock) -> Host:
    return Host(clock)


# downtime


@pytest.mark.parametrize(
    ("fields", "times", "counts", "lines"),
    [
        ({}, ["00:20"], (1, 0, 3), [("00:15", "missed", "down"), ("00:20", "made", None)]),
        ({"catchup": "1m"}, [], (0, 0, 4), [("00:20", "missed", "down")]),
        ({"catchup": "3m"}, ["00:20"], (1, 0, 3), [("00:15", "missed", "down"), ("00:20", "made", None)]),
        ({"missed": "skip"}, [], (0, 0, 4), [("00:20", "missed", "down")]),
        (
            {"missed": "all", "catchup": "8m", "overlap": "allow"},
            ["00:15", "00:20"],
            (2, 0, 2),
            [("00:10", "missed", "down"), ("00:15", "made", None), ("00:20", "made", None)],
        ),
        (
            {"missed": "all", "catchup": "1d", "overlap": "allow"},
            ["00:05", "00:10", "00:15", "00:20"],
            (4, 0, 0),
            [("00:05", "made", None), ("00:10", "made", None), ("00:15", "made", None), ("00:20", "made", None)],
        ),
    ],
)
async def test_missed_decides_on_the_occurrences_of_a_downtime(
    host: Host,
    fields: dict[str, Any],
    times: list[str],
    counts: tuple[int, ...],
    lines: list[tuple[str, str, str | None]],
) -> None:
    async with host.serving() as service:
        await put(service, **fields)
    await asyncio.sleep(22 * MINUTE)

    async with host.serving() as service:
        await asyncio.sleep(1)

        assert await made(service) == times
        assert tuple((await read(service))["counts"].values()) == counts
        assert await fates(service) == lines
        await asyncio.sleep(4 * MINUTE)
        assert await made(service) == [*times, "00:25"]


async def test_missed_occurrences_are_one_line_with_their_number_and_range(host: Host) -> None:
    async with host.serving() as service:
        await put(service, missed="skip")
    await asyncio.sleep(22 * MINUTE)

    async with host.serving() as service:
        await asyncio.sleep(1)

        (line,) = (await read(service))["recent"]
        assert line == {
            "occurrence": "2026-01-01T00:20:00.000Z",
            "outcome": "missed",
            "job": None,
            "reason": "down",
            "first": "2026-01-01T00:05:00.000Z",
            "last": "2026-01-01T00:20:00.000Z",
            "count": 4,
            "more": False,
        }


async def test_year_of_missed_seconds_is_not_walked_through(host: Host) -> None:
    async with host.serving() as service:
        await put(service, cron=None, every=1)
    host.clock.step(365 * 86_400)

    async with host.serving() as service:
        await asyncio.sleep(0.5)

        schedule = await read(service)
        assert schedule["counts"] == {"made": 1, "skipped": 0, "missed": 10_000}
        assert [line["more"] for line in schedule["recent"] if "more" in line] == [True]


async def test_catching_up_makes_at_most_the_latest_thousand(host: Host) -> None:
    async with host.serving() as service:
        await put(service, cron=None, every=60, missed="all", catchup="366d", overlap="allow")
    host.clock.step(2_000 * MINUTE)

    async with host.serving() as service:
        await asyncio.sleep(5)

        times = await made(service)
        assert (await read(service))["counts"] == {"made": 1_000, "skipped": 0, "missed": 1_000}
        assert len(times) == 1_000
        assert times == sorted(times, key=lambda time: (time < times[0], time))


async def test_commits_of_many_schedules_that_catch_up_are_bounded(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    async with host.serving() as service:
        for number in range(3):
            await put(service, f"s{number}", cron=None, every=60, missed="all", catchup="1d", overlap="allow")
    host.clock.step(400 * MINUTE)

    async with host.serving() as service:
        add, sizes = service.store.add, list[int]()

        async def note(new_jobs: Any, **others: Any) -> Any:
            sizes.append(len(new_jobs))
            return await add(new_jobs, **others)

        monkeypatch.setattr(service.store, "add", note)
        await asyncio.sleep(5)

        assert [(await read(service, f"s{number}"))["counts"]["made"] for number in range(3)] == [400] * 3
        assert max(sizes) <= MAX_JOBS + 2


async def test_job_made_late_is_due_at_once_and_has_its_nominal_time(host: Host) -> None:
    async with host.serving() as service:
        await put(service)
    await asyncio.sleep(7 * MINUTE)

    async with host.serving() as service:
        await asyncio.sleep(1)

        (job,) = (await service.get("/v1/jobs?schedule=report")).json["jobs"]
        assert job["execute_at"] == job["occurrence"] == "2026-01-01T00:05:00.000Z"
        assert (job["created_at"][:19], job["late_by"]) == ("2026-01-01T00:07:00", 0.0)


async def test_catching_up_on_many_schedules_lets_other_tasks_run(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    async with host.serving() as service:
        for number in range(5):
            await put(service, f"s{number}", cron=None, every=60)
    host.clock.step(86_400)
    turns, seen = 0, []

    async def turn() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    def note(*arguments: Any) -> Deciding:
        seen.append(turns)
        return pass_downtime(*arguments)

    monkeypatch.setattr(occurrences, "pass_downtime", note)
    turning = asyncio.create_task(turn())
    async with host.serving() as service:
        while len(seen) < 5:  # noqa: ASYNC110 - the turns of the loop are counted
            await asyncio.sleep(0)
        turning.cancel()

    assert len(set(seen)) == 5


async def test_other_tasks_run_while_missed_occurrences_are_counted(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with host.serving() as service:
        await put(service, cron=None, every=60)
    host.clock.step(14 * 86_400)
    turns, taken = 0, list[int]()

    async def turn() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    def note(*arguments: Any) -> Deciding:
        began = turns
        caught_up = yield from pass_downtime(*arguments)
        taken.append(turns - began)
        return caught_up

    monkeypatch.setattr(occurrences, "pass_downtime", note)
    turning = asyncio.create_task(turn())
    async with host.serving():
        while not taken:  # noqa: ASYNC110 - the turns of the loop are counted
            await asyncio.sleep(0)
        turning.cancel()

    assert taken[0] >= 10_000 / AT_ONCE


async def test_paused_schedule_misses_nothing_in_a_downtime(host: Host) -> None:
    async with host.serving() as service:
        await put(service)
        await service.post(f"{PATH}/pause")
    await asyncio.sleep(22 * MINUTE)

    async with host.serving() as service:
        await service.post(f"{PATH}/resume")
        await asyncio.sleep(4 * MINUTE)

        assert await made(service) == ["00:25"]
        assert (await read(service))["counts"]["missed"] == 0


async def test_occurrence_that_is_due_during_a_trigger_is_made_after_it(service: Served) -> None:
    await put(service, overlap="allow")
    await asyncio.sleep(5 * MINUTE - 1)

    write = service.store.hold("add")
    trigger = asyncio.create_task(service.post(f"{PATH}/trigger"))
    await asyncio.sleep(5)
    service.store.held.clear()
    write.set()
    await trigger
    await asyncio.sleep(1)

    assert await fates(service) == [("00:04", "made", "trigger"), ("00:05", "made", None)]


async def test_late_lap_misses_nothing(service: Served) -> None:
    await put(service, cron=None, every=1, overlap="allow", missed="skip")
    held = service.store.hold("add")
    await asyncio.sleep(30)
    service.store.held.clear()
    held.set()
    await asyncio.sleep(1.5)

    schedule = await read(service)

    assert schedule["counts"]["missed"] == 0
    assert schedule["counts"]["made"] >= 30


# overlap


async def test_skip_leaves_out_an_occurrence_while_a_job_is_live(service: Served) -> None:
    await put(service, job=LONG)
    await asyncio.sleep(11 * MINUTE)
    (job,) = (await service.get("/v1/jobs?schedule=report")).json["jobs"]
    await service.post(f"/v1/jobs/{job['id']}/cancel")
    await asyncio.sleep(5 * MINUTE)

    assert await fates(service) == [("00:05", "made", None), ("00:10", "skipped", "overlap"), ("00:15", "made", None)]


async def test_live_jobs_are_found_without_a_listing(service: Served) -> None:
    await put(service)
    await asyncio.sleep(1)
    service.store.calls.clear()
    await asyncio.sleep(16 * MINUTE)

    assert "list" not in service.store.calls
    assert len(await made(service)) == 3


async def test_job_between_attempts_is_live(service: Served) -> None:
    failing = {"kind": "echo", "params": {"fail": "boom"}, "retry": {"delay": 3_000, "max_delay": 3_000}}
    await put(service, job=failing)
    await asyncio.sleep(11 * MINUTE)

    assert await fates(service) == [("00:05", "made", None), ("00:10", "skipped", "overlap")]


async def test_job_that_is_retried_is_live_again(service: Served) -> None:
    failing = {"kind": "echo", "params": {"fail": "boom", "sleep": 600}, "retry": {"max_attempts": 1}, "timeout": 3_600}
    await put(service, job=failing)
    await asyncio.sleep(6 * MINUTE)
    (live,) = (await read(service))["live"]
    await service.post(f"/v1/jobs/{live}/cancel")
    await asyncio.sleep(1)
    assert (await read(service))["live"] == []

    await service.post(f"/v1/jobs/{live}/retry")
    assert (await read(service))["live"] == [live]
    await asyncio.sleep(5 * MINUTE)

    assert await fates(service) == [("00:05", "made", None), ("00:10", "skipped", "overlap")]
    assert (await read(service))["live"] == [live]


async def test_retried_job_is_live_after_a_restart(host: Host) -> None:
    pull = {"work": KindSettings(pull=True)}
    async with host.serving(declared=pull) as service:
        await put(service, job={"kind": "work"})
        await asyncio.sleep(6 * MINUTE)
        (early,) = (await read(service))["live"]
        await service.post(f"/v1/jobs/{early}/cancel")
        await asyncio.sleep(5 * MINUTE)
        (late,) = (await read(service))["live"]
        await service.post(f"/v1/jobs/{late}/cancel")
        await service.post(f"/v1/jobs/{early}/retry")
        await asyncio.sleep(1)

    async with host.serving(declared=pull) as service:
        await asyncio.sleep(5 * MINUTE)

        assert (await read(service))["live"] == [early]
        assert (await fates(service))[-1] == ("00:15", "skipped", "overlap")


async def test_job_that_is_retried_while_the_live_ones_are_read_is_not_forgotten(
    service: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = {"kind": "echo", "params": {"fail": "boom", "sleep": 600}, "retry": {"max_attempts": 1}, "timeout": 3_600}
    await put(service, job=failing)
    await asyncio.sleep(6 * MINUTE)
    (job,) = (await read(service))["live"]
    await service.post(f"/v1/jobs/{job}/cancel")
    await asyncio.sleep(5 * MINUTE)
    (last,) = (await read(service))["live"]
    book = service.node.services.recurrences.book
    get = book._store.get

    async def answer_late(seqs: Any) -> Any:
        jobs = await get(seqs)
        monkeypatch.undo()
        await service.post(f"/v1/jobs/{job}/retry")
        return jobs

    monkeypatch.setattr(book, "_store", FaultyView(book._store, get=answer_late))
    await read(service)

    assert {*(await read(service))["live"]} == {job, last}


async def test_retried_job_of_a_deleted_schedule_is_not_remembered(service: Served) -> None:
    live_again = service.node.engine.lanes.departures.live_again
    failing = {"kind": "echo", "params": {"fail": "boom"}, "retry": {"max_attempts": 1}}
    await put(service, "early", job=failing)
    await put(service, "late", job=failing)
    await asyncio.sleep(6 * MINUTE)
    jobs = (await service.get("/v1/jobs?state=failed")).json["jobs"]
    await service.post("/v1/queues/default/pause")

    await service.delete("/v1/schedules/early")
    for job in jobs:
        await service.post(f"/v1/jobs/{job['id']}/retry")
    kept = [len(live_again.of(name)) for name in ("early", "late")]
    await service.delete("/v1/schedules/late")

    assert {job["schedule"] for job in jobs} == {"early", "late"}
    assert kept == [0, 1]
    assert not live_again


async def test_number_of_schedules_in_one_lap_is_bounded(service: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(duty, "MAX_DUE", 3)
    await service.post("/v1/queues/default/pause")
    for number in range(8):
        await put(service, f"s{number}", overlap="queue_one")
    await asyncio.sleep(11 * MINUTE)
    making = service.node.services.schedules._recurrences.making
    make, laps = making.make, list[int]()

    async def note(due: dict[str, Any], *others: Any) -> Any:
        laps.append(len(due))
        return await make(due, *others)

    monkeypatch.setattr(making, "make", note)
    await service.post("/v1/queues/default/purge")
    await asyncio.sleep(1)

    assert sum(laps) >= 8
    assert max(laps) == 3


async def test_queue_one_makes_one_kept_job_when_the_live_one_has_ended(service: Served) -> None:
    await put(service, job=LONG, overlap="queue_one")
    await asyncio.sleep(16 * MINUTE)
    kept = await read(service)
    (live,) = kept["live"]
    await service.post(f"/v1/jobs/{live}/cancel")
    await asyncio.sleep(1)
    after = await read(service)

    assert kept["queued"] == "2026-01-01T00:10:00.000Z"
    assert after["queued"] is None
    assert await made(service) == ["00:05", "00:10"]
    assert after["counts"] == {"made": 2, "skipped": 1, "missed": 0}
    assert [line["outcome"] for line in after["recent"]] == ["made", "skipped", "made"]
    (job,) = (await service.get("/v1/jobs?schedule=report&state=running")).json["jobs"]
    assert job["execute_at"] == "2026-01-01T00:10:00.000Z"
    assert job["due_at"][:16] == "2026-01-01T00:16"


@pytest.mark.parametrize("end", ["delete", "cancel", "succeed"])
async def test_kept_job_is_made_whatever_ends_the_live_one(serve: Serve, end: str) -> None:
    service = await serve(declared={"work": KindSettings(pull=True)})
    await put(service, job={"kind": "work"}, overlap="queue_one")
    await asyncio.sleep(11 * MINUTE)
    (live,) = (await read(service))["live"]

    if end == "succeed":
        (lease,) = (await service.post("/v1/leases", {"kinds": ["work"]})).json["leases"]
        await service.post(f"/v1/leases/{lease['token']}/finish")
    elif end == "delete":
        await service.delete(f"/v1/jobs/{live}")
    else:
        await service.post("/v1/queues/default/purge")
    await asyncio.sleep(1)

    assert (await read(service))["queued"] is None
    assert (await made(service))[-1] == "00:10"


async def test_kept_job_is_made_when_the_live_one_ends_during_an_edit(service: Served) -> None:
    await put(service, job=LONG, overlap="queue_one")
    await asyncio.sleep(11 * MINUTE)
    (live,) = (await read(service))["live"]

    write = service.store.hold("add")
    edit = asyncio.create_task(service.patch(PATH, {"catchup": "1h"}))
    await asyncio.sleep(0.1)
    await service.post(f"/v1/jobs/{live}/cancel")
    await asyncio.sleep(1)
    write.set()
    await edit
    await asyncio.sleep(1)

    assert await made(service) == ["00:05", "00:10"]


async def test_kept_job_is_made_when_the_disk_has_room_again(service: Served) -> None:
    await put(service, job=LONG, overlap="queue_one")
    await asyncio.sleep(11 * MINUTE)
    (live,) = (await read(service))["live"]

    service.store.broken["add"] = StorageFull("the disk is full")
    await service.post(f"/v1/jobs/{live}/cancel")
    await asyncio.sleep(1)
    service.store.broken.clear()
    await asyncio.sleep(2)

    assert await made(service) == ["00:05", "00:10"]


async def test_kept_occurrence_survives_a_restart_and_a_pause(host: Host) -> None:
    pull = {"work": KindSettings(pull=True)}
    async with host.serving(declared=pull) as service:
        await put(service, job={"kind": "work"}, overlap="queue_one")
        await asyncio.sleep(11 * MINUTE)

    async with host.serving(declared=pull) as service:
        await service.post(f"{PATH}/pause")
        await service.post("/v1/queues/default/purge")
        await asyncio.sleep(1)
        assert (await read(service))["queued"] == "2026-01-01T00:10:00.000Z"

        await service.post(f"{PATH}/resume")
        await asyncio.sleep(1)

        assert (await read(service))["queued"] is None
        assert await made(service) == ["00:05", "00:10"]


async def test_kept_job_is_made_after_a_restart_when_the_live_one_has_ended(host: Host) -> None:
    pull = {"work": KindSettings(pull=True)}
    async with host.serving(declared=pull) as service:
        await put(service, job={"kind": "work"}, overlap="queue_one")
        await asyncio.sleep(11 * MINUTE)

    async with host.serving(declared=pull) as service:
        await asyncio.sleep(1)
        await service.post("/v1/queues/default/purge")
        await asyncio.sleep(1)

        assert await made(service) == ["00:05", "00:10"]


async def test_skip_knows_the_live_job_after_a_restart(host: Host) -> None:
    pull = {"work": KindSettings(pull=True)}
    async with host.serving(declared=pull) as service:
        await put(service, job={"kind": "work"})
        await asyncio.sleep(6 * MINUTE)

    async with host.serving(declared=pull) as service:
        await asyncio.sleep(5 * MINUTE)
        assert len((await read(service))["live"]) == 1

        assert await fates(service) == [("00:05", "made", None), ("00:10", "skipped", "overlap")]
        assert [line["job"] is None for line in (await read(service))["recent"]] == [True, False]


async def test_backfill_does_not_hide_the_live_job_after_a_restart(host: Host) -> None:
    pull = {"work": KindSettings(pull=True)}
    async with host.serving(declared=pull) as service:
        await put(service, job={"kind": "work"})
        await asyncio.sleep(6 * MINUTE)
        await service.post(f"{PATH}/backfill", {"from": "2025-12-31T00:00:00Z", "to": "2025-12-31T06:00:00Z"})
        await asyncio.sleep(MINUTE)
        assert len(await made(service)) == 1 + 72

    async with host.serving(declared=pull) as service:
        await asyncio.sleep(4 * MINUTE)

        assert await fates(service) == [("00:05", "made", None), ("00:10", "skipped", "overlap")]


async def test_schedule_that_keeps_an_occurrence_rests_after_a_restart(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    pull = {"work": KindSettings(pull=True)}
    async with host.serving(declared=pull) as service:
        await put(service, job={"kind": "work"}, overlap="queue_one")
        await asyncio.sleep(11 * MINUTE)
        service.store.broken["add"] = StorageFull("the disk is full")
        await service.post("/v1/queues/default/purge")
        await asyncio.sleep(5 * MINUTE)
        service.store.broken.clear()
        await asyncio.sleep(2)  # one commit makes the kept job, and keeps the next occurrence
        assert ((await read(service))["queued"] or "")[11:16] == "00:15"

    laps = 0

    class Counted(Making):
        async def make(self, *arguments: Any) -> Any:
            nonlocal laps
            laps += 1
            assert laps < 10, "it does not rest"
            return await super().make(*arguments)

    monkeypatch.setattr(services, "Making", Counted)
    async with host.serving(declared=pull) as service:
        await asyncio.sleep(2)
        await service.post("/v1/queues/default/purge")
        await asyncio.sleep(1)

        assert await made(service) == ["00:05", "00:10", "00:15"]
        assert laps < 10


async def test_replace_cancels_the_live_job_and_makes_the_new_one_when_it_has_ended(serve: Serve) -> None:
    stubborn = FakeRunner(for_ever)
    service = await serve(kinds={"stubborn": stubborn})
    await put(service, job={"kind": "stubborn", "timeout": 86_400}, overlap="replace")
    await asyncio.sleep(11 * MINUTE)

    jobs = (await service.get("/v1/jobs?schedule=report")).json["jobs"][::-1]

    assert [(job["occurrence"][11:16], job["state"]) for job in jobs] == [("00:05", "cancelled"), ("00:10", "running")]
    assert "replaced" in jobs[0]["error"]["message"]
    assert jobs[1]["started_at"] >= jobs[0]["finished_at"]


async def test_newer_occurrence_replaces_the_kept_one(serve: Serve) -> None:
    service = await serve(declared={"work": KindSettings(pull=True)})
    await put(service, job={"kind": "work", "timeout": 3_600}, overlap="replace")
    await asyncio.sleep(6 * MINUTE)
    (lease,) = (await service.post("/v1/leases", {"kinds": ["work"], "lease": 3_600})).json["leases"]
    await asyncio.sleep(10 * MINUTE)
    kept = await read(service)
    await service.post(f"/v1/leases/{lease['token']}/fail")
    await asyncio.sleep(1)

    assert kept["queued"] == "2026-01-01T00:15:00.000Z"
    assert await fates(service) == [("00:05", "made", None), ("00:10", "skipped", "replaced"), ("00:15", "made", None)]


async def test_allow_makes_every_job(service: Served) -> None:
    await put(service, job=LONG, overlap="allow")
    await asyncio.sleep(16 * MINUTE)

    assert await made(service) == ["00:05", "00:10", "00:15"]
    assert len((await read(service))["live"]) == 3


async def test_edit_from_allow_to_skip_finds_the_live_jobs(service: Served) -> None:
    await put(service, job=LONG, overlap="allow")
    await asyncio.sleep(11 * MINUTE)
    await put(service, job=LONG, overlap="skip")
    await asyncio.sleep(5 * MINUTE)

    assert (await fates(service))[-1] == ("00:15", "skipped", "overlap")
    assert len((await read(service))["live"]) == 2


async def test_edit_to_another_overlap_drops_the_kept_occurrence(service: Served) -> None:
    await put(service, job=LONG, overlap="queue_one")
    await asyncio.sleep(11 * MINUTE)

    await put(service, job=LONG, overlap="skip")

    schedule = await read(service)
    assert (schedule["queued"], schedule["counts"]["skipped"]) == (None, 1)
    assert (await fates(service))[-1] == ("00:10", "skipped", "edited")


@pytest.mark.parametrize("edit", ["put", "delete"])
async def test_kept_occurrence_that_an_edit_drops_is_counted_as_skipped(service: Served, edit: str) -> None:
    await put(service, job=LONG, overlap="queue_one")
    await asyncio.sleep(11 * MINUTE)

    if edit == "put":
        await put(service, job=LONG, overlap="skip")
    else:
        await service.delete(PATH)

    assert service.node.metrics.occurrences.values == {("made",): 1, ("skipped",): 1}


# jobs that cannot be made


async def test_full_backlog_misses_the_occurrence_and_the_schedule_continues(serve: Serve) -> None:
    service = await serve(queues={"small": QueueSettings(max_backlog=1)})
    await put(service, job={"kind": "echo", "queue": "small"})
    await asyncio.sleep(1)
    blocker = await service.submit(queue="small", delay=6 * MINUTE)
    await asyncio.sleep(5 * MINUTE)
    await asyncio.sleep(5 * MINUTE)
    assert (await service.job(blocker["id"]))["state"] == "succeeded"

    assert await fates(service) == [("00:05", "missed", "backlog_full"), ("00:10", "made", None)]


async def test_queue_that_drops_its_oldest_makes_room(serve: Serve) -> None:
    service = await serve(queues={"small": QueueSettings(max_backlog=1, overflow="drop_oldest")})
    await put(service, job={"kind": "echo", "queue": "small"})
    blocker = await service.submit(queue="small", delay=3_600)
    await asyncio.sleep(6 * MINUTE)

    assert await fates(service) == [("00:05", "made", None)]
    assert (await service.job(blocker["id"]))["error"]["type"] == "dropped"


async def test_one_full_queue_does_not_stop_other_schedules(serve: Serve) -> None:
    service = await serve(queues={"small": QueueSettings(max_backlog=2)})
    for number in range(5):
        await put(service, f"small-{number}", job={"kind": "echo", "queue": "small"})
        await put(service, f"other-{number}")
    await service.post("/v1/queues/small/pause")
    await asyncio.sleep(6 * MINUTE)

    outcomes = [(await fates(service, f"small-{number}"))[0][1] for number in range(5)]
    assert sorted(outcomes) == ["made", "made", "missed", "missed", "missed"]
    assert [(await fates(service, f"other-{number}"))[0][1] for number in range(5)] == ["made"] * 5


async def test_kind_that_is_gone_misses_the_occurrence(host: Host) -> None:
    async with host.serving(declared={"work": KindSettings(pull=True)}) as service:
        await put(service, job={"kind": "work"})

    async with host.serving() as service:
        await asyncio.sleep(6 * MINUTE)
        assert await fates(service) == [("00:05", "missed", "kind_gone")]
        await service.patch(PATH, {"job": {"kind": "echo"}})
        await asyncio.sleep(5 * MINUTE)
        assert (await fates(service))[-1] == ("00:10", "made", None)


async def test_kind_that_refuses_the_params_misses_the_occurrence(host: Host) -> None:
    loose = KindSettings(pull=True)
    strict = KindSettings(pull=True, params_schema={"type": "object", "required": ["width"]})
    async with host.serving(declared={"work": loose}) as service:
        await put(service, job={"kind": "work"})

    async with host.serving(declared={"work": strict}) as service:
        await asyncio.sleep(6 * MINUTE)
        assert await fates(service) == [("00:05", "missed", "invalid")]


async def test_kind_that_a_client_withdraws_or_changes_applies_to_the_next_occurrence(service: Served) -> None:
    await service.put("/v1/kinds/work", {})
    await put(service, job={"kind": "work"}, overlap="allow")
    await asyncio.sleep(6 * MINUTE)
    await service.delete("/v1/kinds/work")
    await asyncio.sleep(5 * MINUTE)
    await service.put("/v1/kinds/work", {"params_schema": {"type": "object", "required": ["width"]}})
    await asyncio.sleep(5 * MINUTE)
    await service.put("/v1/kinds/work", {"timeout": 7})
    await asyncio.sleep(5 * MINUTE)

    assert await fates(service) == [
        ("00:05", "made", None),
        ("00:10", "missed", "kind_gone"),
        ("00:15", "missed", "invalid"),
        ("00:20", "made", None),
    ]
    newest = (await service.get("/v1/jobs?schedule=report&limit=1")).json["jobs"][0]
    assert newest["timeout"] == 7


# failures


@pytest.mark.parametrize(
    ("missed", "lines"),
    [({}, [("00:10", "missed", "down"), ("00:15", "made", None)]), ({"missed": "skip"}, [("00:15", "missed", "down")])],
)
async def test_full_disk_makes_nothing_and_missed_decides_afterwards(
    service: Served, missed: dict[str, Any], lines: list[tuple[str, str, str | None]]
) -> None:
    await put(service, **missed)
    service.store.broken["add"] = StorageFull("the disk is full")
    await asyncio.sleep(17 * MINUTE)
    assert await made(service) == []

    service.store.broken.clear()
    await asyncio.sleep(2)

    assert await fates(service) == lines
    await asyncio.sleep(4 * MINUTE)
    assert (await fates(service))[-1] == ("00:20", "made", None)


async def test_commit_that_succeeded_without_an_answer_makes_no_second_job(service: Served) -> None:
    await put(service)
    with service.store.losing_answers("add"):
        await asyncio.sleep(5 * MINUTE + 0.1)
    await asyncio.sleep(5 * MINUTE)

    assert await made(service) == ["00:05", "00:10"]
    assert [job["state"] for job in (await service.get("/v1/jobs?schedule=report")).json["jobs"]] == ["succeeded"] * 2
    assert await fates(service) == [("00:05", "made", None), ("00:10", "made", None)]


async def test_edit_that_was_stored_without_an_answer_applies(service: Served) -> None:
    await put(service)
    with service.store.losing_answers("add"):
        answer = await service.patch(PATH, {"cron": "*/2 * * * *"})
    await asyncio.sleep(5 * MINUTE)

    assert answer.status == 503
    assert await made(service) == ["00:02", "00:04"]


async def test_schedule_whose_job_cannot_be_made_is_tried_again_after_growing_pauses(
    service: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    maker, attempts = service.node.services.recurrences.making._maker, []
    make = maker.make

    def fail(schedule: Schedule, *arguments: Any, **others: Any) -> Job:
        if schedule.name == "good":
            return make(schedule, *arguments, **others)
        attempts.append(service.clock.now())
        raise RuntimeError("damaged")

    monkeypatch.setattr(maker, "make", fail)
    await put(service, "good")
    await put(service, "bad")
    await asyncio.sleep(5 * MINUTE + 20)

    assert await made(service, "good") == ["00:05"]
    pauses = [round((late - early) / SECOND) for early, late in pairwise(dict.fromkeys(attempts))]
    assert pauses == [1, 2, 4, 8]
    assert "bad" in service.node.health.checks()["recurrences"]


async def test_damaged_schedule_stops_only_itself(host: Host) -> None:
    async with host.serving() as service:
        await put(service, "good")
        await put(service, "bad")
    document = host.store._documents["schedule", "bad"]
    host.store._documents["schedule", "bad"] = document._replace(text=b"{")

    async with host.serving() as service:
        await asyncio.sleep(6 * MINUTE)

        assert await made(service, "good") == ["00:05"]
        assert (await service.get("/v1/schedules/bad")).status == 503
        assert [item["name"] for item in (await service.get("/v1/schedules")).json["schedules"]] == ["good"]
        assert "bad" in service.node.health.checks()["recurrences"]


async def test_damaged_job_does_not_stop_its_schedule(service: Served) -> None:
    await put(service)
    await asyncio.sleep(6 * MINUTE)
    (job,) = (await service.get("/v1/jobs?schedule=report")).json["jobs"]
    service.store.refuse("get", int(job["id"][:10], 16))

    await asyncio.sleep(5 * MINUTE)

    assert (await service.get(PATH)).status == 200
    assert await made(service) == ["00:05", "00:10"]


async def test_job_that_cannot_be_replaced_changes_no_other_schedule(service: Served) -> None:
    for name in ("bad", "good"):
        await put(service, name, job=LONG, overlap="replace" if name == "bad" else "skip")
    await asyncio.sleep(6 * MINUTE)
    (live,) = (await read(service, "bad"))["live"]
    service.store.refuse("save", int(live[:10], 16))

    await asyncio.sleep(8 * MINUTE)

    assert (await read(service, "good"))["counts"] == {"made": 1, "skipped": 1, "missed": 0}
    bad = await read(service, "bad")
    assert (bad["queued"], bad["counts"]) == ("2026-01-01T00:10:00.000Z", {"made": 1, "skipped": 0, "missed": 0})


# steps of the clock


async def test_step_forward_lets_missed_decide(service: Served) -> None:
    await put(service)
    await asyncio.sleep(1)
    service.clock.step(22 * MINUTE)
    await asyncio.sleep(2)

    assert await fates(service) == [("00:15", "missed", "clock_stepped"), ("00:20", "made", None)]
    await asyncio.sleep(4 * MINUTE)
    assert (await fates(service))[-1] == ("00:25", "made", None)


async def test_clock_that_jumps_a_year_and_back_does_not_silence_a_schedule(service: Served) -> None:
    await put(service)
    await asyncio.sleep(6 * MINUTE)
    service.clock.step(365 * 86_400)
    await asyncio.sleep(2)
    service.clock.step(-365 * 86_400)
    await asyncio.sleep(2)

    assert (await read(service))["next_at"] == "2026-01-01T00:10:00.000Z"
    await asyncio.sleep(5 * MINUTE)

    assert (await made(service))[-1] == "00:10"


async def test_clock_that_was_ahead_at_the_start_misses_nothing_after_it_was_set_back(host: Host) -> None:
    async with host.serving() as service:
        await put(service)
        await asyncio.sleep(1)
    host.clock.step(365 * 86_400)

    async with host.serving() as service:
        await asyncio.sleep(2)
        before = (await read(service))["counts"]
        host.clock.step(-365 * 86_400)
        await asyncio.sleep(11 * MINUTE)

        assert await made(service) == ["00:00", "00:05", "00:10"]  # the first is that of the year ahead
        assert before == {"made": 1, "skipped": 0, "missed": 10_000}
        assert (await read(service))["counts"] == {"made": 3, "skipped": 0, "missed": 10_000}


async def test_late_lap_after_a_clock_was_ahead_misses_nothing(service: Served) -> None:
    await put(service)
    await put(service, "other", cron="59 4 0 * * *")
    await asyncio.sleep(1)
    service.clock.step(365 * 86_400)
    await asyncio.sleep(2)
    service.clock.step(-365 * 86_400)
    held = service.store.hold("add")
    await asyncio.sleep(5 * MINUTE + 2)  # the lap of the other schedule lasts beyond 00:05
    service.store.held.clear()
    held.set()
    await asyncio.sleep(1)

    assert [line for line in await fates(service) if line[0] == "00:05"] == [("00:05", "made", None)]


async def test_clock_that_was_ahead_before_a_restart_does_not_silence_a_schedule(host: Host) -> None:
    host.clock.step(365 * 86_400)
    async with host.serving() as service:
        await put(service)
        await asyncio.sleep(6 * MINUTE)
    host.clock.step(-365 * 86_400)

    async with host.serving() as service:
        await asyncio.sleep(5 * MINUTE)

        assert await made(service) == ["00:05", "00:10"]


async def test_occurrence_whose_job_is_stored_is_not_made_again_after_a_step_back(service: Served) -> None:
    await put(service, overlap="allow")
    await asyncio.sleep(11 * MINUTE)
    service.clock.step(-9 * MINUTE)
    await asyncio.sleep(15 * MINUTE)

    assert await made(service) == ["00:05", "00:10", "00:15"]


async def test_occurrence_of_a_deleted_schedule_of_that_name_is_not_made_again_after_a_step_back(
    service: Served,
) -> None:
    await put(service, overlap="allow")
    await asyncio.sleep(11 * MINUTE)
    await service.delete(PATH)
    await put(service, overlap="allow")
    service.clock.step(-9 * MINUTE)
    await asyncio.sleep(15 * MINUTE)

    assert await made(service) == ["00:05", "00:10", "00:15"]


async def test_triggered_job_blocks_no_occurrence(service: Served) -> None:
    await put(service, overlap="allow")
    await asyncio.sleep(5 * MINUTE - 0.001)
    service.clock.step(0.001)
    job = (await service.post(f"{PATH}/trigger")).json
    await asyncio.sleep(1)

    assert job["occurrence"] == "2026-01-01T00:05:00.000Z"
    assert await made(service) == ["00:05", "00:05"]


async def test_step_forward_found_by_an_edit_walks_through_nothing(service: Served) -> None:
    await put(service, cron=None, every=1)
    await asyncio.sleep(0.01)
    service.clock.step(365 * 86_400)

    await put(service, cron=None, every=2)

    assert (await read(service))["counts"]["missed"] == 10_000


# zones


async def test_next_times_follow_changed_rules_of_a_zone(service: Served) -> None:
    class Moved:
        version = "2099a"

        def find(self, name: str) -> Any:
            return timezone(timedelta(minutes=-20))

    await put(service, cron="10 * * * *", zone="Europe/Berlin")
    before = (await read(service))["next_at"]
    service.node.services.recurrences.renew(Moved())  # type: ignore[arg-type]
    await asyncio.sleep(31 * MINUTE)

    assert before == "2026-01-01T00:10:00.000Z"
    assert await made(service) == ["00:30"]


async def test_outdated_next_times_make_no_job(service: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    class Moved:
        version = "2099a"

        def find(self, name: str) -> Any:
            return timezone(timedelta(minutes=-20))

    for number in range(20):
        await put(service, f"s{number}", cron="10 * * * *", zone="Europe/Berlin")
    await asyncio.sleep(10 * MINUTE - 0.01 - service.clock.now() % SECOND / SECOND)
    monkeypatch.setattr(duty, "SLICE", 1)  # it takes a while to plan all schedules again

    service.node.services.recurrences.renew(Moved())  # type: ignore[arg-type]
    await asyncio.sleep(MINUTE)

    assert [await made(service, f"s{number}") for number in range(20)] == [[]] * 20


async def test_zone_that_has_gone_pauses_its_schedules(service: Served) -> None:
    await put(service, zone="Europe/Berlin")
    await put(service, "utc")
    rules = service.node.services.recurrences.rules

    class NoZones:
        version = "none"

        def find(self, name: str) -> Any:
            raise ValueError(f"no time zone {name}")

    before = rules.zones
    service.node.services.recurrences.renew(NoZones())  # type: ignore[arg-type]
    await asyncio.sleep(6 * MINUTE)

    schedule = await read(service)
    assert (schedule["paused"], schedule["reason"], schedule["next_at"]) == (True, "zone_gone", None)
    assert (await service.post(f"{PATH}/resume")).pointers == ["/zone"]
    assert (await service.get(f"{PATH}/preview")).pointers == ["/zone"]
    service.node.services.recurrences.renew(before)
    assert (await service.post(f"{PATH}/resume")).status == 200
