"""Function kinds: annotations are the schema, results are JSON, and every exception fails the attempt only."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest

from erelong.attempt import GiveUp
from erelong.errors import Invalid
from erelong.handlers.base import AttemptFailed, Stop
from erelong.handlers.python.runner import CoroutineRunner, Function, attempt_of
from erelong.handlers.python.signature import read_signature
from tests.handlers.attempts import handler_of, make_attempt, make_python, make_python_kind
from tests.support.virtual import EPOCH


@pytest.mark.real_loop
@pytest.mark.parametrize(
    ("function", "params", "result"),
    [
        ("add", {"a": 1}, 3),
        ("add", {"a": "1", "b": 5}, 6),
        ("postpone", {"at": "2026-12-01T09:00:00Z"}, "2026-12-01T10:00:00Z"),
        ("postpone", {"at": "2026-12-01T09:00:00+02:00", "by": "PT5M"}, "2026-12-01T09:05:00+02:00"),
        (
            "ship",
            {"number": 7, "lines": [1]},
            {"order": 7, "printed_at": "2026-12-01T09:00:00Z", "total": "9.90", "notes": []},
        ),
        ("ship_tried", {"number": 7}, {"order": 7, "attempt": 4}),
        ("untyped", {"a": [1, {}]}, [[1, {}], None]),
        ("any_names", {"first": 1, "other": 2, "p0": 3}, {"first": 1, "number": 4, "other": 2, "p0": 3}),
        ("odd_names", {"json": 1, "copy": "x", "model_config": True, "self": 4}, [1, "x", True, 0, 4]),
        ("Printer.draw", {"page": 3}, 3),
        ("nan", {}, [None, None]),
        ("nan_as_text", {}, "NaN and Infinity"),
    ],
)
async def test_function_gets_typed_arguments_and_its_result_is_json(
    function: str, params: dict[str, Any], result: object
) -> None:
    handler = make_python(function)

    handler.check(orjson.dumps(params))
    text = await handler.run(make_attempt(orjson.dumps(params), number=4))

    assert isinstance(text, bytes)
    assert orjson.loads(text) == result


async def test_coroutine_function_runs_on_the_loop() -> None:
    kind = make_python_kind("add_async")

    text = await handler_of(kind).run(make_attempt(b'{"a": 1}'))

    assert text == b"3"
    assert asyncio.get_running_loop().time() == 1
    assert (kind.type, kind.isolation, kind.stop) == ("python", "async", Stop.COOPERATIVE)


async def test_object_with_async_call_is_a_coroutine_function() -> None:
    assert await make_python("printer").run(make_attempt(b'{"page": 2}')) == b"2"


def test_plain_function_runs_in_a_thread_and_cannot_be_stopped() -> None:
    kind = make_python_kind("add")

    assert (kind.type, kind.isolation, kind.stop) == ("python", "thread", Stop.NONE)


@pytest.mark.real_loop
async def test_none_is_no_result() -> None:
    assert await make_python("nothing").run(make_attempt(b'{"x": 1}')) is None


def test_schemas_are_those_of_the_annotations() -> None:
    kind = make_python_kind("add")

    assert kind.params_schema == {
        "title": "add",
        "type": "object",
        "properties": {"a": {"title": "A", "type": "integer"}, "b": {"title": "B", "type": "integer", "default": 2}},
        "required": ["a"],
        "additionalProperties": False,
    }
    assert kind.result_schema == {"type": "integer"}


def test_schema_of_a_model_parameter_is_that_of_the_model() -> None:
    kind = make_python_kind("ship_tried")

    assert kind.params_schema["title"] == "Order"
    assert set(kind.params_schema["properties"]) == {"number", "lines"}


def test_function_that_returns_nothing_has_no_result_schema() -> None:
    assert make_python_kind("nothing").result_schema is None
    assert make_python_kind("untyped").result_schema is None


def test_attempt_is_no_part_of_the_schema() -> None:
    assert list(make_python_kind("any_names").params_schema["properties"]) == ["first"]


def test_faults_have_a_pointer_and_a_remedy() -> None:
    params = {"a": "x", "b": [1, "y"], "c": {"lines": [1, None]}, "d": 4, "e~/": 1}

    with pytest.raises(Invalid, match=r'do not fit kind "call": /a: should be .* \(and 6 more\)') as refusal:
        make_python("many").check(orjson.dumps(params))

    assert [repr(fault) for fault in refusal.value.faults] == [
        '/a: should be a valid integer, unable to parse string as an integer, not "x"',
        "/b: should be a valid integer, not a list",
        '/b/1: should be a valid integer, unable to parse string as an integer, not "y"',
        "/c/number: is required",
        "/c/lines/1: should be a valid integer, not null",
        "/d: should be less than or equal to 3, not 4",
        "/e~0~1: is unknown; known fields: a, b, c, d, e",
    ]


def test_faults_are_bounded() -> None:
    with pytest.raises(Invalid) as refusal:
        make_python("ship").check(orjson.dumps({"number": 1, "lines": ["x"] * 1_000}))

    assert len(refusal.value.faults) == 20


@pytest.mark.parametrize("params", [b"[]", b"null", b"1"])
def test_params_that_are_not_an_object_are_refused(params: bytes) -> None:
    with pytest.raises(Invalid) as refusal:
        make_python("add").check(params)

    assert refusal.value.faults[0].pointer == ""


def test_name_of_the_attempt_parameter_is_refused_although_any_name_is_accepted() -> None:
    with pytest.raises(Invalid, match="/attempt: is unknown"):
        make_python("any_names").check(b'{"first": 1, "attempt": 2}')


@pytest.mark.real_loop
async def test_params_that_no_longer_fit_fail_for_good() -> None:
    with pytest.raises(AttemptFailed, match="/a: is required") as failure:
        await make_python("add").run(make_attempt(b"{}"))

    assert not failure.value.retryable


@pytest.mark.real_loop
@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("unserialisable", "the function returned a value that is not JSON: .*return plain data"),
        ("nan_by_choice", "the function returned a value that is not JSON"),
        ("forgotten_await", "the function returned a coroutine.*async def"),
    ],
)
async def test_result_that_is_not_json_fails_for_good(function: str, message: str) -> None:
    with pytest.raises(AttemptFailed, match=message) as failure:
        await make_python(function).run(make_attempt(b"{}"))

    assert (failure.value.type, failure.value.retryable) == ("exception", False)


@pytest.mark.real_loop
@pytest.mark.parametrize(
    ("function", "error", "message"),
    [
        ("give_up", GiveUp, "no such order"),
        ("fail", AttemptFailed, "LookupError: no such order"),
        ("leave", AttemptFailed, "SystemExit: 3"),
        ("leave_async", AttemptFailed, "SystemExit: 3"),
        ("cancelled", AttemptFailed, "CancelledError"),
        ("cancelled_async", AttemptFailed, "CancelledError"),
        ("stop_iteration", AttemptFailed, "StopIteration"),
    ],
)
async def test_exception_of_a_function_fails_its_attempt_and_the_next_one_runs(
    function: str, error: type[Exception], message: str
) -> None:
    handler = make_python(function)

    for _ in range(2):
        with pytest.raises(error, match=message):
            await handler.run(make_attempt(b"{}"))


@pytest.mark.real_loop
@pytest.mark.parametrize("function", ["fail", "fail_async"])
async def test_traceback_of_a_function_has_no_frames_of_erelong(function: str) -> None:
    with pytest.raises(AttemptFailed) as failed:
        await make_python(function).run(make_attempt(b"{}"))

    lines = failed.value.output.splitlines()
    assert (lines[0], lines[-1]) == ("Traceback (most recent call last):", "LookupError: no such order")
    assert f", in {function}" in lines[1]
    assert 'raise LookupError("no such order")' in failed.value.output
    assert "erelong/handlers" not in failed.value.output


async def test_cancelled_coroutine_function_is_cancelled() -> None:
    attempt = asyncio.ensure_future(make_python("add_async").run(make_attempt(b'{"a": 1}')))
    await asyncio.sleep(0.5)

    attempt.cancel()

    with pytest.raises(asyncio.CancelledError):
        await attempt


async def test_cancel_waits_for_a_coroutine_function_that_cleans_up() -> None:
    steps: list[str] = []

    async def tidy() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(1)
            steps.append("tidied")

    handler = CoroutineRunner(name="tidy", function=Function(tidy, read_signature(tidy)))
    attempt = asyncio.ensure_future(handler.run(make_attempt(b"{}")))
    await asyncio.sleep(5)

    attempt.cancel()

    with pytest.raises(asyncio.CancelledError):
        await attempt
    assert steps == ["tidied"]


async def test_function_that_lost_its_parameters_is_not_called_with_params() -> None:
    """The function changed after the submit."""
    with pytest.raises(AttemptFailed, match="is unknown"):
        await make_python("fail_async").run(make_attempt(b'{"order": 7}'))


@pytest.mark.real_loop
@pytest.mark.parametrize("name", ["retry_after", "retry_after_in_thread"])
@pytest.mark.parametrize(("delay", "seconds"), [(b"300", 300.0), (b'"5m"', 300.0), (b"0", 0.0)])
async def test_function_sets_the_delay_of_its_retry(name: str, delay: bytes, seconds: float) -> None:
    with pytest.raises(AttemptFailed) as failure:
        await make_python(name).run(make_attempt(b'{"delay": %b}' % delay))

    assert (failure.value.type, failure.value.retryable, failure.value.backoff) == ("exception", True, seconds)
    assert ("come again" in failure.value.message) == (name == "retry_after_in_thread")


async def test_invalid_delay_is_refused_with_a_reason() -> None:
    with pytest.raises(AttemptFailed, match='RetryAfter: "soon" is not a duration') as failure:
        await make_python("retry_after").run(make_attempt(b'{"delay": "soon"}'))

    assert failure.value.backoff is None


def test_attempt_names_the_schedule_and_the_occurrence() -> None:
    job = make_attempt()
    plain, scheduled = attempt_of(job), attempt_of(job.with_extras({"schedule": "report", "occurrence": EPOCH}))

    assert (plain.schedule, plain.occurrence) == (None, None)
    assert (scheduled.schedule, scheduled.occurrence) == ("report", EPOCH)
