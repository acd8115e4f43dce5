"""The cause of an error: the same for messages that differ only in details."""

from __future__ import annotations

import time

import pytest

from erelong.model.matching.cause import cause_of, outline
from erelong.model.outcome import MAX_MESSAGE, Error


def cause(message: str, *, kind: str = "http", type: str = "exception") -> str | None:
    return cause_of(kind, Error(type, message).to_json())


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("app.example answered 503", "app.example answered _"),
        ("KeyError: 'order-7'", "KeyError: _"),
        ('no file "/tmp/x"\nTraceback …', "no file _"),
        ("cannot connect to 10.0.0.7:443", "cannot connect to _"),
        ("job 00000000015d3919a34624f875 is gone", "job _ is gone"),
        ("id 6f1ed002-ab5d-4f8e-9c0a-1f2e3d4c5b6a", "id _"),
        ("took 1.5 s  of 2.0 s", "took _ s of _ s"),
        ("", ""),
        ("authentication failed", "authentication failed"),
        ("no-such-host and unknown_name", "no-such-host and unknown_name"),
        ("no host a-very-long-name-7, no a-b", "no host _, no a-b"),
    ],
)
def test_outline_leaves_out_numbers_ids_and_quoted_text(message: str, expected: str) -> None:
    assert outline(message) == expected


@pytest.mark.parametrize("part", ["a-", "_-", "'", "«", "1.", "xxxxxxxx-"])
def test_longest_message_takes_little_time(part: str) -> None:
    message = (part * MAX_MESSAGE)[:MAX_MESSAGE]
    began_at = time.process_time()

    for _ in range(100):
        outline(message)

    assert time.process_time() - began_at < 0.25


def test_messages_that_differ_in_details_have_one_cause() -> None:
    assert cause("app.example answered 503") == cause("app.example answered 500\nmore")
    assert len(cause("x") or "") == 12


def test_kind_type_and_text_tell_causes_apart() -> None:
    causes = {cause("a"), cause("b"), cause("a", kind="echo"), cause("a", type="timeout")}

    assert len(causes) == 4


def test_job_without_an_error_has_no_cause() -> None:
    assert cause_of("http", None) is None
