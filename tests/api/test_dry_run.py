"""`?dry_run=true`: the request is checked as for real, and nothing is stored, counted, remembered or announced."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from erelong.errors import StoreUnavailable
from erelong.service import rehearsal
from erelong.settings.queues import QueueSettings
from tests.support.contract import NDJSON
from tests.support.keyed import Keys, serve_keyed
from tests.support.served import Answer, Serve, Served, ServedStore

JOB = {"kind": "echo", "delay": 1_000}
DRY = "?dry_run=true"
VOLATILE = ("id", "created_at", "execute_at", "due_at")


async def submit(service: Served, query: str = DRY, **fields: Any) -> Answer:
    return await service.post(f"/v1/jobs{query}", JOB | fields)


async def batch(service: Served, *jobs: dict[str, Any], query: str = DRY, **options: Any) -> Answer:
    return await service.post(f"/v1/jobs/batch{query}", {"jobs": [JOB | job for job in jobs]}, **options)


async def stream(service: Served, *jobs: dict[str, Any]) -> Answer:
    text = b"\n".join(orjson.dumps(JOB | job) for job in jobs)
    return await service.post(f"/v1/jobs/batch{DRY}", data=text, type=NDJSON)


async def state_of(service: Served) -> Any:
    """Return everything that a dry run could have changed."""
    jobs = (await service.get("/v1/jobs?limit=1000&view=full")).json
    metrics = (await service.get("/metrics")).body.decode().splitlines()
    counted = [line for line in metrics if line.startswith(("erelong_submitted", "erelong_jobs", "erelong_finished"))]
    return jobs, (await service.get("/v1/queues")).json, counted


def lasting(job: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in job.items() if name not in VOLATILE}


def assert_dry(answer: Answer) -> None:
    assert (answer.status, answer.headers["Dry-Run"]) == (200, "true"), answer.body


async def test_dry_submit_shows_the_job_without_an_id(service: Served) -> None:
    fields: dict[str, Any] = {
        "key": "k",
        "labels": {"a": "b"},
        "priority": 3,
        "params": {"n": 1},
        "retry": {"delay": 9},
    }
    before = await state_of(service)

    answer = await submit(service, **fields)

    assert_dry(answer)
    assert "Location" not in answer.headers
    assert answer.json["id"] is None
    assert await state_of(service) == before
    assert lasting((await submit(service, "", **fields)).json) == lasting(answer.json)


@pytest.mark.parametrize("query", ["", "?dry_run=false"])
async def test_submit_without_a_dry_run_stores_the_job(service: Served, query: str) -> None:
    answer = await submit(service, query)

    assert answer.status == 201
    assert "Dry-Run" not in answer.headers
    assert (await service.job(answer.json["id"]))["state"] == "scheduled"


@pytest.mark.parametrize("query", ["?dry_run=yes", "?dry_run", "?dry_run=1", "?dry_run=true&dry_run=true", "?dry=true"])
async def test_any_other_value_or_name_is_invalid(service: Served, query: str) -> None:
    answer = await submit(service, query)

    assert (answer.status, answer.code) == (422, "invalid")
    assert (await service.get("/v1/jobs")).json["jobs"] == []


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/jobs"),
        ("GET", "/v1/jobs/{id}"),
        ("DELETE", "/v1/jobs/{id}"),
        ("POST", "/v1/jobs/{id}/cancel"),
        ("POST", "/v1/jobs/{id}/run"),
        ("POST", "/v1/jobs/{id}/retry"),
        ("DELETE", "/v1/queues/default"),
        ("POST", "/v1/queues/default/pause"),
        ("POST", "/v1/queues/default/purge"),
        ("POST", "/v1/leases"),
        ("GET", "/v1/kinds"),
    ],
)
async def test_other_calls_have_no_dry_run(service: Served, method: str, path: str) -> None:
    job = await service.submit(delay=1_000)

    answer = await service.call(method, path.format(id=job["id"]) + DRY)

    assert (answer.status, answer.pointers) == (422, ["/dry_run"])
    assert await service.job(job["id"]) == job


@pytest.mark.parametrize("fields", [{"kind": "nope"}, {"priority": 101}, {"params": {"sleep": -1}}, {"delay": None}])
async def test_invalid_job_is_refused_as_for_real(service: Served, fields: dict[str, Any]) -> None:
    answer, real = await submit(service, **fields), await submit(service, "", **fields)

    assert (answer.status, answer.json["errors"]) == (422, real.json["errors"])


# keys


@pytest.mark.parametrize("on_conflict", ["keep", "replace", "reschedule"])
async def test_dry_submit_returns_the_holder_of_its_key_as_it_would_be(service: Served, on_conflict: str) -> None:
    holder = await service.submit(key="k", delay=500)
    fields: dict[str, Any] = {"key": "k", "on_conflict": on_conflict, "params": {"n": 1}}

    answer = await submit(service, **fields)

    assert_dry(answer)
    assert answer.json["id"] == holder["id"]
    assert await service.job(holder["id"]) == holder
    real = await submit(service, "", **fields)
    assert lasting(answer.json) == lasting(real.json)
    assert answer.headers["ETag"] == real.headers["ETag"]


async def test_dry_submit_refuses_a_held_key(service: Served) -> None:
    holder = await service.submit(key="k", delay=500)

    answer = await submit(service, key="k")

    assert (answer.status, answer.code, answer.json["job"]) == (409, "key_taken", holder)


async def test_dry_submit_would_take_the_key_of_a_running_job(service: Served) -> None:
    holder = await service.submit_into("running", key="k")

    answer = await submit(service, key="k", on_conflict="replace")

    assert_dry(answer)
    assert (answer.json["id"], answer.json["key"]) == (None, "k")
    assert (await service.job(holder["id"]))["key"] == "k"


async def test_dry_run_neither_reads_nor_keeps_an_idempotency_key(service: Served) -> None:
    headers = {"Idempotency-Key": "once"}

    first = await service.post(f"/v1/jobs{DRY}", JOB, headers=headers)
    real = await service.post("/v1/jobs", JOB | {"priority": 1}, headers=headers)
    second = await service.post(f"/v1/jobs{DRY}", JOB, headers=headers)

    assert [answer.status for answer in (first, real, second)] == [200, 201, 200]
    assert second.json["id"] is None
    assert "Idempotency-Replayed" not in second.headers


# batches and streams


async def test_dry_batch_shows_tickets_without_ids(service: Served) -> None:
    holder = await service.submit(key="k", delay=500)
    before = await state_of(service)

    answer = await batch(service, {}, {"key": "k", "on_conflict": "keep"}, {"key": "l"})

    assert_dry(answer)
    assert [(job["id"], job["created"]) for job in answer.json["jobs"]] == [
        (None, True),
        (holder["id"], False),
        (None, True),
    ]
    assert await state_of(service) == before


async def test_conflicts_between_the_jobs_of_a_dry_batch_are_found(service: Served) -> None:
    jobs = [{"key": "k"}, {}, {"key": "k"}]

    answer, real = await batch(service, *jobs), await batch(service, *jobs, query="")

    assert (answer.status, answer.json["errors"]) == (409, real.json["errors"])
    assert answer.pointers == ["/jobs/2/key"]


async def test_faults_of_a_dry_batch_are_those_of_a_real_one(service: Served) -> None:
    jobs = [{}, {"kind": "nope"}]

    answer, real = await batch(service, *jobs), await batch(service, *jobs, query="")

    assert (answer.status, answer.json["errors"]) == (422, real.json["errors"])


async def test_dry_stream_answers_line_by_line(service: Served) -> None:
    holder = await service.submit(key="held", delay=500)
    before = await state_of(service)

    answer = await stream(
        service,
        {},
        {"kind": "nope"},
        {"key": "k"},
        {"key": "k"},
        {"key": "k", "on_conflict": "keep"},
        {"key": "held", "on_conflict": "replace"},
        {"key": "held"},
    )

    assert_dry(answer)
    new, invalid, first, taken, kept, replaced, held = answer.lines
    assert (new, first) == ({"id": None, "created": True},) * 2
    assert invalid["problem"]["code"] == "invalid"
    assert (taken["problem"]["code"], "job" in taken["problem"]) == ("key_taken", False)
    assert "an earlier line" in taken["problem"]["detail"]
    assert kept == {"id": None, "created": False}
    assert replaced == {"id": holder["id"], "created": False}
    assert held["problem"]["job"]["id"] == holder["id"]
    assert await state_of(service) == before


async def test_dry_stream_remembers_the_keys_of_earlier_groups(
    service: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("erelong.api.batches.MAX_GROUP", 1)

    answer = await stream(service, {"key": "k"}, {"key": "k"})

    assert [line.get("created") for line in answer.lines] == [True, None]


async def test_dry_stream_compares_a_bounded_number_of_keys(service: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rehearsal, "MAX_REMEMBERED", 3)
    monkeypatch.setattr("erelong.api.batches.MAX_GROUP", 1)

    answer = await stream(service, *({"key": str(number)} for number in range(4)))

    assert [line.get("created") for line in answer.lines] == [True, True, None, None]
    assert answer.lines[-1]["problem"]["code"] == "too_large"


# backlogs


@pytest.mark.parametrize("overflow", ["reject", "wait"])
async def test_dry_run_is_refused_at_once_by_a_full_queue(serve: Serve, overflow: str) -> None:
    queue = QueueSettings.model_validate({"max_backlog": 1, "overflow": overflow})
    service = await serve(queues={"default": queue})
    await service.submit(delay=500, key="k")
    before = service.clock.now()

    answer = await submit(service)
    full = await batch(service, {"queue": "other"}, {})

    assert (answer.status, answer.code, full.status, full.pointers) == (429, "backlog_full", 429, ["/jobs/1/queue"])
    assert service.clock.now() - before < 1_000_000
    assert (await submit(service, key="k", on_conflict="keep")).status == 200


async def test_lines_of_a_dry_stream_fill_the_backlog(serve: Serve) -> None:
    service = await serve(queues={"default": QueueSettings(max_backlog=2, overflow="reject")})

    answer = await stream(service, {}, {"key": "k"}, {}, {"key": "k", "on_conflict": "replace"})

    outcomes = [line["problem"]["code"] if "problem" in line else line["created"] for line in answer.lines]
    assert outcomes == [True, True, "backlog_full", False]


async def test_dry_run_drops_no_job(serve: Serve) -> None:
    service = await serve(queues={"default": QueueSettings(max_backlog=1, overflow="drop_oldest")})
    job = await service.submit(delay=500)

    assert_dry(await submit(service))
    assert (await batch(service, {}, {})).code == "backlog_full"
    assert (await service.job(job["id"]))["state"] == "scheduled"


# changes and queues


async def test_dry_patch_shows_the_changed_job(service: Served) -> None:
    job = await service.submit(delay=500, labels={"a": "b"})
    change = {"priority": 7, "labels": None, "delay": 90}

    answer = await service.patch(f"/v1/jobs/{job['id']}{DRY}", change)

    assert_dry(answer)
    assert (answer.json["id"], answer.json["priority"], answer.json["labels"]) == (job["id"], 7, {})
    assert await service.job(job["id"]) == job
    real = await service.patch(f"/v1/jobs/{job['id']}", change)
    assert lasting(real.json) == lasting(answer.json)


async def test_dry_patch_by_key(service: Served) -> None:
    job = await service.submit(delay=500, key="k", queue="mail")

    answer = await service.patch(f"/v1/jobs/~k{DRY}&queue=mail", {"priority": 7})

    assert_dry(answer)
    assert answer.json["id"] == job["id"]


async def test_dry_patch_is_refused_as_for_real(service: Served) -> None:
    waiting, ended = await service.submit(delay=500), await service.submit_into("succeeded")

    stale = await service.patch(f"/v1/jobs/{waiting['id']}{DRY}", {}, headers={"If-Match": '"9"'})
    late = await service.patch(f"/v1/jobs/{ended['id']}{DRY}", {"priority": 1})
    invalid = await service.patch(f"/v1/jobs/{waiting['id']}{DRY}", {"params": {"sleep": -1}})
    unknown = await service.patch(f"/v1/jobs/0{DRY}", {})

    assert [answer.code for answer in (stale, late, invalid, unknown)] == [
        "version_mismatch",
        "wrong_state",
        "invalid",
        "job_not_found",
    ]


async def test_dry_put_shows_the_settings_of_the_queue(serve: Serve) -> None:
    service = await serve(queues={"mail": QueueSettings(max_backlog=7)})
    before = (await service.get("/v1/queues/mail")).json

    answer = await service.put(f"/v1/queues/mail{DRY}", {"concurrency": 3, "timeout": 9})

    assert_dry(answer)
    settings = answer.json["settings"]
    assert (settings["concurrency"], settings["timeout"], settings["max_backlog"]) == (3, 9, 7)
    assert (await service.get("/v1/queues/mail")).json == before
    assert (await service.put("/v1/queues/mail", {"concurrency": 3, "timeout": 9})).json == answer.json


async def test_dry_put_of_a_new_queue_makes_none(service: Served) -> None:
    assert_dry(await service.put(f"/v1/queues/new{DRY}", {"concurrency": 3}))

    assert (await service.get("/v1/queues/new")).status == 404
    assert (await service.put(f"/v1/queues/new{DRY}", {"concurrency": 0})).status == 422


# nothing is written


async def test_dry_runs_write_nothing_to_the_store(serve: Serve) -> None:
    store = ServedStore()
    service = await serve(store=store)
    job = await service.submit(delay=500, key="k")
    store.broken |= dict.fromkeys(("add", "save", "finish", "override"), StoreUnavailable("no disk"))

    assert_dry(await submit(service, key="k", on_conflict="replace"))
    assert_dry(await batch(service, {}, {"key": "l"}))
    assert_dry(await stream(service, {}))
    assert_dry(await service.patch(f"/v1/jobs/{job['id']}{DRY}", {"priority": 1}))
    assert_dry(await service.put(f"/v1/queues/mail{DRY}", {"concurrency": 1}))


async def test_dry_run_is_refused_during_a_drain(service: Served) -> None:
    service.node.engine.drain()

    assert [(await call).code for call in (submit(service), batch(service, {}))] == ["draining"] * 2


async def test_key_limited_to_queues_may_try_no_other_queue(serve: Serve) -> None:
    keyed = await serve_keyed(serve, Keys().add("mail", queues=["mail"]))

    with keyed.using("mail") as service:
        assert (await submit(service, queue="other")).code == "forbidden"
        assert_dry(await submit(service, queue="mail"))
