"""Operations on many jobs, over HTTP."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from erelong.model.caller import ANYBODY, Scope
from erelong.service.operations import operations
from tests.support.keyed import Keys, serve_keyed
from tests.support.served import Serve, Served
from tests.support.virtual import EPOCH

STATES = {"scheduled", "running", "succeeded", "failed", "cancelled", "expired"}


async def start(service: Served, action: str, filter: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """Start an operation."""
    answer = await service.post("/v1/operations", {"action": action, "filter": filter, "at_most": None} | fields)
    assert answer.status == 202, answer.body
    operation: dict[str, Any] = answer.json
    assert answer.headers["Location"] == f"/v1/operations/{operation['id']}"
    return operation


async def run(service: Served, action: str, filter: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """Start an operation, and wait until it is over."""
    operation = await start(service, action, filter, **fields)
    return await end(service, operation["id"])


async def end(service: Served, id: str) -> dict[str, Any]:
    answer = await service.get(f"/v1/operations/{id}?wait=60")
    assert answer.status == 200
    ended: dict[str, Any] = answer.json
    assert ended["finished_at"] is not None
    return ended


def counts(operation: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(operation[name] for name in ("state", "matches", "done", "skipped", "failed"))


async def states(service: Served) -> list[str]:
    """Return the states of all jobs, the oldest first."""
    return [job["state"] for job in reversed((await service.get("/v1/jobs")).json["jobs"])]


@pytest.mark.parametrize(
    ("action", "before", "after"),
    [
        ("cancel", "scheduled", "cancelled"),
        ("cancel", "running", "cancelled"),
        ("run", "scheduled", "succeeded"),
        ("retry", "failed", "failed"),
        ("retry", "cancelled", "succeeded"),
        ("retry", "expired", "succeeded"),
        ("patch", "scheduled", "scheduled"),
    ],
)
async def test_action_does_what_the_single_call_does(serve: Serve, action: str, before: str, after: str) -> None:
    service = await serve()
    job = await service.submit_into(before)
    fields = {"set": {"priority": 7}} if action == "patch" else {}

    operation = await run(service, action, {"kind": [job["kind"]]}, **fields)

    assert counts(operation) == ("succeeded", 1, 1, 0, 0)
    changed = await service.until(job["id"], after)
    assert changed["version"] > job["version"]
    assert changed["priority"] == (7 if action == "patch" else 0)


async def test_jobs_are_selected_by_error_attempt_and_occurrence(service: Served) -> None:
    await service.submit(key="boom", params={"fail": "x"}, retry={"max_attempts": 2, "delay": 1})
    await service.submit(key="slow", params={"sleep": 9}, timeout=1, retry={"max_attempts": 1})
    await asyncio.sleep(20)

    for filter, number in (
        ({"error": ["timeout"]}, 1),
        ({"error": ["timeout", "exception"]}, 2),
        ({"attempt_min": 2}, 1),
        ({"attempt_min": 2, "error": ["timeout"]}, 0),
        ({"schedule": ["report"], "occurrence": "2026-01-01T00:00:00Z"}, 0),
    ):
        operation = await run(service, "delete", filter, at_most=0 if number else None)
        assert operation["matches"] == number, filter
        shown = {name: value for name, value in operation["filter"].items() if name != "occurrence"}
        assert shown == {name: value for name, value in filter.items() if name != "occurrence"}


@pytest.mark.parametrize("state", sorted(STATES - {"running"}))
async def test_delete_removes_jobs_that_are_not_running(serve: Serve, state: str) -> None:
    service = await serve()
    job = await service.submit_into(state)
    running = await service.submit_into("running")

    operation = await run(service, "delete", {"all": True})

    assert counts(operation) == ("succeeded", 1, 1, 0, 0)
    assert (await service.get(f"/v1/jobs/{job['id']}")).code == "job_not_found"
    assert (await service.job(running["id"]))["state"] == "running"


# what is refused


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"filter": {}}, "/filter"),
        ({"filter": {"queue": None}}, "/filter"),
        ({"filter": {"queue": []}}, "/filter/queue"),
        ({"filter": {"jobs": []}}, "/filter/jobs"),
        ({"filter": {"jobs": ["~order-7"]}}, "/filter/jobs/0"),
        ({"filter": {"cause": "timeout"}}, "/filter/cause"),
        ({"filter": {"labels": {}}}, "/filter/labels"),
        ({"filter": {"all": False}}, "/filter/all"),
        ({"filter": {"quue": ["a"]}}, "/filter/quue"),
        ({"filter": {"state": ["scheduled", "failed"]}}, "/filter/state/1"),
        ({"filter": {"due_after": "yesterday"}}, "/filter/due_after"),
        ({"filter": {"jobs": ["x"] * 10_001}}, "/filter/jobs"),
        ({"filter": None}, "/filter"),
        ({"action": "explode"}, "/action"),
        ({"action": "backfill"}, "/action"),
        ({"at_most": -1}, "/at_most"),
        ({"at_most": "10"}, "/at_most"),
        ({"rate": 0}, "/rate"),
        ({"rate": 50_001}, "/rate"),
        ({"spread": "1m"}, "/spread"),
        ({"action": "run", "spread": "25h"}, "/spread"),
        ({"action": "run", "reason": "x"}, "/reason"),
        ({"set": {"priority": 1}}, "/set"),
        ({"shift": "1h"}, "/shift"),
        ({"action": "patch"}, "/set"),
        ({"action": "patch", "set": {}}, "/set"),
        ({"action": "patch", "set": {"priority": 1}, "shift": "1h"}, "/set"),
        ({"action": "patch", "set": {"params": {}}}, "/set/params"),
        ({"action": "patch", "set": {"priority": 101}}, "/set/priority"),
        ({"action": "patch", "set": {"quue": 1}}, "/set/quue"),
        ({"action": "patch", "shift": "soon"}, "/shift"),
        ({"action": "patch", "shift": "--1h"}, "/shift"),
        ({"action": "patch", "shift": "-20000d"}, "/shift"),
        ({"action": "patch", "shift": True}, "/shift"),
    ],
)
async def test_bad_request_names_its_field_and_touches_nothing(serve: Serve, body: Any, pointer: str) -> None:
    service = await serve()
    job = await service.submit(delay=1_000)

    answer = await service.post("/v1/operations", {"action": "cancel", "filter": {"all": True}, "at_most": 1} | body)

    assert (answer.status, answer.pointers) == (422, [pointer])
    assert (await service.get("/v1/operations")).json == {"operations": [], "next": None}
    assert await service.job(job["id"]) == job


async def test_bound_must_be_given(serve: Serve) -> None:
    service = await serve()

    answer = await service.post("/v1/operations", {"action": "cancel", "filter": {"all": True}})

    assert (answer.status, answer.pointers) == (422, ["/at_most"])


async def test_wrong_bound_touches_nothing(serve: Serve) -> None:
    service = await serve()
    jobs = [await service.submit(delay=1_000) for _ in range(3)]

    operation = await run(service, "cancel", {"all": True}, at_most=2)

    assert counts(operation) == ("refused", 3, 0, 0, 0)
    assert operation["errors"] == [{"job": None, "code": "too_many_match"}]
    assert [await service.job(job["id"]) for job in jobs] == jobs


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_unknown_operation_is_not_found(serve: Serve, method: str) -> None:
    service = await serve()

    answer = await service.call(method, "/v1/operations/nope" + ("/cancel" if method == "POST" else ""))

    assert (answer.status, answer.code) == (404, "operation_not_found")


# which jobs


@pytest.mark.parametrize(
    ("filter", "touched"),
    [
        ({"all": True}, "abcd"),
        ({"queue": ["mail"]}, "ab"),
        ({"queue": ["mail", "other"]}, "abcd"),
        ({"queue": ["mail"], "labels": {"tenant": "2"}}, "b"),
        ({"key": "k"}, "c"),
        ({"kind": ["echo"], "due_before": "2026-01-01T01:00:00Z"}, "ac"),
        ({"due_after": "2026-01-01T01:00:00Z"}, "bd"),
        ({"created_before": "2026-01-01T00:00:00Z"}, ""),
        ({"finished_after": "2025-01-01T00:00:00Z"}, ""),
        ({"all": True, "queue": ["other"]}, "cd"),
        ({"jobs": ["a", "d", "nonsense"]}, "ad"),
        ({"jobs": ["a", "d"], "queue": ["mail"]}, "a"),
        ({"schedule": ["report"]}, ""),
    ],
)
async def test_only_jobs_that_match_are_touched(serve: Serve, filter: dict[str, Any], touched: str) -> None:
    service = await serve()
    jobs = {
        "a": await service.submit(delay=100, queue="mail", labels={"tenant": "1"}),
        "b": await service.submit(delay=9_000, queue="mail", labels={"tenant": "2"}),
        "c": await service.submit(delay=100, queue="other", key="k", labels={"tenant": "2"}),
        "d": await service.submit(delay=9_000, queue="other"),
    }
    if "jobs" in filter:
        filter = {**filter, "jobs": [jobs[name]["id"] if name in jobs else name for name in filter["jobs"]]}

    dry = await service.post("/v1/operations?dry_run=true", {"action": "cancel", "filter": filter})
    operation = await run(service, "cancel", filter, at_most=len(touched))

    ended = {name for name, job in jobs.items() if (await service.job(job["id"]))["state"] == "cancelled"}
    assert ended == {*touched}
    assert counts(operation) == ("succeeded", len(touched), len(touched), 0, 0)
    assert dry.json["matches"] == len(touched)


async def test_failed_jobs_of_one_cause_are_retried(serve: Serve) -> None:
    service = await serve()
    failed = [
        await service.submit_into("failed", params={"fail": text}) for text in ("no route 1", "boom", "no route 2")
    ]
    causes = (await service.get("/v1/jobs/errors")).json["causes"]
    (cause,) = [entry["cause"] for entry in causes if entry["count"] == 2]

    operation = await run(service, "retry", {"cause": cause}, at_most=2)

    assert counts(operation) == ("succeeded", 2, 2, 0, 0)
    assert [(await service.job(job["id"]))["version"] > job["version"] for job in failed] == [True, False, True]


async def test_ten_thousand_ids_are_taken(serve: Serve) -> None:
    service = await serve()
    job = await service.submit(delay=1_000)
    ids = [f"{number:026x}" for number in range(9_999)]

    operation = await run(service, "delete", {"jobs": [*ids, job["id"]]}, at_most=10)
    (listed,) = (await service.get("/v1/operations")).json["operations"]

    assert counts(operation) == ("succeeded", 1, 1, 0, 0)
    assert len(operation["filter"]["jobs"]) == 10_000
    assert listed["filter"] == {"jobs": 10_000}


# dry runs


async def test_dry_run_counts_and_touches_nothing(serve: Serve) -> None:
    service = await serve()
    jobs = [await service.submit(delay=1_000, queue=queue) for queue in ("a", "a", "b")]

    answer = await service.post(
        "/v1/operations?dry_run=true", {"action": "cancel", "filter": {"all": True}}, headers={"Idempotency-Key": "k"}
    )

    assert (answer.status, answer.headers["Dry-Run"]) == (200, "true")
    assert answer.json == {
        "matches": 3,
        "more": False,
        "by": {"state": {"scheduled": 3}, "queue": {"a": 2, "b": 1}, "kind": {"echo": 3}},
        "sample": [job["id"] for job in reversed(jobs)],
    }
    assert (await service.get("/v1/operations")).json["operations"] == []
    assert await states(service) == ["scheduled"] * 3


async def test_dry_run_stops_counting_in_time(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operations, "MAX_COUNTED", 1_000)
    service = await serve()
    batch = {"jobs": [{"kind": "echo", "delay": 1_000}] * 1_500}
    assert (await service.post("/v1/jobs/batch", batch)).status == 201

    answer = await service.post("/v1/operations?dry_run=true", {"action": "cancel", "filter": {"all": True}})

    assert (answer.json["matches"], answer.json["more"], len(answer.json["sample"])) == (1_000, True, 10)


# changes


async def test_patch_sets_fields_as_the_single_call_does(serve: Serve) -> None:
    service = await serve()
    jobs = [await service.submit(delay=1_000, labels={"a": "b"}) for _ in range(3)]
    change = {"delay": "2h", "labels": {"x": "y"}, "retry": {"max_attempts": 9}, "expires_after": 60, "timeout": 7}

    operation = await run(service, "patch", {"all": True}, set=change)

    assert operation["set"] == change
    for job in jobs:
        after = await service.job(job["id"])
        assert (after["labels"], after["retry"]["max_attempts"], after["timeout"]) == ({"x": "y"}, 9, 7)
        assert after["due_at"] == after["execute_at"] >= "2026-01-01T02:00:00.000Z"
        assert (after["expires_at"], after["version"]) > (after["due_at"], 1)


async def test_change_that_a_job_refuses_is_counted_as_failed(serve: Serve) -> None:
    service = await serve()
    job = await service.submit(delay=1_000)

    operation = await run(service, "patch", {"all": True}, set={"on_finish": {"url": "ftp://a.example"}})

    assert counts(operation) == ("succeeded", 1, 0, 0, 1)
    assert operation["errors"] == [{"job": job["id"], "code": "invalid"}]


@pytest.mark.parametrize(
    ("shift", "shown", "due"), [("2h", 7_200, "03"), ("-30m", -1_800, "00:30"), (-9e5, -9e5, "00:00")]
)
async def test_shift_moves_the_due_time(serve: Serve, shift: Any, shown: float, due: str) -> None:
    service = await serve()
    job = await service.submit(execute_at="2026-01-01T01:00:00Z", kind="endless")

    operation = await run(service, "patch", {"all": True}, shift=shift)

    after = await service.job(job["id"])
    assert operation["shift"] == shown
    assert (after["due_at"] or after["started_at"]).startswith(f"2026-01-01T{due}")
    assert after["execute_at"] == job["execute_at"]


async def test_repeated_shifts_stop_at_the_horizon(serve: Serve) -> None:
    service = await serve()
    job = await service.submit(delay=3_600)

    await run(service, "patch", {"all": True}, shift="3649d")
    operation = await run(service, "patch", {"all": True}, shift="3649d")

    assert operation["errors"] == [{"job": job["id"], "code": "invalid"}]
    assert (await service.job(job["id"]))["due_at"].startswith("2035-12-29")


async def test_callbacks_follow_the_end_of_a_job(serve: Serve) -> None:
    service = await serve()
    job = await service.submit(delay=1_000, on_finish={"url": "https://app.example/done"})

    await run(service, "cancel", {"jobs": [job["id"]]})

    called = (await service.job(job["id"]))["on_finish"]["job"]
    assert (await service.job(called))["callback_of"] == job["id"]


# reading


async def test_operations_are_listed_newest_first_in_pages(serve: Serve) -> None:
    service = await serve()
    ids = [(await run(service, action, {"all": True}))["id"] for action in ("cancel", "retry", "cancel")]

    first = await service.get("/v1/operations?limit=2")
    second = await service.get(f"/v1/operations?limit=2&cursor={first.json['next']}")
    filtered = await service.get("/v1/operations?action=retry&state=succeeded")
    none = await service.get("/v1/operations?state=waiting")

    pages = [[operation["id"] for operation in answer.json["operations"]] for answer in (first, second, filtered, none)]
    assert pages == [ids[:0:-1], ids[:1], ids[1:2], []]
    assert second.json["next"] is None
    assert (await service.get(f"/v1/operations?state=failed&cursor={first.json['next']}")).code == "bad_cursor"


async def test_large_operations_are_listed_a_few_at_a_time_and_without_their_jobs(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = await serve()
    for _ in range(50):
        await run(service, "cancel", {"jobs": ["a", "b", "c"]})
    named, reads = service.store.named, list[int]()

    async def note(sort: str, names: Any) -> Any:
        reads.append(len(names))
        return await named(sort, names)

    monkeypatch.setattr(service.node.engine.store, "named", note)
    page, _ = await service.node.services.operations.list(frozenset(), frozenset(), None, 100, ANYBODY)

    assert [operation.request.filter for operation in page] == [{"jobs": 3}] * 50
    assert (sum(reads), max(reads)) == (50, 20)


async def test_wait_ends_with_the_time_or_the_operation(serve: Serve) -> None:
    service = await serve()
    for _ in range(20):
        await service.submit(delay=10_000)
    operation = await start(service, "patch", {"all": True}, shift=1, rate=1)

    early = (await service.get(f"/v1/operations/{operation['id']}?wait=5")).json
    cancelled = await service.post(f"/v1/operations/{operation['id']}/cancel")

    assert early["state"] == "running"
    assert 3 <= early["done"] <= 7
    assert (cancelled.status, cancelled.json["state"]) == (200, "cancelled")
    assert (cancelled.json["skipped"], cancelled.json["done"] + cancelled.json["remaining"]) == (0, 20)
    assert (await service.post(f"/v1/operations/{operation['id']}/cancel")).json == cancelled.json


async def test_repeated_request_with_an_idempotency_key_returns_the_operation(serve: Serve) -> None:
    service = await serve()
    job = await service.submit(delay=1_000)
    body = {"action": "patch", "filter": {"jobs": [job["id"]]}, "at_most": 1, "shift": "1h"}
    headers = {"Idempotency-Key": "k"}

    first = await service.post("/v1/operations", body, headers=headers)
    ended = await end(service, first.json["id"])
    again = await service.post("/v1/operations", body, headers=headers)
    other = await service.post("/v1/operations", body | {"shift": "2h"}, headers=headers)
    same_key = await service.post("/v1/jobs", {"kind": "echo"}, headers=headers)

    assert (first.status, again.status, again.headers["Idempotency-Replayed"]) == (202, 200, "true")
    assert again.json == ended
    assert (other.status, other.code) == (409, "idempotency_mismatch")
    assert same_key.status == 201
    assert (await service.job(job["id"]))["version"] == 2


async def test_key_that_is_used_again_after_a_day_names_the_later_operation(serve: Serve) -> None:
    service = await serve()
    body = {"action": "cancel", "filter": {"queue": ["mail"]}, "at_most": None}
    headers = {"Idempotency-Key": "k"}

    await service.post("/v1/operations", body, headers=headers)
    await asyncio.sleep(25 * 3_600)
    later = await service.post("/v1/operations", body, headers=headers)
    again = await service.post("/v1/operations", body, headers=headers)

    assert (later.status, again.status) == (202, 200)
    assert again.json["id"] == later.json["id"]


# keys


async def test_each_action_needs_its_own_scope(serve: Serve) -> None:
    keys = Keys().add("submit", Scope.SUBMIT, Scope.READ).add("cancel", Scope.CANCEL).add("root")
    keyed = await serve_keyed(serve, keys)
    fields: dict[str, dict[str, Any]] = {"patch": {"shift": 1}}
    started: dict[str, str] = {}

    for name in ("submit", "cancel"):
        allowed = {"submit": {"run", "retry", "patch"}, "cancel": {"cancel", "delete"}}[name]
        for action in ("run", "retry", "patch", "cancel", "delete"):
            body = {"action": action, "filter": {"all": True}, "at_most": None} | fields.get(action, {})
            with keyed.using(name) as service:
                answer = await service.post("/v1/operations", body)
                dry = await service.post("/v1/operations?dry_run=true", body)
            assert (answer.status == 202) is (action in allowed)
            assert (dry.status == 200) is (action in allowed and name == "submit")  # it reads
            if answer.status == 202:
                started[action] = answer.json["id"]

    with keyed.using("submit") as service:
        assert (await service.post(f"/v1/operations/{started['cancel']}/cancel")).code == "forbidden"
        assert (await service.get(f"/v1/operations/{started['cancel']}")).json["by"] == "cancel"


async def test_key_limited_to_queues_touches_and_sees_only_its_own(serve: Serve) -> None:
    keys = Keys().add("root").add("mail", queues=["mail"]).add("other", queues=["other"])
    keyed = await serve_keyed(serve, keys)
    with keyed.using("root") as service:
        jobs = [await service.submit(queue=queue, delay=1_000) for queue in ("mail", "other")]
        theirs = await run(service, "run", {"queue": ["none"]})

    with keyed.using("mail") as service:
        mine = await run(service, "cancel", {"all": True})
        listed = (await service.get("/v1/operations")).json["operations"]
        dry = await service.post("/v1/operations?dry_run=true", {"action": "retry", "filter": {"all": True}})
        refused = await service.post(
            "/v1/operations", {"action": "cancel", "filter": {"queue": ["mail", "other"]}, "at_most": 1}
        )
        callback = await service.post(
            "/v1/operations",
            {
                "action": "patch",
                "filter": {"all": True},
                "at_most": 1,
                "set": {"on_finish": {"url": "https://app.example", "queue": "other"}},
            },
        )
        assert (await service.get(f"/v1/operations/{theirs['id']}")).status == 404
        assert (await service.post(f"/v1/operations/{theirs['id']}/cancel")).status == 404
    with keyed.using("other") as service:
        assert (await service.get("/v1/operations")).json["operations"] == []
    with keyed.using("root") as service:
        assert (await service.job(jobs[1]["id"]))["state"] == "scheduled"
        assert len((await service.get("/v1/operations")).json["operations"]) == 2

    assert counts(mine) == ("succeeded", 1, 1, 0, 0)
    assert [operation["id"] for operation in listed] == [mine["id"]]
    assert dry.json["matches"] == 1
    assert (refused.status, refused.pointers) == (403, ["/filter/queue"])
    assert (callback.status, callback.pointers) == (403, ["/set/on_finish/queue"])
    assert mine["by"] == "mail"


# other parts


async def test_operations_are_counted_and_logged(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    service = await serve()
    await service.submit(delay=1_000)

    with caplog.at_level("INFO"):
        operation = await run(service, "cancel", {"all": True})

    page = (await service.get("/metrics")).body.decode()
    assert 'erelong_operations{state="succeeded"} 1.0' in page
    assert 'erelong_operation_jobs_total{action="cancel",outcome="done"} 1.0' in page
    lines = [record.getMessage() for record in caplog.records if record.getMessage().startswith("operation_")]
    assert lines == ["operation_created", "operation_finished"]
    assert operation["by"] == ""


async def test_virtual_clock_waits_for_operations(serve: Serve) -> None:
    service = await serve(virtual_from=EPOCH)
    for _ in range(30):
        await service.submit(delay="1h")
    await start(service, "patch", {"all": True}, shift="1h", rate=10)

    busy = (await service.get("/v1/clock")).json["busy"]
    move = (await service.post("/v1/clock", {"advance": "90m"})).json

    assert busy["operations"] == 1
    assert (move["settled"], move["started"]) == (True, 0)
    assert (await service.post("/v1/clock", {"advance": "30m"})).json["started"] == 30


async def test_draining_service_starts_no_operation(serve: Serve) -> None:
    service = await serve()
    service.node.engine.drain()

    answer = await service.post("/v1/operations", {"action": "cancel", "filter": {"all": True}, "at_most": 1})

    assert (answer.status, answer.code) == (503, "draining")


async def test_full_disk_starts_no_operation(serve: Serve) -> None:
    service = await serve()
    service.store.fill_disk()

    answer = await service.post("/v1/operations", {"action": "cancel", "filter": {"all": True}, "at_most": 1})

    assert (answer.status, answer.code) == (507, "storage_full")
