"""`on_finish` over HTTP: checked at submit, shown, changed, and called with a signed report of the end."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import orjson
import pytest
import pytest_asyncio
from aiohttp import web
from aiohttp.test_utils import TestServer
from pydantic import SecretStr
from standardwebhooks.webhooks import Webhook

from erelong.clock.instants import parse_start
from erelong.settings.sections import WebhooksSection
from tests.handlers.receiver import LOOPBACK, Receiver
from tests.support.contract import NDJSON
from tests.support.keyed import Keys, serve_keyed
from tests.support.served import Answer, Serve, Served

SECRET = f"whsec_{b64encode(bytes(32)).decode()}"
URL = "https://app.example/done"
STATES = ["succeeded", "failed", "cancelled", "expired"]
WHOLE: dict[str, Any] = {"url": URL, "headers": {}, "states": STATES, "queue": "callbacks", "job": None}
LATER = {"kind": "echo", "delay": 1_000}


@pytest_asyncio.fixture
async def receiver() -> AsyncIterator[Receiver]:
    receiver = Receiver()
    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", receiver.receive)
    async with TestServer(app) as server:
        receiver.url = str(server.make_url("/"))
        yield receiver


@pytest_asyncio.fixture
async def calling(serve: Serve) -> Served:
    """A service that signs its calls and may call this machine."""
    return await serve(webhooks=WebhooksSection(allow_networks=list(LOOPBACK), signing_secrets=[SecretStr(SECRET)]))


async def submit(service: Served, on_finish: Any, path: str = "/v1/jobs", **fields: Any) -> Answer:
    return await service.post(path, LATER | {"on_finish": on_finish} | fields)


async def callbacks(service: Served) -> list[dict[str, Any]]:
    """Return the callbacks, the first one first."""
    jobs: list[dict[str, Any]] = (await service.get("/v1/jobs?kind=http&view=full")).json["jobs"]
    return jobs[::-1]


async def cancel(service: Served, id: str) -> dict[str, Any]:
    job: dict[str, Any] = (await service.post(f"/v1/jobs/{id}/cancel")).json
    return job


# the call


async def test_receiver_gets_the_end_of_the_job_as_a_get_shows_it(calling: Served, receiver: Receiver) -> None:
    headers = {"X-Tenant": "t1"}
    given = {"url": receiver.url, "headers": headers, "states": ["failed"]}
    submitted = await calling.submit(
        params={"fail": "boom"}, retry={"max_attempts": 1}, labels={"tenant": "t1"}, on_finish=given
    )

    job = await calling.until(submitted["id"], "failed")
    callback = await calling.until(job["on_finish"]["job"], "succeeded")

    (seen,) = receiver.seen
    report = orjson.loads(seen.body)
    assert report.keys() == {"type", "time", "job"}
    assert (report["type"], report["time"]) == ("job.failed", job["finished_at"])
    assert report["job"] == {name: value for name, value in job.items() if name not in ("params", "attempts")}
    assert (seen.method, seen.headers["x-tenant"], seen.headers["webhook-id"]) == ("POST", "t1", callback["id"])
    assert seen.headers["content-type"] == "application/json"
    id, timestamp = seen.headers["webhook-id"], seen.headers["webhook-timestamp"]
    signed_at = datetime.fromtimestamp(int(timestamp), UTC)
    assert seen.headers["webhook-signature"] == Webhook(SECRET).sign(id, signed_at, seen.body.decode())
    assert (callback["callback_of"], callback["queue"], callback["labels"]) == (
        job["id"],
        "callbacks",
        {"tenant": "t1"},
    )
    assert "on_finish" not in callback


async def test_callback_is_retried_until_the_receiver_accepts_it(calling: Served, receiver: Receiver) -> None:
    receiver.answers(500)
    job = await calling.submit(on_finish={"url": receiver.url})
    ended = await calling.until(job["id"], "succeeded")
    await asyncio.sleep(4)
    receiver.answers(200)

    callback = await calling.until(ended["on_finish"]["job"], "succeeded")

    assert len(receiver.seen) == callback["attempt"] == 2
    assert len({seen.headers["webhook-id"] for seen in receiver.seen}) == 1
    assert len({seen.body for seen in receiver.seen}) == 1


async def test_long_result_is_left_out_of_the_report(calling: Served, receiver: Receiver) -> None:
    job = await calling.submit(params={"text": "x" * 17_000}, on_finish={"url": receiver.url})
    ended = await calling.until(job["id"], "succeeded")
    await calling.until(ended["on_finish"]["job"], "succeeded")

    shown = orjson.loads(receiver.seen[0].body)["job"]
    assert len(ended["result"]["text"]) == 17_000
    assert "result" not in shown
    assert shown["result_omitted"] is True


async def test_job_is_called_back_again_after_a_retry(calling: Served, receiver: Receiver) -> None:
    job = await calling.submit(delay=1_000, on_finish={"url": receiver.url})
    first = (await cancel(calling, job["id"]))["on_finish"]["job"]
    revived = (await calling.post(f"/v1/jobs/{job['id']}/retry")).json
    second = (await calling.until(job["id"], "succeeded"))["on_finish"]["job"]
    await calling.until(second, "succeeded")

    reports = [orjson.loads(seen.body) for seen in receiver.seen]
    assert [report["type"] for report in reports] == ["job.cancelled", "job.succeeded"]
    assert [report["job"]["on_finish"]["job"] for report in reports] == [first, second]
    assert revived["on_finish"]["job"] == first != second


async def test_callback_is_sent_within_a_move_of_the_virtual_clock(serve: Serve, receiver: Receiver) -> None:
    webhooks = WebhooksSection(allow_networks=list(LOOPBACK))
    service = await serve(virtual_from=parse_start("2027-01-01T00:00:00Z"), webhooks=webhooks)
    job = await service.submit(delay=3_600, on_finish={"url": receiver.url})

    moved = (await service.post("/v1/clock", {"advance": "1h"})).json

    ended = await service.job(job["id"])
    callback = await service.job(ended["on_finish"]["job"])
    assert (moved["settled"], moved["ended"]) == (True, {"succeeded": 2})
    assert ended["finished_at"] == callback["finished_at"] == "2027-01-01T01:00:00.000Z"
    assert (callback["state"], callback["late_by"], len(receiver.seen)) == ("succeeded", 0, 1)


async def test_answer_to_a_cancel_names_the_callback(service: Served) -> None:
    job = (await submit(service, {"url": URL})).json

    cancelled = await cancel(service, job["id"])

    (callback,) = await callbacks(service)
    assert cancelled["on_finish"] == WHOLE | {"job": callback["id"]}
    assert await service.job(job["id"]) == cancelled
    assert callback["params"]["json"]["job"]["version"] == cancelled["version"]


# submits


async def test_fields_not_given_have_defaults(service: Served) -> None:
    answer = await submit(service, {"url": URL})

    assert answer.json["on_finish"] == WHOLE
    (listed,) = (await service.get("/v1/jobs")).json["jobs"]
    assert listed["on_finish"] == WHOLE


async def test_job_without_a_callback_does_not_show_one(service: Served) -> None:
    for given in ({}, {"on_finish": None}):
        assert "on_finish" not in (await service.submit(delay=1_000, **given))


@pytest.mark.parametrize(
    ("on_finish", "pointer"),
    [
        ({}, "/on_finish/url"),
        ({"url": None}, "/on_finish/url"),
        ({"url": "ftp://app.example"}, "/on_finish/url"),
        ({"url": "https://me:secret@app.example"}, "/on_finish/url"),
        ({"url": "http://127.0.0.1/hook"}, "/on_finish/url"),
        ({"url": "http://169.254.169.254/"}, "/on_finish/url"),
        ({"url": URL, "headers": {"Host": "b.example"}}, "/on_finish/headers/Host"),
        ({"url": URL, "headers": {"A": "{secret:unknown}"}}, "/on_finish/headers/A"),
        ({"url": URL, "headers": {"A": 1}}, "/on_finish/headers/A"),
        ({"url": URL, "states": []}, "/on_finish/states"),
        ({"url": URL, "states": ["running"]}, "/on_finish/states/0"),
        ({"url": URL, "states": "failed"}, "/on_finish/states"),
        ({"url": URL, "queue": "no spaces"}, "/on_finish/queue"),
        ({"url": URL, "method": "PUT"}, "/on_finish/method"),
        ({"url": URL, "job": "7"}, "/on_finish/job"),
        ("https://app.example", "/on_finish"),
    ],
    ids=repr,
)
async def test_invalid_on_finish_is_refused_at_the_place_of_its_fault(
    service: Served, on_finish: Any, pointer: str
) -> None:
    job = await service.submit(delay=1_000)

    answers = [
        await submit(service, on_finish),
        await submit(service, on_finish, "/v1/jobs?dry_run=true"),
        await service.patch(f"/v1/jobs/{job['id']}", {"on_finish": on_finish}),
    ]
    batch = await service.post("/v1/jobs/batch", {"jobs": [LATER, LATER | {"on_finish": on_finish}]})
    (line,) = (await service.stream(LATER | {"on_finish": on_finish})).lines

    assert [(answer.status, answer.pointers) for answer in answers] == [(422, [pointer])] * 3
    assert (batch.status, batch.pointers) == (422, [f"/jobs/1{pointer}"])
    assert [fault["pointer"] for fault in line["problem"]["errors"]] == [pointer]
    assert [found["id"] for found in (await service.get("/v1/jobs")).json["jobs"]] == [job["id"]]


async def test_batches_and_streams_keep_the_callback_of_each_job(service: Served) -> None:
    jobs = [LATER, LATER | {"on_finish": {"url": URL}}, LATER | {"on_finish": {"url": URL, "states": ["failed"]}}]
    tickets = (await service.post("/v1/jobs/batch", {"jobs": jobs})).json["jobs"]
    lines = (await service.stream(*jobs)).lines

    for made in (tickets, lines):
        shown = [(await service.job(job["id"])).get("on_finish") for job in made]
        assert shown == [None, WHOLE, WHOLE | {"states": ["failed"]}]


@pytest.mark.parametrize(
    ("on_conflict", "kept"), [("keep", "a"), ("reschedule", "a"), ("replace", "b"), ("reject", "a")]
)
async def test_holder_of_a_key_keeps_or_takes_the_callback(service: Served, on_conflict: str, kept: str) -> None:
    holder = (await submit(service, {"url": "https://a.example"}, key="k")).json

    await submit(service, {"url": "https://b.example"}, key="k", on_conflict=on_conflict)

    assert (await service.job(holder["id"]))["on_finish"]["url"] == f"https://{kept}.example"
    assert await callbacks(service) == []


# changes


async def test_patch_replaces_the_callback_as_a_whole(service: Served) -> None:
    job = (await submit(service, {"url": URL, "headers": {"A": "b"}, "states": ["failed"], "queue": "mail"})).json

    answer = await service.patch(f"/v1/jobs/{job['id']}", {"on_finish": {"url": "https://b.example"}})

    assert answer.json["on_finish"] == WHOLE | {"url": "https://b.example"}
    assert answer.json["version"] == 2


async def test_patch_with_null_clears_the_callback(service: Served) -> None:
    job = (await submit(service, {"url": URL})).json

    answer = await service.patch(f"/v1/jobs/{job['id']}", {"on_finish": None})

    assert "on_finish" not in answer.json
    await cancel(service, job["id"])
    assert await callbacks(service) == []


async def test_patch_of_other_fields_keeps_the_callback(service: Served) -> None:
    job = (await submit(service, {"url": URL})).json

    answer = await service.patch(f"/v1/jobs/{job['id']}", {"priority": 3, "labels": {"a": "b"}})

    assert answer.json["on_finish"] == WHOLE


async def test_replaced_callback_still_shows_the_latest_one(service: Served) -> None:
    job = (await submit(service, {"url": URL})).json
    latest = (await cancel(service, job["id"]))["on_finish"]["job"]
    await service.post("/v1/queues/default/pause")
    await service.post(f"/v1/jobs/{job['id']}/retry")

    answer = await service.patch(f"/v1/jobs/{job['id']}", {"on_finish": {"url": "https://b.example"}})

    assert answer.json["on_finish"] == WHOLE | {"url": "https://b.example", "job": latest}


# keys limited to queues


async def test_callback_cannot_have_a_callback(service: Served) -> None:
    job = (await submit(service, {"url": URL})).json
    await service.post("/v1/queues/callbacks/pause")
    callback = (await cancel(service, job["id"]))["on_finish"]["job"]

    refused = await service.patch(f"/v1/jobs/{callback}", {"on_finish": {"url": URL}})
    cleared = await service.patch(f"/v1/jobs/{callback}", {"on_finish": None, "priority": 1})
    change = {"action": "patch", "filter": {"jobs": [callback]}, "at_most": 1, "set": {"on_finish": {"url": URL}}}
    operation = (await service.post("/v1/operations", change)).json
    ended = (await service.get(f"/v1/operations/{operation['id']}?wait=10")).json

    assert (refused.status, refused.pointers) == (422, ["/on_finish"])
    assert "the callback of job" in refused.json["detail"]
    assert (cleared.status, cleared.json["priority"]) == (200, 1)
    assert ended["errors"] == [{"job": callback, "code": "invalid"}]


async def test_limited_key_must_name_one_of_its_queues(serve: Serve) -> None:
    keyed = await serve_keyed(serve, Keys().add("mail", queues=["mail"]).add("root"))
    fields = {"queue": "mail"}

    with keyed.using("root") as service:
        assert (await submit(service, {"url": URL}, **fields)).status == 201
    with keyed.using("mail") as service:
        job = (await submit(service, {"url": URL, "queue": "mail"}, **fields)).json
        for queue in ({}, {"queue": None}, {"queue": "other"}, {"queue": "callbacks"}):
            on_finish = {"url": URL, **queue}
            answers = [
                await submit(service, on_finish, **fields),
                await service.patch(f"/v1/jobs/{job['id']}", {"on_finish": on_finish}),
                await service.post("/v1/jobs/batch", {"jobs": [LATER | fields | {"on_finish": on_finish}]}),
            ]
            (line,) = (await service.stream(LATER | fields | {"on_finish": on_finish})).lines

            assert [answer.status for answer in answers] == [403] * 3
            assert answers[0].pointers == answers[1].pointers == ["/on_finish/queue"]
            assert answers[2].pointers == ["/jobs/0/on_finish/queue"]
            assert line["problem"]["code"] == "forbidden"
        changed = await service.patch(f"/v1/jobs/{job['id']}", {"on_finish": {"url": URL, "queue": "mail"}})
        assert (job["on_finish"]["queue"], changed.status) == ("mail", 200)


# schedules


async def test_jobs_of_a_schedule_call_back(service: Served) -> None:
    await service.post("/v1/queues/callbacks/pause")
    job = {"kind": "echo", "on_finish": {"url": URL, "states": ["succeeded"]}}
    made = await service.put("/v1/schedules/report", {"every": 60, "job": job})
    await asyncio.sleep(61)

    (callback,) = await callbacks(service)

    reported = callback["params"]["json"]["job"]
    assert made.status == 201
    assert (reported["schedule"], reported["id"]) == ("report", callback["callback_of"])
    assert callback["labels"] == {}
    assert "schedule" not in callback
    assert [found["kind"] for found in (await service.get("/v1/jobs?schedule=report")).json["jobs"]] == ["echo"]


async def test_callback_of_a_schedule_is_checked_when_it_is_put(serve: Serve) -> None:
    keyed = await serve_keyed(serve, Keys().add("mail", queues=["mail"]))
    job = {"kind": "echo", "queue": "mail"}

    with keyed.using("mail") as service:
        foreign = await service.put("/v1/schedules/a", {"every": 60, "job": job | {"on_finish": {"url": URL}}})
        invalid = {"url": "ftp://app.example", "queue": "mail"}
        faulty = await service.put("/v1/schedules/a", {"every": 60, "job": job | {"on_finish": invalid}})
        await service.put("/v1/schedules/a", {"every": 60, "job": job})
        change = await service.patch("/v1/schedules/a", {"job": {"on_finish": {"url": URL}}})

    assert (foreign.status, foreign.pointers) == (403, ["/job/on_finish/queue"])
    assert (faulty.status, faulty.pointers) == (422, ["/job/on_finish/url"])
    assert (change.status, change.pointers) == (403, ["/job/on_finish/queue"])


async def test_document_describes_on_finish(service: Served) -> None:
    document = (await service.get("/openapi.json")).json

    schemas = document["components"]["schemas"]
    assert schemas["OnFinishIn"]["required"] == ["url"]
    assert "on_finish" in schemas["JobIn"]["properties"].keys() & schemas["PatchIn"]["properties"].keys()
    assert NDJSON in document["paths"]["/v1/jobs/batch"]["post"]["requestBody"]["content"]
