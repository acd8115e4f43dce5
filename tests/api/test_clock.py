"""The virtual clock over HTTP: moves in order and on the dot, what they wait for, and how they end early."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from erelong.attempt import Attempt
from erelong.clock.instants import parse_start
from erelong.errors import StorageFull
from erelong.model.caller import Scope
from erelong.service import clock as clock_service
from erelong.settings.kinds import KindSettings
from erelong.settings.sections import WebhooksSection
from tests.handlers.receiver import LOOPBACK, Receiver
from tests.support.keyed import Keys
from tests.support.kinds import FakeRunner, lasting
from tests.support.served import Answer, Serve, Served
from tests.support.virtual import VirtualClock

NEW_YEAR = parse_start("2027-01-01T00:00:00Z")
PULL = {"resize": KindSettings(pull=True)}
STEADY = {"max_attempts": 3, "delay": 10, "factor": 2, "jitter": 0}


@pytest.fixture
async def virtual(serve: Serve) -> Served:
    """A service on a virtual clock that stands at the beginning of 2027."""
    return await serve(virtual_from=NEW_YEAR, declared=PULL)


async def move(service: Served, **body: Any) -> dict[str, Any]:
    answer = await service.post("/v1/clock", body)
    assert answer.status == 200, answer.body
    moved: dict[str, Any] = answer.json
    return moved


async def lease(service: Served, **fields: Any) -> list[Any]:
    leases: list[Any] = (await service.post("/v1/leases", {"kinds": ["resize"], **fields})).json["leases"]
    return leases


# where it is


async def test_without_the_flag_there_is_no_clock(service: Served) -> None:
    for answer in (await service.get("/v1/clock"), await service.post("/v1/clock", {"advance": 1})):
        assert (answer.status, answer.code) == (404, "no_such_route")
        assert "X-Erelong-Clock" not in answer.headers


async def test_every_answer_says_that_the_clock_is_virtual(virtual: Served) -> None:
    answers = [
        await virtual.get("/livez"),
        await virtual.get("/none"),
        await virtual.get("/v1/jobs/none"),
        await virtual.stream({"kind": "echo"}),
    ]

    assert [answer.headers["X-Erelong-Clock"] for answer in answers] == ["virtual"] * 4
    assert b"X-Erelong-Clock: virtual\r\n" in await virtual.raw(b"GET / HTTP/1.1\r\nno header\r\n\r\n")


async def test_readiness_says_where_the_clock_stands(virtual: Served) -> None:
    ready = await virtual.get("/readyz")

    assert ready.status == 200
    assert ready.json["checks"]["clock"] == "ok, virtual, frozen at 2027-01-01T00:00:00.000Z"


async def test_clock_shows_where_it_stands_and_what_is_next(virtual: Served) -> None:
    await virtual.submit(delay="3d")

    assert (await virtual.get("/v1/clock")).json == {
        "now": "2027-01-01T00:00:00.000Z",
        "frozen": True,
        "next_at": "2027-01-04T00:00:00.000Z",
        "busy": {"due": 0, "running": 0, "leased": 0, "unsaved": 0, "operations": 0},
    }


async def test_instants_that_became_void_are_not_next(virtual: Served) -> None:
    for delay in ("1d", "2d", "3d"):
        job = await virtual.submit(delay=delay)
        if delay != "3d":
            await virtual.post(f"/v1/jobs/{job['id']}/cancel")

    assert (await virtual.get("/v1/clock")).json["next_at"] == "2027-01-04T00:00:00.000Z"


# moves


async def test_job_starts_on_the_dot_while_time_leaps_over_it(virtual: Served) -> None:
    job = await virtual.submit(delay="3d")

    moved = await move(virtual, advance="5d")

    assert moved == {
        "now": "2027-01-06T00:00:00.000Z",
        "settled": True,
        "reason": None,
        "started": 1,
        "ended": {"succeeded": 1},
        "pending": [],
        "next_at": None,
    }
    job = await virtual.job(job["id"])
    assert (job["started_at"], job["finished_at"], job["late_by"]) == ("2027-01-04T00:00:00.000Z",) * 2 + (0.0,)


async def test_job_that_becomes_due_between_two_steps_does_not_end_a_move(
    virtual: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = await virtual.submit(delay="3d")
    engine = virtual.node.engine
    peek = engine.store.peek

    async def peek_late(seqs: Any) -> Any:
        waiting = await peek(seqs)
        if engine.clock.now() == NEW_YEAR:
            engine.rechecks.add(NEW_YEAR - 1, 1)  # as a change of a due job does
            monkeypatch.undo()
        return waiting

    monkeypatch.setattr(engine.store, "peek", peek_late)

    moved = await move(virtual, advance="5d")

    assert (moved["now"], moved["settled"]) == ("2027-01-06T00:00:00.000Z", True)
    assert (await virtual.job(job["id"]))["late_by"] == 0


async def test_set_moves_to_an_instant(virtual: Served) -> None:
    await virtual.submit(delay=60)

    assert (await move(virtual, set="2027-01-01T00:00:59Z"))["started"] == 0
    assert (await move(virtual, set="2027-01-01T00:01:00Z"))["started"] == 1


async def test_clock_ends_at_the_year_2200(serve: Serve) -> None:
    virtual = await serve(virtual_from=parse_start("2199-12-31T23:59:00Z"))

    for body, pointer in (({"advance": "61s"}, "/advance"), ({"set": "2200-01-01T00:00:01Z"}, "/set")):
        refused = await virtual.post("/v1/clock", body)
        assert (refused.status, refused.pointers) == (422, [pointer])
    await virtual.put("/v1/schedules/report", {"cron": "@yearly", "job": {"kind": "echo"}})
    moved = await move(virtual, run_until_idle=True)

    assert (moved["now"], moved["started"]) == ("2200-01-01T00:00:00.000Z", 1)
    assert (await virtual.submit(delay="3650d"))["due_at"][:4] == "2209"


@pytest.mark.parametrize(("name", "value"), [("set", "2037-06-01T00:00:00Z"), ("advance", "4000d")])
async def test_clock_moves_no_further_than_the_horizon(virtual: Served, name: str, value: str) -> None:
    refused = await virtual.post("/v1/clock", {name: value})

    assert (refused.status, refused.pointers) == (422, [f"/{name}"])


async def test_retries_run_within_the_leap(virtual: Served) -> None:
    job = await virtual.submit(delay=5, params={"fail": "boom"}, retry=STEADY)

    moved = await move(virtual, advance="1h")

    assert (moved["started"], moved["ended"]) == (3, {"failed": 1})
    attempts = (await virtual.job(job["id"]))["attempts"]
    assert [attempt["started_at"][14:] for attempt in attempts] == ["00:05.000Z", "00:15.000Z", "00:35.000Z"]
    assert {attempt["late_by"] for attempt in attempts} == {0.0}


async def test_jobs_expire_at_their_instant(virtual: Served) -> None:
    await virtual.post("/v1/queues/default/pause")
    job = await virtual.submit(delay=10, expires_after=5)

    moved = await move(virtual, run_until_idle=True)

    assert (moved["now"], moved["ended"]) == ("2027-01-01T00:00:15.000Z", {"expired": 1})
    assert (await virtual.job(job["id"]))["finished_at"] == "2027-01-01T00:00:15.000Z"


async def test_tokens_of_a_rate_come_in_virtual_time(virtual: Served) -> None:
    await virtual.put("/v1/queues/default", {"rate": {"per_second": 0.1, "burst": 1}})
    jobs = [await virtual.submit() for _ in range(3)]

    moved = await move(virtual, advance=100)

    assert moved["started"] == 2
    starts = [(await virtual.job(job["id"]))["started_at"] for job in jobs]
    assert starts == ["2027-01-01T00:00:00.000Z", "2027-01-01T00:00:10.000Z", "2027-01-01T00:00:20.000Z"]


async def test_run_until_idle_ends_at_the_last_event(virtual: Served) -> None:
    await virtual.submit(delay="1d")
    await virtual.submit(delay="2d")

    moved = await move(virtual, run_until_idle=True)

    assert (moved["now"], moved["started"]) == ("2027-01-03T00:00:00.000Z", 2)


async def test_run_until_idle_ends_after_within_if_more_is_left(virtual: Served) -> None:
    await virtual.submit(delay="1d")
    await virtual.submit(delay="20d")

    moved = await move(virtual, run_until_idle=True, within="10d")

    assert (moved["now"], moved["started"]) == ("2027-01-11T00:00:00.000Z", 1)
    assert moved["next_at"] == "2027-01-21T00:00:00.000Z"


async def test_clock_flows_at_real_speed_if_not_frozen(virtual: Served) -> None:
    job = await virtual.submit(delay=10)

    await move(virtual, frozen=False)
    await asyncio.sleep(9.9)
    assert (await virtual.job(job["id"]))["state"] == "scheduled"
    await asyncio.sleep(0.2)
    assert (await virtual.job(job["id"]))["state"] == "succeeded"

    moved = await move(virtual, frozen=True)
    await asyncio.sleep(100)
    assert (await virtual.get("/v1/clock")).json["now"] == moved["now"]


async def test_flowing_clock_is_written_ahead(virtual: Served) -> None:
    async def lead() -> float:
        document = await virtual.store.document("clock", "now")
        assert document is not None
        assert document.text is not None
        stored: int = orjson.loads(document.text)["now"]
        return (stored - parse_start((await virtual.get("/v1/clock")).json["now"])) / 1e6

    await move(virtual, frozen=False)
    leads = []
    for _ in range(20):
        await asyncio.sleep(0.7)
        leads.append(await lead())
    assert all(0 < found <= 3.1 for found in leads)

    await move(virtual, advance="1d")
    assert 0 < await lead() <= 3.1
    await move(virtual, frozen=True)
    assert await lead() == pytest.approx(0, abs=0.001)


async def test_clock_flows_on_after_a_leap_once_that_is_stored(
    virtual: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    await move(virtual, frozen=False)
    clock = virtual.node.services.clock
    assert clock is not None
    write_ahead, was_frozen = clock.record.write_ahead, list[bool]()

    async def note() -> None:
        await write_ahead()
        was_frozen.append(clock._clock.is_frozen)

    monkeypatch.setattr(clock.record, "write_ahead", note)
    await move(virtual, advance="1d")

    assert was_frozen == [True]
    assert not clock._clock.is_frozen


async def test_leap_of_a_flowing_clock_flows_on(virtual: Served) -> None:
    await virtual.submit(delay="1d")
    await move(virtual, frozen=False)

    moved = await move(virtual, advance="2d")
    await asyncio.sleep(10)

    assert moved["started"] == 1
    state = (await virtual.get("/v1/clock")).json
    assert (state["frozen"], state["now"][:18]) == (False, "2027-01-03T00:00:1")


# what a move waits for


async def test_clock_stands_still_while_a_handler_runs(serve: Serve) -> None:
    virtual = await serve(virtual_from=NEW_YEAR, kinds={"slow": FakeRunner(lasting(3))})
    await virtual.submit(kind="slow", delay=10)
    job = await virtual.submit(delay=11)

    began_at = asyncio.get_running_loop().time()
    await move(virtual, advance=20)

    assert asyncio.get_running_loop().time() - began_at == pytest.approx(3, abs=0.1)
    assert (await virtual.job(job["id"]))["late_by"] == 0.0


async def test_move_that_does_not_settle_says_what_runs_and_can_be_continued(serve: Serve) -> None:
    virtual = await serve(virtual_from=NEW_YEAR, kinds={"slow": FakeRunner(lasting(3))})
    slow = await virtual.submit(kind="slow", delay=10)
    await virtual.submit(delay=20)

    moved = await move(virtual, set="2027-01-01T00:01:00Z", wait=1)
    assert (moved["settled"], moved["reason"], moved["now"]) == (False, "wait", "2027-01-01T00:00:10.000Z")
    assert (moved["pending"], moved["next_at"]) == ([slow["id"]], "2027-01-01T00:00:20.000Z")
    assert (await virtual.get("/v1/clock")).json["busy"]["running"] == 1

    moved = await move(virtual, set="2027-01-01T00:01:00Z")
    assert (moved["settled"], moved["started"], moved["ended"]) == (True, 1, {"succeeded": 2})


async def test_pull_jobs_held_leases_and_pauses_do_not_block(virtual: Served) -> None:
    await virtual.post("/v1/queues/paused/pause")
    await virtual.submit(queue="paused", delay=1)
    await virtual.submit(kind="resize", delay=1)
    await virtual.submit(kind="resize", delay=1)
    await move(virtual, advance=1)
    await lease(virtual, lease=3_600)

    moved = await move(virtual, advance=60)

    assert (moved["settled"], moved["now"]) == (True, "2027-01-01T00:01:01.000Z")
    assert (await virtual.get("/v1/clock")).json["busy"] == {
        "due": 2,
        "running": 0,
        "leased": 1,
        "unsaved": 0,
        "operations": 0,
    }


async def test_lease_runs_out_in_virtual_time_only(virtual: Served) -> None:
    job = await virtual.submit(kind="resize", retry=STEADY)
    await move(virtual, advance=0)
    await lease(virtual, lease=30)

    await asyncio.sleep(100)
    assert (await virtual.job(job["id"]))["state"] == "running"
    assert (await virtual.get("/v1/clock")).json["next_at"] == "2027-01-01T00:00:30.000Z"
    await move(virtual, advance=35)

    job = await virtual.job(job["id"])
    assert (job["state"], job["due_at"]) == ("scheduled", "2027-01-01T00:00:40.000Z")
    assert job["attempts"][0]["finished_at"] == "2027-01-01T00:00:30.000Z"


async def test_held_lease_request_gets_the_job_on_the_dot(virtual: Served) -> None:
    await virtual.submit(kind="resize", delay=10)
    asked = asyncio.create_task(lease(virtual, wait=60, lease=3_600))
    await asyncio.sleep(0.1)

    await move(virtual, advance=600)

    (leased,) = await asked
    assert (leased["job"]["started_at"], leased["job"]["late_by"]) == ("2027-01-01T00:00:10.000Z", 0.0)
    assert leased["lease_until"] == "2027-01-01T01:00:10.000Z"


async def test_held_read_is_answered_when_its_job_ends_within_the_move(virtual: Served) -> None:
    job = await virtual.submit(delay="7d")
    asked = asyncio.create_task(virtual.get(f"/v1/jobs/{job['id']}?wait=60"))
    await asyncio.sleep(0.1)

    await move(virtual, advance="10d")

    assert (await asked).json["state"] == "succeeded"


async def test_held_read_ends_after_real_seconds(virtual: Served) -> None:
    job = await virtual.submit(delay="7d")

    answer = await virtual.get(f"/v1/jobs/{job['id']}?wait=5")

    assert answer.json["state"] == "scheduled"


async def test_retention_is_swept_at_the_end_of_a_move(virtual: Served) -> None:
    job = await virtual.submit()
    await move(virtual, advance="6d")
    assert (await virtual.get(f"/v1/jobs/{job['id']}")).status == 200

    moved = await move(virtual, advance="2d")

    assert moved["next_at"] is None
    assert (await virtual.get(f"/v1/jobs/{job['id']}")).code == "job_not_found"


async def test_idempotency_key_lives_a_virtual_day(virtual: Served) -> None:
    async def submit() -> Answer:
        return await virtual.post("/v1/jobs", {"kind": "echo", "delay": "9d"}, headers={"Idempotency-Key": "once"})

    first = await submit()
    await move(virtual, advance="23h")
    second = await submit()
    await move(virtual, advance="2h")
    third = await submit()

    assert (second.status, second.json["id"]) == (200, first.json["id"])
    assert third.status == 201


async def test_timeout_of_an_attempt_takes_real_time(virtual: Served) -> None:
    job = await virtual.submit(kind="endless", delay=10, timeout=3, retry={"max_attempts": 1})

    began_at = asyncio.get_running_loop().time()
    await move(virtual, advance=60)

    assert asyncio.get_running_loop().time() - began_at == pytest.approx(3, abs=0.1)
    job = await virtual.job(job["id"])
    assert (job["state"], job["error"]["type"], job["finished_at"]) == ("failed", "timeout", "2027-01-01T00:00:10.000Z")


# how a move ends early or is refused


async def test_move_ends_when_its_client_leaves(serve: Serve) -> None:
    virtual = await serve(virtual_from=NEW_YEAR, kinds={"slow": FakeRunner(lasting(30))})
    await virtual.submit(kind="slow", delay=5)
    await virtual.submit(delay=10)
    moving = asyncio.create_task(move(virtual, advance=60))
    await asyncio.sleep(1)

    moving.cancel()
    await asyncio.sleep(1)

    assert (await move(virtual, advance=0, wait=0.1))["reason"] == "wait"
    assert (await virtual.get("/v1/clock")).json["now"] == "2027-01-01T00:00:05.000Z"


async def test_drain_ends_a_move(serve: Serve) -> None:
    virtual = await serve(virtual_from=NEW_YEAR, kinds={"slow": FakeRunner(lasting(30))})
    await virtual.submit(kind="slow", delay=5)
    moving = asyncio.create_task(virtual.post("/v1/clock", {"advance": 60}))
    await asyncio.sleep(1)

    virtual.node.engine.drain()

    assert (await moving).code == "draining"


async def test_keys_need_read_to_see_the_clock_and_admin_to_move_it(serve: Serve) -> None:
    keys = Keys().add("reader", Scope.READ).add("admin", Scope.ADMIN)
    virtual = await serve(virtual_from=NEW_YEAR, auth=keys.settings())

    answers = []
    for key in keys.texts.values():
        virtual.key = key
        answers += [(await virtual.get("/v1/clock")).status, (await virtual.post("/v1/clock", {"advance": 1})).status]

    assert answers == [200, 403, 403, 200]


async def test_jobs_that_submit_themselves_reach_the_limit(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock_service, "MAX_STARTS", 50)

    async def again(_: Attempt) -> None:
        await virtual.submit(kind="again", delay=delay)

    virtual = await serve(virtual_from=NEW_YEAR, kinds={"again": FakeRunner(again)})
    delay = 1.0
    await virtual.submit(kind="again")
    moved = await move(virtual, advance="1h")
    assert (moved["settled"], moved["reason"], moved["started"]) == (False, "limit", 50)
    assert moved["now"] == "2027-01-01T00:00:50.000Z"

    delay = 0.0
    moved = await move(virtual, advance="1h", wait=60)
    assert (moved["settled"], moved["reason"]) == (False, "limit")
    delay = 10**6


async def test_clock_does_not_go_back(virtual: Served) -> None:
    answer = await virtual.post("/v1/clock", {"set": "2026-12-31T23:59:59Z"})

    assert (answer.status, answer.code) == (409, "clock_backwards")
    assert "stands at 2027-01-01T00:00:00.000Z" in answer.json["detail"]


async def test_second_move_at_once_is_refused(serve: Serve) -> None:
    virtual = await serve(virtual_from=NEW_YEAR, kinds={"slow": FakeRunner(lasting(3))})
    await virtual.submit(kind="slow")
    first = asyncio.create_task(move(virtual, advance=10))
    await asyncio.sleep(1)

    answer = await virtual.post("/v1/clock", {"advance": 10})

    assert (answer.status, answer.code) == (409, "clock_busy")
    assert (await first)["settled"]
    assert (await move(virtual, advance=10))["now"] == "2027-01-01T00:00:20.000Z"


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({}, ""),
        ({"advance": 1, "frozen": True}, ""),
        ({"advance": 1, "within": 1}, ""),
        ({"advance": -1}, "/advance"),
        ({"run_until_idle": False}, "/run_until_idle"),
        ({"set": "2027-01-01"}, "/set"),
        ({"to": 1}, "/to"),
    ],
)
async def test_unclear_move_is_refused(virtual: Served, body: dict[str, Any], pointer: str) -> None:
    answer = await virtual.post("/v1/clock", body)

    assert (answer.status, answer.pointers) == (422, [pointer])


async def test_clock_stands_still_while_the_store_refuses(virtual: Served) -> None:
    job = await virtual.submit(delay=10)
    virtual.store.broken["claim"] = StorageFull("the disk is full")

    asked = asyncio.create_task(move(virtual, advance=60))
    await asyncio.sleep(20)
    assert (await virtual.get("/v1/clock")).json["now"] == "2027-01-01T00:00:10.000Z"
    virtual.store.broken.clear()

    assert (await asked)["settled"]
    assert (await virtual.job(job["id"]))["late_by"] == 0.0


async def test_move_that_cannot_be_stored_is_refused_and_can_be_repeated(virtual: Served) -> None:
    virtual.store.broken["add"] = StorageFull("the disk is full")
    answer = await virtual.post("/v1/clock", {"advance": 60})
    assert (answer.status, answer.code) == (507, "storage_full")

    virtual.store.broken.clear()

    assert (await move(virtual, advance=60))["now"] == "2027-01-01T00:01:00.000Z"


async def test_move_that_was_stored_without_an_answer_can_be_repeated(virtual: Served) -> None:
    with virtual.store.losing_answers("add"):
        answer = await virtual.post("/v1/clock", {"advance": 60})

    assert answer.status == 503
    assert (await move(virtual, advance=60))["now"] == "2027-01-01T00:01:00.000Z"


# webhooks, callbacks, schedules


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    receiver = Receiver()
    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", receiver.receive)
    async with TestServer(app) as server:
        receiver.url = str(server.make_url("/"))
        yield receiver


async def test_webhook_has_a_real_timestamp_and_a_virtual_due_time(
    serve: Serve, receiver: Receiver, clock: VirtualClock
) -> None:
    virtual = await serve(virtual_from=NEW_YEAR, webhooks=WebhooksSection(allow_networks=list(LOOPBACK)))
    await virtual.submit(kind="http", delay="31d", params={"url": receiver.url})

    moved = await move(virtual, advance="31d")

    assert moved["ended"] == {"succeeded": 1}
    (seen,) = receiver.seen
    assert seen.headers["x-erelong-due-at"] == "2027-02-01T00:00:00.000000Z"
    assert abs(int(seen.headers["webhook-timestamp"]) - clock.now() // 1_000_000) <= 1


async def test_callback_is_made_before_the_clock_moves_on(serve: Serve, receiver: Receiver) -> None:
    virtual = await serve(virtual_from=NEW_YEAR, webhooks=WebhooksSection(allow_networks=list(LOOPBACK)))
    await virtual.submit(delay=10, on_finish={"url": receiver.url})
    await virtual.submit(delay=11)

    moved = await move(virtual, advance=10)

    assert (moved["settled"], moved["started"], moved["ended"]) == (True, 2, {"succeeded": 2})
    assert orjson.loads(receiver.seen[0].body)["time"] == "2027-01-01T00:00:10.000Z"


async def test_schedule_makes_its_jobs_on_the_dot(virtual: Served) -> None:
    body = {"cron": "30 2 * * *", "zone": "Europe/Berlin", "job": {"kind": "echo"}}
    await virtual.put("/v1/schedules/nightly", body)
    await virtual.put("/v1/queues/default", {"retention": {"succeeded": "1000d"}})

    moved = await move(virtual, set="2027-04-01T00:00:00Z")

    assert moved["started"] == 90
    assert moved["next_at"] == "2027-04-01T00:30:00.000Z"
    jobs = (await virtual.get("/v1/jobs?limit=200&schedule=nightly")).json["jobs"]
    assert {job["late_by"] for job in jobs} == {0.0}
    assert all(job["started_at"] == job["occurrence"] for job in jobs)


async def test_schedule_follows_a_flowing_clock(virtual: Served) -> None:
    await virtual.put("/v1/schedules/often", {"every": "10s", "job": {"kind": "echo"}})

    await move(virtual, frozen=False)
    await asyncio.sleep(35)

    assert len((await virtual.get("/v1/jobs?schedule=often")).json["jobs"]) == 3


async def test_run_until_idle_ends_after_within_if_a_schedule_goes_on(virtual: Served) -> None:
    await virtual.put("/v1/schedules/hourly", {"every": "1h", "job": {"kind": "echo"}})

    moved = await move(virtual, run_until_idle=True, within="1d")

    assert (moved["now"], moved["started"]) == ("2027-01-02T00:00:00.000Z", 24)


async def test_local_time_is_resolved_against_the_virtual_clock(virtual: Served) -> None:
    job = await virtual.submit(local_time="2027-03-28T02:30:00", zone="Europe/Berlin")

    await move(virtual, run_until_idle=True, within="100d")

    assert (await virtual.job(job["id"]))["started_at"] == "2027-03-28T01:30:00.000Z"
