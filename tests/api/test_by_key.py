"""`~` and a key in place of an id: every call acts on the live job that holds the key."""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import quote

import pytest

from erelong.api import openapi
from tests.support.keyed import Keys, serve_keyed
from tests.support.served import Answer, Serve, Served

STEPS = {
    "read": ("GET", ""),
    "wait": ("GET", "?wait=1"),
    "patch": ("PATCH", ""),
    "cancel": ("POST", "/cancel"),
    "run": ("POST", "/run"),
    "retry": ("POST", "/retry"),
    "delete": ("DELETE", ""),
}
WRITES = [name for name, (method, _) in STEPS.items() if method != "GET"]


async def call(service: Served, name: str, id: str, query: str = "", **options: Any) -> Answer:
    method, path = STEPS[name]
    query = query.replace("?", "&") if "?" in path else query
    body = {"priority": 7} if name == "patch" else None
    return await service.call(method, f"/v1/jobs/{id}{path}{query}", body, **options)


@pytest.mark.parametrize("name", ["read", "wait", "patch", "cancel", "run"])
async def test_call_by_key_acts_on_its_holder(service: Served, name: str) -> None:
    holder = await service.submit_into("scheduled", key="order-7")

    answer = await call(service, name, "~order-7")

    assert (answer.status, answer.json["id"]) == (200, holder["id"])
    assert answer.headers["ETag"] == f'"{answer.json["version"]}"'
    assert (await service.job(holder["id"]))["version"] == (2 if name in WRITES else 1) + (2 if name == "run" else 0)


async def test_holder_is_deleted_by_its_key(service: Served) -> None:
    holder = await service.submit_into("scheduled", key="k")

    assert (await service.delete("/v1/jobs/~k")).status == 204
    assert (await service.get(f"/v1/jobs/{holder['id']}")).status == 404


async def test_running_holder_is_stopped_by_its_key(service: Served) -> None:
    holder = await service.submit_into("running", key="k")

    answer = await service.post("/v1/jobs/~k/cancel", {"reason": "paid"})

    assert (answer.status, answer.json["id"], answer.json["cancel_requested"]) == (202, holder["id"], True)
    assert (await service.until(holder["id"], "cancelled"))["error"]["message"] == "paid"


@pytest.mark.parametrize(("name", "state"), [("retry", "scheduled"), ("retry", "running"), ("delete", "running")])
async def test_state_of_the_holder_refuses_a_step_as_by_its_id(service: Served, name: str, state: str) -> None:
    holder = await service.submit_into(state, key="k")

    answer = await call(service, name, "~k")

    assert (answer.status, answer.code, answer.json["job"]["id"]) == (409, "wrong_state", holder["id"])
    assert f" job {holder['id']}: it is {state}; " in answer.json["detail"]


@pytest.mark.parametrize("key", ["a/b", "50%", "a b?c#d", "~", "%2F", "ä".encode().hex(), "~" * 255])
async def test_key_is_percent_encoded(service: Served, key: str) -> None:
    holder = await service.submit_into("scheduled", key=key)

    assert (await service.get(f"/v1/jobs/~{quote(key, safe='')}")).json["id"] == holder["id"]
    assert (await service.post(f"/v1/jobs/~{quote(key, safe='')}/cancel")).json["id"] == holder["id"]


# queues


@pytest.mark.parametrize("name", STEPS)
async def test_queue_parameter_selects_the_holder_of_a_key(service: Served, name: str) -> None:
    await service.submit_into("scheduled", key="k")
    mail = await service.submit_into("scheduled", key="k", queue="mail")
    await service.post("/v1/queues/mail/pause")

    answer = await call(service, name, "~k", "?queue=mail")

    if name == "retry":
        assert answer.json["job"]["id"] == mail["id"]
    elif name == "delete":
        assert (answer.status, (await service.get("/v1/jobs/~k")).status) == (204, 200)
    else:
        assert answer.json["id"] == mail["id"]


@pytest.mark.parametrize("name", STEPS)
async def test_queue_beside_an_id_is_refused(service: Served, name: str) -> None:
    job = await service.submit_into("scheduled")

    answer = await call(service, name, job["id"], "?queue=default")

    assert (answer.status, answer.pointers) == (422, ["/queue"])
    assert await service.job(job["id"]) == job


@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize(
    ("query", "pointer"), [("?queue=", "/queue"), ("?queue=a&queue=b", "/queue"), ("?quue=mail", "/quue")]
)
async def test_invalid_query_is_refused(service: Served, name: str, query: str, pointer: str) -> None:
    job = await service.submit_into("scheduled", key="k")

    answer = await call(service, name, "~k", query)

    assert (answer.status, answer.pointers) == (422, [pointer])
    assert await service.job(job["id"]) == job


# no holder


@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("state", [None, "succeeded", "failed", "cancelled", "expired"])
async def test_key_that_no_live_job_holds_is_not_found(service: Served, name: str, state: str | None) -> None:
    if state is not None:
        await service.submit_into(state, key="order 7/2")

    answer = await call(service, name, "~order%207%2F2")

    assert (answer.status, answer.code) == (404, "job_not_found")
    assert "GET /v1/jobs?key=order%207%2F2&queue=default " in answer.json["detail"]


async def test_listing_named_by_the_404_finds_earlier_holders(service: Served) -> None:
    ended = await service.submit_into("failed", key="order 7/2", queue="mail")
    detail = (await service.get("/v1/jobs/~order%207%2F2?queue=mail")).json["detail"]

    listed = await service.get(detail.partition("GET ")[2].partition(" ")[0])

    assert [job["id"] for job in listed.json["jobs"]] == [ended["id"]]


@pytest.mark.parametrize("key", ["", "%00", "%C3%A4", "k" * 256, "%FF", "%0A"])
async def test_invalid_key_is_not_found(service: Served, key: str) -> None:
    await service.submit_into("scheduled", key="k")

    assert (await service.get(f"/v1/jobs/~{key}")).code == "job_not_found"


async def test_key_limited_to_queues_finds_no_holder_in_others(serve: Serve) -> None:
    keyed = await serve_keyed(serve, Keys().add("root").add("mail", queues=["mail"]))
    with keyed.using("root") as service:
        for queue in ("mail", "other", "default"):
            await service.submit(queue=queue, key="k", delay=1_000)
    with keyed.using("mail") as service:
        for name in STEPS:
            assert (await call(service, name, "~k")).code == "job_not_found"
            hidden, unknown = [await call(service, name, f"~{key}", "?queue=other") for key in ("k", "n")]
            assert (hidden.status, hidden.code) == (404, "job_not_found")
            assert hidden.json["detail"].replace("=k&", "=n&").replace("'k'", "'n'") == unknown.json["detail"]
        assert (await service.get("/v1/jobs/~k?queue=mail")).status == 200


# versions, and waiting


@pytest.mark.parametrize("name", WRITES)
@pytest.mark.parametrize("match", ['"1"', "*", "x"])
async def test_version_beside_a_key_is_refused(service: Served, name: str, match: str) -> None:
    job = await service.submit_into("scheduled", key="k")

    answer = await call(service, name, "~k", headers={"If-Match": match})

    assert (answer.status, answer.pointers) == (422, ["/If-Match"])
    assert await service.job(job["id"]) == job


async def test_known_version_of_an_earlier_holder_gives_no_304(service: Served) -> None:
    first = await service.submit(key="k", delay=1_000)
    await service.delete("/v1/jobs/~k")
    second = await service.submit(key="k", delay=1_000)

    answer = await service.get("/v1/jobs/~k", headers={"If-None-Match": '"1"'})

    assert (first["version"], second["version"]) == (1, 1)
    assert (answer.status, answer.json) == (200, second)


async def test_wait_by_key_with_a_known_version_ends_with_the_next_version(service: Served) -> None:
    holder = await service.submit(key="k", delay=1_000)
    waiting = asyncio.create_task(service.get("/v1/jobs/~k?wait=60", headers={"If-None-Match": '"1"'}))
    await asyncio.sleep(5)

    await service.patch(f"/v1/jobs/{holder['id']}", {"priority": 3})

    assert ((await waiting).json["id"], (await waiting).json["version"]) == (holder["id"], 2)


async def test_long_poll_stays_with_the_job_that_it_found_first(service: Served) -> None:
    first = await service.submit(key="k", delay=1_000)
    waiting = asyncio.create_task(service.get("/v1/jobs/~k?wait=60"))
    await asyncio.sleep(5)

    await service.post(f"/v1/jobs/{first['id']}/cancel")
    await service.submit(key="k", delay=1_000)

    assert ((await waiting).json["id"], (await waiting).json["state"]) == (first["id"], "cancelled")


async def test_step_by_key_that_loses_a_race_acts_on_the_new_holder(service: Served) -> None:
    first = await service.submit(key="k", delay=1_000)
    gate = service.store.hold("save")
    step = asyncio.create_task(service.patch("/v1/jobs/~k", {"priority": 3}))
    await asyncio.sleep(1)
    await service.delete(f"/v1/jobs/{first['id']}")
    second = await service.submit(key="k", delay=1_000)

    gate.set()

    assert ((await step).status, (await step).json["id"]) == (200, second["id"])


async def test_document_describes_the_key_in_place_of_an_id(service: Served) -> None:
    paths = (await service.get("/openapi.json")).json["paths"]

    for path in (path for path in paths if "{id}" in path):
        for operation in paths[path].values():
            parameters = {parameter.get("name"): parameter for parameter in operation["parameters"]}
            assert parameters["id"]["description"] == openapi._PATHS["id"]
            assert "`default`" in parameters["queue"]["description"]
