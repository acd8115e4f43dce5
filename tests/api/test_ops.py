"""Routes for operators, and the form of every response: an id, problems, no traceback."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from erelong.errors import StorageFull, StoreUnavailable
from erelong.handlers.base import Stop
from erelong.settings.sections import ServerSection
from tests.support.kinds import FakeRunner, lasting
from tests.support.served import Answer, Serve, Served

JOB = {"kind": "echo", "delay": 1_000}


class BrokenHandler(FakeRunner):
    """A kind with a bug in its check of params."""

    def check(self, params: bytes) -> None:
        raise RuntimeError("secret of the inside")


# requests


@pytest.mark.parametrize("id", ["a", "A-z_0.9", "x" * 64])
async def test_request_id_is_kept(service: Served, id: str) -> None:
    assert (await service.get("/livez", headers={"X-Request-Id": id})).headers["X-Request-Id"] == id


@pytest.mark.parametrize("id", ["", "x" * 65, "a b", "é", "a,b"])
async def test_invalid_request_id_is_replaced(service: Served, id: str) -> None:
    answer = await service.get("/v1/jobs/none", headers={"X-Request-Id": id})

    assert answer.headers["X-Request-Id"] not in ("", id)
    assert answer.json["request_id"] == answer.headers["X-Request-Id"]


async def test_every_request_has_a_unique_id(service: Served) -> None:
    ids = {(await service.get("/livez")).headers["X-Request-Id"] for _ in range(5)}

    assert len(ids) == 5


async def test_problem_names_its_type_status_and_code(service: Served) -> None:
    answer = await service.get("/v1/jobs/none", headers={"X-Request-Id": "r1"})

    assert answer.headers["Content-Type"] == "application/problem+json"
    assert answer.json == {
        "type": "/problems/job_not_found",
        "title": "Job not found",
        "status": 404,
        "detail": "no job 'none'; it never existed, or was deleted by a client or retention",
        "code": "job_not_found",
        "request_id": "r1",
    }


@pytest.mark.parametrize("path", ["/v1", "/v1/job", "/v1/jobs/", "/v1/jobs/a/b", "/v2/jobs", "//v1/jobs", "/%2e"])
async def test_unknown_path_is_no_such_route(service: Served, path: str) -> None:
    answer = await service.get(path)

    assert (answer.status, answer.code) == (404, "no_such_route")
    assert "/docs" in answer.json["detail"]


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("PUT", "/v1/jobs", "GET, HEAD, POST"),
        ("POST", "/v1/jobs/x", "DELETE, GET, HEAD, PATCH"),
        ("GET", "/v1/jobs/x/run", "POST"),
        ("HEAD", "/v1/jobs/x/cancel", "POST"),
        ("PATCH", "/v1/queues/mail", "DELETE, GET, HEAD, PUT"),
        ("POST", "/livez", "GET, HEAD"),
        ("OPTIONS", "/v1/kinds", "GET, HEAD"),
    ],
)
async def test_unsupported_method_gets_the_allowed_ones(service: Served, method: str, path: str, allowed: str) -> None:
    answer = await service.call(method, path)

    assert (answer.status, answer.headers["Allow"]) == (405, allowed)
    assert method == "HEAD" or answer.code == "method_not_allowed"


@pytest.mark.parametrize(
    "path", ["/v1/jobs", "/v1/queues", "/v1/kinds", "/livez", "/readyz", "/metrics", "/openapi.json"]
)
async def test_head_is_served_wherever_get_is(service: Served, path: str) -> None:
    answer = await service.call("HEAD", path)

    assert (answer.status, answer.body) == (200, b"")


@pytest.mark.parametrize("path", ["/v1/queues?x=1", "/v1/kinds?x=1", "/v1/queues/mail?x=1", "/v1/jobs?x=1"])
async def test_unknown_parameter_is_refused(service: Served, path: str) -> None:
    answer = await service.get(path)

    assert (answer.status, answer.pointers) == (422, ["/x"])


async def test_checks_and_metrics_accept_any_parameter(service: Served) -> None:
    for path in ("/livez", "/readyz", "/metrics", "/openapi.json"):
        assert (await service.get(f"{path}?x=1")).status == 200


async def test_unexpected_error_is_logged_and_not_shown(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    service = await serve(kinds={"broken": BrokenHandler()})

    answer = await service.post("/v1/jobs", {"kind": "broken"}, headers={"X-Request-Id": "r1"})

    assert (answer.status, answer.code, answer.json["request_id"]) == (500, "internal", "r1")
    assert b"secret" not in answer.body
    assert "r1" in answer.json["detail"]
    (record,) = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert (record.getMessage(), record.__dict__["fields"]["request"]) == ("request_failed", "r1")
    assert record.exc_info is not None
    assert (await service.get("/livez")).status == 200


# a store that fails


WRITES = [
    "POST /v1/jobs",
    "POST /v1/jobs/batch",
    "PATCH",
    "DELETE",
    "POST /cancel",
    "POST /run",
    "PUT queue",
    "POST pause",
]


async def write(service: Served, what: str, job: dict[str, Any]) -> Answer:
    method, _, path = what.partition(" ")
    paths = {"": f"/v1/jobs/{job['id']}", "queue": "/v1/queues/mail", "pause": "/v1/queues/mail/pause"}
    full = path if path.startswith("/v1") else paths.get(path, f"/v1/jobs/{job['id']}{path}")
    bodies: dict[str, Any] = {"/v1/jobs": JOB, "/v1/jobs/batch": {"jobs": [JOB]}}
    body = {"priority": 1} if method == "PATCH" else bodies.get(full, {} if method == "PUT" else None)
    return await service.call(method, full, body)


@pytest.mark.parametrize("error", [StorageFull, StoreUnavailable])
@pytest.mark.parametrize("what", WRITES)
async def test_write_that_is_not_on_disk_is_refused_and_reads_go_on(
    service: Served, what: str, error: type[StorageFull] | type[StoreUnavailable]
) -> None:
    job = await service.submit_into("scheduled")
    service.store.broken |= dict.fromkeys(("add", "save", "delete", "override"), error("the disk has a problem"))

    answer = await write(service, what, job)

    assert (answer.status, answer.code, answer.headers["Retry-After"]) == (error.status, error.code, "5")
    assert await service.job(job["id"]) == job


async def test_read_from_a_store_that_fails_is_unavailable(service: Served) -> None:
    job = await service.submit_into("scheduled")
    service.store.broken |= dict.fromkeys(("get", "list"), StoreUnavailable("the store does not answer"))

    for path in (f"/v1/jobs/{job['id']}", "/v1/jobs", f"/v1/jobs/{job['id']}?wait=5", "/v1/queues/default"):
        answer = await service.get(path)
        assert (answer.status, answer.code) == (503, "store_unavailable")


async def test_service_recovers_when_the_disk_has_room_again(service: Served) -> None:
    service.store.fill_disk()
    refused = await service.post("/v1/jobs", JOB)
    service.store.broken.clear()

    assert (refused.status, (await service.post("/v1/jobs", JOB)).status) == (507, 201)


# draining


async def test_drain_refuses_new_work_with_a_retry_after(service: Served) -> None:
    job = await service.submit_into("scheduled")
    failed = await service.submit_into("failed")
    service.node.engine.drain()

    answers = [
        await service.post("/v1/jobs", JOB),
        await service.post("/v1/jobs/batch", {"jobs": [JOB]}),
        await service.stream(JOB),
        await service.post(f"/v1/jobs/{job['id']}/run"),
        await service.post(f"/v1/jobs/{failed['id']}/retry"),
    ]

    assert [(answer.status, answer.code) for answer in answers] == [(503, "draining")] * 5
    assert {answer.headers["Retry-After"] for answer in answers} == {"10"}


async def test_drain_allows_reads_changes_and_cancels(service: Served) -> None:
    first, second = await service.submit_into("scheduled"), await service.submit_into("running")
    service.node.engine.drain()

    statuses = [
        (await service.get(f"/v1/jobs/{first['id']}")).status,
        (await service.get("/v1/jobs")).status,
        (await service.patch(f"/v1/jobs/{first['id']}", {"priority": 1})).status,
        (await service.post(f"/v1/jobs/{first['id']}/cancel")).status,
        (await service.delete(f"/v1/jobs/{first['id']}")).status,
        (await service.post(f"/v1/jobs/{second['id']}/cancel")).status,
        (await service.post("/v1/queues/default/pause")).status,
        (await service.get("/livez")).status,
    ]

    assert statuses == [200, 200, 200, 200, 204, 202, 200, 200]


async def test_drain_ends_long_polls(service: Served) -> None:
    job = await service.submit_into("scheduled")
    waiting = asyncio.create_task(service.get(f"/v1/jobs/{job['id']}?wait=60"))
    await asyncio.sleep(1)
    began_at = service.clock.now()

    service.node.engine.drain()

    assert (await waiting).json["state"] == "scheduled"
    assert (await service.get(f"/v1/jobs/{job['id']}?wait=60")).json["state"] == "scheduled"
    assert service.clock.now() - began_at < 1_000_000


async def test_drain_answers_until_running_jobs_have_ended(serve: Serve) -> None:
    service = await serve(server=ServerSection(drain_timeout=25.0))
    job = await service.submit(params={"sleep": 20})
    await service.until(job["id"], "running")
    stopping = asyncio.create_task(service.node.engine.stop())
    await asyncio.sleep(10)

    during = await service.job(job["id"])
    await stopping

    assert (during["state"], (await service.job(job["id"]))["state"]) == ("running", "succeeded")


# kinds, health, metrics


async def test_kinds_are_listed_with_schema_and_stop(serve: Serve) -> None:
    service = await serve(kinds={"deaf": FakeRunner(lasting(1), stop=Stop.NONE)})

    kinds = {kind["name"]: kind for kind in (await service.get("/v1/kinds")).json["kinds"]}

    assert (kinds["echo"]["type"], kinds["echo"]["stop"], kinds["echo"]["isolation"]) == ("echo", "cooperative", None)
    assert "url" in kinds["http"]["params_schema"]["properties"]
    assert "status" in kinds["http"]["result_schema"]["properties"]
    assert kinds["deaf"]["stop"] == "none"


async def test_running_service_is_alive_and_ready(service: Served) -> None:
    ready = await service.get("/readyz")

    assert (await service.get("/livez")).status == 200
    assert (ready.status, ready.json["ready"], ready.json["checks"]["store"]) == (200, True, "ok")


async def test_draining_service_is_alive_and_not_ready(service: Served) -> None:
    service.node.engine.drain()

    ready = await service.get("/readyz")

    assert (await service.get("/livez")).status == 200
    assert (ready.status, ready.json["ready"], ready.json["checks"]["service"]) == (503, False, "draining")


async def test_step_of_the_clock_is_shown_and_does_not_make_it_unready(service: Served) -> None:
    await asyncio.sleep(5)
    service.clock.step(-100)
    await asyncio.sleep(5)

    ready = await service.get("/readyz")

    assert (ready.status, "-100" in ready.json["checks"]["clock"]) == (200, True)


async def test_metrics_count_jobs_and_requests(service: Served) -> None:
    await service.submit_into("succeeded")
    await service.get("/v1/jobs/none")
    await service.get("/v1/jobs/nobody")
    await service.get("/nothing/here")

    answer = await service.get("/metrics")

    lines = answer.body.decode().splitlines()
    assert answer.headers["Content-Type"].startswith("text/plain")
    assert 'erelong_jobs_submitted_total{kind="echo"} 1.0' in lines
    assert 'erelong_jobs{queue="default",state="succeeded"} 1.0' in lines
    assert 'erelong_http_requests_total{method="GET",route="/v1/jobs/{id}",status="404"} 2.0' in lines
    assert 'erelong_http_requests_total{method="GET",route="none",status="404"} 1.0' in lines


async def test_unknown_path_keeps_the_connection_and_the_request_id(service: Served) -> None:
    answer = await service.call("GET", "/nothing", headers={"X-Request-Id": "mine"})

    assert (answer.status, answer.code) == (404, "no_such_route")
    assert answer.headers["X-Request-Id"] == "mine"
    assert answer.headers.get("Connection") != "close"
