"""GET /v1/jobs?order=next: the due jobs of a queue in the order in which they start."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from erelong.clock.instants import SECOND
from erelong.engine.window.overdue import Walk
from erelong.lanes import lane as lane_module
from erelong.model.query import Query
from erelong.service.overview import upcoming
from erelong.settings.kinds import KindSettings
from erelong.settings.queues import LabelConcurrency, QueueSettings
from tests.support.builders import NOW, make_new_job
from tests.support.following import Following
from tests.support.keyed import Keys, serve_keyed
from tests.support.served import Serve, Served

PULLED = {"mail": KindSettings(pull=True), "print": KindSettings(pull=True)}


async def page(service: Served, query: str = "") -> dict[str, Any]:
    answer = await service.get(f"/v1/jobs?order=next&{query}")
    assert answer.status == 200, answer.body
    body: dict[str, Any] = answer.json
    return body


async def keys(service: Served, query: str = "queue=q") -> list[str]:
    return [job["key"] for job in (await page(service, query))["jobs"]]


async def pause(service: Served, queue: str = "q") -> None:
    assert (await service.post(f"/v1/queues/{queue}/pause")).status == 200


async def fill(service: Served) -> None:
    """Submit jobs to a paused queue: five due ones, and one that is not due yet."""
    await pause(service)
    for key, priority in (("a", 0), ("b", 5), ("c", 0), ("d", -5), ("e", 5)):
        await service.submit(
            key=key, queue="q", priority=priority, labels={"tenant": key}, params={"text": key * 2_000}
        )
    await service.submit(key="later", queue="q", delay=100, priority=100)
    await service.submit(key="other", delay=100)
    await asyncio.sleep(1)


async def test_due_jobs_are_listed_in_the_order_of_their_starts_and_from_the_other_end(service: Served) -> None:
    await fill(service)

    first = await page(service, "queue=q")
    last = await keys(service, "queue=q&reverse=true")

    assert [job["key"] for job in first["jobs"]] == ["b", "e", "a", "c", "d"]
    assert last == ["d", "c", "a", "e", "b"]
    assert (first["next"], first["complete"]) == (None, True)
    assert first["jobs"][0]["waiting_for"] == "pause"


async def test_order_is_the_one_in_which_the_jobs_start(serve: Serve) -> None:
    service = await serve(queues={"q": QueueSettings(concurrency=1)})
    await pause(service)
    for number in range(12):
        await service.submit(key=f"{number}", queue="q", priority=number * 5 % 4, params={"sleep": 1})
    await asyncio.sleep(1)
    listed = await keys(service)

    await service.post("/v1/queues/q/resume")
    await asyncio.sleep(20)

    started = (await service.get("/v1/jobs?queue=q&state=succeeded")).json["jobs"]
    assert [job["key"] for job in sorted(started, key=lambda job: job["started_at"])] == listed


async def test_label_values_take_turns(serve: Serve) -> None:
    limit = LabelConcurrency(label="tenant", limit=1)
    service = await serve(queues={"q": QueueSettings(label_concurrency=limit)})
    await pause(service)
    for number, tenant in enumerate("aaabac"):
        await service.submit(key=f"{tenant}{number}", queue="q", labels={"tenant": tenant})
    await asyncio.sleep(1)

    assert await keys(service) == ["a0", "b3", "c5", "a1", "a2", "a4"]
    assert await keys(service, "queue=q&reverse=true&limit=3") == ["a4", "a2", "a1"]


async def test_next_page_of_turns_continues_after_the_last_job_that_still_waits(serve: Serve) -> None:
    limit = LabelConcurrency(label="tenant", limit=1)
    service = await serve(queues={"q": QueueSettings(label_concurrency=limit)})
    await pause(service)
    for number in range(10):
        await service.submit(key=f"{number}", queue="q", labels={"tenant": "ab"[number % 2]})
    await asyncio.sleep(1)
    first = await page(service, "queue=q&limit=5")
    for key in ("3", "4"):
        await service.post(f"/v1/jobs/~{key}/cancel?queue=q")

    assert await keys(service, f"queue=q&cursor={first['next']}") == ["5", "6", "7", "8", "9"]


@pytest.mark.parametrize("reverse", ["false", "true"])
async def test_pages_have_no_gap_and_no_duplicate(service: Served, reverse: str) -> None:
    await fill(service)
    whole = await keys(service, f"queue=q&reverse={reverse}")

    found: list[str] = []
    path = f"/v1/jobs?order=next&queue=q&limit=2&reverse={reverse}"
    while path:
        answer = await service.get(path)
        found += [job["key"] for job in answer.json["jobs"]]
        assert (answer.json["next"] is None) == ("Link" not in answer.headers)
        path = answer.headers.get("Link", "").removeprefix("<").removesuffix('>; rel="next"')

    assert found == whole


async def test_next_page_continues_after_the_last_job_that_still_waits(service: Served) -> None:
    await fill(service)
    first = await page(service, "queue=q&limit=3")
    await service.post("/v1/jobs/~a/cancel?queue=q")
    await service.submit(key="new", queue="q", priority=50)
    await asyncio.sleep(1)

    assert await keys(service, f"queue=q&cursor={first['next']}") == ["c", "d"]
    assert await keys(service) == ["new", "b", "e", "c", "d"]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("label.tenant=c", ["c"]),
        ("kind=echo&limit=1", ["b"]),
        ("kind=http", []),
        ("key=d", ["d"]),
        ("attempt_min=1", []),
        ("state=scheduled&limit=2", ["b", "e"]),
        ("state=running", []),
        ("due_after=2030-01-01T00:00:00Z", []),
    ],
)
async def test_filters_apply(service: Served, query: str, expected: list[str]) -> None:
    await fill(service)

    assert await keys(service, f"queue=q&{query}") == expected


async def test_jobs_of_pull_kinds_are_listed_by_kind_and_together(serve: Serve) -> None:
    service = await serve(declared=PULLED)
    for key, kind in (("m1", "mail"), ("p1", "print"), ("m2", "mail"), ("u1", "echo")):
        await service.submit(key=key, kind=kind, queue="q", priority=9 if key == "m2" else 0, delay=1)
    await pause(service)
    await asyncio.sleep(2)

    assert await keys(service) == ["m2", "m1", "p1", "u1"]
    assert await keys(service, "queue=q&kind=mail") == ["m2", "m1"]
    assert await keys(service, "queue=q&kind=mail&kind=print&reverse=true") == ["p1", "m1", "m2"]


@pytest.mark.parametrize(
    ("view", "names"), [("brief", {}), ("line", {"params_preview"}), ("full", {"params", "result"})]
)
async def test_views_show_as_much_as_in_other_orders(service: Served, view: str, names: set[str]) -> None:
    await fill(service)

    (job,) = (await page(service, f"queue=q&view={view}&limit=1"))["jobs"]
    (same,) = (await service.get(f"/v1/jobs?key=b&view={view}")).json["jobs"]

    assert job == same
    assert {"params_preview", "params", "result"} & {*job} == {*names}


async def test_page_of_very_large_jobs_is_shorter(service: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upcoming, "MAX_PAGE", 5_000)
    await fill(service)

    first = await page(service, "queue=q&view=full")

    assert [job["key"] for job in first["jobs"]] == ["b", "e", "a"]
    assert await keys(service, f"queue=q&view=full&cursor={first['next']}") == ["c", "d"]
    assert len(await keys(service)) == 5


async def test_page_is_short_when_too_many_jobs_do_not_match(service: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upcoming, "MAX_READ", 2)
    monkeypatch.setattr(upcoming, "MAX_ENTRIES", 2)
    await fill(service)

    first = await page(service, "queue=q&label.tenant=c&limit=1")
    second = await page(service, f"queue=q&label.tenant=c&limit=1&cursor={first['next']}")

    assert (first["jobs"], first["scanned"]) == ([], 2)
    assert [job["key"] for job in second["jobs"]] == ["c"]


async def test_due_jobs_are_counted(service: Served) -> None:
    await fill(service)

    assert (await page(service, "queue=q&limit=1&count=true"))["count"] == {"n": 5, "exact": True}
    assert (await page(service, "queue=q&label.tenant=c&count=true"))["count"] == {"n": 1, "exact": True}


async def test_order_is_not_complete_while_due_jobs_are_missing(
    service: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lane_module, "MAX_DUE", 3)
    await fill(service)
    full = await page(service, "queue=q")
    service.node.engine.overdue._walks.append(Walk((0, 0), NOW + SECOND, "r"))
    unread = await page(service, "queue=r")
    service.node.engine.overdue._walks.clear()

    assert (full["complete"], unread["complete"]) == (False, False)
    assert len(full["jobs"]) < 5
    assert (await page(service, "queue=r"))["complete"]


async def test_jobs_that_change_while_the_page_is_read_are_left_out(service: Served) -> None:
    await fill(service)
    go_on = service.store.hold("get")
    listing = asyncio.create_task(service.get("/v1/jobs?order=next&queue=q&limit=3"))
    await asyncio.sleep(1)
    (first,) = await service.store.list(Query(key="b"))
    await service.store.delete(first)
    go_on.set()

    assert [job["key"] for job in (await listing).json["jobs"]] == ["e", "a", "c"]


async def test_jobs_that_are_no_longer_due_are_left_out(service: Served) -> None:
    await fill(service)
    service.clock.step(-100)

    assert await keys(service) == []


async def test_unknown_queue_has_no_due_jobs(service: Served) -> None:
    assert await page(service, "queue=new") == {"jobs": [], "next": None, "complete": True}


@pytest.mark.parametrize(
    ("query", "pointers", "detail"),
    [
        ("order=next", ["/queue"], "lists the due jobs of one queue, and given: none"),
        ("order=next&queue=b&queue=a", ["/queue"], "and given: a, b; name one"),
        ("reverse=true", ["/reverse"], "is for order=next, and the order is created"),
        ("reverse=true&order=due_at", ["/reverse"], "is for order=next, and the order is due_at"),
        ("order=next&queue=a&reverse=yes", ["/reverse"], "'true' or 'false'"),
    ],
)
async def test_what_does_not_go_with_the_order_is_refused(
    service: Served, query: str, pointers: list[str], detail: str
) -> None:
    answer = await service.get(f"/v1/jobs?{query}")

    assert (answer.status, answer.code, answer.pointers) == (422, "invalid", pointers)
    assert detail in answer.json["errors"][0]["detail"]


async def test_queue_may_be_given_twice_and_reverse_be_false(service: Served) -> None:
    await fill(service)

    assert await keys(service, "queue=q&queue=q&reverse=false&limit=1") == ["b"]
    assert (await service.get("/v1/jobs?reverse=false")).status == 200


@pytest.mark.parametrize("query", ["queue=q&reverse=true", "queue=r", "queue=q&kind=echo"])
async def test_cursor_of_another_order_is_refused(service: Served, query: str) -> None:
    await fill(service)
    first = await page(service, "queue=q&limit=1")
    listed = (await service.get("/v1/jobs?queue=q&limit=1")).json

    assert (await service.get(f"/v1/jobs?order=next&{query}&cursor={first['next']}")).code == "bad_cursor"
    assert (await service.get(f"/v1/jobs?order=next&queue=q&cursor={listed['next']}")).code == "bad_cursor"
    assert (await service.get(f"/v1/jobs?queue=q&cursor={first['next']}")).code == "bad_cursor"


async def test_key_limited_to_queues_sees_only_their_jobs(serve: Serve) -> None:
    keys_of = Keys().add("root").add("limited", queues=["q"]).add("two", queues=["q", "r"])
    keyed = await serve_keyed(serve, keys_of)
    with keyed.using("root") as service:
        await fill(service)

    with keyed.using("limited") as service:
        assert len(await keys(service, "")) == 5  # of its only queue
        assert await keys(service, "queue=r") == []
        assert (await service.get("/v1/jobs?order=next&queue=q&queue=r")).pointers == ["/queue"]
    with keyed.using("two") as service:
        assert (await service.get("/v1/jobs?order=next")).pointers == ["/queue"]


async def test_node_that_does_not_lead_knows_no_order(serve: Serve) -> None:
    store = Following()
    await store.add([make_new_job(queue="q")], now=NOW)
    service = await serve(store=store)

    answer = await service.get("/v1/jobs?order=next&queue=q")

    assert (answer.status, answer.code) == (503, "not_leading")
    assert (await service.get("/v1/jobs?queue=q")).status == 200
