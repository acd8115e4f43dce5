"""Authorization of every route for every sort of key. Refused callers learn and change nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from erelong.dashboard.face import read_files
from erelong.model.caller import ANY_KEY, Need, Scope
from erelong.settings.api_keys import new_key
from erelong.settings.queues import Rate
from tests.support.keyed import Keyed, Keys, serve_keyed
from tests.support.served import Answer, Serve

READ, SUBMIT, CANCEL, WORK, ADMIN = Scope.READ, Scope.SUBMIT, Scope.CANCEL, Scope.WORK, Scope.ADMIN
JOB = {"kind": "echo", "queue": "mail", "delay": 1_000}


class Decision(NamedTuple):
    """The scope that a route needs, and the response to a key of another queue instead of `gives`.

    Without a scope a route needs no key; with ANY_KEY, one with any scope.
    """

    scope: Need | None
    gives: int = 200
    foreign: tuple[int, str] | None = None  # None: the same response without other queues
    body: Any = None
    state: str = "scheduled"
    key: str = "{scope}"  # of those that may; operations are seen by the key that started them, and by unlimited ones
    gate: frozenset[Scope] = frozenset()  # the scopes of which the gate asks for any one


NO_JOB, NO_QUEUE, NO_LEASE = (404, "job_not_found"), (404, "queue_not_found"), (404, "lease_not_found")
NO_SCHEDULE, NO_OPERATION = (404, "schedule_not_found"), (404, "operation_not_found")
REFUSED = (403, "forbidden")
SCHEDULE = {"cron": "@yearly", "job": {"kind": "echo", "queue": "mail"}}
OPERATION = {"action": "cancel", "filter": {"queue": ["mail"]}, "at_most": 0}
BACKFILL = {"from": "2025-01-01T00:00:00Z", "to": "2026-01-01T00:00:00Z"}
ACTS = frozenset({SUBMIT, CANCEL})
UNLIMITED = "all-{scope}"
ASK = {"kinds": ["resize"], "queues": ["mail"]}
DECISIONS = {
    "POST /v1/jobs": Decision(SUBMIT, 201, REFUSED, JOB),
    "POST /v1/jobs/batch": Decision(SUBMIT, 201, REFUSED, {"jobs": [JOB]}),
    "POST /v1/jobs/wait": Decision(READ, body={"jobs": ["0" * 26]}),
    "GET /v1/jobs": Decision(READ),
    "GET /v1/jobs/{id}": Decision(READ, 200, NO_JOB),
    "GET /v1/jobs/{id}/explain": Decision(READ, 200, NO_JOB),
    "PATCH /v1/jobs/{id}": Decision(SUBMIT, 200, NO_JOB, {"priority": 1}),
    "DELETE /v1/jobs/{id}": Decision(CANCEL, 204, NO_JOB),
    "POST /v1/jobs/{id}/cancel": Decision(CANCEL, 200, NO_JOB, {"reason": "none"}),
    "POST /v1/jobs/{id}/run": Decision(SUBMIT, 200, NO_JOB),
    "POST /v1/jobs/{id}/retry": Decision(SUBMIT, 200, NO_JOB, state="cancelled"),
    "GET /v1/queues": Decision(READ),
    "GET /v1/queues/{queue}": Decision(READ, 200, NO_QUEUE),
    "PUT /v1/queues/{queue}": Decision(ADMIN, 200, NO_QUEUE, {"concurrency": 7}),
    "DELETE /v1/queues/{queue}": Decision(ADMIN, 204, NO_QUEUE, state="cancelled"),
    "POST /v1/queues/{queue}/pause": Decision(ADMIN, 200, NO_QUEUE, {"reason": "none"}),
    "POST /v1/queues/{queue}/resume": Decision(ADMIN, 200, NO_QUEUE),
    "POST /v1/queues/{queue}/purge": Decision(CANCEL, 200, NO_QUEUE),
    "POST /v1/leases": Decision(WORK, 200, REFUSED, ASK, "due"),
    "POST /v1/leases/{token}/extend": Decision(WORK, 200, NO_LEASE, state="leased"),
    "POST /v1/leases/{token}/finish": Decision(WORK, 200, NO_LEASE, {"result": 1}, "leased"),
    "POST /v1/leases/{token}/fail": Decision(WORK, 200, NO_LEASE, state="leased"),
    "POST /v1/leases/{token}/release": Decision(WORK, 200, NO_LEASE, state="leased"),
    "GET /v1/schedules": Decision(READ),
    "GET /v1/schedules/{schedule}": Decision(READ, 200, NO_SCHEDULE),
    "PUT /v1/schedules/{schedule}": Decision(SUBMIT, 200, NO_SCHEDULE, SCHEDULE),
    "PATCH /v1/schedules/{schedule}": Decision(SUBMIT, 200, NO_SCHEDULE, {"spread": 5}),
    "DELETE /v1/schedules/{schedule}": Decision(CANCEL, 204, NO_SCHEDULE),
    "POST /v1/schedules/{schedule}/pause": Decision(CANCEL, 200, NO_SCHEDULE),
    "POST /v1/schedules/{schedule}/resume": Decision(SUBMIT, 200, NO_SCHEDULE),
    "POST /v1/schedules/{schedule}/trigger": Decision(SUBMIT, 201, NO_SCHEDULE),
    "POST /v1/schedules/{schedule}/backfill": Decision(SUBMIT, 202, NO_SCHEDULE, BACKFILL),
    "GET /v1/schedules/{schedule}/preview": Decision(READ, 200, NO_SCHEDULE),
    "GET /v1/me": Decision(ANY_KEY),
    "POST /v1/operations": Decision(CANCEL, 202, REFUSED, OPERATION, gate=ACTS),
    "GET /v1/operations": Decision(READ),
    "GET /v1/operations/{operation}": Decision(READ, 200, NO_OPERATION, key=UNLIMITED),
    "POST /v1/operations/{operation}/cancel": Decision(CANCEL, 200, NO_OPERATION, key=UNLIMITED, gate=ACTS),
    "GET /v1/stats": Decision(READ),
    "GET /v1/events": Decision(READ),
    "GET /v1/due": Decision(READ),
    "GET /v1/jobs/errors": Decision(READ),
    "GET /v1/kinds": Decision(READ),
    "GET /v1/kinds/{kind}": Decision(READ),
    "PUT /v1/kinds/{kind}": Decision(ADMIN, 200, REFUSED, {"timeout": 7}, key=UNLIMITED),
    "DELETE /v1/kinds/{kind}": Decision(ADMIN, 200, REFUSED, key=UNLIMITED),
    "GET /livez": Decision(None),
    "GET /readyz": Decision(None),
    "GET /metrics": Decision(None),
    "GET /openapi.json": Decision(None),
    "GET /docs": Decision(None),
    "GET /": Decision(None),
    "GET /ui/{digest}/{file}": Decision(None),
}
PAGES = ("/", "/ui/{digest}/{file}")  # not in the document of the API
CLOSED_METRICS = Decision(READ, 200, REFUSED)


@pytest.fixture
async def keyed(serve: Serve) -> Keyed:
    """A service with keys for everything (root), two queues (mail, other), and each scope (read, no-read, …)."""
    keys = Keys().add("root").add("mail", queues=["mail"]).add("other", queues=["other"])
    for scope in Scope:
        keys.add(f"all-{scope}", scope)
        keys.add(scope, scope, queues=["mail"]).add(f"no-{scope}", *(other for other in Scope if other is not scope))
    return await serve_keyed(serve, keys)


class World(NamedTuple):
    """A job of the queue mail, and the path of a route filled with its names."""

    id: str
    path: str
    method: str
    decision: Decision

    async def ask(self, keyed: Keyed, **headers: str) -> Answer:
        return await keyed.service.call(self.method, self.path, self.decision.body, headers=headers)


async def make_world(keyed: Keyed, name: str, decision: Decision) -> World:
    method, path = name.split()
    with keyed.using("root") as service:
        match decision.state:
            case "due" | "leased":
                job = await service.submit(kind="resize", queue="mail")
            case state:
                job = await service.submit_into(state, queue="mail")
        assert (await service.put("/v1/schedules/report", SCHEDULE)).status == 201
        assert (await service.put("/v1/kinds/crop", {})).status == 201
        operation = (await service.post("/v1/operations", OPERATION)).json["id"]
        token = ""
        if decision.state == "leased":
            (lease,) = (await service.post("/v1/leases", {"kinds": ["resize"], "wait": 5, "lease": 600})).json["leases"]
            token = lease["token"]
    known = {"id": job["id"], "queue": "mail", "token": token, "schedule": "report", "operation": operation}
    known |= {"kind": "crop", "digest": read_files().digest, "file": "ui.js"}
    return World(job["id"], path.format_map(known), method, decision)


async def state_of(keyed: Keyed, world: World) -> Any:
    """Return everything that a request could have changed."""
    with keyed.using("root") as service:
        queue = (await service.get("/v1/queues/mail")).json
        del queue["oldest_due_age"]
        job = await service.job(world.id)
        del job["waiting_for"]
        schedule = (await service.get("/v1/schedules/report")).json
        kinds = [(kind["name"], kind["timeout"]) for kind in (await service.get("/v1/kinds")).json["kinds"]]
        return job, queue, len((await service.get("/v1/jobs")).json["jobs"]), schedule, kinds


def wrong_headers(keyed: Keyed) -> Iterator[str]:
    """Yield headers with invalid keys, some of them close to a valid one."""
    root = keyed.keys.texts["root"]
    yield from ("", "Bearer", "Bearer ", "Basic cm9vdDpyb290", f"Basic {root}", root, f"Bearer {new_key()}", "Bearer x")
    yield from (
        f"Bearer {root[:-1]}",
        f"Bearer {root}x",
        f"Bearer {root.upper()}",
        f"Bearer {root[:17] + new_key()[17:]}",
    )
    yield from (f"Bearer {new_key()[:17] + root[17:]}", f"Bearer é{root[1:]}", f"Bearer {root}, Bearer {root}")
    yield f"Bearer {'x' * 4_000}"


async def assert_decided(keyed: Keyed, name: str, decision: Decision) -> None:
    world = await make_world(keyed, name, decision)
    before = await state_of(keyed, world)
    if decision.scope is None:
        for header in ({}, *({"Authorization": text} for text in wrong_headers(keyed))):
            assert (await world.ask(keyed, **header)).status == decision.gives
        return

    for header in ({}, *({"Authorization": text} for text in wrong_headers(keyed))):
        answer = await world.ask(keyed, **header)
        assert (answer.status, answer.headers["WWW-Authenticate"]) == (401, "Bearer"), header
        assert world.method == "HEAD" or answer.code == "unauthenticated"

    for scope in [scope for scope in Scope if scope is decision.scope]:
        with keyed.using(f"no-{scope}"):
            answer = await world.ask(keyed)
        assert answer.status == 403
        if world.method != "HEAD":
            assert answer.code == "forbidden"
            assert f"needs the scope {scope}; API key 'no-{scope}' has" in answer.json["detail"]

    with keyed.using("other"):
        answer = await world.ask(keyed)
        if decision.foreign is None:
            assert answer.status == decision.gives
            assert b'"mail"' not in answer.body
        elif world.method == "HEAD":
            assert answer.status == decision.foreign[0]
        else:
            assert (answer.status, answer.code) == decision.foreign

    assert await state_of(keyed, world) == before
    for need in Scope if decision.scope is ANY_KEY else (decision.scope,):
        with keyed.using(decision.key.format(scope=need)):
            assert (await world.ask(keyed)).status == decision.gives


def names(*, of: Keyed) -> set[str]:
    """Return the names of all routes."""
    return set(of.service.node.router.routes())


async def test_every_route_has_a_decision(keyed: Keyed) -> None:
    decided = {*DECISIONS, *(name.replace("GET", "HEAD") for name in DECISIONS if name.startswith("GET"))}

    assert names(of=keyed) == decided


@pytest.mark.parametrize("name", DECISIONS)
async def test_route_answers_only_authorized_callers(keyed: Keyed, name: str) -> None:
    await assert_decided(keyed, name, DECISIONS[name])


@pytest.mark.parametrize("name", [name for name in DECISIONS if name.startswith("GET")])
async def test_head_needs_the_same_scope_as_get(keyed: Keyed, name: str) -> None:
    await assert_decided(keyed, name.replace("GET", "HEAD"), DECISIONS[name])


async def test_document_names_the_scope_of_each_route(keyed: Keyed) -> None:
    document = (await keyed.service.get("/openapi.json")).json

    for name, decision in DECISIONS.items():
        method, path = name.split()
        if path in PAGES:
            continue
        operation = document["paths"][path][method.lower()]
        if decision.scope is not None:
            scopes = [scope for scope in Scope if scope in (decision.gate or {decision.scope})]
            assert operation["security"] == [{"key": [scope]} for scope in sorted(scopes)] or [{"key": []}]
            assert {"401", "403", "429"} <= set(operation["responses"])
        else:
            assert operation["security"] == ([{}, {"key": ["read"]}] if path == "/readyz" else [])
            assert not {"401", "403", "429"} & set(operation["responses"])
    assert document["components"]["securitySchemes"]["key"]["scheme"] == "bearer"


@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_metrics_can_be_closed(serve: Serve, method: str) -> None:
    keys = Keys().add("root").add("other", queues=["other"]).add("read", READ).add("no-read", SUBMIT)
    keyed = await serve_keyed(serve, keys, open_metrics=False)

    await assert_decided(keyed, f"{method} /metrics", CLOSED_METRICS)


# the Authorization header


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER", "bEaReR", "Bearer "])
async def test_scheme_is_case_insensitive(keyed: Keyed, scheme: str) -> None:
    header = {"Authorization": f"{scheme} {keyed.keys.texts['root']}"}

    assert (await keyed.service.get("/v1/jobs", headers=header)).status == 200


async def test_header_that_is_not_text_is_not_a_key(keyed: Keyed) -> None:
    request = b"GET /v1/jobs HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: Bearer erl_%s\r\n\r\n"

    for noise in (b"\xff\xfe", b"\xed\xa0\x80", b"\xff" * 56, b"\xed\xa0\x80" * 10 + b"x" * 26):
        assert (await keyed.service.raw(request % noise)).startswith(b"HTTP/1.1 401 ")


async def test_key_in_a_query_or_another_header_is_ignored(keyed: Keyed) -> None:
    key = keyed.keys.texts["root"]

    assert (await keyed.service.get(f"/v1/jobs?key={key}")).status == 401
    assert (await keyed.service.get("/v1/jobs", headers={"Cookie": f"key={key}", "X-Api-Key": key})).status == 401


async def test_two_keys_live_side_by_side(serve: Serve) -> None:
    keyed = await serve_keyed(serve, Keys().add("app").add("app-next"))

    for name in ("app", "app-next"):
        with keyed.using(name) as service:
            assert (await service.post("/v1/jobs", JOB)).status == 201


# order of the checks


async def test_caller_without_a_key_learns_only_that_one_is_needed(keyed: Keyed) -> None:
    service = keyed.service

    assert (await service.get("/v1/jobs?no_such=1")).status == 401
    assert (await service.post("/v1/jobs", data=b"{", type="application/json")).status == 401
    assert (await service.post("/v1/jobs", data=b"x", type="text/plain")).status == 401
    assert (await service.stream({"kind": "nope"})).status == 401
    assert (await service.put("/v1/queues/no%20name", {})).status == 401


async def test_body_of_a_caller_without_a_key_is_not_read(keyed: Keyed) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", keyed.service.port)
    writer.write(b"POST /v1/jobs/batch HTTP/1.1\r\nHost: localhost\r\nContent-Length: 16000000\r\n\r\n{")
    began = asyncio.get_running_loop().time()

    line = await reader.readline()

    assert line.startswith(b"HTTP/1.1 401 ")
    assert asyncio.get_running_loop().time() - began < 0.1
    writer.close()


@pytest.mark.parametrize(("name", "status"), [(None, 401), ("no-submit", 403), ("root", 100)])
async def test_expected_body_is_requested_only_from_admitted_callers(
    keyed: Keyed, name: str | None, status: int
) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", keyed.service.port)
    key = f"Authorization: Bearer {keyed.keys.texts[name]}\r\n" if name else ""
    head = f"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\n{key}Content-Length: 50\r\n\r\n"
    writer.write(head.encode())

    assert (await reader.readline()).startswith(b"HTTP/1.1 %d " % status)

    writer.close()


async def test_unknown_route_is_not_found_with_and_without_a_key(keyed: Keyed) -> None:
    for name in (None, "root"):
        with keyed.using(name) as service:
            assert (await service.get("/v1/nothing")).code == "no_such_route"
            assert (await service.put("/v1/jobs", {})).code == "method_not_allowed"


# without keys


async def test_service_without_keys_needs_none(serve: Serve) -> None:
    service = await serve()

    for headers in ({}, {"Authorization": f"Bearer {new_key()}"}, {"Authorization": "nonsense"}):
        assert (await service.post("/v1/jobs", JOB, headers=headers)).status == 201


async def test_allow_anonymous_admits_callers_without_a_key_and_refuses_wrong_keys(serve: Serve) -> None:
    keyed = await serve_keyed(serve, Keys().add("read", READ, queues=["other"]), allow_anonymous=True)

    job = await keyed.service.submit(queue="mail", delay=1_000)

    assert (await keyed.service.get(f"/v1/jobs/{job['id']}")).status == 200
    for header in wrong_headers(Keyed(service=keyed.service, keys=Keys().add("root"))):
        assert (await keyed.service.post("/v1/jobs", JOB, headers={"Authorization": header})).status == 401
    with keyed.using("read") as service:
        assert (await service.post("/v1/jobs", JOB)).status == 403
        assert (await service.get(f"/v1/jobs/{job['id']}")).status == 404


@pytest.mark.parametrize(
    ("name", "has_checks"), [(None, False), ("read", True), ("root", True), ("no-read", False), ("other", True)]
)
async def test_readiness_is_public_and_its_detail_needs_the_read_scope(
    keyed: Keyed, name: str | None, has_checks: bool
) -> None:
    with keyed.using(name) as service:
        answer = await service.get("/readyz")

    assert (answer.status, answer.json["ready"], "checks" in answer.json) == (200, True, has_checks)


async def test_allowed_anonymous_callers_see_the_detail_of_readiness(serve: Serve) -> None:
    keyed = await serve_keyed(serve, Keys().add("root"), allow_anonymous=True)

    assert "checks" in (await keyed.service.get("/readyz")).json
    assert "checks" not in (await keyed.service.get("/readyz", headers={"Authorization": "Bearer x"})).json


# rates


async def test_key_over_its_rate_gets_a_retry_after(serve: Serve) -> None:
    keyed = await serve_keyed(serve, Keys().add("slow", rate=Rate(per_second=0.5, burst=3)).add("root"))

    with keyed.using("slow") as service:
        answers = [await service.get("/v1/jobs") for _ in range(4)]
        assert [answer.status for answer in answers] == [200, 200, 200, 429]
        assert (answers[-1].code, answers[-1].headers["Retry-After"]) == ("rate_limited", "2")
        assert (await service.get("/livez")).status == 200
        await asyncio.sleep(1.9)
        assert (await service.get("/v1/jobs")).status == 429
        await asyncio.sleep(0.2)
        assert (await service.post("/v1/jobs", JOB)).status == 201
        assert (await service.post("/v1/jobs", JOB)).status == 429
    with keyed.using("root") as service:
        assert (await service.get("/v1/jobs")).status == 200


async def test_refused_requests_count_toward_the_rate(serve: Serve) -> None:
    keyed = await serve_keyed(serve, Keys().add("slow", READ, rate=Rate(per_second=1, burst=2)))

    with keyed.using("slow") as service:
        assert [(await service.post("/v1/jobs", JOB)).status for _ in range(3)] == [403, 403, 429]


async def test_wrong_key_does_not_use_the_rate_of_the_right_one(serve: Serve) -> None:
    keyed = await serve_keyed(serve, Keys().add("slow", rate=Rate(per_second=1, burst=1)))
    forged = {"Authorization": f"Bearer {keyed.keys.texts['slow'][:17]}{new_key()[17:]}"}

    assert {(await keyed.service.get("/v1/jobs", headers=forged)).status for _ in range(20)} == {401}
    with keyed.using("slow") as service:
        assert (await service.get("/v1/jobs")).status == 200
