"""Kinds with their jobs and workers, and pull kinds that clients declare while the service runs."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from erelong.errors import StorageFull, StoreUnavailable
from erelong.service import kinds as kinds_module
from erelong.settings.kinds import KindSettings
from erelong.settings.queues import RetryPatch
from erelong.stores.memory import MemoryStore
from tests.support.kinds import FakeRunner
from tests.support.served import Answer, Serve, Served, ServedStore
from tests.support.virtual import VirtualClock

SCHEMA = {
    "type": "object",
    "properties": {"image": {"type": "string"}, "size": {"type": "integer", "minimum": 1}},
    "required": ["image"],
    "additionalProperties": False,
}
DECLARED = {"resize": KindSettings(pull=True, timeout=9.0, retry=RetryPatch(max_attempts=2))}


async def kinds_of(service: Served) -> dict[str, dict[str, Any]]:
    return {kind["name"]: kind for kind in (await service.get("/v1/kinds")).json["kinds"]}


async def declare(service: Served, name: str = "crop", **fields: Any) -> Answer:
    return await service.put(f"/v1/kinds/{name}", fields)


async def lease(service: Served, *kinds: str, **fields: Any) -> Answer:
    return await service.post("/v1/leases", {"kinds": kinds, **fields})


# jobs and workers of a kind


async def test_each_kind_says_where_it_is_declared(serve: Serve) -> None:
    service = await serve(declared=DECLARED)
    await declare(service)

    kinds = await kinds_of(service)

    assert {name: kind["declared"] for name, kind in kinds.items()} == {
        "crop": "api",
        "echo": "built-in",
        "endless": "config",
        "http": "built-in",
        "resize": "config",
    }
    assert [*kinds] == sorted(kinds)


async def test_kind_shows_its_defaults(serve: Serve) -> None:
    service = await serve(declared=DECLARED | {"http": KindSettings(timeout=5.0)})

    kinds = await kinds_of(service)

    assert (kinds["resize"]["timeout"], kinds["resize"]["retry"]) == (9.0, {"max_attempts": 2})
    assert (kinds["http"]["timeout"], kinds["http"]["retry"]) == (5.0, None)
    assert (kinds["echo"]["timeout"], kinds["echo"]["retry"]) == (None, None)


async def test_jobs_of_each_kind_are_counted(serve: Serve) -> None:
    service = await serve(declared=DECLARED)
    await service.post("/v1/queues/paused/pause")
    for fields in ({"delay": 60}, {}, {}, {"queue": "other"}):
        await service.submit(kind="resize", **fields)
    await service.submit(kind="echo", queue="paused")
    await service.submit(kind="echo", queue="paused", delay=60)
    failed = await service.submit(kind="echo", params={"fail": "x"}, retry={"max_attempts": 1})
    await service.until(failed["id"], "failed")

    kinds = await kinds_of(service)

    assert kinds["resize"]["counts"] == {"due": 3, "waiting": 4, "failed": 0}
    assert kinds["echo"]["counts"] == {"due": 1, "waiting": 2, "failed": 1}
    assert kinds["http"]["counts"] == {"due": 0, "waiting": 0, "failed": 0}


async def test_workers_that_wait_are_counted(serve: Serve, clock: VirtualClock) -> None:
    service = await serve(declared=DECLARED | {"crop": KindSettings(pull=True)})
    before = (await kinds_of(service))["resize"]
    asking = [
        asyncio.create_task(lease(service, "resize", "crop", wait=5)),
        asyncio.create_task(lease(service, "resize", queues=["a", "b"], wait=10)),
    ]
    await asyncio.sleep(1)

    during = await kinds_of(service)
    await asyncio.gather(*asking)
    await asyncio.sleep(20)
    after = await kinds_of(service)

    assert (before["polling"], before["last_polled_at"]) == (0, None)
    assert (during["resize"]["polling"], during["crop"]["polling"]) == (2, 1)
    assert during["resize"]["last_polled_at"].startswith("2026-01-01T00:00:01")
    assert (after["resize"]["polling"], after["crop"]["polling"]) == (0, 0)
    assert after["resize"]["last_polled_at"].startswith("2026-01-01T00:00:10")
    assert after["crop"]["last_polled_at"].startswith("2026-01-01T00:00:05")
    assert (after["echo"]["polling"], after["echo"]["last_polled_at"]) == (None, None)


async def test_example_of_a_kind_is_accepted(serve: Serve) -> None:
    service = await serve(declared={"resize": KindSettings(pull=True, params_schema=SCHEMA)})

    examples = {name: kind["example"] for name, kind in (await kinds_of(service)).items() if name != "endless"}
    for name, example in examples.items():
        answer = await service.post("/v1/jobs?dry_run=true", {"kind": name, "params": example})
        assert answer.status == 200, name

    assert {*examples} == {"echo", "http", "resize"}
    assert examples["resize"] == {"image": "text"}


async def test_one_kind_is_read(service: Served) -> None:
    (listed,) = [kind for kind in (await service.get("/v1/kinds")).json["kinds"] if kind["name"] == "http"]

    assert (await service.get("/v1/kinds/http")).json == listed
    missing = await service.get("/v1/kinds/emial")
    assert (missing.status, missing.code) == (404, "kind_not_found")
    assert "known kinds: echo" in missing.json["detail"]


# declarations


async def test_declared_kind_serves_workers_at_once(service: Served) -> None:
    unknown = await service.post("/v1/jobs", {"kind": "crop", "params": {"image": "cat"}})
    answer = await declare(service, params_schema=SCHEMA, timeout="2m", retry={"max_attempts": 3})
    job = await service.submit(kind="crop", params={"image": "cat"})
    leased = await lease(service, "crop")

    assert unknown.status == 422
    assert (answer.status, answer.headers["Location"]) == (201, "/v1/kinds/crop")
    assert (answer.json["type"], answer.json["declared"], answer.json["stop"]) == ("pull", "api", "cooperative")
    assert (answer.json["params_schema"], answer.json["timeout"]) == (SCHEMA, 120.0)
    assert (answer.json["retry"], answer.json["example"]) == ({"max_attempts": 3}, {"image": "text"})
    assert (job["timeout"], job["retry"]["max_attempts"]) == (120.0, 3)
    assert [each["job"]["id"] for each in leased.json["leases"]] == [job["id"]]


async def test_params_of_a_declared_kind_are_checked(service: Served) -> None:
    await declare(service, params_schema=SCHEMA)

    answer = await service.post("/v1/jobs", {"kind": "crop", "params": {"image": 7, "size": 0, "x": 1}})

    assert (answer.status, answer.pointers) == (422, ["/params/image", "/params/size", "/params/x"])


async def test_new_declaration_applies_to_the_next_submit(service: Served) -> None:
    await declare(service, params_schema=SCHEMA, timeout=5)
    first = await service.submit(kind="crop", params={"image": "cat"})
    same = await service.submit(kind="crop", params={"image": "dog"})

    answer = await declare(service, timeout=7, params_schema={"required": ["url"]})
    refused = await service.post("/v1/jobs", {"kind": "crop", "params": {"image": "cat"}})
    taken = await service.submit(kind="crop", params={"url": "x"})

    assert (answer.status, [job["timeout"] for job in (first, same, taken)]) == (200, [5.0, 5.0, 7.0])
    assert (refused.status, refused.pointers) == (422, ["/params/url"])


async def test_declaration_without_fields_takes_any_object(service: Served) -> None:
    answer = await declare(service, params_schema=None, timeout=None, retry=None)

    assert (answer.json["params_schema"], answer.json["timeout"], answer.json["retry"]) == (
        {"type": "object"},
        None,
        None,
    )
    await service.submit(kind="crop", params={"anything": [1]})


async def test_same_declaration_again_writes_nothing(service: Served) -> None:
    await declare(service, params_schema=SCHEMA, timeout=5)
    service.store.calls.clear()
    service.store.broken["add"] = StorageFull("the disk is full")

    answer = await declare(service, params_schema=SCHEMA, timeout="5s")

    assert answer.status == 200


@pytest.mark.parametrize(("name", "reason"), [("http", "is built in, so no"), ("resize", "change it there")])
async def test_kind_of_the_settings_cannot_be_changed(serve: Serve, name: str, reason: str) -> None:
    service = await serve(declared=DECLARED)

    answers = [await declare(service, name), await service.delete(f"/v1/kinds/{name}")]

    for answer in answers:
        assert (answer.status, answer.code) == (409, "kind_fixed")
        assert reason in answer.json["detail"]


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"params_schema": {"properties": {"x": {"pattern": "(a+)+$"}}}}, "/params_schema/properties/x/pattern"),
        ({"params_schema": {"items": {"$ref": "http://127.0.0.1/x"}}}, "/params_schema/items/$ref"),
        ({"params_schema": {"type": "strng"}}, "/params_schema/type"),
        ({"params_schema": {"description": "x" * 66_000}}, "/params_schema"),
        ({"params_schema": []}, "/params_schema"),
        ({"timeout": "25h"}, "/timeout"),
        ({"timeout": 0}, "/timeout"),
        ({"retry": {"max_attempts": 0}}, "/retry/max_attempts"),
        ({"python": "os:system"}, "/python"),
        ({"command": ["rm"]}, "/command"),
    ],
)
async def test_invalid_declaration_is_refused_with_its_pointer(
    service: Served, body: dict[str, Any], pointer: str
) -> None:
    answer = await declare(service, **body)

    assert (answer.status, answer.pointers) == (422, [pointer])
    assert "crop" not in await kinds_of(service)


async def test_schema_may_have_many_properties_and_32_levels(service: Served) -> None:
    schema: dict[str, Any] = {"properties": {f"p{number}": {"type": "string"} for number in range(1_000)}}
    nested: dict[str, Any] = {}
    for _ in range(15):
        nested = {"properties": {"x": nested}}

    assert (await declare(service, params_schema=schema)).status == 201
    assert (await declare(service, params_schema=nested)).status == 200


@pytest.mark.parametrize("name", ["a b", "é", "x" * 101, "~a"])
async def test_bad_name_is_refused(service: Served, name: str) -> None:
    answer = await service.put(f"/v1/kinds/{name.replace(' ', '%20').replace('é', '%C3%A9')}", {})

    assert answer.status == 422
    assert "1 to 100 of A-Z a-z 0-9 . _ -" in answer.json["detail"]


async def test_number_of_kinds_and_size_of_their_schemas_are_bounded(
    service: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kinds_module, "MAX_KINDS", 2)
    monkeypatch.setattr(kinds_module, "MAX_SCHEMAS", 100)

    large = await declare(service, "a", params_schema={"description": "x" * 100})
    answers = [await declare(service, name) for name in ("a", "b", "c", "b")]

    assert (large.status, large.code) == (429, "too_many")
    assert "100" in large.json["detail"]
    assert [answer.status for answer in answers] == [201, 201, 429, 200]


async def test_document_lists_declared_kinds(service: Served) -> None:
    await declare(service, params_schema={"$ref": "#/$defs/a", "$defs": {"a": {"type": "object"}}})

    schemas = (await service.get("/openapi.json")).json["components"]["schemas"]

    assert "crop" in schemas["JobIn"]["properties"]["kind"]["enum"]
    assert schemas["params.crop"]["$ref"] == "#/components/schemas/params.crop/$defs/a"


# deletions


async def test_jobs_of_a_deleted_kind_wait_until_it_is_declared_again(service: Served) -> None:
    await declare(service)
    job = await service.submit(kind="crop")

    dropped = await service.delete("/v1/kinds/crop")
    refused, orphan = await lease(service, "crop"), await service.job(job["id"])
    explained = (await service.get(f"/v1/jobs/{job['id']}/explain")).json
    await declare(service)
    leased = await lease(service, "crop")

    assert (dropped.status, dropped.json) == (200, {"waiting": 1})
    assert (refused.status, refused.pointers) == (422, ["/kinds"])
    assert (orphan["state"], orphan["waiting_for"]) == ("scheduled", "worker")
    assert "PUT /v1/kinds" in explained["blockers"][0]["detail"]
    assert [each["job"]["id"] for each in leased.json["leases"]] == [job["id"]]


async def test_params_of_a_job_whose_kind_was_deleted_cannot_be_changed(service: Served) -> None:
    await declare(service, params_schema={"type": "object"})
    job = await service.submit(kind="crop", delay=60)
    await service.delete("/v1/kinds/crop")

    refused = await service.patch(f"/v1/jobs/{job['id']}", {"params": {"a": 1}})
    changed = await service.patch(f"/v1/jobs/{job['id']}", {"priority": 1})

    assert (refused.status, refused.pointers) == (422, ["/params"])
    assert "the kind 'crop' of the job has gone" in refused.json["detail"]
    assert changed.status == 200


async def test_waiting_worker_learns_that_its_kind_was_deleted(service: Served) -> None:
    await declare(service)
    asking = asyncio.create_task(lease(service, "crop", wait=30))
    await asyncio.sleep(1)

    await service.delete("/v1/kinds/crop")

    assert (await asking).status == 422


async def test_leased_job_of_a_deleted_kind_is_finished(service: Served) -> None:
    await declare(service)
    await service.submit(kind="crop")
    (held,) = (await lease(service, "crop")).json["leases"]

    await service.delete("/v1/kinds/crop")
    done = await service.post(f"/v1/leases/{held['token']}/finish")

    assert (done.status, done.json["state"]) == (200, "succeeded")


async def test_deletion_of_an_unknown_kind_is_not_found(service: Served) -> None:
    answer = await service.delete("/v1/kinds/crop")

    assert (answer.status, answer.code) == (404, "kind_not_found")


# restarts and failures


async def restarted(serve: Serve, store: MemoryStore, **fields: Any) -> Served:
    """Start another service on the data of a store."""
    other = ServedStore()
    other._documents, other._jobs, other._counts, other._last_seq = (
        store._documents,
        store._jobs,
        store._counts,
        store._last_seq,
    )
    return await serve(store=other, **fields)


async def test_declared_kinds_survive_a_restart(serve: Serve) -> None:
    service = await serve()
    await declare(service, params_schema=SCHEMA, timeout=5, retry={"max_attempts": 2})
    await declare(service, "gone")
    await service.delete("/v1/kinds/gone")
    before = await kinds_of(service)

    after = await restarted(serve, service.store)

    assert await kinds_of(after) == before
    assert (await after.submit(kind="crop", params={"image": "cat"}))["timeout"] == 5.0


async def test_settings_win_over_a_stored_declaration(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    service = await serve()
    await declare(service, "resize", timeout=5)

    after = await restarted(serve, service.store, declared=DECLARED)
    kept = (await kinds_of(after))["resize"]
    forgotten = await after.delete("/v1/kinds/resize")
    again = await after.delete("/v1/kinds/resize")

    assert (kept["declared"], kept["timeout"]) == ("config", 9.0)
    assert "kind_overruled" in caplog.text
    assert (forgotten.status, again.status) == (200, 409)
    assert (await kinds_of(after))["resize"]["declared"] == "config"


@pytest.mark.parametrize(
    "text", [b"{", b"[]", b'{"timeout": "x"}', b'{"params_schema": {"pattern": "a"}}', b'{"x": 1}']
)
async def test_damaged_declaration_stops_only_its_own_kind(
    serve: Serve, caplog: pytest.LogCaptureFixture, text: bytes
) -> None:
    service = await serve()
    for name in ("a", "crop", "z"):
        await declare(service, name)
    stored = service.store._documents["kind", "crop"]
    service.store._documents["kind", "crop"] = stored._replace(text=text)

    after = await restarted(serve, service.store)

    assert {"a", "z"} < {*await kinds_of(after)}
    assert "crop" not in await kinds_of(after)
    assert "kind_unreadable" in caplog.text
    assert (await declare(after)).status == 201


async def test_failed_declaration_changes_nothing(service: Served) -> None:
    await declare(service, timeout=5)
    service.store.broken["add"] = StorageFull("the disk is full")

    answers = [await declare(service, timeout=7), await declare(service, "b"), await service.delete("/v1/kinds/crop")]

    assert [answer.status for answer in answers] == [507, 507, 507]
    service.store.broken.clear()
    assert (await service.get("/v1/kinds/crop")).json["timeout"] == 5.0
    assert (await service.get("/v1/kinds/b")).status == 404


async def test_declaration_with_an_unknown_result_is_read_again(
    service: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    add = MemoryStore.add

    async def store_and_fail(store: MemoryStore, *jobs: Any, **fields: Any) -> None:
        await add(store, *jobs, **fields)
        raise StoreUnavailable("the disk fails")

    with monkeypatch.context() as patch:
        patch.setattr(MemoryStore, "add", store_and_fail)
        put = await declare(service, timeout=5)
    kinds = await kinds_of(service)

    with monkeypatch.context() as patch:
        patch.setattr(MemoryStore, "add", store_and_fail)
        dropped = await service.delete("/v1/kinds/crop")

    assert (put.status, dropped.status) == (503, 503)
    assert kinds["crop"]["timeout"] == 5.0
    assert "crop" not in await kinds_of(service)


async def test_kinds_declared_at_the_same_time_are_all_kept(serve: Serve) -> None:
    service = await serve()

    answers = await asyncio.gather(*(declare(service, f"k{n % 3}", timeout=n + 1) for n in range(12)))
    after = await restarted(serve, service.store)

    assert sorted(answer.status for answer in answers) == [200] * 9 + [201] * 3
    assert await kinds_of(after) == await kinds_of(service)


async def test_schedule_of_a_deleted_kind_misses_its_occurrences(service: Served) -> None:
    await declare(service)
    await service.put("/v1/schedules/hourly", {"every": "10s", "job": {"kind": "crop"}})
    await service.delete("/v1/kinds/crop")
    await asyncio.sleep(15)

    schedule = (await service.get("/v1/schedules/hourly")).json

    assert schedule["recent"][0]["outcome"] == "missed"
    assert schedule["counts"]["made"] == 0


async def test_kind_of_a_function_is_not_replaced_by_a_stored_one(serve: Serve) -> None:
    service = await serve()
    await declare(service, "work")

    after = await restarted(serve, service.store, kinds={"work": FakeRunner()})

    job = await after.submit(kind="work")
    assert (await after.until(job["id"], "succeeded"))["state"] == "succeeded"


async def test_document_is_not_led_away_by_the_id_of_a_schema(service: Served) -> None:
    schema = {
        "$id": "https://app.example/s",
        "properties": {"a": {"$ref": "#/$defs/a"}},
        "$defs": {"a": {"minimum": 1}},
    }
    await declare(service, params_schema=schema)

    described = (await service.get("/openapi.json")).json["components"]["schemas"]["params.crop"]

    assert "$id" not in described
    assert described["properties"]["a"]["$ref"] == "#/components/schemas/params.crop/$defs/a"
    assert (await service.get("/v1/kinds/crop")).json["params_schema"] == schema
