"""Functions as kinds: annotations are the schema, results are JSON, and nothing they raise leaves the attempt."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest

from erelong.attempt import GiveUp
from erelong.errors import Invalid
from erelong.handlers.base import AttemptFailed, Stop
from erelong.handlers.python.runner import CoroutineRunner, Function
from erelong.handlers.python.signature import read_signature
from tests.handlers.attempts import handler_of, make_attempt, make_python, make_python_kind


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


def test_plain_function_is_for_threads_and_cannot_be_stopped() -> None:
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


def test_schema_of_a_model_is_the_models() -> None:
    kind = make_python_kind("ship_tried")

    assert kind.params_schema["title"] == "Order"
    assert set(kind.params_schema["properties"]) == {"number", "lines"}


def test_function_that_returns_nothing_has_no_result_schema() -> None:
    assert make_python_kind("nothing").result_schema is None
    assert make_python_kind("untyped").result_schema is None


def test_attempt_is_no_part_of_the_schema() -> None:
    assert list(make_python_kind("any_names").params_schema["properties"]) == ["first"]


def test_faults_name_the_place_and_the_remedy() -> None:
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
def test_params_that_are_no_object_are_refused(params: bytes) -> None:
    with pytest.raises(Invalid) as refusal:
        make_python("add").check(params)

    assert refusal.value.faults[0].pointer == ""


def test_name_of_the_attempt_is_refused_where_any_name_is_taken() -> None:
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
async def test_what_a_function_raises_is_the_attempts_and_the_next_one_runs(
    function: str, error: type[Exception], message: str
) -> None:
    handler = make_python(function)

    for _ in range(2):
        with pytest.raises(error, match=message):
            await handler.run(make_attempt(b"{}"))


@pytest.mark.real_loop
@pytest.mark.parametrize("function", ["fail", "fail_async"])
async def test_attempt_of_a_function_that_raises_tells_where_and_nothing_of_who_called_it(function: str) -> None:
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


async def test_function_without_parameters_is_not_called_with_params_that_it_took_once() -> None:
    """It has changed since the submit."""
    with pytest.raises(AttemptFailed, match="is unknown"):
        await make_python("fail_async").run(make_attempt(b'{"order": 7}'))


@pytest.mark.real_loop
@pytest.mark.parametrize("name", ["retry_after", "retry_after_in_thread"])
@pytest.mark.parametrize(("delay", "seconds"), [(b"300", 300.0), (b'"5m"', 300.0), (b"0", 0.0)])
async def test_function_says_when_it_is_to_be_retried(name: str, delay: bytes, seconds: float) -> None:
    with pytest.raises(AttemptFailed) as failure:
        await make_python(name).run(make_attempt(b'{"delay": %b}' % delay))

    assert (failure.value.type, failure.value.retryable, failure.value.backoff) == ("exception", True, seconds)
    assert ("come again" in failure.value.message) == (name == "retry_after_in_thread")


async def test_delay_that_is_none_is_refused_in_words() -> None:
    with pytest.raises(AttemptFailed, match='RetryAfter: "soon" is not a duration') as failure:
        await make_python("retry_after").run(make_attempt(b'{"delay": "soon"}'))

    assert failure.value.backoff is None
