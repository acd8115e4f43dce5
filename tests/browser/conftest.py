"""Services without API keys, and a browser; without Chromium these tests are skipped."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.support.browser import Browser, find_browser
from tests.support.demo import Demo
from tests.support.needs import report_missing
from tests.support.process import ServiceProcess


@pytest.fixture
def service(tmp_path: Path) -> Iterator[ServiceProcess]:
    service = ServiceProcess(folder=tmp_path)
    service.start()
    yield service
    service.kill()


@pytest_asyncio.fixture
async def demo() -> AsyncIterator[Demo]:
    """Return a service with jobs of all sorts."""
    async with Demo() as demo:
        yield demo


@pytest_asyncio.fixture
async def empty() -> AsyncIterator[Demo]:
    """Return the same service without jobs."""
    async with Demo(is_empty=True) as demo:
        yield demo


@pytest_asyncio.fixture
async def browser(tmp_path: Path) -> AsyncIterator[Browser]:
    program = find_browser()
    if program is None:
        report_missing("NO BROWSER: install chromium to try pages in one")
    async with Browser(program=program, folder=tmp_path / "browser") as browser:
        yield browser
