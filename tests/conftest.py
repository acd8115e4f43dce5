"""What every test gets: the virtual event loop, or real ones where the test is marked so, and the clock upon it."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack
from typing import Any

import hypothesis
import pytest
import pytest_asyncio

from tests.support.examples import TIMES, examples
from tests.support.postgres import PostgresServer
from tests.support.served import Serve, Served
from tests.support.virtual import VirtualClock, VirtualLoop

# A deadline per example measures the machine, not the code; the limit per test stands in pyproject.toml.
hypothesis.settings.register_profile("erelong", deadline=None, max_examples=examples(100))
hypothesis.settings.load_profile("erelong")

# A shell starts jobs in the background with SIGINT ignored, and the programs that tests start would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give property tests more time where they try more examples."""
    for item in items if TIMES > 1 else ():
        marker = item.get_closest_marker("timeout")
        usual = float(marker.args[0]) if marker is not None else 60.0
        item.add_marker(pytest.mark.timeout(usual * TIMES), append=False)  # the first marker counts


def pytest_asyncio_loop_factories(item: pytest.Item) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Virtual by default; @pytest.mark.real_loop: asyncio; real_loop("asyncio", "uvloop"): once on each."""
    marker = item.get_closest_marker("real_loop")
    if marker is None:
        return {"virtual": VirtualLoop}
    return {name: _real_loop(name) for name in marker.args or ("asyncio",)}


def _real_loop(name: str) -> Callable[[], asyncio.AbstractEventLoop]:
    match name:
        case "asyncio":
            return asyncio.new_event_loop
        case "uvloop" if sys.platform != "win32":
            import uvloop

            return uvloop.new_event_loop
        case _:
            raise pytest.UsageError(f'no event loop "{name}" here; real_loop knows: asyncio, uvloop (not on Windows)')


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """Return the PostgreSQL server of this run."""
    server = PostgresServer()
    yield server
    server.remove()


@pytest_asyncio.fixture
async def clock() -> VirtualClock:
    """The wall clock of the test's virtual loop: now() in microseconds, step(seconds)."""
    loop = asyncio.get_running_loop()
    if not isinstance(loop, VirtualLoop):
        pytest.fail("clock lives on the virtual loop: make the test async and not real_loop, or pass now as a value")
    return VirtualClock(loop=loop)


@pytest_asyncio.fixture
async def serve(clock: VirtualClock) -> AsyncIterator[Serve]:
    """Starts services with other settings, kinds or stores: `await serve(limits=LimitsSection(max_waiters=1))`."""
    async with AsyncExitStack() as stack:

        async def start(**asked: Any) -> Served:
            return await stack.enter_async_context(Served(clock=clock, **asked))

        yield start


@pytest_asyncio.fixture
async def service(serve: Serve) -> Served:
    """A service with the default settings."""
    return await serve()
