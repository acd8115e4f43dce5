"""A program that measures what the dashboard costs with a million waiting jobs: `python -m tests.browser.budgets`."""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import aiohttp
import orjson

from tests.support.browser import Browser, find_browser
from tests.support.process import ServiceProcess

JOBS = 1_000_000
BATCH = 10_000
DRAINED = 20_000
ROUNDS = 5
SECONDS = 20.0
SPAN = 7 * 86_400
PAINT = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
NUMBERS = """new Promise(resolve => {
  const look = () => document.querySelector('.tiles dd')?.textContent !== '–' && document.querySelector('.due .bar')
    ? resolve(performance.now()) : setTimeout(look, 5);
  look();
})"""
WATCH = """window.longTasks = [];
new PerformanceObserver(list => longTasks.push(...list.getEntries().map(one => one.duration)))
  .observe({type: 'longtask', buffered: true});"""
HEAP = "performance.memory.usedJSHeapSize"


async def main() -> None:
    program = find_browser()
    if program is None:
        sys.exit("no browser: install chromium")
    with tempfile.TemporaryDirectory() as folder:
        service = ServiceProcess(folder=Path(folder))
        service.start()
        try:
            async with aiohttp.ClientSession(service.url) as session:
                await submit(session, [{"kind": "echo", "delay": 60 + n * SPAN / JOBS} for n in range(JOBS)])
                print(f"idle service: {await share(service):.2%} of a core")
                plain = await drain(session, service)
                async with Browser(program=program, folder=Path(folder) / "browser") as browser:
                    await measure_page(browser, service)
                    opened = await drain(session, service)
                    print(f"drain of {DRAINED:,}: {plain:.2f} s of CPU, {opened:.2f} s with an open overview")
                print(f"20 overviews: {await share_of_clients(session, service, 20):.2%} of a core")
        finally:
            service.kill()


async def measure_page(browser: Browser, service: ServiceProcess) -> None:
    await browser.ask("Page.addScriptToEvaluateOnNewDocument", source=WATCH)
    for visit in ("first", "second"):
        await browser.ask("Page.navigate", url="about:blank")
        await browser.ask("Page.navigate", url=f"{service.url}/")
        numbers = await browser.value(NUMBERS)
        print(f"{visit} visit: painted after {await browser.value(PAINT):.0f} ms, numbers after {numbers:.0f} ms")
    used = await share(service)
    await browser.ask("HeapProfiler.collectGarbage")
    heap, tasks = await browser.value(HEAP), await browser.value("longTasks")
    sent = await browser.value("performance.getEntriesByType('resource').slice(-40).map(one => one.transferSize)")
    print(f"one overview: {used:.2%} of a core, heap {heap / 1e6:.1f} MB, long tasks {[round(task) for task in tasks]}")
    print(f"bytes of its last requests: {sent}")


async def submit(session: aiohttp.ClientSession, jobs: list[dict[str, Any]]) -> None:
    for first in range(0, len(jobs), BATCH):
        await send(session, "/v1/jobs/batch", {"jobs": jobs[first : first + BATCH]})


async def send(session: aiohttp.ClientSession, path: str, body: Any) -> None:
    headers = {"Content-Type": "application/json"}
    async with session.post(path, data=orjson.dumps(body), headers=headers) as answer:
        assert answer.status < 300, await answer.text()
        await answer.read()


async def share(service: ServiceProcess) -> float:
    """Return the share of a core that the service uses."""
    await asyncio.sleep(3)
    before = service.cpu_seconds()
    await asyncio.sleep(SECONDS)
    return (service.cpu_seconds() - before) / SECONDS


async def share_of_clients(session: aiohttp.ClientSession, service: ServiceProcess, clients: int) -> float:
    """Return the share of a core for clients that send the requests of open overviews."""
    rhythms = {
        "/v1/stats?span=now": 1.0,
        "/v1/due?step=900&bins=96": 5.0,
        "/v1/queues": 5.0,
        "/v1/stats?span=1h": 30.0,
        "/v1/kinds": 30.0,
        "/v1/jobs/errors?last=10000": 30.0,
    }

    async def repeat(path: str, pause: float, offset: float) -> None:
        await asyncio.sleep(offset)
        while True:
            async with session.get(path) as answer:
                await answer.read()
            await asyncio.sleep(pause)

    tasks = [
        asyncio.create_task(repeat(path, pause, pause * client / clients))
        for client in range(clients)
        for path, pause in rhythms.items()
    ]
    used = await share(service)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return used


async def drain(session: aiohttp.ClientSession, service: ServiceProcess) -> float:
    """Return the least CPU time that the service takes, in some rounds, to run jobs that do nothing."""
    return min([await drain_once(session, service) for _ in range(ROUNDS)])


async def drain_once(session: aiohttp.ClientSession, service: ServiceProcess) -> float:
    queue = f"drain-{time.monotonic_ns()}"
    await send(session, f"/v1/queues/{queue}/pause", {})
    await submit(session, [{"kind": "echo", "queue": queue}] * DRAINED)
    await asyncio.sleep(2)
    before = service.cpu_seconds()
    await send(session, f"/v1/queues/{queue}/resume", {})
    while True:
        async with session.get(f"/v1/queues/{queue}") as answer:
            if (await answer.json())["counts"]["succeeded"] == DRAINED:
                return service.cpu_seconds() - before
        await asyncio.sleep(0.2)


if __name__ == "__main__":
    asyncio.run(main())
