"""The echo kind: returns its params, after a sleep, or fails."""

from __future__ import annotations

import asyncio

import pytest

from erelong.errors import Invalid
from erelong.handlers.base import AttemptFailed
from erelong.handlers.echo import Echo
from tests.handlers.attempts import make_attempt


@pytest.fixture
def echo() -> Echo:
    return Echo()


async def test_params_are_returned_unchanged(echo: Echo) -> None:
    params = b'{"b": [1, 2.50, null], "a": {"sleep": "x"}, "sleep": null, "fail": null}'

    echo.check(params)

    assert await echo.run(make_attempt(params)) == params


async def test_sleep_lasts_its_seconds(echo: Echo) -> None:
    await echo.run(make_attempt(b'{"sleep": 2.5}'))

    assert asyncio.get_running_loop().time() == pytest.approx(2.5)


async def test_fail_fails_with_its_message_after_the_sleep(echo: Echo) -> None:
    with pytest.raises(AttemptFailed, match="no luck") as failure:
        await echo.run(make_attempt(b'{"sleep": 4, "fail": "no luck"}'))

    assert (failure.value.type, failure.value.retryable) == ("exception", True)
    assert asyncio.get_running_loop().time() == pytest.approx(4)


@pytest.mark.parametrize(
    ("params", "fault"),
    [
        (b'{"sleep": -1}', "/sleep: should be a number of seconds, 0 or more, not -1"),
        (b'{"sleep": "1"}', '/sleep: should be a number of seconds, 0 or more, not "1"'),
        (b'{"sleep": true}', "/sleep: should be a number of seconds, 0 or more, not true"),
        (b'{"fail": {}}', "/fail: should be a message, a string, not an object"),
        (b"[]", ": should be an object, not a list"),
    ],
)
def test_wrong_types_are_refused(echo: Echo, params: bytes, fault: str) -> None:
    with pytest.raises(Invalid, match="echo") as refusal:
        echo.check(params)

    assert [repr(fault) for fault in refusal.value.faults] == [fault]


def test_all_faults_are_reported_at_once(echo: Echo) -> None:
    with pytest.raises(Invalid) as refusal:
        echo.check(b'{"sleep": "1", "fail": 1}')

    assert [fault.pointer for fault in refusal.value.faults] == ["/sleep", "/fail"]
