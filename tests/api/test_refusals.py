"""Refusals say what to send instead, in the words of the API and not of its libraries."""

from __future__ import annotations

from typing import Any

import pytest

from erelong.settings.kinds import KindSettings
from tests.support.keyed import Keys, serve_keyed
from tests.support.served import Serve, Served
from tests.support.virtual import EPOCH

YEARLY: dict[str, Any] = {"cron": "0 0 1 7 *", "job": {"kind": "echo"}}
LASTING: dict[str, Any] = {"kind": "echo", "retry": {"delay": "10000d"}}
PATCH_ALL: dict[str, Any] = {"action": "patch", "filter": {"all": True}, "at_most": None}
TOO_LONG = "172800 s is too long; send at most 86400 s (max_timeout)"
TOO_FAR = "864000000 s is too long; send at most 315360000 s (max_horizon)"


async def faults(service: Served, method: str, path: str, body: Any = None) -> dict[str, str]:
    answer = await service.call(method, path, body)
    assert (answer.status, answer.code) == (422, "invalid"), answer.body
    return {fault["pointer"]: fault["detail"] for fault in answer.json["errors"]}


@pytest.mark.parametrize(
    ("method", "path", "body", "pointer", "meant"),
    [
        ("POST", "/v1/jobs", {"kind": "echo", "quue": "mail"}, "/quue", "queue"),
        ("POST", "/v1/jobs", {"kind": "echo", "retry": {"max_attemps": 3}}, "/retry/max_attemps", "max_attempts"),
        ("POST", "/v1/jobs", {"kind": "http", "params": {"url": "https://a.example", "jsn": 1}}, "/params/jsn", "json"),
        ("GET", "/v1/jobs?quue=mail", None, "/quue", "queue"),
        ("PUT", "/v1/schedules/report", YEARLY | {"overlaps": "skip"}, "/overlaps", "overlap"),
    ],
)
async def test_unknown_name_that_resembles_a_known_one_names_it(
    service: Served, method: str, path: str, body: Any, pointer: str, meant: str
) -> None:
    found = await faults(service, method, path, body)

    assert found[pointer].endswith(f". Did you mean {meant!r}?")


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/jobs/wait", {"jobs": ["x"], "until": None, "wait": None, "view": None}),
        ("/v1/leases", {"kinds": ["work"], "queues": None, "max": None, "wait": None, "lease": None, "worker": None}),
        ("/v1/leases/{token}/extend", {"lease": None}),
        ("/v1/leases/{token}/fail", {"error": {"type": None, "message": None}, "retryable": None, "delay": None}),
        ("/v1/leases/{token}/fail", {"error": None, "output": None}),
        ("/v1/leases/{token}/finish", {"result": None}),
        ("/v1/operations", {"action": "run", "filter": {"kind": ["work"], "key": None}, "at_most": None, "rate": None}),
        ("/v1/schedules/report/trigger", {"overlap": None}),
        ("/v1/schedules/report/pause", {"reason": None}),
        ("/v1/clock", {"advance": 1, "set": None, "within": None, "wait": None}),
    ],
)
async def test_null_means_that_an_optional_field_is_not_given(serve: Serve, path: str, body: Any) -> None:
    service = await serve(declared={"work": KindSettings(pull=True)}, virtual_from=EPOCH)
    await service.put("/v1/schedules/report", YEARLY)
    await service.submit(kind="work")
    token = ""
    if "{token}" in path:
        (lease,) = (await service.post("/v1/leases", {"kinds": ["work"]})).json["leases"]
        token = lease["token"]

    answer = await service.post(path.format(token=token), body)

    assert answer.status < 300, answer.body


async def test_only_the_first_unknown_names_are_compared(service: Served) -> None:
    found = await faults(service, "POST", "/v1/jobs", {"kind": "echo"} | {f"queue{number}": 1 for number in range(9)})

    assert sum("Did you mean" in detail for detail in found.values()) == 2


@pytest.mark.parametrize(
    ("method", "path", "body", "pointer", "detail"),
    [
        ("POST", "/v1/jobs/wait", {"jobs": []}, "/jobs", "should have at least 1 item, not 0"),
        (
            "POST",
            "/v1/operations",
            PATCH_ALL | {"filter": {"jobs": ["x" * 200]}, "shift": 1},
            "/filter/jobs/0",
            "should have at most 40 characters, not 200",
        ),
        ("POST", "/v1/leases", {"kinds": ["a"] * 101}, "/kinds", "should have at most 100 items, not 101"),
        ("POST", "/v1/leases", {"kinds": "resize"}, "/kinds", 'should be a list, such as ["resize"]'),
        ("POST", "/v1/leases", {"kinds": 5}, "/kinds", "should be a list, not 5"),
        ("POST", "/v1/leases/x/fail", {"retryable": "no"}, "/retryable", 'should be true or false, not "no"'),
        ("POST", "/v1/jobs", {"kind": "echo", "timeout": "2d"}, "/timeout", TOO_LONG),
        ("PUT", "/v1/queues/a", {"timeout": "2d"}, "/timeout", TOO_LONG),
        ("PUT", "/v1/kinds/a", {"timeout": "2d"}, "/timeout", TOO_LONG),
        ("POST", "/v1/jobs", {"kind": "echo", "delay": "10000d"}, "/delay", TOO_FAR),
        ("POST", "/v1/jobs", LASTING, "/retry/delay", TOO_FAR),
        ("POST", "/v1/jobs", {"kind": "echo", "retry": {"max_delay": "10000d"}}, "/retry/max_delay", TOO_FAR),
        ("PUT", "/v1/queues/a", {"retry": {"delay": "10000d"}}, "/retry/delay", TOO_FAR),
        ("PUT", "/v1/kinds/a", {"retry": {"max_delay": "10000d"}}, "/retry/max_delay", TOO_FAR),
        ("PUT", "/v1/schedules/a", YEARLY | {"job": LASTING}, "/job/retry/delay", TOO_FAR),
        ("POST", "/v1/leases/x/fail", {"delay": "10000d"}, "/delay", TOO_FAR),
        ("POST", "/v1/operations", PATCH_ALL | {"shift": "-10000d"}, "/shift", TOO_FAR),
        ("POST", "/v1/operations", PATCH_ALL | {"set": {"timeout": "2d"}}, "/set/timeout", TOO_LONG),
        ("POST", "/v1/operations", PATCH_ALL | {"set": {"retry": {"delay": "10000d"}}}, "/set/retry/delay", TOO_FAR),
        (
            "POST",
            "/v1/operations",
            {"action": "cancel", "filter": {"queue": "mail"}, "at_most": 1},
            "/filter/queue",
            'should be a list, such as ["mail"]',
        ),
        (
            "POST",
            "/v1/operations",
            {"action": "cancel", "filter": {"all": False}, "at_most": 1},
            "/filter/all",
            "should be true, not false",
        ),
        (
            "POST",
            "/v1/operations",
            {"action": "cancel", "filter": {"labels": {}}, "at_most": 1},
            "/filter/labels",
            "should have at least 1 item, not 0",
        ),
        (
            "PUT",
            "/v1/schedules/report",
            YEARLY | {"missed": "all", "overlap": "allow"},
            "/catchup",
            'is required with missed all: how old an occurrence may be, such as "1d"',
        ),
        (
            "PUT",
            "/v1/schedules/report",
            YEARLY | {"missed": "all", "overlap": "allow", "catchup": "400d"},
            "/catchup",
            'should be at most 366 days with missed all, such as "1d"',
        ),
    ],
)
async def test_refusal_says_what_to_send(
    service: Served, method: str, path: str, body: Any, pointer: str, detail: str
) -> None:
    assert (await faults(service, method, path, body))[pointer] == detail


@pytest.mark.parametrize(
    ("time", "why"),
    [
        ("2026-13-01T09:00:00Z", "months go from 01 to 12"),
        ("2026-02-29T09:00:00Z", "this month has 28 days"),
        ("2026-02-00T09:00:00Z", "this month has 28 days"),
        ("2026-02-01T24:00:00Z", "hours go from 00 to 23"),
        ("2026-02-01T09:60:00Z", "minutes go from 00 to 59"),
        ("2026-02-01T09:00:61Z", "seconds go from 00 to 59"),
        ("0000-02-01T09:00:00Z", "years begin with 0001"),
    ],
)
async def test_time_that_does_not_exist_is_refused_in_words(service: Served, time: str, why: str) -> None:
    instant = await faults(service, "POST", "/v1/jobs", {"kind": "echo", "execute_at": time})
    local = await faults(service, "POST", "/v1/jobs", {"kind": "echo", "local_time": time[:-1], "zone": "UTC"})

    assert instant == {"/execute_at": f'"{time}" does not exist: {why}'}
    assert local["/local_time"] == f'"{time[:-1]}" does not exist: {why}'


@pytest.mark.parametrize(
    ("field", "value", "remedy"),
    [
        ("execute_at", "2027-01-01T00:00:00Z", "cron or every"),
        ("delay", 5, "cron or every"),
        ("local_time", "2027-01-01T00:00:00", "cron or every"),
        ("zone", "UTC", "beside cron"),
        ("spread", 60, "beside job"),
        ("key", "k", "overlap"),
        ("on_conflict", "keep", "overlap"),
    ],
)
async def test_field_that_a_schedule_sets_itself_is_refused_with_the_reason(
    service: Served, field: str, value: Any, remedy: str
) -> None:
    await service.put("/v1/schedules/report", YEARLY)

    put = await faults(service, "PUT", "/v1/schedules/report", YEARLY | {"job": {"kind": "echo", field: value}})
    patched = await faults(service, "PATCH", "/v1/schedules/report", {"job": {field: value}})

    assert put == patched
    assert remedy in put[f"/job/{field}"]
    assert "unknown" not in put[f"/job/{field}"]


@pytest.mark.parametrize(("path", "route"), [("/v1/schedules", "{schedule}"), ("/v1/queues", "{queue}")])
async def test_post_where_a_put_creates_says_so(service: Served, path: str, route: str) -> None:
    answer = await service.post(path, {})

    assert (answer.status, answer.headers["Allow"]) == (405, "GET, HEAD")
    assert answer.json["detail"].endswith(f"; PUT {path}/{route} creates one")


async def test_missing_holder_of_a_key_names_the_queue_that_was_searched(service: Served) -> None:
    default = (await service.get("/v1/jobs/~order-7")).json["detail"]
    named = (await service.get("/v1/jobs/~order-7?queue=mail")).json["detail"]

    assert "no live job in queue 'default' holds the job key 'order-7'" in default
    assert "?queue=<name>" in default
    assert "queue 'mail'" in named


async def test_refusals_tell_api_keys_from_keys_of_jobs(serve: Serve) -> None:
    keyed = await serve_keyed(serve, Keys().add("mail", queues=["mail"]))
    with keyed.using(None) as service:
        none = (await service.get("/v1/jobs")).json["detail"]
    with keyed.using("mail") as service:
        foreign = (await service.post("/v1/jobs", {"kind": "echo", "queue": "sms"})).json
        await service.post("/v1/jobs", {"kind": "echo", "queue": "mail", "key": "k", "delay": 60})
        taken = (await service.post("/v1/jobs", {"kind": "echo", "queue": "mail", "key": "k"})).json["detail"]

    assert "needs an API key" in none
    assert foreign["errors"][0]["detail"].startswith("API key 'mail' may not use queue 'sms'")
    assert taken.startswith("job key 'k' is held by job ")


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        ("/v1/jobs/~", "a job key is 1 to 255 printable ASCII characters"),
        ("/v1/queues/a%20b", "a name is 1 to 100 of A-Z a-z 0-9 . _ - (but not . or ..)"),
        ("/v1/schedules/a%20b", "a name is 1 to 100 of A-Z a-z 0-9 . _ - (but not . or ..)"),
        ("/v1/queues/a", "PUT /v1/queues/a to configure it first"),
        ("/v1/schedules/a", "PUT /v1/schedules/a creates it"),
    ],
)
async def test_hint_of_a_missing_name_leads_to_no_other_error(service: Served, path: str, hint: str) -> None:
    answer = await service.get(path)

    assert answer.status == 404
    assert hint in answer.json["detail"]
