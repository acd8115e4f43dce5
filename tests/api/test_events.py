"""GET /v1/events: what happens to jobs, as a stream of events."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import orjson
import pytest

from erelong.errors import StoreUnavailable
from erelong.model.caller import Scope
from erelong.model.events.event import STORED, EventType
from erelong.service import events
from erelong.settings.kinds import KindSettings
from erelong.settings.queues import QueueSettings, Retention
from erelong.settings.sections import LimitsSection, ServerSection
from erelong.stores.base import Claim
from tests.support.builders import make_job
from tests.support.contract import Contract
from tests.support.keyed import Keys, serve_keyed
from tests.support.kinds import FakeRunner, raising
from tests.support.served import Serve, Served
from tests.support.streams import Message, Stream, follow

STAY = {"delay": 1_000}


def seen(messages: list[Message]) -> list[tuple[str, int]]:
    """Return the type and the version of the job of each event."""
    return [(message.event, message.job["version"]) for message in messages]


async def opened(stream: Stream) -> Stream:
    """Read the first position of a stream."""
    assert await stream.read_block() is not None
    return stream


async def check(service: Served, messages: list[Message]) -> None:
    """Check the data of events against the document."""
    contract = Contract((await service.get("/openapi.json")).json)
    schema = contract.resolve("#/components/schemas/Event")
    for message in messages:
        assert [*contract.faults(message.data, schema)] == []
        assert message.data["type"] == message.event


# the stream


async def test_stream_opens_with_a_retry_and_a_position(service: Served) -> None:
    async with follow(service.port) as stream:
        first = await stream.read_block()

    headers = stream.response.headers
    assert (headers["Content-Type"], headers["Cache-Control"]) == ("text/event-stream", "no-store")
    assert headers["X-Request-Id"]
    assert (stream.retry, first) == (2_000, Message(stream.last_id))
    assert stream.last_id


async def test_job_is_followed_from_submit_to_end(service: Served) -> None:
    async with follow(service.port) as stream:
        await opened(stream)
        job = await service.submit(labels={"tenant": "t1"}, key="order-7")
        messages = await stream.take(3)

    assert seen(messages) == [("job.submitted", 1), ("job.started", 2), ("job.succeeded", 3)]
    assert [message.job["state"] for message in messages] == ["scheduled", "running", "succeeded"]
    assert {message.job["id"] for message in messages} == {job["id"]}
    assert messages[-1].job["labels"] == {"tenant": "t1"}
    assert "params" not in messages[0].job
    assert len({message.id for message in messages}) == 3
    await check(service, messages)


async def test_failed_attempt_and_failed_job_have_an_error(service: Served) -> None:
    async with follow(service.port, "?type=job.retrying&type=job.failed") as stream:
        await opened(stream)
        await service.submit(params={"fail": "boom"}, retry={"max_attempts": 2, "delay": 5})
        messages = await stream.take(2)

    assert [message.event for message in messages] == ["job.retrying", "job.failed"]
    assert [message.job["error"]["message"] for message in messages] == ["boom", "boom"]
    assert messages[0].job["waiting_for"] == "time"
    await check(service, messages)


async def test_changes_by_clients_are_events(service: Served) -> None:
    async with follow(service.port) as stream:
        await opened(stream)
        id = (await service.submit(**STAY))["id"]
        await service.patch(f"/v1/jobs/{id}", {"priority": 5})
        await service.post(f"/v1/jobs/{id}/cancel")
        await service.delete(f"/v1/jobs/{id}")
        messages = await stream.take(4)

    assert seen(messages) == [("job.submitted", 1), ("job.changed", 2), ("job.cancelled", 3), ("job.deleted", 3)]
    assert messages[1].job["priority"] == 5


async def test_run_and_retry_are_changes(service: Served) -> None:
    waiting, failed = await service.submit(queue="paused", **STAY), await service.submit_into("failed", queue="paused")
    await service.post("/v1/queues/paused/pause")

    async with follow(service.port) as stream:
        await opened(stream)
        await service.post(f"/v1/jobs/{waiting['id']}/run")
        await service.post(f"/v1/jobs/{failed['id']}/retry")
        messages = await stream.take(2)

    assert [message.event for message in messages] == ["job.changed"] * 2


async def test_requested_cancel_of_a_running_job_is_a_change_and_then_its_end(service: Served) -> None:
    job = await service.submit_into("running")

    async with follow(service.port) as stream:
        await opened(stream)
        await service.post(f"/v1/jobs/{job['id']}/cancel")
        messages = await stream.take(2)

    assert [message.event for message in messages] == ["job.changed", "job.cancelled"]
    assert messages[0].job["cancel_requested"] is True


async def test_expired_job_is_an_event(service: Served) -> None:
    async with follow(service.port, "?type=job.expired") as stream:
        await opened(stream)
        await service.post("/v1/queues/default/pause")
        await service.submit(expires_after=10)
        message = await stream.next()

    assert message.job["error"]["type"] == "expired"


async def test_replaced_job_is_changed_and_a_superseded_one_too(service: Served) -> None:
    running = await service.submit_into("running", key="k")

    async with follow(service.port) as stream:
        await opened(stream)
        await service.submit(key="k", on_conflict="replace", **STAY)
        await service.post("/v1/jobs", {"kind": "echo", "key": "k", "on_conflict": "reschedule", "delay": 2_000})
        await service.post("/v1/jobs", {"kind": "echo", "key": "k", "on_conflict": "keep"})
        messages = await stream.take(3)
        assert await stream.is_quiet(5)

    assert [message.event for message in messages] == ["job.changed", "job.submitted", "job.changed"]
    assert (messages[0].job["id"], messages[0].job["key"]) == (running["id"], None)


async def test_reader_of_changes_alone_learns_of_those_by_submits(service: Served) -> None:
    running = await service.submit_into("running", key="k")

    async with follow(service.port, "?type=job.changed") as stream:
        await opened(stream)
        await service.submit(key="k", on_conflict="replace", **STAY)
        await service.post("/v1/jobs", {"kind": "echo", "key": "k", "on_conflict": "reschedule", "delay": 2_000})
        messages = await stream.take(2)

    assert [message.event for message in messages] == ["job.changed"] * 2
    assert messages[0].job["id"] == running["id"]


async def test_refused_submits_and_dry_runs_are_no_events(service: Served) -> None:
    await service.submit(key="k", **STAY)

    async with follow(service.port) as stream:
        await opened(stream)
        await service.post("/v1/jobs", {"kind": "echo", "key": "k"})
        await service.post("/v1/jobs?dry_run=true", {"kind": "echo"})
        await service.post("/v1/jobs/batch", {"jobs": [{"kind": "echo", "delay": 9}, {"kind": "echo", "key": "k"}]})
        assert await stream.is_quiet(20)


async def test_lease_starts_and_ends_an_attempt(serve: Serve) -> None:
    service = await serve(declared={"resize": KindSettings(pull=True)})

    async with follow(service.port, "?kind=resize") as stream:
        await opened(stream)
        await service.submit(kind="resize", retry={"delay": 1})
        for action in ("release", "fail", "finish"):
            (lease,) = (await service.post("/v1/leases", {"kinds": ["resize"], "wait": 30})).json["leases"]
            await service.post(f"/v1/leases/{lease['token']}/{action}")
        messages = await stream.take(7)

    assert [message.event for message in messages] == [
        "job.submitted",
        *("job.started", "job.released", "job.started", "job.retrying", "job.started", "job.succeeded"),
    ]
    versions = [message.job["version"] for message in messages]
    assert versions == sorted(set(versions))


async def test_lost_lease_is_retried(serve: Serve) -> None:
    service = await serve(declared={"resize": KindSettings(pull=True)})
    await service.submit(kind="resize")

    async with follow(service.port, "?type=job.retrying") as stream:
        await opened(stream)
        await service.post("/v1/leases", {"kinds": ["resize"], "lease": 1})
        message = await stream.next()

    assert message.job["error"]["type"] == "lost"


async def test_purge_and_overflow_cancel_jobs(serve: Serve) -> None:
    service = await serve(queues={"small": QueueSettings(max_backlog=1, overflow="drop_oldest")})

    async with follow(service.port, "?type=job.cancelled") as stream:
        await opened(stream)
        for _ in range(2):
            await service.submit(queue="small", **STAY)
        await service.post("/v1/queues/small/purge")
        messages = await stream.take(2)

    assert [message.job["error"]["type"] for message in messages] == ["dropped", "cancelled"]


async def test_retention_deletes_with_an_event(serve: Serve) -> None:
    service = await serve(
        queues={"short": QueueSettings(retention=Retention(succeeded=1))}, store=None, limits=LimitsSection()
    )

    async with follow(service.port, "?type=job.deleted") as stream:
        await opened(stream)
        job = await service.submit(queue="short")
        message = await stream.next(within=1_000)

    assert (message.job["id"], message.job["state"]) == (job["id"], "succeeded")


async def test_reader_that_opens_during_a_deletion_starts_over(serve: Serve) -> None:
    service = await serve(queues={"short": QueueSettings(retention=Retention(succeeded=1))}, limits=LimitsSection())
    await service.submit(queue="short")
    purge = service.store.hold("purge")
    await asyncio.sleep(1_000)

    async with follow(service.port, "?type=job.deleted") as stream:
        await opened(stream)
        purge.set()
        message = await stream.next(within=10)

    assert message.event == "reset"


async def test_missed_occurrence_is_an_event(serve: Serve) -> None:
    service = await serve(queues={"tight": QueueSettings(max_backlog=1)})
    await service.submit(queue="tight", delay=100_000)
    await service.put("/v1/schedules/report", {"every": 60, "job": {"kind": "echo", "queue": "tight"}})

    async with follow(service.port, "?type=schedule.missed") as stream, follow(service.port, "?queue=tight") as jobs:
        await opened(stream)
        await opened(jobs)
        message = await stream.next(within=100)
        assert await jobs.is_quiet(10)

    assert message.data["schedule"] == {
        "name": "report",
        "occurrence": message.data["schedule"]["occurrence"],
        "reason": "backlog_full",
        "count": 1,
    }
    await check(service, [message])


@pytest.mark.parametrize("how", ["finished", "cancelled"])
async def test_end_of_an_operation_is_an_event(service: Served, how: str) -> None:
    async with follow(service.port, "?type=operation.finished") as stream:
        await opened(stream)
        await service.submit(queue="mail", **STAY)
        operation = {"action": "cancel", "filter": {"queue": ["mail"]}, "at_most": None}
        id = (await service.post("/v1/operations", operation)).json["id"]
        if how == "cancelled":
            await service.post(f"/v1/operations/{id}/cancel")
        message = await stream.next()
        assert await stream.is_quiet(5)
        stored = (await service.get(f"/v1/operations/{id}")).json

    assert (message.data["operation"]["id"], message.data["operation"]["state"]) == (id, stored["state"])
    await check(service, [message])


async def test_large_operation_is_cut(service: Served) -> None:
    async with follow(service.port, "?type=operation.finished") as stream:
        await opened(stream)
        queues = [f"{number:03d}" + "q" * 97 for number in range(100)]
        await service.post("/v1/operations", {"action": "cancel", "filter": {"queue": queues}, "at_most": None})
        message = await stream.next()

    assert (message.data["cut"], message.data["operation"]["filter"]) == (True, {})
    await check(service, [message])


async def test_operation_of_another_key_is_hidden(serve: Serve) -> None:
    keyed = await serve_keyed(serve, Keys().add("root").add("mail", queues=["mail"]))
    operation = {"action": "cancel", "filter": {"queue": ["mail"]}, "at_most": None}
    async with follow(keyed.service.port, "?type=operation.finished", key=keyed.keys.texts["mail"]) as stream:
        await opened(stream)
        for name in ("root", "mail"):
            with keyed.using(name) as service:
                id = (await service.post("/v1/operations", operation)).json["id"]
                assert (await service.get(f"/v1/operations/{id}?wait=30")).json["state"] == "succeeded"
        message = await stream.next()

    assert (message.data["operation"]["id"], message.data["operation"]["by"]) == (id, "mail")


# filters


@pytest.mark.parametrize(
    "query",
    [
        "state=scheduled&state=running",
        "queue=mail",
        "kind=echo&kind=http",
        "key=k1",
        "label.tenant=t1",
        "label.tenant=t1&label.region=eu&queue=mail&type=job.submitted",
    ],
)
async def test_filters_select_jobs(service: Served, query: str) -> None:
    async with follow(service.port, f"?{query}") as stream:
        await opened(stream)
        await service.submit(queue="other", kind="endless", labels={"tenant": "t2"}, key="k2", expires_after=0)
        wanted = await service.submit(
            queue="mail", key="k1", labels={"tenant": "t1", "region": "eu"}, delay=60, params={"sleep": 1_000}
        )
        message = await stream.next()

    if not query.startswith("state"):
        assert message.job["id"] == wanted["id"]
    assert message.event == "job.submitted"


async def test_jobs_of_a_schedule_are_found(service: Served) -> None:
    async with follow(service.port, "?schedule=report") as stream:
        await opened(stream)
        await service.submit(**STAY)
        await service.put("/v1/schedules/report", {"cron": "@yearly", "job": {"kind": "echo"}})
        await service.post("/v1/schedules/report/trigger")
        message = await stream.next()

    assert (message.event, message.job["schedule"]) == ("job.submitted", "report")


@pytest.mark.parametrize(
    ("query", "pointer"),
    [
        ("type=job.now", "/type/0"),
        ("state=done", "/state/0"),
        ("quue=mail", "/quue"),
        ("job=~order-7", "/job/0"),
        ("since=a&since=b", "/since"),
        ("&".join(f"job=x{number}" for number in range(101)), "/job"),
    ],
)
async def test_invalid_query_names_the_parameter(service: Served, query: str, pointer: str) -> None:
    answer = await service.get(f"/v1/events?{query}")

    assert (answer.status, answer.pointers) == (422, [pointer])


async def test_every_type_is_documented(service: Served) -> None:
    schema = (await service.get("/openapi.json")).json["components"]["schemas"]["Event"]

    assert {*schema["properties"]["type"]["enum"]} == {*STORED, "job.now"}


# the present state


async def test_stream_of_jobs_begins_with_their_present_state(service: Served) -> None:
    done, waiting, gone = await service.submit(), await service.submit(**STAY), await service.submit(**STAY)
    await service.until(done["id"], "succeeded")
    await service.delete(f"/v1/jobs/{gone['id']}")
    query = "&".join(f"job={id}" for id in (done["id"], waiting["id"], gone["id"], "unknown"))

    async with follow(service.port, f"?{query}&type=job.cancelled") as stream:
        present = await stream.take(4)
        await service.submit()
        await service.post(f"/v1/jobs/{waiting['id']}/cancel")
        change = await stream.next()

    assert [message.event for message in present] == ["job.now", "job.now", "job.deleted", "job.deleted"]
    assert [message.job["id"] for message in present] == [done["id"], waiting["id"], gone["id"], "unknown"]
    assert present[0].job["state"] == "succeeded"
    assert seen([change]) == [("job.cancelled", 2)]
    await check(service, present)


async def test_place_follows_on_the_present_state(service: Served) -> None:
    """A client that was cut off in between must get it again."""
    job = await service.submit(**STAY)

    async with follow(service.port, f"?job={job['id']}") as stream:
        assert (await stream.next()).id == ""
        assert await stream.read_block() == Message(stream.last_id)
        assert stream.last_id
        place = stream.last_id

    async with follow(service.port, f"?job={job['id']}", last_id=place) as stream:
        await opened(stream)
        assert await stream.is_quiet(5)


async def test_event_that_the_present_state_includes_is_left_out(
    service: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The present state is read after the stream has begun to collect events."""
    job = await service.submit(**STAY)
    path, store = f"/v1/jobs/{job['id']}", service.node.engine.store
    get = store.get

    async def change_first(seqs: Any) -> Any:
        monkeypatch.undo()
        await service.patch(path, {"priority": 1})
        return await get(seqs)

    monkeypatch.setattr(store, "get", change_first)
    async with follow(service.port, f"?job={job['id']}") as stream:
        present = await stream.next()
        await service.patch(path, {"priority": 2})
        await service.delete(path)
        messages = await stream.take(2)

    assert seen([present, *messages]) == [("job.now", 2), ("job.changed", 3), ("job.deleted", 3)]


# places


async def test_stream_continues_after_the_last_id(service: Served) -> None:
    async with follow(service.port) as stream:
        await opened(stream)
        await service.submit(**STAY)
        first = await stream.next()
    await service.submit(**STAY)

    async with follow(service.port, last_id=first.id) as stream:
        second = await stream.next()
    async with follow(service.port, f"?since={first.id}") as stream:
        again = await stream.next()
    async with follow(service.port, f"?since={first.id}", last_id=second.id) as stream:
        await opened(stream)
        assert await stream.is_quiet(5)

    assert second.event == "job.submitted"
    assert second.job["id"] != first.job["id"]
    assert again == second


async def test_reader_lets_other_tasks_run_while_it_checks_many_events(
    service: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with follow(service.port) as stream:
        await opened(stream)
    for _ in range(5 * events.MAX_SCANNED):
        service.node.engine.events.tell(EventType.SUBMITTED, make_job())
    take, seen, turns = events.Reader.take, list[int](), 0

    def note(reader: events.Reader) -> Any:
        seen.append(turns)
        return take(reader)

    async def turn() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    monkeypatch.setattr(events.Reader, "take", note)
    turning = asyncio.create_task(turn())
    async with follow(service.port, "?queue=nobody", last_id=stream.last_id):
        while len(seen) < 5:  # noqa: ASYNC110 - the turns of the loop are counted
            await asyncio.sleep(0)
    turning.cancel()

    assert len({*seen}) == len(seen)


@pytest.mark.parametrize("place", ["x", "00000000-1", "ffffffff-99999", "-1", "12345678", "'; DROP TABLE jobs"])
async def test_unknown_place_is_reset_with_the_current_id(service: Served, place: str) -> None:
    async with follow(service.port, last_id=place) as stream:
        message = await stream.next()
        await service.submit(**STAY)
        assert (await stream.next()).event == "job.submitted"

    assert (message.event, message.data) == ("reset", {"reason": "restarted"})
    assert message.id != place


async def test_place_of_the_future_is_reset(service: Served) -> None:
    async with follow(service.port) as stream:
        await opened(stream)
        epoch = stream.last_id.split("-")[0]

    async with follow(service.port, last_id=f"{epoch}-999") as stream:
        assert (await stream.next()).data == {"reason": "restarted"}


async def test_place_from_before_a_type_was_kept_is_too_old(service: Served) -> None:
    async with follow(service.port, "?type=job.failed") as stream:
        await opened(stream)
        place = stream.last_id
        await service.submit(**STAY)

    async with follow(service.port, "?type=job.submitted", last_id=place) as stream:
        assert (await stream.next()).data == {"reason": "too_old"}


async def test_place_is_kept_for_five_minutes_after_the_last_stream(service: Served) -> None:
    async with follow(service.port, "?type=job.submitted") as stream:
        await opened(stream)
        place = stream.last_id
    await asyncio.sleep(290)
    await service.submit(**STAY)

    async with follow(service.port, "?type=job.submitted", last_id=place) as stream:
        kept = await stream.next()
    await asyncio.sleep(310)
    types = service.node.engine.events.types
    await service.submit(**STAY)
    async with follow(service.port, "?type=job.submitted", last_id=kept.id) as stream:
        lost = await stream.next()

    assert kept.event == "job.submitted"
    assert types == frozenset()
    assert lost.data == {"reason": "too_old"}


async def test_overtaken_place_is_too_old(serve: Serve) -> None:
    service = await serve(limits=LimitsSection(max_events=1_000))
    async with follow(service.port) as stream:
        await opened(stream)
        place = stream.last_id
        await service.stream(*[{"kind": "echo", "delay": 1_000}] * 1_001)

    async with follow(service.port, last_id=place) as stream:
        assert (await stream.next()).data == {"reason": "too_old"}


async def test_quiet_stream_keeps_its_place(service: Served) -> None:
    """Events that its filters leave out move the position, which it sends every 15 s."""
    async with follow(service.port, "?queue=mail") as stream:
        await opened(stream)
        first = stream.last_id
        await service.submit(**STAY)
        began = asyncio.get_running_loop().time()
        block = await stream.read_block()
        waited = asyncio.get_running_loop().time() - began

    assert block == Message(stream.last_id)
    assert stream.last_id != first
    assert stream.comments == 1
    assert 14 < waited < 16


async def test_write_with_an_unknown_result_resets_all_streams(service: Served) -> None:
    job = await service.submit(**STAY)
    async with follow(service.port) as stream:
        await opened(stream)
        service.store.broken["save"] = StoreUnavailable("the disk does not answer")
        assert (await service.patch(f"/v1/jobs/{job['id']}", {"priority": 1})).status == 503
        service.store.broken.clear()
        message = await stream.next()

    assert (message.event, message.data) == ("reset", {"reason": "restarted"})


async def test_claim_with_an_unknown_result_resets_all_streams(
    service: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim = service.store.claim

    async def claim_and_fail(*given: Any, **named: Any) -> Claim:
        await claim(*given, **named)
        monkeypatch.undo()
        raise StoreUnavailable("the disk does not answer")

    monkeypatch.setattr(service.store, "claim", claim_and_fail)
    async with follow(service.port, "?type=job.started&type=job.released") as stream:
        await opened(stream)
        await service.submit()
        message = await stream.next()

    assert (message.event, message.data) == ("reset", {"reason": "restarted"})


# limits


async def test_one_stream_too_many_is_refused_and_a_closed_one_frees_its_place(serve: Serve) -> None:
    service = await serve(limits=LimitsSection(max_streams=1))
    async with follow(service.port) as stream:
        await opened(stream)
        refused = await service.get("/v1/events")
        gauge = (await service.get("/metrics")).body
    await asyncio.sleep(0.1)

    async with follow(service.port) as stream:
        await opened(stream)

    assert (refused.status, refused.code) == (429, "too_many")
    assert "max_streams" in refused.json["detail"]
    assert b"erelong_streams 1.0" in gauge


async def test_refused_query_takes_no_place(serve: Serve) -> None:
    service = await serve(limits=LimitsSection(max_streams=1))

    assert [(await service.get("/v1/events?x=1")).status for _ in range(3)] == [422] * 3
    assert service.node.services.events.streams == 0


async def test_event_is_cut_to_eight_kib(serve: Serve) -> None:
    boom = FakeRunner(raising(ValueError("\x00" * 2_000)))
    service = await serve(kinds={"boom": boom})
    labels = {f"{number:02d}" + "n" * 98: "\x01" * 64 for number in range(16)}

    async with follow(service.port, "?type=job.failed&type=job.submitted") as stream:
        await opened(stream)
        await service.submit(kind="boom", retry={"max_attempts": 1}, labels={"tenant": "t1"})
        with_message = (await stream.take(2))[-1]
        await service.submit(kind="boom", retry={"max_attempts": 1}, labels=labels)
        messages = await stream.take(2)

    assert all(len(orjson.dumps(message.data)) <= 8_192 for message in (with_message, *messages))
    assert [message.data.get("cut") for message in (with_message, *messages)] == [True] * 3
    assert (with_message.job["labels"], len(with_message.job["error"]["message"])) == ({"tenant": "t1"}, 500)
    assert messages[-1].job["labels"] == {}
    await check(service, [with_message, *messages])


async def test_drain_ends_streams_and_later_ones_at_once(serve: Serve) -> None:
    service = await serve(server=ServerSection(drain_timeout=5))
    await service.submit_into("running")
    async with follow(service.port) as stream:
        await opened(stream)
        service.node.engine.drain()
        assert await stream.ends()

    async with follow(service.port) as stream:
        await opened(stream)
        assert await stream.ends()


async def test_head_of_a_stream_has_no_body_and_ends(service: Served) -> None:
    answer = await service.call("HEAD", "/v1/events")

    assert (answer.status, answer.body, answer.headers["Content-Type"]) == (200, b"", "text/event-stream")


# keys


async def test_key_sees_only_its_queues(serve: Serve) -> None:
    keyed = await serve_keyed(serve, Keys().add("root").add("mail", Scope.READ, queues=["mail"]))
    with keyed.using("root") as service:
        hidden = await service.submit(queue="other", **STAY)
        async with (
            follow(service.port, key=keyed.keys.texts["mail"]) as stream,
            follow(service.port, f"?job={hidden['id']}", key=keyed.keys.texts["mail"]) as job,
            follow(service.port, "?queue=other", key=keyed.keys.texts["mail"]) as foreign,
        ):
            await opened(stream)
            await opened(foreign)
            assert (await job.next()).data["job"] == {"id": hidden["id"]}
            await service.post(f"/v1/jobs/{hidden['id']}/cancel")
            await service.submit(queue="mail", **STAY)
            message = await stream.next()
            assert await job.is_quiet(1)
            assert await foreign.is_quiet(1)

    assert (message.event, message.job["queue"]) == ("job.submitted", "mail")


async def test_missed_occurrences_of_foreign_schedules_are_hidden(serve: Serve) -> None:
    keyed = await serve_keyed(serve, Keys().add("root").add("mail", Scope.READ, queues=["mail"]))
    with keyed.using("root") as service:
        for queue in ("other", "mail"):
            await service.put(f"/v1/queues/{queue}", {"max_backlog": 1})
            await service.submit(queue=queue, delay=100_000)
            await service.put(f"/v1/schedules/{queue}", {"every": 60, "job": {"kind": "echo", "queue": queue}})
        async with follow(service.port, key=keyed.keys.texts["mail"]) as stream:
            await opened(stream)
            messages = [await stream.next(within=1_000) for _ in range(2)]

    assert [message.data["schedule"]["name"] for message in messages] == ["mail", "mail"]


async def test_stream_ends_when_its_key_is_revoked(serve: Serve) -> None:
    keys = Keys().add("root").add("guest", Scope.READ)
    keyed = await serve_keyed(serve, keys)
    async with follow(keyed.service.port, key=keys.texts["guest"]) as stream:
        await opened(stream)
        keyed.service.node.gate.apply(Keys().add("root").settings())
        assert await stream.ends()


# slow readers


async def connect_deaf(service: Served) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Open a stream with a small receive buffer, and read nothing."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    client.setblocking(False)
    await asyncio.get_running_loop().sock_connect(client, ("127.0.0.1", service.port))
    reader, writer = await asyncio.open_connection(sock=client, limit=1_000)
    writer.write(b"GET /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
    return reader, writer


async def fill(service: Served, jobs: int) -> None:
    """Make more events than the kernel keeps for a reader."""
    await service.stream(*[{"kind": "echo", "delay": 1_000_000}] * jobs)


async def test_reader_that_takes_nothing_is_disconnected_after_half_a_minute(service: Served) -> None:
    _, writer = await connect_deaf(service)
    await asyncio.sleep(1)
    await fill(service, 2_000)

    await asyncio.sleep(28)
    before = service.node.services.events.streams
    await asyncio.sleep(4)
    after = service.node.services.events.streams
    writer.transport.abort()

    assert (before, after) == (1, 0)


async def test_slow_reader_keeps_its_stream_and_is_reset_when_it_is_overtaken(serve: Serve) -> None:
    service = await serve(limits=LimitsSection(max_events=1_000))
    reader, writer = await connect_deaf(service)
    await asyncio.sleep(1)
    await fill(service, 2_000)

    text = b""
    for _ in range(10):
        text += await reader.read(500)
        await asyncio.sleep(20)
    while b"event: reset" not in text:
        text += await reader.read(65_536)
    writer.transport.abort()

    assert b'{"reason":"too_slow"}' in text


async def test_kernel_keeps_little_of_a_stream(service: Served) -> None:
    """Otherwise sleeping readers would cost megabytes each."""
    async with follow(service.port) as stream:
        await opened(stream)
        (connection,) = [found for found in service._connections._connections if found._is_stream]
        assert connection.transport is not None
        kept = connection.transport.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)

    assert kept == 2 * 65_536  # Linux doubles it for its own needs
