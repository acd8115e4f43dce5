"""The service stays below what the system lets it open, and says so once."""

from __future__ import annotations

import asyncio
import errno
import logging
import resource
from collections.abc import Iterator

import pytest

from app.config import Config, HttpSection, ServerSection
from app.descriptors import RESERVED, Complaints, allowed, most_connections


@pytest.fixture
def limit() -> Iterator[None]:
    """Whatever a test makes of the soft limit is undone."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.usefixtures("limit")
def test_soft_limit_is_raised_to_what_is_wanted() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))

    assert allowed(300) == 300
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (300, hard)
    assert allowed(200) == 200
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (300, hard)


def test_connections_are_as_many_as_asked_where_the_system_allows_them() -> None:
    config = Config(server=ServerSection(max_connections=50), http=HttpSection(max_connections=10))

    assert most_connections(config) == 50


@pytest.mark.parametrize(("hard", "expected"), [(1_024, (1_024 - RESERVED) // 2), (64, 8)])
def test_connections_leave_half_of_few_descriptors_to_others(
    hard: int, expected: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("app.descriptors.allowed", lambda wanted: min(wanted, hard))

    assert most_connections(Config()) == expected
    assert [record.getMessage() for record in caplog.records] == ["few_descriptors"]


async def test_want_of_descriptors_is_told_once_in_a_while(caplog: pytest.LogCaptureFixture) -> None:
    loop, complaints = asyncio.get_running_loop(), Complaints()
    context = {"message": "accept", "exception": OSError(errno.EMFILE, "Too many open files")}

    for _ in range(1_000):
        complaints(loop, context)
    await asyncio.sleep(11)
    complaints(loop, context)

    assert [record.getMessage() for record in caplog.records] == ["no_descriptors"] * 2


async def test_other_complaints_are_logged_as_ever(caplog: pytest.LogCaptureFixture) -> None:
    complaints = Complaints()

    complaints(asyncio.get_running_loop(), {"message": "a task failed", "exception": ValueError("boom")})

    assert [record.levelno for record in caplog.records] == [logging.ERROR]
