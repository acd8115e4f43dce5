"""Keys limited to queues: other queues do not exist for them, and they can submit nothing there."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.support.keyed import Keyed, Keys, serve_keyed
from tests.support.served import Answer, Serve, Served

JOB: dict[str, Any] = {"kind": "echo", "delay": 1_000}
NO_QUEUES: list[dict[str, Any]] = [{}, {"queues": None}]


@pytest.fixture
async def keyed(serve: Serve) -> Keyed:
    """A service with keys for all queues (root), for mail, for other, and for mail and other (both)."""
    keys = Keys().add("root").add("mail", queues=["mail"]).add("other", queues=["other"])
    return await serve_keyed(serve, keys.add("both", queues=["mail", "other"]))


def ids(answer: Answer) -> list[str]:
    return [job["id"] for job in answer.json["jobs"]]


async def fill(service: Served, *queues: str) -> list[str]:
    return [(await service.submit(queue=queue, delay=1_000))["id"] for queue in queues]


# submitting


@pytest.mark.parametrize("fields", [{"queue": "mail"}, {}, {"queue": None}, {"queue": "Other"}])
async def test_job_for_another_queue_is_refused_with_its_pointer(keyed: Keyed, fields: dict[str, Any]) -> None:
    with keyed.using("other") as service:
        answer = await service.post("/v1/jobs", JOB | fields)

    assert (answer.status, answer.code, answer.pointers) == (403, "forbidden", ["/queue"])
    queue = fields.get("queue") or "default"
    detail = f"API key 'other' may not use queue {queue!r}; its queues: other"
    assert answer.json["errors"][0]["detail"] == detail
    assert answer.json["detail"] == f"{detail}; use one of these, or another key"


async def test_batch_names_each_job_for_another_queue_and_stores_nothing(keyed: Keyed) -> None:
    jobs = [JOB | {"queue": queue} for queue in ("other", "mail", "other", "default")]

    with keyed.using("other") as service:
        answer = await service.post("/v1/jobs/batch", {"jobs": jobs})
        mixed = await service.post("/v1/jobs/batch", {"jobs": [*jobs, {"kind": "nope"}]})

    assert (answer.status, answer.pointers) == (403, ["/jobs/1/queue", "/jobs/3/queue"])
    assert answer.json["detail"].startswith("no job of the batch was stored: API key 'other' may not use queue 'mail'")
    assert (mixed.status, mixed.pointers) == (403, ["/jobs/1/queue", "/jobs/3/queue", "/jobs/4/queue"])
    with keyed.using("root") as service:
        assert ids(await service.get("/v1/jobs")) == []


async def test_stream_refuses_only_the_lines_for_other_queues(keyed: Keyed) -> None:
    with keyed.using("other") as service:
        answer = await service.stream(*(JOB | {"queue": queue} for queue in ("other", "mail", "other")))

    assert [line.get("created") or line["problem"]["code"] for line in answer.lines] == [True, "forbidden", True]
    assert answer.lines[1]["problem"]["errors"][0]["pointer"] == "/queue"


async def test_taken_key_of_another_queue_is_no_conflict(keyed: Keyed) -> None:
    with keyed.using("mail") as service:
        assert (await service.post("/v1/jobs", JOB | {"queue": "mail", "key": "k"})).status == 201

    with keyed.using("other") as service:
        assert (await service.post("/v1/jobs", JOB | {"queue": "other", "key": "k"})).status == 201
        refused = await service.post("/v1/jobs", JOB | {"queue": "mail", "key": "k", "on_conflict": "replace"})

    assert (refused.status, "job" in refused.json) == (403, False)


@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/jobs/batch"])
async def test_idempotency_keys_are_separate_per_caller(keyed: Keyed, path: str) -> None:
    job = JOB | {"queue": "mail"}
    body = {"jobs": [job]} if path.endswith("batch") else job
    headers = {"Idempotency-Key": "once"}
    made = {}

    for name in ("root", "mail", "both"):
        with keyed.using(name) as service:
            first, again = [await service.post(path, body, headers=headers) for _ in range(2)]
        assert (first.status, again.status) == (201, 200)
        assert again.headers["Idempotency-Replayed"] == "true"
        made[name] = (first.json["jobs"][0] if path.endswith("batch") else first.json)["id"]

    assert len(set(made.values())) == 3


# reading


async def test_listing_shows_its_queues(keyed: Keyed) -> None:
    with keyed.using("root") as service:
        mail, other, _, mail2 = await fill(service, "mail", "other", "third", "mail")

    for name, expected in {"mail": [mail2, mail], "other": [other], "both": [mail2, other, mail]}.items():
        with keyed.using(name) as service:
            for query in ("", "?queue=mail&queue=other&queue=third", "?order=due_at", "?state=scheduled&view=full"):
                assert sorted(ids(await service.get(f"/v1/jobs{query}"))) == sorted(expected), (name, query)


async def test_listing_of_another_queue_is_empty(keyed: Keyed) -> None:
    with keyed.using("root") as service:
        await fill(service, "mail", "third")

    with keyed.using("other") as service:
        for query in ("queue=mail", "queue=mail&queue=third", "queue=nowhere"):
            assert (await service.get(f"/v1/jobs?{query}")).json == {"jobs": [], "next": None}


async def test_pages_of_a_limited_key_hold_its_jobs_and_its_cursor_fails_for_other_keys(keyed: Keyed) -> None:
    with keyed.using("root") as service:
        queues = ["mail", "other", "third"] * 5
        all_ids = await fill(service, *queues)
    expected = [id for id, queue in zip(all_ids, queues, strict=True) if queue != "third"][::-1]

    found: list[str] = []
    cursor: str | None = ""
    with keyed.using("both") as service:
        while cursor is not None:
            page = await service.get(f"/v1/jobs?limit=3{f'&cursor={cursor}' if cursor else ''}")
            found += ids(page)
            last, cursor = cursor, page.json["next"]

    assert found == expected
    for name in ("root", "mail"):
        with keyed.using(name) as service:
            assert (await service.get(f"/v1/jobs?limit=3&cursor={last}")).code == "bad_cursor"


async def test_queues_are_those_of_the_key(keyed: Keyed) -> None:
    with keyed.using("root") as service:
        await fill(service, "mail", "other", "third")

    with keyed.using("both") as service:
        assert [queue["name"] for queue in (await service.get("/v1/queues")).json["queues"]] == ["mail", "other"]


async def test_job_of_another_queue_is_not_found(keyed: Keyed) -> None:
    with keyed.using("root") as service:
        (id,) = await fill(service, "mail")
    never = id[:-1] + ("0" if id[-1] != "0" else "1")

    with keyed.using("other") as service:
        for path in (f"/v1/jobs/{id}", f"/v1/jobs/{id}?wait=30"):
            answer, unknown = await service.get(path), await service.get(path.replace(id, never))
            assert answer.json["detail"].replace(id, never) == unknown.json["detail"]
        assert (await service.post(f"/v1/jobs/{id}/cancel", data=b"{", type="application/json")).status == 404


async def test_other_queue_is_not_found(keyed: Keyed) -> None:
    with keyed.using("root") as service:
        await fill(service, "mail")

    with keyed.using("other") as service:
        details = [(await service.get(f"/v1/queues/{name}")).json["detail"] for name in ("mail", "none")]
        assert details == [
            f"API key 'other' may not use queue '{name}'; its queues: other" for name in ("mail", "none")
        ]
        assert (await service.put("/v1/queues/mail", {"concurrency": "x"})).code == "queue_not_found"


# leases


async def test_lease_request_without_queues_uses_those_of_the_key(keyed: Keyed) -> None:
    with keyed.using("root") as service:
        await service.submit(kind="resize", queue="mail")
        await service.submit(kind="resize", queue="other")

    with keyed.using("other") as service:
        for queues in NO_QUEUES:
            found = (await service.post("/v1/leases", {"kinds": ["resize"], "max": 10, "wait": 1} | queues)).json
            assert [lease["job"]["queue"] for lease in found["leases"]] == (["other"] if queues == {} else [])


async def test_waiting_worker_of_a_limited_key_gets_no_jobs_of_other_queues(keyed: Keyed) -> None:
    with keyed.using("other") as service:
        asking = asyncio.create_task(service.post("/v1/leases", {"kinds": ["resize"], "wait": 10}))
        await asyncio.sleep(1)
    with keyed.using("root") as service:
        job = await service.submit(kind="resize", queue="mail")

    assert (await asking).json == {"leases": []}
    with keyed.using("root") as service:
        assert (await service.job(job["id"]))["state"] == "scheduled"


async def test_lease_from_another_queue_is_refused_with_its_pointer(keyed: Keyed) -> None:
    with keyed.using("both") as service:
        ask = {"kinds": ["resize"], "queues": ["mail", "third", "other", "fourth"]}
        answer = await service.post("/v1/leases", ask)

    assert (answer.status, answer.code, answer.pointers) == (403, "forbidden", ["/queues", "/queues"])
    assert [fault["detail"].split()[7] for fault in answer.json["errors"]] == ["'third';", "'fourth';"]


async def test_token_of_another_queue_is_not_found(keyed: Keyed) -> None:
    with keyed.using("root") as service:
        await service.submit(kind="resize", queue="mail")
        ((lease,)) = (await service.post("/v1/leases", {"kinds": ["resize"], "wait": 5})).json["leases"]
        await service.post(f"/v1/leases/{lease['token']}/finish")

    with keyed.using("other") as service:
        over = await service.post(f"/v1/leases/{lease['token']}/finish")
        never = await service.post(f"/v1/leases/{'0' * 42}/finish")

    assert (over.status, over.json["detail"], "job" in over.json) == (404, never.json["detail"], False)


# kinds


async def test_kinds_count_only_the_jobs_and_workers_of_the_queues_of_the_key(keyed: Keyed) -> None:
    with keyed.using("root") as service:
        for queue in ("mail", "mail", "other"):
            await service.submit(kind="resize", queue=queue)
        await service.submit(kind="resize", queue="mail", delay=60)
        asking = asyncio.create_task(service.post("/v1/leases", {"kinds": ["resize"], "queues": ["third"], "wait": 5}))
        await asyncio.sleep(1)
        everything = (await service.get("/v1/kinds/resize")).json
    with keyed.using("other") as service:
        own = (await service.get("/v1/kinds/resize")).json
    await asking

    assert everything["counts"] == {"due": 3, "waiting": 4, "failed": 0}
    assert own["counts"] == {"due": 1, "waiting": 1, "failed": 0}
    assert (everything["polling"], own["polling"], own["last_polled_at"]) == (1, 0, None)


async def test_key_of_some_queues_declares_no_kind(keyed: Keyed) -> None:
    with keyed.using("other") as service:
        answers = [await service.put("/v1/kinds/crop", {}), await service.delete("/v1/kinds/resize")]

    assert [(answer.status, answer.code) for answer in answers] == [(403, "forbidden")] * 2
    assert "use one without queues" in answers[0].json["detail"]
