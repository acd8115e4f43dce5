"""POST /v1/jobs: accepted values and their form in the response, refused values and their error texts."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from erelong.settings.kinds import KindSettings
from erelong.settings.queues import QueueSettings, RetryPatch
from erelong.settings.sections import JobsSection, LimitsSection
from tests.support.served import Serve, Served

# The clock stands at 2026-01-01T00:00:00Z.


async def test_submitted_job_is_returned_in_full_with_its_defaults(service: Served) -> None:
    answer = await service.post("/v1/jobs", {"kind": "echo", "delay": 60})

    job = answer.json
    assert answer.status == 201
    assert (answer.headers["Location"], answer.headers["ETag"]) == (f"/v1/jobs/{job['id']}", '"1"')
    assert job == {
        "id": job["id"],
        "state": "scheduled",
        "kind": "echo",
        "queue": "default",
        "params": {},
        "key": None,
        "labels": {},
        "priority": 0,
        "timeout": 60.0,
        "execute_at": "2026-01-01T00:01:00.000Z",
        "due_at": "2026-01-01T00:01:00.000Z",
        "expires_at": None,
        "retry": {"max_attempts": 5, "delay": 5.0, "factor": 3.0, "max_delay": 3600.0, "jitter": 0.2},
        "attempt": 0,
        "cancel_requested": False,
        "created_at": "2026-01-01T00:00:00.000Z",
        "started_at": None,
        "finished_at": None,
        "late_by": None,
        "waiting_for": "time",
        "result": None,
        "error": None,
        "attempts": [],
        "version": 1,
    }


async def test_every_field_that_is_given_is_kept(service: Served) -> None:
    fields = {
        "params": {"a": [1, 2.5, None, "ü"]},
        "queue": "mail",
        "key": "order-7",
        "labels": {"tenant": "t1"},
        "priority": -100,
        "timeout": 5.5,
        "retry": {"max_attempts": 2, "delay": 1.0, "factor": 1.0, "max_delay": 9.0, "jitter": 0.0},
    }

    job = await service.submit(**fields, execute_at="2026-01-01T00:01:00Z", expires_after=30)

    assert {name: job[name] for name in fields} == fields
    assert job["expires_at"] == "2026-01-01T00:01:30.000Z"


async def test_ids_sort_by_creation(service: Served) -> None:
    ids = [(await service.submit(delay=9))["id"] for _ in range(5)]

    assert ids == sorted(ids)
    assert len(set(ids)) == 5


@pytest.mark.parametrize(
    ("given", "execute_at"),
    [
        ("2026-02-01T10:00:00+01:00", "2026-02-01T09:00:00.000Z"),
        ("2026-02-01t09:00:00z", "2026-02-01T09:00:00.000Z"),
        ("2026-02-01 09:00:00.0001Z", "2026-02-01T09:00:00.001Z"),
        (1769936400, "2026-02-01T09:00:00.000Z"),
        (1769936400.25, "2026-02-01T09:00:00.250Z"),
    ],
)
async def test_instants_are_read_and_written_in_utc(service: Served, given: object, execute_at: str) -> None:
    job = await service.submit(execute_at=given)

    assert (job["execute_at"], job["due_at"]) == (execute_at, execute_at)


@pytest.mark.parametrize(
    ("text", "say"),
    [
        (b'"2026-02-01T09:00:00"', "offset"),
        (b"1769936400000", "milliseconds"),
        (b'"tomorrow"', "RFC 3339"),
        (b'"NaN"', "RFC 3339"),
        (b'"2015-01-01T00:00:00Z"', "10 years ago"),
        (b'"2036-02-01T09:00:00Z"', "too far ahead"),
        (b"null", "RFC 3339"),
        (b"true", "RFC 3339"),
        (b"[]", "RFC 3339"),
        (b"-1e300", "10 years ago"),
    ],
)
async def test_ambiguous_instant_is_refused_with_the_remedy(service: Served, text: bytes, say: str) -> None:
    answer = await service.post("/v1/jobs", data=b'{"kind":"echo","execute_at":' + text + b"}")

    assert (answer.status, answer.code, answer.pointers) == (422, "invalid", ["/execute_at"])
    assert say in answer.json["errors"][0]["detail"]


@pytest.mark.parametrize("text", [b"1e999", b"-1e999", b"9" * 400])
async def test_number_beyond_all_doubles_is_invalid(service: Served, text: bytes) -> None:
    answer = await service.post("/v1/jobs", data=b'{"kind":"echo","execute_at":' + text + b"}")

    assert (answer.status, answer.code) == (422, "invalid")
    assert "a number beyond ±1.8e308 at column 29" in answer.json["detail"]


@pytest.mark.parametrize("text", [b"NaN", b"-Infinity"])
async def test_number_that_is_not_json_is_malformed(service: Served, text: bytes) -> None:
    answer = await service.post("/v1/jobs", data=b'{"kind":"echo","execute_at":' + text + b"}")

    assert (answer.status, answer.code) == (400, "malformed_json")


async def test_past_instant_means_now_and_is_kept_as_requested(service: Served) -> None:
    job = await service.submit(execute_at="2025-06-01T00:00:00Z")

    assert (job["execute_at"], job["due_at"]) == ("2025-06-01T00:00:00.000Z", "2026-01-01T00:00:00.000Z")


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        (90, 90),
        (0.25, 0.25),
        ("90s", 90),
        ("1h30m", 5_400),
        ("1.5h", 5_400),
        ("2d", 172_800),
        ("250ms", 0.25),
        ("PT5M", 300),
        ("P1DT2H", 93_600),
        ("P1W", 604_800),
    ],
)
async def test_durations_are_read_and_written_as_seconds(service: Served, given: object, seconds: float) -> None:
    job = await service.submit(delay=1_000_000, timeout=given if seconds < 86_400 else 60, retry={"max_delay": given})

    assert job["retry"]["max_delay"] == seconds
    assert job["timeout"] == (seconds if seconds < 86_400 else 60)


@pytest.mark.parametrize("given", [-1, "-5s", "P1M", "P1Y", "soon", "", True, [], {}, 1e12, "5", "1e3"])
async def test_invalid_duration_is_refused(service: Served, given: object) -> None:
    answer = await service.post("/v1/jobs", {"kind": "echo", "delay": given})

    assert (answer.status, answer.pointers) == (422, ["/delay"])


async def test_delay_beyond_the_horizon_is_refused_like_an_instant(serve: Serve) -> None:
    service = await serve(jobs=JobsSection(max_horizon=3_600.0))

    assert (await service.post("/v1/jobs", {"kind": "echo", "delay": 3_601})).pointers == ["/delay"]
    assert (await service.post("/v1/jobs", {"kind": "echo", "delay": 3_600})).status == 201
    assert (await service.post("/v1/jobs", {"kind": "echo", "execute_at": "2026-01-01T01:00:01Z"})).status == 422


@pytest.mark.parametrize("name", ["execute_at", "delay", "kind"])
async def test_null_is_refused_for_kind_and_time(service: Served, name: str) -> None:
    answer = await service.post("/v1/jobs", {"kind": "echo", name: None})

    assert (answer.status, answer.pointers) == (422, [f"/{name}"])


async def test_null_for_an_optional_field_means_not_set(service: Served) -> None:
    names = ("params", "queue", "priority", "timeout", "retry", "expires_after", "labels", "key", "on_conflict")

    job = await service.submit(**dict.fromkeys(names))

    assert (job["params"], job["queue"], job["priority"], job["timeout"]) == ({}, "default", 0, 60.0)
    assert (job["labels"], job["key"], job["expires_at"]) == ({}, None, None)


@pytest.mark.parametrize(
    ("fields", "pointers"),
    [
        ({"kind": None, "kid": "echo"}, ["/kind", "/kid"]),
        ({"execute_at": 1767225600, "delay": 5}, ["/delay"]),
        ({"on_conflict": "keep"}, ["/on_conflict"]),
        ({"key": "k", "on_conflict": "ignore"}, ["/on_conflict"]),
        ({"priority": 101}, ["/priority"]),
        ({"priority": -101}, ["/priority"]),
        ({"priority": 1.5}, ["/priority"]),
        ({"priority": "1"}, ["/priority"]),
        ({"queue": "a b"}, ["/queue"]),
        ({"queue": ""}, ["/queue"]),
        ({"queue": "q" * 101}, ["/queue"]),
        ({"key": ""}, ["/key"]),
        ({"key": "k" * 256}, ["/key"]),
        ({"key": "ключ"}, ["/key"]),
        ({"timeout": 0}, ["/timeout"]),
        ({"timeout": 86_401}, ["/timeout"]),
        ({"labels": {"a": 1}}, ["/labels/a"]),
        ({"labels": {"a b/~": "x"}}, ["/labels/a b~1~0"]),
        ({"labels": {"a": "x" * 65}}, ["/labels/a"]),
        ({"labels": {"a": "x\u0000"}}, ["/labels/a"]),  # no text of PostgreSQL can hold it
        ({"labels": {f"l{i}": "" for i in range(17)}}, ["/labels"]),
        ({"params": [1]}, ["/params"]),
        ({"params": {"sleep": -1, "fail": 7}}, ["/params/sleep", "/params/fail"]),
        ({"retry": {"max_attempts": 0}}, ["/retry/max_attempts"]),
        ({"retry": {"max_attempts": 1_001}}, ["/retry/max_attempts"]),
        ({"retry": {"factor": 0.5, "jitter": 2, "times": 3}}, ["/retry/factor", "/retry/jitter", "/retry/times"]),
    ],
)
async def test_wrong_field_is_named_by_its_pointer(
    service: Served, fields: dict[str, Any], pointers: list[str]
) -> None:
    answer = await service.post("/v1/jobs", {"kind": "echo", **fields})

    assert (answer.status, answer.code, answer.pointers) == (422, "invalid", pointers)


@pytest.mark.parametrize(
    "fields",
    [
        {"priority": 100, "queue": "q" * 100, "key": " ~" * 127 + "k"},
        {"labels": {f"{i:0100}": "x" * 64 for i in range(16)}, "timeout": 86_400, "retry": {"max_attempts": 1_000}},
        {"expires_after": 0, "delay": 0, "retry": {"jitter": 1, "factor": 1}, "timeout": 0.001},
    ],
)
async def test_values_at_the_bounds_are_accepted(service: Served, fields: dict[str, Any]) -> None:
    assert (await service.post("/v1/jobs", {"kind": "echo", **fields})).status == 201


async def test_message_names_the_value_and_the_bound(service: Served) -> None:
    answer = await service.post("/v1/jobs", {"kind": "echo", "priority": 1_000})

    assert answer.json["errors"][0]["detail"] == "should be less than or equal to 100, not 1000"


@pytest.mark.parametrize("body", [b"[]", b'"echo"', b"null", b"7", b"true"])
async def test_body_that_is_not_an_object_is_refused(service: Served, body: bytes) -> None:
    answer = await service.post("/v1/jobs", data=body)

    assert (answer.status, answer.pointers) == (422, [""])
    assert "should be an object" in answer.json["errors"][0]["detail"]


OF_A_POLICY = "max_attempts, delay, factor, max_delay, jitter"
OF_A_CHANGE = (
    "execute_at, delay, local_time, zone, priority, params, labels, timeout, expires_after, retry, spread, on_finish"
)
OF_A_JOB = (
    "execute_at, delay, local_time, zone, kind, params, queue, priority, timeout, retry, expires_after, spread, "
    "labels, on_finish, key, on_conflict"
)


@pytest.mark.parametrize(
    ("method", "path", "body", "pointer", "known"),
    [
        ("POST", "/v1/jobs", {"kind": "echo", "quue": "mail"}, "/quue", OF_A_JOB),
        ("POST", "/v1/jobs", {"kind": "echo", "retry": {"max": 3}}, "/retry/max", OF_A_POLICY),
        ("POST", "/v1/jobs/batch", {"jobs": [{"kind": "echo", "dely": 3}]}, "/jobs/0/dely", OF_A_JOB),
        ("POST", "/v1/jobs/batch", {"jobs": [{"kind": "echo"}], "job": {}}, "/job", "jobs"),
        ("PATCH", "/v1/jobs/{id}", {"key": "new"}, "/key", OF_A_CHANGE),
        ("POST", "/v1/jobs/{id}/cancel", {"why": "paid"}, "/why", "reason"),
        ("POST", "/v1/jobs/{id}/run", {"now": True}, "/now", "none"),
        ("PUT", "/v1/queues/mail", {"rate": {"per_second": 1, "each": 5}}, "/rate/each", "per_second, burst"),
        ("POST", "/v1/leases", {"kinds": ["echo"], "ttl": 5}, "/ttl", "kinds, queues, max, wait, lease, worker"),
        ("POST", "/v1/leases/x/fail", {"error": {"text": "no"}}, "/error/text", "type, message"),
    ],
)
async def test_unknown_name_is_refused_with_the_known_names(
    service: Served, method: str, path: str, body: dict[str, Any], pointer: str, known: str
) -> None:
    job = await service.submit(delay=100)

    answer = await service.call(method, path.format(id=job["id"]), body)

    assert (answer.status, answer.code) == (422, "invalid")
    (fault,) = answer.json["errors"]
    assert (fault["pointer"], fault["detail"].partition(". ")[0]) == (pointer, f"is unknown; known fields: {known}")


@pytest.mark.parametrize(
    ("body", "value"), [({"kind": "no good"}, "no good"), ({"labels": {"x" * 101: ""}}, f"{'x' * 56}...")]
)
async def test_invalid_name_is_refused_in_words(service: Served, body: dict[str, Any], value: str) -> None:
    answer = await service.post("/v1/jobs", {"kind": "echo", **body})

    detail = answer.json["errors"][0]["detail"]
    assert detail.replace('"', "") == f"should be 1 to 100 of A-Z a-z 0-9 . _ -, not {value}"


@pytest.mark.parametrize("queue", ["ä", "", ".", ".."])
async def test_name_that_no_path_can_hold_is_no_queue(service: Served, queue: str) -> None:
    answer = await service.post("/v1/jobs", {"kind": "echo", "queue": queue})

    assert (answer.status, answer.pointers) == (422, ["/queue"])
    detail = answer.json["errors"][0]["detail"]
    assert detail == f'should be 1 to 100 of A-Z a-z 0-9 . _ - (but not . or ..), not "{queue}"'


@pytest.mark.parametrize("queue", ["...", ".a", "..a", "a.", "-", "a" * 100, f"..{'a' * 98}"])
async def test_other_names_with_dots_are_queues(service: Served, queue: str) -> None:
    assert (await service.submit(queue=queue))["queue"] == queue


async def test_invalid_key_is_refused_in_words(service: Served) -> None:
    answer = await service.post("/v1/jobs", {"kind": "echo", "key": "ä"})

    assert answer.json["errors"][0]["detail"] == 'should be 1 to 255 printable ASCII characters, not "ä"'


async def test_request_and_params_share_the_error_texts(service: Served) -> None:
    own = (await service.post("/v1/jobs", {"quue": 1})).json["errors"]
    of_kind = (await service.post("/v1/jobs", {"kind": "http", "params": {"ulr": 1}})).json["errors"]

    assert {fault["pointer"]: fault["detail"].partition(";")[0] for fault in [*own, *of_kind]} == {
        "/kind": "is required",
        "/quue": "is unknown",
        "/params/url": "is required",
        "/params/ulr": "is unknown",
    }


@pytest.mark.parametrize(
    ("path", "body", "detail"),
    [
        ("/v1/jobs", {}, "the job is not valid: /kind: is required"),
        ("/v1/jobs", [], "the job is not valid: should be an object, not a list"),
        (
            "/v1/jobs",
            {"kind": "http", "params": {"url": 5, "body": 5}},
            'the params do not fit kind "http": '
            "/params/url: should be text such as https://app.example/hook, not 5 (and 1 more)",
        ),
        (
            "/v1/jobs/batch",
            {"jobs": [{"kind": "echo"}, {"kind": "echo", "labels": 1}]},
            "no job of the batch was stored: /jobs/1/labels: should be an object, not 1",
        ),
    ],
)
async def test_detail_names_the_first_fault(service: Served, path: str, body: object, detail: str) -> None:
    answer = await service.post(path, data=orjson.dumps(body), type="application/json")

    assert (answer.status, answer.json["detail"]) == (422, detail)


async def test_unknown_kind_is_refused_with_the_known_ones_and_a_guess(service: Served) -> None:
    answer = await service.post("/v1/jobs", {"kind": "ecko"})

    detail = answer.json["errors"][0]["detail"]
    assert (answer.status, answer.pointers) == (422, ["/kind"])
    assert "known kinds: echo, endless, http" in detail
    assert "Did you mean 'echo'?" in detail


async def test_invalid_params_are_refused_at_submit(service: Served) -> None:
    answer = await service.post("/v1/jobs", {"kind": "http", "params": {"url": "ftp://x", "verb": "GET"}})

    assert (answer.status, sorted(answer.pointers)) == (422, ["/params/url", "/params/verb"])


async def test_blocked_address_is_refused_with_the_remedy_at_submit_and_at_patch(service: Served) -> None:
    params = {"url": "http://0x7f.1/", "headers": {"Authorization": "{secret:crm}"}}
    job = await service.submit(kind="http", params={"url": "https://app.example/"}, delay=100)

    submitted = await service.post("/v1/jobs", {"kind": "http", "params": params})
    patched = await service.patch(f"/v1/jobs/{job['id']}", {"params": params})

    for answer in (submitted, patched):
        assert (answer.status, answer.pointers) == (422, ["/params/url", "/params/headers/Authorization"])
        assert answer.json["errors"][0]["detail"].startswith("127.0.0.1 is not public: an operator can open")


async def test_params_that_are_too_large_are_refused(service: Served) -> None:
    fits, too_large = {"a": "x" * (65_536 - 8)}, {"a": "x" * (65_536 - 7)}

    assert (await service.post("/v1/jobs", {"kind": "echo", "params": fits})).status == 201
    assert (await service.post("/v1/jobs", {"kind": "echo", "params": too_large})).pointers == ["/params"]


async def test_timeout_and_retry_come_from_the_queue_or_the_defaults(serve: Serve) -> None:
    queues = {"slow": QueueSettings(timeout=20.0, retry=RetryPatch(max_attempts=9, delay=8.0))}
    service = await serve(jobs=JobsSection(timeout=7.0), queues=queues)

    plain, slow = await service.submit(delay=9), await service.submit(delay=9, queue="slow", retry={"delay": 1})

    assert (plain["timeout"], plain["retry"]["max_attempts"]) == (7.0, 5)
    assert (slow["timeout"], slow["retry"]["max_attempts"], slow["retry"]["delay"]) == (20.0, 9, 1.0)


async def test_settings_of_the_kind_override_those_of_the_queue(serve: Serve) -> None:
    kinds = {"echo": KindSettings(timeout=3.0, retry=RetryPatch(max_attempts=2))}
    queues = {"slow": QueueSettings(timeout=20.0, retry=RetryPatch(max_attempts=9, delay=8.0))}
    service = await serve(queues=queues, declared=kinds)

    job = await service.submit(delay=9, queue="slow")

    assert (job["timeout"], job["retry"]["max_attempts"], job["retry"]["delay"]) == (3.0, 2, 8.0)


async def test_faults_of_one_job_are_limited(service: Served) -> None:
    answer = await service.post("/v1/jobs", {"kind": "echo", **{f"x{i}": 1 for i in range(90)}})

    assert (answer.status, len(answer.pointers)) == (422, 20)


async def test_unknown_name_in_the_query_of_a_write_is_refused(service: Served) -> None:
    answer = await service.post("/v1/jobs?kind=echo", {"kind": "echo"})

    assert (answer.status, answer.pointers) == (422, ["/kind"])


async def test_depth_of_32_is_accepted_and_33_is_not(serve: Serve) -> None:
    service = await serve(limits=LimitsSection(max_depth=4))
    fits, deeper = {"a": [[1]]}, {"a": [[[1]]]}  # in an object, in params

    assert (await service.post("/v1/jobs", {"kind": "echo", "params": fits})).status == 201
    assert (await service.post("/v1/jobs", {"kind": "echo", "params": deeper})).code == "malformed_json"
    assert (await service.post("/v1/jobs/batch", {"jobs": [{"kind": "echo", "params": fits}]})).status == 201
    assert (await service.post("/v1/jobs/batch", {"jobs": [{"kind": "echo", "params": deeper}]})).status == 400
