"""POST /v1/jobs/wait: waits for many jobs, in one response or as a stream."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from typing import Any

import orjson
import pytest

from erelong.api import waits as wait_routes
from erelong.duties.waiters import NEVER_LEAVES
from erelong.errors import StoreUnavailable
from erelong.model.caller import ANYBODY
from erelong.service.waits import Until
from erelong.settings.sections import LimitsSection
from tests.support.contract import NDJSON
from tests.support.keyed import Keys, serve_keyed
from tests.support.served import Answer, Serve, Served

UNKNOWN = "0" * 26


async def wait(service: Served, *ids: str, **fields: Any) -> dict[str, Any]:
    answer = await service.post("/v1/jobs/wait", {"jobs": ids, **fields})
    assert answer.status == 200, answer.body
    waited: dict[str, Any] = answer.json
    return waited


async def stream(service: Served, *ids: str, **fields: Any) -> Answer:
    return await service.post("/v1/jobs/wait", {"jobs": ids, **fields}, headers={"Accept": NDJSON})


async def submit(service: Served, *delays: float, **fields: Any) -> list[str]:
    return [(await service.submit(delay=delay, **fields))["id"] for delay in delays]


def ids_of(jobs: list[dict[str, Any]]) -> list[str]:
    return [job["id"] for job in jobs]


def now(service: Served) -> float:
    return service.clock.now() / 1e6


# one response


async def test_wait_for_all_returns_when_the_last_has_ended(service: Served) -> None:
    ids = await submit(service, 5, 30, 10)
    began = now(service)

    waited = await wait(service, *ids, wait=60)

    assert now(service) - began == pytest.approx(30, abs=0.1)
    assert (waited["done"], waited["pending"], waited["missing"]) == (True, [], [])
    assert ids_of(waited["ended"]) == [ids[0], ids[2], ids[1]]
    assert "params" not in waited["ended"][0]


async def test_wait_for_the_first_returns_all_that_have_ended(service: Served) -> None:
    ids = await submit(service, 10, 20, 10)

    waited = await wait(service, *ids, until="first", wait=60)
    at_once = await wait(service, *ids, until="first", wait=60)

    assert waited["done"]
    assert {*ids_of(waited["ended"])} <= {ids[0], ids[2]}
    assert (ids_of(at_once["ended"]), at_once["pending"]) == ([ids[0], ids[2]], [ids[1]])


@pytest.mark.parametrize("state", ["failed", "cancelled", "expired"])
async def test_wait_for_the_first_failure(service: Served, state: str) -> None:
    ids = await submit(service, 1, 50)
    worse = (await service.submit_into(state))["id"]

    waited = await wait(service, *ids, worse, until="first_failure", wait=60)

    assert (waited["done"], ids_of(waited["ended"]), waited["pending"]) == (True, [worse], ids)


async def test_wait_for_the_first_failure_ends_when_none_can_fail(service: Served) -> None:
    ids = await submit(service, 1, 20)

    waited = await wait(service, *ids, until="first_failure", wait=60)

    assert (waited["done"], ids_of(waited["ended"])) == (True, ids)


async def test_without_a_wait_the_answer_is_immediate(service: Served) -> None:
    ids = await submit(service, 0, 100)
    await service.until(ids[0], "succeeded")

    waited = await wait(service, *ids)

    assert (waited["done"], ids_of(waited["ended"]), waited["pending"]) == (False, [ids[0]], [ids[1]])


async def test_wait_is_capped_and_then_returns_what_has_ended(serve: Serve) -> None:
    service = await serve(limits=LimitsSection(max_wait=10))
    ids = await submit(service, 5, 100)
    began = now(service)

    waited = await wait(service, *ids, wait="1h")

    assert now(service) - began == pytest.approx(10, abs=0.1)
    assert (waited["done"], ids_of(waited["ended"]), waited["pending"]) == (False, [ids[0]], [ids[1]])


@pytest.mark.parametrize("id", [UNKNOWN, "x", "", "é" * 300])
async def test_unknown_job_is_missing_and_failed(service: Served, id: str) -> None:
    (other,) = await submit(service, 100)

    alone = await wait(service, id, wait=60)
    beside = await wait(service, other, id, until="first_failure", wait=60)

    assert (alone["done"], alone["missing"]) == (True, [id])
    assert (beside["done"], beside["missing"], beside["pending"]) == (True, [id], [other])


async def test_id_with_another_token_is_missing(service: Served) -> None:
    (id,) = await submit(service, 100)
    forged = id[:10] + "0" * 16

    waited = await wait(service, id, forged)

    assert (waited["pending"], waited["missing"]) == ([id], [forged])


async def test_job_that_is_deleted_meanwhile_is_missing(service: Served) -> None:
    ids = await submit(service, 100, 100)
    waiting = asyncio.create_task(wait(service, *ids, until="first", wait=60))
    await asyncio.sleep(5)

    await service.delete(f"/v1/jobs/{ids[1]}")

    waited = await waiting
    assert (waited["done"], waited["missing"], waited["pending"]) == (True, [ids[1]], [ids[0]])


async def test_equal_ids_count_once(service: Served) -> None:
    (id,) = await submit(service, 1)

    waited = await wait(service, id, id, UNKNOWN, id, UNKNOWN, wait=60)

    assert (ids_of(waited["ended"]), waited["missing"]) == ([id], [UNKNOWN])


async def test_full_view_has_results(service: Served) -> None:
    (id,) = await submit(service, 0, params={"n": 1})

    (job,) = (await wait(service, id, view="full", wait=5))["ended"]

    assert job == await service.job(id)


async def test_jobs_beyond_the_size_of_a_page_are_brief(service: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wait_routes, "MAX_PAGE", 1_000)
    monkeypatch.setattr(wait_routes, "SLICE", 2)
    ids = await submit(service, 0, 0, 0, 0, params={"text": "x" * 500})

    jobs = (await wait(service, *ids, view="full", wait=5))["ended"]

    assert ["params" in job for job in jobs] == [True, True, False, False]


async def test_cancel_and_retry_between_are_seen(service: Served) -> None:
    failed = (await service.submit_into("failed"))["id"]
    await service.post(f"/v1/jobs/{failed}/retry")
    running = (await service.submit_into("running"))["id"]
    waiting = asyncio.create_task(wait(service, failed, running, wait=60))
    await asyncio.sleep(1)
    await service.post(f"/v1/jobs/{running}/cancel")

    waited = await waiting

    assert {job["id"]: job["state"] for job in waited["ended"]} == {failed: "failed", running: "cancelled"}


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({}, "/jobs"),
        ({"jobs": []}, "/jobs"),
        ({"jobs": ["x"] * 1_001}, "/jobs"),
        ({"jobs": [1]}, "/jobs/0"),
        ({"jobs": ["~key"]}, "/jobs/0"),
        ({"jobs": ["x"], "until": "some"}, "/until"),
        ({"jobs": ["x"], "wait": -1}, "/wait"),
        ({"jobs": ["x"], "view": "line"}, "/view"),
        ({"jobs": ["x"], "queue": "mail"}, "/queue"),
    ],
)
async def test_invalid_body_is_refused(service: Served, body: dict[str, Any], pointer: str) -> None:
    for headers in ({}, {"Accept": NDJSON}):
        answer = await service.post("/v1/jobs/wait", body, headers=headers)

        assert (answer.status, answer.pointers) == (422, [pointer])


async def test_a_thousand_jobs_are_taken(service: Served) -> None:
    batch = (await service.post("/v1/jobs/batch", {"jobs": [{"kind": "echo", "delay": 5}] * 1_000})).json["jobs"]

    waited = await wait(service, *ids_of(batch), wait=60)

    assert (waited["done"], len(waited["ended"])) == (True, 1_000)


async def test_without_a_place_to_wait_the_answer_is_immediate(serve: Serve) -> None:
    service = await serve(limits=LimitsSection(max_waiters=1))
    ids = await submit(service, 0, 50)
    await service.until(ids[0], "succeeded")
    held = asyncio.create_task(wait(service, *ids, wait=60))
    await asyncio.sleep(1)
    began = now(service)

    waited = await wait(service, *ids, wait=60)
    lines = (await stream(service, *ids, wait=60)).lines

    assert now(service) == began
    assert (ids_of(waited["ended"]), waited["pending"]) == ([ids[0]], [ids[1]])
    assert lines[-1] == {"done": False, "pending": [ids[1]]}
    assert (await held)["done"]


async def test_drain_ends_the_wait(service: Served) -> None:
    ids = await submit(service, 100)
    collecting = asyncio.create_task(wait(service, *ids, wait=60))
    streaming = asyncio.create_task(stream(service, *ids, wait=60))
    await asyncio.sleep(1)

    service.node.engine.drain()

    collected = await collecting
    assert (collected["done"], collected["pending"]) == (False, ids)
    assert (await streaming).lines == [{"done": False, "pending": ids}]


async def test_client_that_hangs_up_frees_its_place(serve: Serve) -> None:
    service = await serve(limits=LimitsSection(max_waiters=1))
    ids = await submit(service, 100)
    for send in (wait, stream):
        waiting = asyncio.create_task(send(service, *ids, wait=60))
        await asyncio.sleep(1)
        assert len(service.node.engine.waiters.jobs) == 1

        waiting.cancel()
        await asyncio.sleep(0.1)

        assert len(service.node.engine.waiters.jobs) == 0


async def test_store_that_fails_is_a_problem(service: Served) -> None:
    (id,) = await submit(service, 10)
    waiting = asyncio.create_task(service.post("/v1/jobs/wait", {"jobs": [id], "wait": 60}))
    streaming = asyncio.create_task(stream(service, id, wait=60))
    await asyncio.sleep(1)
    service.store.broken["get"] = StoreUnavailable("the disk fails")

    answer, streamed = await asyncio.gather(waiting, streaming)

    assert (answer.status, answer.code) == (503, "store_unavailable")
    assert [line["problem"]["code"] for line in streamed.lines] == ["store_unavailable"]


async def test_unreadable_job_is_missing(service: Served) -> None:
    ids = await submit(service, 10, 100)
    service.store.refuse("get", int(ids[0][:10], 16))

    assert (await wait(service, ids[0]))["missing"] == [ids[0]]


# a stream


async def test_stream_sends_jobs_as_they_end(service: Served) -> None:
    ids = await submit(service, 0, 20, 8)
    await service.until(ids[0], "succeeded")

    answer = await stream(service, *ids, UNKNOWN, wait="1h")

    assert answer.headers["Content-Type"] == NDJSON
    lines = answer.lines
    assert [line.get("job", {}).get("id") or line.get("missing") for line in lines[:-1]] == [
        ids[0],
        UNKNOWN,
        ids[2],
        ids[1],
    ]
    assert lines[-1] == {"done": True, "pending": []}


async def test_jobs_that_have_ended_already_come_in_the_order_of_their_ends(service: Served) -> None:
    ids = await submit(service, 5, 1, 3)
    await wait(service, *ids, wait=60)

    lines = (await stream(service, *ids)).lines

    assert ids_of([line["job"] for line in lines[:-1]]) == [ids[1], ids[2], ids[0]]


@pytest.mark.parametrize("wait_first", [False, True], ids=["over before", "over meanwhile"])
async def test_jobs_that_end_at_the_same_instant_come_in_the_order_of_their_submits(
    service: Served, wait_first: bool
) -> None:
    ids = await submit(service, *[1_000] * 4)
    asked = [ids[2], ids[0], ids[3], ids[1]]
    waiting = asyncio.create_task(wait(service, *asked, wait=60))
    if wait_first:
        await asyncio.sleep(1)
    await service.post("/v1/queues/default/purge")

    ended = (await waiting)["ended"]

    assert len({job["finished_at"] for job in ended}) == 1
    assert ids_of(ended) == ids


async def test_job_that_changes_before_its_full_view_is_read_stays_brief(service: Served) -> None:
    waits = service.node.services.waits
    failed = (await service.submit_into("failed"))["id"]
    with waits.watch([failed], until=Until.ALL, caller=ANYBODY, client=NEVER_LEAVES) as watch:
        (job,) = (await watch.read()).ended

    before = await waits.read_full([job])
    await service.post(f"/v1/jobs/{failed}/retry")

    assert [full.id for full in before.values()] == [failed]
    assert await waits.read_full([job]) == {}


async def test_stream_of_a_client_that_does_not_read_is_closed(service: Served) -> None:
    ids = await submit(service, *[0] * 200, params={"text": "x" * 60_000})
    await wait(service, *ids, wait=60)
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8_192)
    client.setblocking(False)
    await asyncio.get_running_loop().sock_connect(client, ("127.0.0.1", service.port))
    reader, writer = await asyncio.open_connection(sock=client, limit=1_000)
    body = orjson.dumps({"jobs": ids, "view": "full"})
    head = b"POST /v1/jobs/wait HTTP/1.1\r\nHost: localhost\r\nAccept: application/x-ndjson\r\n"
    writer.write(head + b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)

    await asyncio.sleep(60)

    answer = b""
    with suppress(ConnectionResetError):
        while more := await reader.read(65_536):
            answer += more
    assert not answer.endswith(b"0\r\n\r\n")
    assert b'"problem"' not in answer
    assert len(service.node.engine.waiters.jobs) == 0
    writer.close()


async def test_stream_may_last_an_hour_with_an_empty_line_each_quarter_of_a_minute(serve: Serve) -> None:
    service = await serve(limits=LimitsSection(max_wait=1))
    (id,) = await submit(service, 10_000)
    began = now(service)

    body = b'{"jobs": ["%b"], "wait": "2h"}' % id.encode()
    head = b"POST /v1/jobs/wait HTTP/1.1\r\nHost: localhost\r\nAccept: application/x-ndjson\r\nConnection: close\r\n"
    head += b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
    answer = await service.raw(head + body)

    assert now(service) - began == pytest.approx(3_600, abs=0.1)
    assert answer.count(b"1\r\n\n\r\n") in (239, 240)
    assert b'{"done":false,"pending":["%b"]}' % id.encode() in answer


async def test_changes_that_end_no_job_write_nothing(service: Served) -> None:
    (id,) = await submit(service, 100)
    streaming = asyncio.create_task(stream(service, id, wait=12))
    for priority in range(5):
        await asyncio.sleep(2)
        await service.patch(f"/v1/jobs/{id}", {"priority": priority})

    assert (await streaming).lines == [{"done": False, "pending": [id]}]


async def test_stream_until_the_first(service: Served) -> None:
    ids = await submit(service, 5, 100)

    lines = (await stream(service, *ids, until="first", view="full", wait=60)).lines

    assert [line["job"]["id"] for line in lines[:-1]] == [ids[0]]
    assert lines[0]["job"] == await service.job(ids[0])
    assert lines[-1] == {"done": True, "pending": [ids[1]]}


# keys


async def test_job_of_another_queue_is_missing(serve: Serve) -> None:
    keyed = await serve_keyed(serve, Keys().add("root").add("mail", queues=["mail"]))
    with keyed.using("root") as service:
        mine, other = [(await service.submit(queue=queue, delay=5))["id"] for queue in ("mail", "other")]

    with keyed.using("mail") as service:
        waited = await wait(service, mine, other, wait=60)
        lines = (await stream(service, mine, other)).lines

    assert (ids_of(waited["ended"]), waited["missing"]) == ([mine], [other])
    assert [line.get("missing") for line in lines] == [None, other, None]


async def test_stream_ends_when_its_key_is_revoked(serve: Serve) -> None:
    keyed = await serve_keyed(serve, Keys().add("root"), allow_anonymous=True)
    (id,) = await submit(keyed.service, 100)
    with keyed.using("root") as service:
        streaming = asyncio.create_task(stream(service, id, wait=60))
        await asyncio.sleep(5)

        service.node.gate.apply(Keys().add("other").settings(allow_anonymous=True))

        lines = (await streaming).lines
    assert [line["problem"]["code"] for line in lines] == ["unauthenticated"]
