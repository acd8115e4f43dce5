"""What an open dashboard costs: bytes, memory, time to show, CPU of the service.

ERELONG_TRIALS=full measures with a million waiting jobs, and then times too: these need a quiet machine.
"""

from __future__ import annotations

import asyncio
import statistics
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import aiohttp
import orjson
import pytest

from tests.bench.against import interval
from tests.browser.screens import SCREENS
from tests.browser.test_dashboard import visit
from tests.support.browser import Browser
from tests.support.process import ServiceProcess
from tests.system.trials import IS_FULL

JOBS = 1_000_000 if IS_FULL else 20_000
BATCH = 10_000
QUEUES = 8
SPAN = 7 * 86_400
WINDOW = 12
RHYTHM = {
    "stats?view=brief": 1,
    "due?step=900&bins=96": 5,
    "queues?order=due&limit=8&view=brief": 5,
    "jobs/errors?last=10000": 30,
    "stats?span=1h": 60,
    "kinds": 60,
}
"""The requests of an open overview, and the seconds between two of them."""
MAX_RATE = 3_000  # bytes per second
MAX_HEAP = 25_000_000
MAX_GROWTH = 1_000_000
MAX_PAINT, MAX_NUMBERS, MAX_TASK = 150, 400, 50  # milliseconds
MAX_SHARE, MAX_SHARE_OF_TWENTY, MAX_DRAIN = 0.01, 0.02, 1.03
DRAINED = 20_000
ROUNDS, PAIRS = 7, 24
BLANK = "about:blank"
SECONDS = 20.0
REQUESTS = """performance.getEntriesByType('resource').filter(({name}) => name.includes('/v1/'))
  .map(({name, transferSize}) => [name.split('/v1/')[1].replace(/from=[^&]*&/, ''), transferSize])"""
PAINT = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
NUMBERS = """new Promise(resolve => {
  const look = () => document.querySelector('.tiles dd') && document.querySelector('.due .bar')
    ? resolve(performance.now()) : setTimeout(look, 5);
  look();
})"""
WATCH = """window.longTasks = [];
new PerformanceObserver(list => longTasks.push(...list.getEntries().map(one => one.duration)))
  .observe({type: 'longtask', buffered: true});"""
HEAP = "performance.memory.usedJSHeapSize"

Figure = Callable[[str, object], None]

pytestmark = [pytest.mark.real_loop, pytest.mark.timeout(900 if IS_FULL else 90)]
quiet = pytest.mark.skipif(not IS_FULL, reason="needs a quiet machine: run it with ERELONG_TRIALS=full")


@pytest.fixture(scope="module")
def figure(request: pytest.FixtureRequest) -> Callable[[str, object], None]:
    """Print a figure of the run, past the capture of pytest."""
    reporter: Any = request.config.pluginmanager.get_plugin("terminalreporter")
    return lambda name, value: reporter.write_line(f"    {name}: {value}")


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    """A service with many waiting jobs in some queues."""
    service = make_loaded(tmp_path_factory)
    yield service
    service.kill()


@pytest.fixture(scope="module")
def unseen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    """Another one, which keeps no events for the readers of other screens."""
    service = make_loaded(tmp_path_factory)
    yield service
    service.kill()


def make_loaded(tmp_path_factory: pytest.TempPathFactory) -> ServiceProcess:
    service = ServiceProcess(folder=tmp_path_factory.mktemp("budgets"))
    service.start()
    jobs = [{"kind": "echo", "delay": 900 + n * SPAN / JOBS, "queue": f"queue-{n % QUEUES}"} for n in range(JOBS)]
    for first in range(0, len(jobs), BATCH):
        send(service, "jobs/batch", {"jobs": jobs[first : first + BATCH]})
    return service


async def test_open_overview_reads_little_and_seldom(loaded: ServiceProcess, browser: Browser, figure: Figure) -> None:
    await visit(browser, f"{loaded.url}/")
    await asyncio.sleep(WINDOW)

    requests = [
        (path, size) for path, size in await browser.value(REQUESTS) if path.partition("?")[0] not in ("me", "events")
    ]
    sizes = {path: max(size for other, size in requests if other == path) for path, _ in requests}
    often = {path: count for path, count in Counter(path for path, _ in requests).items() if path in RHYTHM}
    assert set(sizes) == set(RHYTHM)
    assert {path: count for path, count in often.items() if count > WINDOW / RHYTHM[path] + 3} == {}
    rate = sum(size / RHYTHM[path] for path, size in sizes.items())
    figure("bytes a second", (round(rate), sizes))
    assert rate <= MAX_RATE


async def test_memory_of_the_page_does_not_grow(loaded: ServiceProcess, browser: Browser, figure: Figure) -> None:
    heaps = []
    for _ in range(4):
        for address in SCREENS.values():
            await visit(browser, f"{loaded.url}/{address}")
        await browser.ask("HeapProfiler.collectGarbage")
        heaps.append(await browser.value(HEAP))

    figure("bytes of the heap", heaps)
    assert max(heaps) <= MAX_HEAP
    assert heaps[-1] - heaps[1] <= MAX_GROWTH


@quiet
async def test_page_shows_numbers_at_once(loaded: ServiceProcess, browser: Browser, figure: Figure) -> None:
    await browser.ask("Page.addScriptToEvaluateOnNewDocument", source=WATCH)
    paints, numbers, tasks = [], [], []
    for _ in range(ROUNDS):
        await browser.ask("Network.clearBrowserCache")
        await browser.ask("Page.navigate", url=BLANK)
        await browser.ask("Page.navigate", url=f"{loaded.url}/")
        numbers.append(await browser.value(NUMBERS))
        await asyncio.sleep(2)
        paints.append(await browser.value(PAINT))
        tasks += await browser.value("longTasks")

    figure("milliseconds to the first paint, to numbers, of long tasks", (paints, numbers, tasks))
    assert statistics.median(paints) <= MAX_PAINT
    assert statistics.median(numbers) <= MAX_NUMBERS
    assert [task for task in tasks if task > MAX_TASK] == []


@quiet
async def test_overviews_take_little_of_a_core(loaded: ServiceProcess, browser: Browser, figure: Figure) -> None:
    idle = await share(loaded)
    await visit(browser, f"{loaded.url}/")
    one = await share(loaded)
    clients = [asyncio.create_task(overview(loaded, number / 19)) for number in range(19)]
    twenty = await share(loaded)
    for client in clients:
        client.cancel()
    await asyncio.gather(*clients, return_exceptions=True)

    figure("share of a core, idle, with one and twenty overviews", (idle, one, twenty))
    assert one <= MAX_SHARE
    assert twenty <= MAX_SHARE_OF_TWENTY


@quiet
async def test_open_overview_does_not_slow_down_jobs(unseen: ServiceProcess, browser: Browser, figure: Figure) -> None:
    async def measure(is_open: bool) -> float:
        await browser.ask("Page.navigate", url=BLANK)
        if is_open:
            await visit(browser, f"{unseen.url}/")
        return await drain(unseen)

    ratios = []
    for pair in range(PAIRS):
        costs = {is_open: await measure(is_open) for is_open in (pair % 2 == 0, pair % 2 == 1)}
        ratios.append(costs[True] / costs[False])

    figure(f"CPU of {DRAINED} no-ops with an open overview and without", (statistics.median(ratios), interval(ratios)))
    assert statistics.median(ratios) <= MAX_DRAIN


def send(service: ServiceProcess, path: str, body: Any = None) -> Any:
    """Return the JSON of a GET, or of a POST if there is a body."""
    data = None if body is None else orjson.dumps(body)
    request = urllib.request.Request(f"{service.url}/v1/{path}", data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        return orjson.loads(answer.read())


async def share(service: ServiceProcess) -> float:
    """Return the share of a core that the service uses."""
    await asyncio.sleep(3)
    before = service.cpu_seconds()
    await asyncio.sleep(SECONDS)
    return (service.cpu_seconds() - before) / SECONDS


async def overview(service: ServiceProcess, phase: float) -> None:
    """Send the requests of an open overview over kept connections, as a browser does."""

    async def repeat(path: str, seconds: float) -> None:
        await asyncio.sleep(seconds * phase)
        while True:
            async with session.get(f"{service.url}/v1/{path}") as answer:
                await answer.read()
            await asyncio.sleep(seconds)

    async with aiohttp.ClientSession() as session, asyncio.TaskGroup() as tasks:
        for path, seconds in RHYTHM.items():
            tasks.create_task(repeat(path, seconds))


async def drain(service: ServiceProcess) -> float:
    """Return the CPU time that the service takes to run jobs that do nothing."""
    queue = f"drain-{time.monotonic_ns()}"
    send(service, f"queues/{queue}/pause", {})
    send(service, "jobs/batch", {"jobs": [{"kind": "echo", "queue": queue}] * (DRAINED // 2)})
    send(service, "jobs/batch", {"jobs": [{"kind": "echo", "queue": queue}] * (DRAINED // 2)})
    await asyncio.sleep(2)
    before = service.cpu_seconds()
    send(service, f"queues/{queue}/resume", {})
    while send(service, f"queues/{queue}")["counts"]["succeeded"] < DRAINED:  # noqa: ASYNC110 - another process
        await asyncio.sleep(0.2)
    return service.cpu_seconds() - before
