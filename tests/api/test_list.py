"""GET /v1/jobs: filters, order, pages and the cursors between them."""

from __future__ import annotations

import asyncio
import base64
from typing import Any
from urllib.parse import quote

import orjson
import pytest

from erelong.model.query import Query
from erelong.service.overview import listings
from tests.support.served import Served


async def keys(service: Served, query: str = "") -> list[str]:
    """Return the keys of the listed jobs, in order."""
    answer = await service.get(f"/v1/jobs{query}")
    assert answer.status == 200, answer.body
    return [job["key"] for job in answer.json["jobs"]]


async def fill(service: Served) -> None:
    """Submit five jobs. `later` is the newest and the last due."""
    await service.submit(key="soon", delay=100, queue="a", labels={"tenant": "1", "env": "x"})
    await service.submit(key="late", delay=300, queue="b", labels={"tenant": "2"}, priority=7)
    await service.submit(key="mid", delay=200, queue="a", kind="http", params={"url": "http://x.example"})
    await service.submit_into("cancelled", key="gone", queue="b", labels={"tenant": "1"})
    await service.submit(key="123", delay=400, queue="c", labels={"tenant": "1", "env.x": "y z"})


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", ["123", "gone", "mid", "late", "soon"]),
        ("?state=scheduled", ["123", "mid", "late", "soon"]),
        ("?state=cancelled&state=failed", ["gone"]),
        ("?queue=a", ["mid", "soon"]),
        ("?queue=a&queue=c", ["123", "mid", "soon"]),
        ("?queue=none", []),
        ("?kind=http", ["mid"]),
        ("?key=soon", ["soon"]),
        ("?key=123", ["123"]),
        ("?label.tenant=1", ["123", "gone", "soon"]),
        ("?label.tenant=1&label.env=x", ["soon"]),
        ("?label.env.x=y+z", ["123"]),
        ("?label.env.x=y%20z", ["123"]),
        ("?due_after=2026-01-01T00:03:20Z", ["123", "mid", "late"]),
        ("?due_before=2026-01-01T00:03:20Z", ["soon"]),
        ("?due_after=1767225800&due_before=1767226000", ["mid", "late"]),
        ("?due_after=2026-01-01T01:03:20%2B01:00", ["123", "mid", "late"]),
        ("?order=due_at", ["soon", "mid", "late", "123"]),
        ("?order=due_at&queue=a&label.tenant=1&state=scheduled", ["soon"]),
        ("?order=created&limit=2", ["123", "gone"]),
        ("?created_after=2025-12-31T00:00:00Z", ["123", "gone", "mid", "late", "soon"]),
        ("?created_after=2026-01-02T00:00:00Z", []),
        ("?created_before=2026-01-02T00:00:00Z&queue=a", ["mid", "soon"]),
        ("?finished_after=2025-12-31T00:00:00Z", ["gone"]),
        ("?finished_before=2025-12-31T00:00:00Z", []),
        ("?error=cancelled&error=lost", ["gone"]),
        ("?error=timeout", []),
        ("?attempt_min=1", []),
        ("?order=finished_at", ["gone"]),
        ("?order=finished_at&queue=a", []),
        ("?order=started_at", []),
    ],
)
async def test_list_returns_the_matching_jobs_in_order(service: Served, query: str, expected: list[str]) -> None:
    await fill(service)

    assert await keys(service, query) == expected


async def test_list_is_brief_unless_the_full_view_is_asked_for(service: Served) -> None:
    job = await service.submit_into("succeeded", params={"a": 1})

    (brief,) = (await service.get("/v1/jobs")).json["jobs"]
    (full,) = (await service.get("/v1/jobs?view=full")).json["jobs"]

    assert full == job
    assert brief == {name: value for name, value in job.items() if name not in ("params", "result", "attempts")}


async def test_running_jobs_are_listed_by_start_and_final_jobs_by_end(service: Served) -> None:
    for number in (3, 1, 2):
        await service.submit(key=f"long{number}", delay=number, params={"sleep": 3_000})
        await service.submit(key=f"short{number}", delay=0, params={"sleep": number}, kind="echo")
    await asyncio.sleep(10)

    assert await keys(service, "?order=started_at") == ["long1", "long2", "long3"]
    assert await keys(service, "?order=finished_at") == ["short3", "short2", "short1"]
    after = (await service.get("/v1/jobs?order=finished_at&limit=1")).json["jobs"][0]["finished_at"]
    assert await keys(service, f"?order=finished_at&finished_before={after}") == ["short2", "short1"]


async def test_jobs_are_found_by_the_type_the_cause_and_the_attempt_of_their_error(service: Served) -> None:
    once = {"max_attempts": 1}
    await service.submit(key="boom", params={"fail": "order 7 is gone"}, retry=once)
    await service.submit(key="slow", params={"sleep": 9}, timeout=1, retry=once)
    await service.submit(key="twice", params={"fail": "x"}, retry={"max_attempts": 2, "delay": 1})
    await asyncio.sleep(20)
    causes = {cause["message"]: cause["cause"] for cause in (await service.get("/v1/jobs/errors")).json["causes"]}

    assert await keys(service, "?error=timeout") == ["slow"]
    assert await keys(service, "?error=exception&error=timeout") == ["twice", "slow", "boom"]
    assert await keys(service, f"?cause={causes['order 7 is gone']}") == ["boom"]
    assert await keys(service, "?attempt_min=2") == ["twice"]
    assert await keys(service, "?attempt_min=2&state=succeeded") == []


@pytest.mark.parametrize("filters", ["", "&label.tenant=t0"])
async def test_page_is_short_when_too_many_jobs_do_not_match(
    service: Served, filters: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listings, "MAX_READ", 10)
    monkeypatch.setattr(listings, "SLICE", 4)
    for number in range(25):
        await service.submit(key=str(number), delay=1_000, labels={"tenant": "t0"})
    for key in ("3", "4", "17"):
        await service.post(f"/v1/jobs/~{key}/cancel")

    pages, path = [], f"/v1/jobs?error=cancelled&limit=2{filters}"
    while path:
        answer = await service.get(path)
        pages.append(answer.json)
        path = answer.headers.get("Link", "").removeprefix("<").removesuffix('>; rel="next"')

    assert [[job["key"] for job in page["jobs"]] for page in pages] == [["17"], [], ["4", "3"], []]
    assert [page.get("scanned") for page in pages] == [10, 10, None, None]
    assert pages[-1]["next"] is None


async def test_line_shows_the_beginning_of_the_params(service: Served) -> None:
    await service.submit(delay=9, params={"a": "ü" * 500})
    await service.submit(delay=9, params={"a": 1})

    short, long = (await service.get("/v1/jobs?view=line")).json["jobs"]

    assert short["params_preview"] == '{"a":1}'
    assert long["params_preview"] == '{"a":"' + "ü" * 154
    assert "params" not in long


@pytest.mark.parametrize(
    ("query", "count"),
    [
        ("", {"n": 5, "exact": True}),
        ("limit=1", {"n": 5, "exact": True}),
        ("queue=a&state=scheduled", {"n": 2, "exact": True}),
        ("label.tenant=1", {"n": 3, "exact": True}),
        ("key=soon&limit=1", {"n": 1, "exact": True}),
        ("error=cancelled", {"n": 1, "exact": True}),
        ("order=due_at", {"n": 4, "exact": True}),
        ("order=finished_at", {"n": 1, "exact": True}),
        ("queue=nowhere", {"n": 0, "exact": True}),
    ],
)
async def test_matching_jobs_are_counted(service: Served, query: str, count: dict[str, Any]) -> None:
    await fill(service)

    assert (await service.get(f"/v1/jobs?count=true&{query}")).json["count"] == count


async def test_count_says_when_not_all_jobs_were_read(service: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listings, "MAX_READ", 3)
    await fill(service)

    page = (await service.get("/v1/jobs?count=true&limit=1&created_after=2025-12-31T00:00:00Z")).json

    assert page["count"] == {"n": 3, "exact": False}
    assert (await service.get(f"/v1/jobs?count=true&limit=1&cursor={page['next']}")).code == "bad_cursor"


async def test_next_page_may_be_counted_too(service: Served) -> None:
    await fill(service)
    first = (await service.get("/v1/jobs?limit=3")).json

    assert (await service.get(f"/v1/jobs?cursor={first['next']}&count=true")).json["count"]["n"] == 5


@pytest.mark.parametrize("order", ["", "&order=due_at"])
async def test_page_of_very_large_jobs_is_shorter(service: Served, order: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("erelong.service.jobs.MAX_PAGE", 25_000)
    for index in range(70):
        await service.submit(delay=1_000 + index, key=str(index), params={"a": "x" * 1_000})

    pages, path = [], f"/v1/jobs?view=full&limit=60{order}"
    answer = (await service.get(path)).json
    while answer["jobs"]:
        pages.append([job["key"] for job in answer["jobs"]])
        answer = (await service.get(f"{path}&cursor={answer['next']}")).json if answer["next"] else {"jobs": []}

    expected = [str(index) for index in range(70)]
    assert [len(page) for page in pages] == [25, 25, 20]
    assert [key for page in pages for key in page] == (expected if order else expected[::-1])


@pytest.mark.parametrize("query", ["", "?view=full", "?order=due_at"])
async def test_job_with_an_instant_beyond_the_calendar_is_listed(service: Served, query: str) -> None:
    await service.submit(key="near", delay=10)
    job = await service.submit(key="far", delay=20)
    (stored,) = await service.store.list(Query(key="far", is_full=True))
    await service.store.save([stored._replace(due_at=10**18, version=stored.version + 1)])

    assert sorted(await keys(service, query)) == ["far", "near"]
    assert (await service.job(job["id"]))["due_at"].startswith("9999-12-31T23:59:59")
    assert (await service.get("/v1/due")).status == 200


async def test_page_omits_jobs_deleted_while_it_is_read(service: Served) -> None:
    ids = [(await service.submit(delay=1_000))["id"] for _ in range(3)]
    go_on = service.store.hold("get")
    listing = asyncio.create_task(service.get("/v1/jobs?view=full&limit=2"))
    await asyncio.sleep(1)

    (job,) = await service.store.list(Query(limit=1))
    await service.store.delete(job)
    go_on.set()

    page = (await listing).json
    assert [job["id"] for job in page["jobs"]] == [ids[1]]
    assert page["next"] is not None


@pytest.mark.parametrize(
    ("query", "detail"),
    [
        ("&".join(f"a{index}" for index in range(500)), "500 parameters; send at most 400"),
        ("state=failed&" * 101, "at most 100 items"),
        ("&".join(f"label.a{index}=1" for index in range(17)), "17 labels; give at most 16"),
        ("label=x", "lacks a name; send label.<name>=<value>"),
    ],
)
async def test_query_with_invalid_filters_is_refused(service: Served, query: str, detail: str) -> None:
    answer = await service.get(f"/v1/jobs?{query}")

    assert answer.status == 422
    assert detail in answer.json["errors"][0]["detail"]


async def test_query_with_the_maximum_of_filters_is_served(service: Served) -> None:
    query = "&".join([*(f"queue=q{index}" for index in range(100)), *(f"kind=k{index}" for index in range(100))])

    assert (await service.get(f"/v1/jobs?{query}")).json == {"jobs": [], "next": None}


@pytest.mark.parametrize("query", ["?limit=2", "?limit=2&order=due_at&state=scheduled", "?limit=1&queue=a&queue=b"])
async def test_pages_have_no_gap_and_no_duplicate(service: Served, query: str) -> None:
    await fill(service)
    whole = await keys(service, query.replace("limit=2", "limit=9").replace("limit=1", "limit=9"))

    found: list[str] = []
    path = f"/v1/jobs{query}"
    while path:
        answer = await service.get(path)
        found += [job["key"] for job in answer.json["jobs"]]
        assert (answer.json["next"] is None) == ("Link" not in answer.headers)
        path = answer.headers.get("Link", "").removeprefix("<").removesuffix('>; rel="next"')

    assert found == whole


async def test_full_page_of_one_unreadable_job_is_empty_and_the_next_follows(service: Served) -> None:
    jobs = [await service.submit(delay=1_000) for _ in range(2)]
    service.store.refuse("get", int(jobs[1]["id"][:10], 16))

    first = (await service.get("/v1/jobs?view=full&limit=1")).json
    second = (await service.get(f"/v1/jobs?view=full&limit=1&cursor={first['next']}")).json

    assert first["jobs"] == []
    assert [job["id"] for job in second["jobs"]] == [jobs[0]["id"]]


async def test_full_last_page_has_no_next(service: Served) -> None:
    await fill(service)

    assert (await service.get("/v1/jobs?limit=5")).json["next"] is None


async def test_new_jobs_do_not_change_later_pages(service: Served) -> None:
    await fill(service)
    first = (await service.get("/v1/jobs?limit=3")).json
    await service.submit(key="new", delay=9)

    assert await keys(service, f"?cursor={first['next']}") == ["late", "soon"]


async def test_next_page_may_have_another_size_and_view(service: Served) -> None:
    await fill(service)
    first = (await service.get("/v1/jobs?limit=2&queue=a&queue=b")).json

    assert await keys(service, f"?view=full&limit=1&cursor={first['next']}&queue=a&queue=b") == ["late"]


def made_up(*parts: Any) -> str:
    return base64.urlsafe_b64encode(orjson.dumps(parts)).decode().rstrip("=")


CURSORS = ["x", "123", "-1", "%00", "ключ", "e30", "W10", made_up("abc", 1, 2), made_up("0" * 12, -1, 1), made_up(1)]


@pytest.mark.parametrize("cursor", CURSORS)
async def test_invalid_cursor_is_refused(service: Served, cursor: str) -> None:
    answer = await service.get(f"/v1/jobs?cursor={quote(cursor, safe='%')}")

    assert (answer.status, answer.code) == (400, "bad_cursor")


@pytest.mark.parametrize("other", ["?queue=b", "?queue=a&queue=b", "?queue=a&order=due_at", "", "?queue=a&label.x=1"])
async def test_cursor_of_other_filters_is_refused(service: Served, other: str) -> None:
    await fill(service)
    first = (await service.get("/v1/jobs?limit=1&queue=a")).json

    answer = await service.get(f"/v1/jobs{other or '?'}&cursor={first['next']}")

    assert (answer.status, answer.code) == (400, "bad_cursor")


async def test_order_of_equal_filters_does_not_matter_to_a_cursor(service: Served) -> None:
    await fill(service)
    first = (await service.get("/v1/jobs?limit=1&queue=a&queue=b&state=scheduled&state=failed")).json["next"]

    answer = await service.get(f"/v1/jobs?limit=1&state=failed&state=scheduled&queue=b&queue=a&queue=b&cursor={first}")

    assert answer.status == 200


async def test_forged_cursor_is_refused_without_an_internal_error(service: Served) -> None:
    await fill(service)
    cursor = (await service.get("/v1/jobs?limit=1")).json["next"]
    bound = orjson.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))[0]

    positions: list[Any] = [[10**18, 10**18], [0, 0], ["1", "2"], [1.5, 2.5], [1e300, 1], [None, 1], [[], {}]]
    for position in positions:
        answer = await service.get(f"/v1/jobs?cursor={made_up(bound, *position)}")
        assert answer.status in (200, 400), position


@pytest.mark.parametrize(
    ("query", "pointers"),
    [
        ("quue=x", ["/quue"]),
        ("state=done", ["/state/0"]),
        ("state=scheduled&state=", ["/state/1"]),
        ("queue=a+b", ["/queue/0"]),
        ("limit=0", ["/limit"]),
        ("limit=1001", ["/limit"]),
        ("limit=ten", ["/limit"]),
        ("limit=1.5", ["/limit"]),
        ("limit=", ["/limit"]),
        ("limit=5&limit=6", ["/limit"]),
        ("order=newest", ["/order"]),
        ("view=all", ["/view"]),
        ("count=1", ["/count"]),
        ("error=a+b", ["/error/0"]),
        ("cause=abc", ["/cause"]),
        ("attempt_min=0", ["/attempt_min"]),
        ("created_after=yesterday", ["/created_after"]),
        ("finished_before=2026-01-01T00:00:00", ["/finished_before"]),
        ("key=", ["/key"]),
        ("key=" + "k" * 256, ["/key"]),
        ("due_after=2026-01-01T00:00:00", ["/due_after"]),
        ("due_after=1767225600000", ["/due_after"]),
        ("due_before=nan", ["/due_before"]),
        ("due_before=1e999", ["/due_before"]),
        ("label=x", ["/label"]),
        ("label.=x", ["/label/"]),
        ("label.a=1&label.a=2", ["/label.a"]),
        ("label.a=" + "x" * 65, ["/label/a"]),
        ("state.x=1", ["/state.x"]),
        ("limit=0&quue=x&order=y", ["/quue", "/order", "/limit"]),
    ],
)
async def test_invalid_parameter_is_named(service: Served, query: str, pointers: list[str]) -> None:
    answer = await service.get(f"/v1/jobs?{query}")

    assert (answer.status, answer.code, answer.pointers) == (422, "invalid", pointers)


async def test_limit_is_accepted_up_to_its_bounds(service: Served) -> None:
    await fill(service)

    assert len(await keys(service, "?limit=1000")) == 5
    assert len(await keys(service, "?limit=1")) == 1
