"""The service stays below the file descriptor limit, and logs it once."""

from __future__ import annotations

import asyncio
import errno
import logging
import resource
from collections.abc import Iterator

import pytest

from erelong.settings.sections import Config, LimitsSection, WebhooksSection
from erelong.web.fd_limit import RESERVED, LoopExceptionHandler, fit_to_fd_limit, raise_fd_limit


@pytest.fixture
def limit() -> Iterator[None]:
    """Restore the soft limit after a test."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.usefixtures("limit")
def test_soft_limit_is_raised_as_wanted() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))

    assert raise_fd_limit(300) == 300
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (300, hard)
    assert raise_fd_limit(200) == 200
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (300, hard)


def test_connections_stay_as_configured_if_the_system_allows_them() -> None:
    config = Config(limits=LimitsSection(max_connections=50), webhooks=WebhooksSection(max_connections=10))

    assert fit_to_fd_limit(config) == config


@pytest.mark.parametrize(
    ("hard", "clients", "waiters", "calls"), [(1_024, 448, 358, 448), (64, 8, 6, 8), (1_900, 886, 708, 886)]
)
def test_few_descriptors_are_split_between_clients_and_webhooks(
    hard: int, clients: int, waiters: int, calls: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("erelong.web.fd_limit.raise_fd_limit", lambda wanted: min(wanted, hard))

    config = fit_to_fd_limit(Config())

    assert (config.limits.max_connections, config.limits.max_waiters) == (clients, waiters)
    assert config.webhooks.max_connections == calls
    assert clients + calls + RESERVED <= max(hard, RESERVED + 16)
    assert [record.getMessage() for record in caplog.records] == ["fd_limit_low"]


async def test_exhausted_descriptors_are_logged_sparingly(caplog: pytest.LogCaptureFixture) -> None:
    loop, handle = asyncio.get_running_loop(), LoopExceptionHandler()
    context = {"message": "accept", "exception": OSError(errno.EMFILE, "Too many open files")}

    for _ in range(1_000):
        handle(loop, context)
    await asyncio.sleep(11)
    handle(loop, context)

    assert [record.getMessage() for record in caplog.records] == ["fds_exhausted"] * 2


async def test_other_loop_exceptions_are_logged_as_usual(caplog: pytest.LogCaptureFixture) -> None:
    handle = LoopExceptionHandler()

    handle(asyncio.get_running_loop(), {"message": "a task failed", "exception": ValueError("boom")})

    assert [record.levelno for record in caplog.records] == [logging.ERROR]
