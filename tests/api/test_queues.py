"""Queues: read, set, paused, purged and dropped, also across a restart."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from erelong.clock.instants import format_instant
from erelong.errors import StoreUnavailable
from erelong.settings.defaults import MAX_DEFAULTS
from erelong.settings.queues import QueueSettings, Rate, RetryPatch
from erelong.stores.base import Group
from tests.support.keyed import Keys, serve_keyed
from tests.support.served import Serve, Served

DEFAULTS = {
    "concurrency": 100,
    "rate": None,
    "label_concurrency": None,
    "max_backlog": 10_000_000,
    "overflow": "reject",
    "timeout": None,
    "retry": None,
    "retention": {"succeeded": 604_800.0, "other": 2_592_000.0},
}


async def test_thousands_of_changes_of_one_queue_leak_no_memory(service: Served) -> None:
    for number in range(3_000):
        await service.node.services.queues.put("mail", QueueSettings(concurrency=1 + number))
        service.node.services.factory.make({"kind": "echo", "queue": "mail"}, service.clock.now())

    assert len(service.node.services.factory._defaults._made) <= MAX_DEFAULTS


async def test_queue_exists_once_a_job_names_it(service: Served) -> None:
    before = await service.get("/v1/queues/mail")
    await service.submit(queue="mail", delay=9)

    after = await service.get("/v1/queues/mail")

    assert (before.status, before.code) == (404, "queue_not_found")
    assert after.json == {
        "name": "mail",
        "paused": False,
        "pause": None,
        "settings": DEFAULTS,
        "overridden": False,
        "counts": {"scheduled": 1, "due": 0, "running": 0, "succeeded": 0, "failed": 0, "cancelled": 0, "expired": 0},
        "rates": {"submitted": 1.0, "started": 0.0, "succeeded": 0.0, "failed": 0.0},
        "oldest_due_age": None,
        "late_p50": None,
        "late_p99": None,
    }


async def test_queues_named_by_jobs_settings_or_pauses_are_listed_by_name(serve: Serve) -> None:
    service = await serve(queues={"declared": QueueSettings()})
    await service.submit(queue="job", delay=9)
    await service.post("/v1/queues/paused/pause")
    await service.put("/v1/queues/put", {})

    names = [queue["name"] for queue in (await service.get("/v1/queues")).json["queues"]]

    assert names == ["declared", "job", "paused", "put"]


@pytest.mark.parametrize("call", ["GET ", "DELETE ", "POST /resume", "POST /purge"])
async def test_unknown_queue_is_not_found_and_not_created(service: Served, call: str) -> None:
    method, _, path = call.partition(" ")

    answer = await service.call(method, f"/v1/queues/mail{path}")

    assert (answer.status, answer.code) == (404, "queue_not_found")
    assert (await service.get("/v1/queues")).json["queues"] == []


async def test_counts_follow_the_jobs(service: Served) -> None:
    for state in ("scheduled", "running", "succeeded", "failed", "cancelled", "expired"):
        await service.submit_into(state, queue="mail")
    await service.post("/v1/queues/mail/pause")
    due = await service.submit(queue="mail")
    await service.get(f"/v1/jobs/{due['id']}?wait=3")

    queue = (await service.get("/v1/queues/mail")).json

    assert queue["counts"] == {
        "scheduled": 2,
        "due": 1,
        "running": 1,
        "succeeded": 1,
        "failed": 1,
        "cancelled": 1,
        "expired": 1,
    }
    assert queue["oldest_due_age"] == pytest.approx(3, abs=0.1)
    assert queue["late_p99"] is not None


async def test_put_replaces_the_whole_override(serve: Serve) -> None:
    declared = QueueSettings(concurrency=5, timeout=9.0, rate=Rate(per_second=1.0))
    service = await serve(queues={"mail": declared})

    first = await service.put("/v1/queues/mail", {"concurrency": 7, "max_backlog": 3, "rate": {"per_second": 50}})
    second = await service.put("/v1/queues/mail", {"overflow": "wait"})

    settings = first.json["settings"]
    assert (settings["concurrency"], settings["max_backlog"], settings["timeout"]) == (7, 3, 9.0)
    assert settings["rate"] == {"per_second": 50.0, "burst": 50.0}
    settings = second.json["settings"]
    assert (settings["concurrency"], settings["max_backlog"], settings["overflow"]) == (5, 10_000_000, "wait")
    assert settings["rate"] == {"per_second": 1.0, "burst": 1.0}


async def test_null_falls_back_except_where_it_is_a_value(serve: Serve) -> None:
    service = await serve(queues={"mail": QueueSettings(concurrency=5, rate=Rate(per_second=1.0))})
    body = b'{"concurrency":null,"rate":null,"overflow":null,"retention":{"succeeded":null,"other":"1h"}}'

    settings = (await service.put("/v1/queues/mail", data=body)).json["settings"]

    assert (settings["concurrency"], settings["rate"], settings["overflow"]) == (5, None, "reject")
    assert settings["retention"] == {"succeeded": 604_800.0, "other": 3_600.0}


async def test_settings_are_shown_in_a_form_that_can_be_put_again(service: Served) -> None:
    given = {"rate": {"per_second": 0.5}, "retry": {"max_attempts": 2}, "retention": {"other": "1d"}, "timeout": "5m"}
    settings = (await service.put("/v1/queues/mail", given)).json["settings"]

    again = (await service.put("/v1/queues/mail", settings)).json["settings"]

    assert again == settings
    assert (settings["rate"]["burst"], settings["timeout"]) == (1.0, 300.0)
    assert (settings["retry"]["max_attempts"], settings["retry"]["delay"]) == (2, None)


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"concurency": 5}, "/concurency"),
        ({"concurrency": 0}, "/concurrency"),
        ({"concurrency": "5"}, "/concurrency"),
        ({"rate": {"per_second": 0}}, "/rate/per_second"),
        ({"rate": {"burst": 5}}, "/rate/per_second"),
        ({"rate": 5}, "/rate"),
        ({"label_concurrency": {"label": "a b", "limit": 1}}, "/label_concurrency/label"),
        ({"label_concurrency": {"label": "a"}}, "/label_concurrency/limit"),
        ({"max_backlog": -1}, "/max_backlog"),
        ({"overflow": "drop"}, "/overflow"),
        ({"timeout": "25h"}, "/timeout"),
        ({"timeout": 0}, "/timeout"),
        ({"retry": {"times": 3}}, "/retry/times"),
        ({"retention": {"succeeded": "-1d"}}, "/retention/succeeded"),
        ([], ""),
    ],
)
async def test_invalid_settings_are_refused(service: Served, body: Any, pointer: str) -> None:
    answer = await service.put("/v1/queues/mail", body)

    assert (answer.status, answer.pointers) == (422, [pointer])
    assert (await service.get("/v1/queues/mail")).status == 404


@pytest.mark.parametrize("call", ["PUT ", "POST /pause"])
@pytest.mark.parametrize("name", ["a%20b", "%00", "q" * 101, "%C3%A4"])
async def test_invalid_queue_name_is_refused(service: Served, call: str, name: str) -> None:
    method, _, path = call.partition(" ")

    assert (await service.call(method, f"/v1/queues/{name}{path}", {})).status == 422


async def test_settings_apply_to_the_next_job(service: Served) -> None:
    await service.put("/v1/queues/mail", {"timeout": 9, "retry": {"max_attempts": 2}})

    job = await service.submit(queue="mail", delay=9)

    assert (job["timeout"], job["retry"]["max_attempts"]) == (9.0, 2)


async def test_settings_and_pause_survive_a_restart(service: Served, serve: Serve) -> None:
    await service.put("/v1/queues/mail", {"concurrency": 3})
    await service.post("/v1/queues/mail/pause")
    await service.post("/v1/queues/paused/pause")

    again = await serve(store=service.store)

    mail, paused = (await again.get("/v1/queues")).json["queues"]
    assert (mail["settings"]["concurrency"], mail["paused"], paused["paused"]) == (3, True, True)


async def test_override_falls_back_to_changed_settings(service: Served, serve: Serve) -> None:
    await service.put("/v1/queues/mail", {"concurrency": 3})

    again = await serve(store=service.store, queues={"mail": QueueSettings(concurrency=50, timeout=7.0)})

    settings = (await again.get("/v1/queues/mail")).json["settings"]
    assert (settings["concurrency"], settings["timeout"]) == (3, 7.0)


@pytest.mark.parametrize("state", ["scheduled", "running"])
async def test_queue_in_use_is_not_dropped(service: Served, state: str) -> None:
    await service.put("/v1/queues/mail", {"concurrency": 3})
    await service.submit_into(state, queue="mail")

    answer = await service.delete("/v1/queues/mail")

    assert (answer.status, answer.code) == (409, "queue_in_use")
    assert (await service.get("/v1/queues/mail")).json["settings"]["concurrency"] == 3


async def test_dropped_override_falls_back_to_the_config(serve: Serve) -> None:
    service = await serve(queues={"mail": QueueSettings(concurrency=5, retry=RetryPatch(max_attempts=2))})
    await service.put("/v1/queues/mail", {"concurrency": 3})
    await service.post("/v1/queues/mail/pause")

    answer = await service.delete("/v1/queues/mail")

    queue = (await service.get("/v1/queues/mail")).json
    assert (answer.status, answer.body) == (204, b"")
    assert (queue["settings"]["concurrency"], queue["settings"]["retry"]["max_attempts"], queue["paused"]) == (
        5,
        2,
        False,
    )


async def test_dropped_queue_without_jobs_is_gone(service: Served) -> None:
    job = await service.submit_into("succeeded", queue="mail")
    await service.put("/v1/queues/mail", {"concurrency": 3})
    await service.delete(f"/v1/jobs/{job['id']}")

    await service.delete("/v1/queues/mail")

    assert (await service.get("/v1/queues/mail")).code == "queue_not_found"
    assert (await service.get("/v1/queues")).json["queues"] == []


async def test_paused_queue_starts_nothing_and_lets_running_jobs_finish(service: Served) -> None:
    running = await service.submit(queue="mail", params={"sleep": 10})
    await service.until(running["id"], "running")
    paused = await service.post("/v1/queues/mail/pause")
    waiting = await service.submit(queue="mail")

    assert (paused.status, paused.json["paused"]) == (200, True)
    assert (await service.until(running["id"], "succeeded"))["result"] == {"sleep": 10}
    assert (await service.job(waiting["id"]))["waiting_for"] == "pause"

    resumed = await service.post("/v1/queues/mail/resume")

    assert (resumed.status, resumed.json["paused"]) == (200, False)
    await service.until(waiting["id"], "succeeded")


async def test_second_pause_changes_nothing(service: Served) -> None:
    answers = [await service.post("/v1/queues/mail/pause") for _ in range(2)]

    assert [answer.json["paused"] for answer in answers] == [True, True]


async def test_purge_cancels_only_waiting_jobs(service: Served) -> None:
    running = await service.submit_into("running", queue="mail")
    other = await service.submit_into("scheduled", queue="other")
    await service.post("/v1/queues/mail/pause")
    due = await service.submit(queue="mail")
    await service.post("/v1/jobs/batch", {"jobs": [{"kind": "echo", "queue": "mail", "delay": 9}] * 600})

    answer = await service.post("/v1/queues/mail/purge")

    job = await service.job(due["id"])
    assert (answer.status, answer.json) == (200, {"cancelled": 601})
    assert (job["state"], job["error"]["type"]) == ("cancelled", "cancelled")
    assert (await service.job(running["id"]))["state"] == "running"
    assert (await service.job(other["id"]))["state"] == "scheduled"
    assert (await service.get("/v1/queues/mail")).json["counts"]["due"] == 0
    assert (await service.post("/v1/queues/mail/purge")).json == {"cancelled": 0}


async def test_pause_resume_and_purge_are_logged(service: Served, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    for _ in range(700):
        await service.submit(queue="mail", delay=60)
    caplog.clear()

    for call in ("pause", "resume", "purge"):
        await service.post(f"/v1/queues/mail/{call}")

    logged = [(record.levelname, record.getMessage(), record.__dict__["fields"]) for record in caplog.records]
    assert logged == [
        ("INFO", "queue_paused", {"queue": "mail", "reason": None, "by": ""}),
        ("INFO", "queue_resumed", {"queue": "mail", "by": ""}),
        ("INFO", "queue_purged", {"queue": "mail", "cancelled": 700, "by": ""}),
    ]


async def test_changes_of_settings_are_logged(service: Served, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")

    await service.put("/v1/queues/mail", {"timeout": 9, "concurrency": 5})
    await service.delete("/v1/queues/mail")

    assert [(record.getMessage(), record.__dict__["fields"]) for record in caplog.records] == [
        ("queue_configured", {"queue": "mail", "settings": "concurrency,timeout", "by": ""}),
        ("queue_dropped", {"queue": "mail", "by": ""}),
    ]


async def test_purge_that_fails_half_way_is_reported(service: Served, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    await service.submit(queue="mail", delay=60)
    service.store.broken["save"] = StoreUnavailable("not now")

    answer = await service.post("/v1/queues/mail/purge")

    assert answer.status == 503
    (record,) = [record for record in caplog.records if record.getMessage() == "queue_purged"]
    assert record.__dict__["fields"]["cancelled"] == 0


async def test_long_poll_ends_with_the_purge_of_its_job(service: Served) -> None:
    job = await service.submit(queue="mail", delay=100)

    await service.post("/v1/queues/mail/purge")

    assert (await service.get(f"/v1/jobs/{job['id']}?wait=60")).json["state"] == "cancelled"


async def test_settings_are_refused_if_they_cannot_be_stored(service: Served) -> None:
    service.store.fill_disk()
    service.store.broken["override"] = service.store.broken["add"]

    put = await service.put("/v1/queues/mail", {"concurrency": 3})
    pause = await service.post("/v1/queues/mail/pause")

    assert [(answer.status, answer.code) for answer in (put, pause)] == [(507, "storage_full")] * 2
    assert (await service.get("/v1/queues/mail")).status == 404


async def test_setting_that_is_read_again_does_not_undo_a_newer_one(service: Served) -> None:
    """A failed write has an unknown result. Another write succeeds while the store is read again."""
    await service.put("/v1/queues/mail", {"concurrency": 1})
    answer = service.store.hold_answer("overrides")
    reading = asyncio.create_task(service.node.engine.overrides.reload("mail"))
    await asyncio.sleep(1)
    putting = asyncio.create_task(service.put("/v1/queues/mail", {"concurrency": 2}))
    await asyncio.sleep(1)
    answer.set()
    await asyncio.gather(reading, putting)

    assert (await service.get("/v1/queues/mail")).json["settings"]["concurrency"] == 2


async def test_many_queues_are_counted_together(service: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counting each queue alone would scan the groups of all queues each time."""
    for name in ("mail", "print", "resize"):
        await service.submit(queue=name, delay=9)
    counts, calls = service.node.engine.store.counts, 0

    def counted() -> Mapping[Group, int]:
        nonlocal calls
        calls += 1
        return counts()

    monkeypatch.setattr(service.node.engine.store, "counts", counted)

    queues = (await service.get("/v1/queues")).json["queues"]

    assert [queue["counts"]["scheduled"] for queue in queues] == [1, 1, 1]
    assert calls == 1


# pauses


async def test_paused_queue_shows_since_when_and_why(service: Served) -> None:
    at = service.clock.now()
    paused = await service.post("/v1/queues/mail/pause", {"reason": "the provider is down"})
    await asyncio.sleep(60)

    assert paused.json["pause"] == {"at": format_instant(at), "by": None, "reason": "the provider is down"}
    assert (await service.get("/v1/queues/mail")).json["pause"] == paused.json["pause"]
    assert (await service.post("/v1/queues/mail/resume")).json["pause"] is None


async def test_second_pause_replaces_the_reason_and_keeps_the_time(service: Served) -> None:
    first = (await service.post("/v1/queues/mail/pause", {"reason": "one"})).json["pause"]
    await asyncio.sleep(60)

    second = (await service.post("/v1/queues/mail/pause", {"reason": "two"})).json["pause"]

    assert second == first | {"reason": "two"}


async def test_pause_names_its_key(serve: Serve) -> None:
    keyed = await serve_keyed(serve, Keys().add("ops"))

    with keyed.using("ops") as service:
        paused = (await service.post("/v1/queues/mail/pause")).json["pause"]

    assert (paused["by"], paused["reason"]) == ("ops", None)


@pytest.mark.parametrize("body", [{"reason": "x" * 501}, {"reason": 5}, {"why": "x"}])
async def test_invalid_reason_of_a_pause_is_refused(service: Served, body: dict[str, Any]) -> None:
    answer = await service.post("/v1/queues/mail/pause", body)

    assert (answer.status, answer.code) == (422, "invalid")
    assert (await service.get("/v1/queues")).json["queues"] == []


# pages and orders


async def filled(serve: Serve) -> Served:
    """A service whose queues a, b, c and d have 1 to 4 due jobs, and failed jobs in the opposite order."""
    service = await serve()
    for number, queue in enumerate("abcd"):
        for _ in range(4 - number):
            job = await service.submit(queue=queue, params={"fail": "x"}, retry={"max_attempts": 1})
            await service.until(job["id"], "failed")
        await service.post(f"/v1/queues/{queue}/pause")
        for _ in range(number + 1):
            await service.submit(queue=queue)
    await asyncio.sleep(1)
    return service


async def names_of(service: Served, query: str) -> list[str]:
    return [queue["name"] for queue in (await service.get(f"/v1/queues?{query}")).json["queues"]]


@pytest.mark.parametrize(("order", "names"), [("name", "abcd"), ("due", "dcba"), ("failed", "abcd")])
async def test_queues_are_listed_in_an_order(serve: Serve, order: str, names: str) -> None:
    service = await filled(serve)

    assert await names_of(service, f"order={order}") == [*names]


async def test_latest_queue_comes_first_and_those_without_starts_last(serve: Serve) -> None:
    service = await serve()
    for queue, wait in (("a", 1), ("b", 30), ("c", 5)):
        await service.post(f"/v1/queues/{queue}/pause")
        job = await service.submit(queue=queue)
        await asyncio.sleep(wait)
        await service.post(f"/v1/queues/{queue}/resume")
        await service.until(job["id"], "succeeded")
    for queue in ("y", "x"):
        await service.submit(queue=queue, delay=60)

    listed = (await service.get("/v1/queues?order=late")).json["queues"]

    assert [queue["name"] for queue in listed] == ["b", "c", "a", "x", "y"]
    assert [queue["late_p50"] == queue["late_p99"] for queue in listed] == [True] * 5
    assert all(least <= queue["late_p50"] < 1.25 * least for least, queue in zip((30, 5, 1), listed, strict=False))


@pytest.mark.parametrize("order", ["name", "due", "late", "failed"])
@pytest.mark.parametrize("limit", [1, 3, 4, 100])
async def test_pages_hold_every_queue_once(serve: Serve, order: str, limit: int) -> None:
    service = await filled(serve)
    await service.put("/v1/queues/e", {})
    expected = await names_of(service, f"order={order}")

    found: list[str] = []
    path = f"/v1/queues?order={order}&limit={limit}"
    while path:
        answer = await service.get(path)
        page = answer.json
        assert len(found) < len(expected), found
        found += [queue["name"] for queue in page["queues"]]
        assert len(page["queues"]) <= limit
        assert (page["next"] is None) is ("Link" not in answer.headers)
        path = f"/v1/queues?order={order}&limit={limit}&cursor={page['next']}" if page["next"] else ""

    assert found == expected
    assert {*found} == {*"abcde"}


async def test_link_leads_to_the_next_page(serve: Serve) -> None:
    service = await filled(serve)

    link = (await service.get("/v1/queues?order=due&limit=3&view=brief")).headers["Link"]
    (last,) = (await service.get(link.partition(">")[0][1:])).json["queues"]

    assert last["name"] == "a"
    assert "oldest_due_age" not in last


async def test_all_queues_are_listed_without_a_limit(service: Served) -> None:
    for number in range(120):
        await service.put(f"/v1/queues/q{number}", {})

    listed = (await service.get("/v1/queues")).json

    assert (len(listed["queues"]), listed["next"]) == (120, None)


@pytest.mark.parametrize(
    ("query", "pointer"),
    [
        ("limit=0", "/limit"),
        ("limit=1001", "/limit"),
        ("order=age", "/order"),
        ("view=line", "/view"),
        ("cursor=x", "/cursor"),
        ("page=2", "/page"),
    ],
)
async def test_bad_query_of_a_listing_is_refused_with_its_name(service: Served, query: str, pointer: str) -> None:
    answer = await service.get(f"/v1/queues?{query}")

    assert (answer.status, answer.pointers) == (422, [pointer])


async def test_cursor_needs_the_limit_and_its_order(serve: Serve) -> None:
    service = await filled(serve)
    cursor = (await service.get("/v1/queues?limit=1&order=due")).json["next"]

    without, other, broken = [
        await service.get(f"/v1/queues?{query}")
        for query in (f"cursor={cursor}", f"limit=1&order=name&cursor={cursor}", "limit=1&cursor=x")
    ]

    assert "needs limit" in without.json["errors"][0]["detail"]
    assert [(answer.status, answer.code) for answer in (other, broken)] == [(400, "bad_cursor")] * 2


async def test_brief_listing_asks_the_store_for_no_queue(serve: Serve) -> None:
    service = await filled(serve)
    service.store.broken["list"] = StoreUnavailable("the disk fails")

    brief = await service.get("/v1/queues?view=brief")

    assert brief.status == 200
    assert [queue["counts"]["due"] for queue in brief.json["queues"]] == [1, 2, 3, 4]
    assert not any("oldest_due_age" in queue for queue in brief.json["queues"])


async def test_rates_of_a_queue_are_those_of_the_last_minute(service: Served) -> None:
    await asyncio.sleep(61)
    for number in range(30):
        await service.submit(queue="mail", params={"fail": "x"} if number % 3 == 0 else {}, retry={"max_attempts": 1})
    await service.submit(queue="other")
    await asyncio.sleep(20)

    (mail, other) = (await service.get("/v1/queues")).json["queues"]
    await asyncio.sleep(180)
    quiet = (await service.get("/v1/queues/mail")).json

    seconds = 30 / mail["rates"]["submitted"]
    assert 59 <= seconds <= 91
    assert round(mail["rates"]["succeeded"] * seconds) == 20
    assert round(mail["rates"]["failed"] * seconds) == 10
    assert 0.3 <= mail["rates"]["started"] <= 0.6
    assert 0 < other["rates"]["submitted"] < 0.02
    assert quiet["rates"] == {"submitted": 0.0, "started": 0.0, "succeeded": 0.0, "failed": 0.0}


async def test_overridden_says_whether_a_client_has_set_a_setting(serve: Serve) -> None:
    service = await serve(queues={"mail": QueueSettings(concurrency=5)})

    before = await service.get("/v1/queues/mail")
    paused = await service.post("/v1/queues/mail/pause")
    tried = await service.put("/v1/queues/mail?dry_run=true", {"concurrency": 7})
    put = await service.put("/v1/queues/mail", {"concurrency": 7})
    emptied = await service.put("/v1/queues/mail", {})

    overridden = [answer.json["overridden"] for answer in (before, paused, tried, put, emptied)]
    assert overridden == [False, False, True, True, False]


async def test_key_sees_the_pages_of_its_queues_only(serve: Serve) -> None:
    keys = Keys().add("root").add("some", queues=["b", "d"])
    service = (await serve_keyed(serve, keys)).service
    service.key = keys.texts["root"]
    for queue in "abcd":
        await service.put(f"/v1/queues/{queue}", {})
    service.key = keys.texts["some"]

    first = (await service.get("/v1/queues?limit=1")).json
    second = (await service.get(f"/v1/queues?limit=1&cursor={first['next']}")).json

    assert [page["queues"][0]["name"] for page in (first, second)] == ["b", "d"]
    assert second["next"] is None


async def test_queue_that_was_only_paused_is_forgotten_when_it_is_resumed(service: Served) -> None:
    await service.post("/v1/queues/mail/pause")

    resumed = await service.post("/v1/queues/mail/resume")

    assert (resumed.status, resumed.json["paused"]) == (200, False)
    assert (await service.get("/v1/queues")).json["queues"] == []
    assert await service.store.overrides() == {}


async def test_repeated_resume_of_a_queue_that_was_only_paused_succeeds(service: Served) -> None:
    await service.post("/v1/queues/mail/pause")

    answers = [await service.post("/v1/queues/mail/resume") for _ in range(2)]

    assert [(answer.status, answer.json["paused"]) for answer in answers] == [(200, False)] * 2
    assert await service.store.overrides() == {}


async def test_queue_with_settings_is_known_after_it_is_resumed(service: Served) -> None:
    await service.put("/v1/queues/mail", {"concurrency": 3})
    await service.post("/v1/queues/mail/pause")

    await service.post("/v1/queues/mail/resume")

    mail = (await service.get("/v1/queues/mail")).json
    assert (mail["paused"], mail["settings"]["concurrency"]) == (False, 3)
