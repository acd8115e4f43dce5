"""The dashboard on bad days: a service that is gone or restarts, a proxy, hidden tabs, refused operations."""

from __future__ import annotations

from collections.abc import AsyncIterator

import aiohttp
import pytest
import pytest_asyncio
from aiohttp import web

from erelong.clock.instants import SECOND
from tests.browser.test_dashboard import click, text_of, visit
from tests.support.browser import Browser
from tests.support.demo import START, Demo

pytestmark = [pytest.mark.real_loop, pytest.mark.timeout(60)]

BANNER = "document.getElementById('banner').innerText"
ROWS = "document.querySelectorAll('.rows tbody tr').length"
FOLDER = "/x/y"


@pytest_asyncio.fixture
async def demo() -> AsyncIterator[Demo]:
    async with Demo() as demo:
        yield demo


class Proxy:
    """Passes requests below a folder to a service, as a reverse proxy does."""

    def __init__(self, *, target: str) -> None:
        self._target = target
        self.url = ""

    async def __aenter__(self) -> Proxy:
        self._session = aiohttp.ClientSession(auto_decompress=False)
        app = web.Application()
        app.router.add_route("*", f"{FOLDER}{{tail:.*}}", self._pass)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}{FOLDER}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()
        await self._runner.cleanup()

    async def _pass(self, request: web.Request) -> web.StreamResponse:
        headers = {name: text for name, text in request.headers.items() if name not in ("Host", "Origin")}
        url = f"{self._target}{request.match_info['tail'] or '/'}"
        body = await request.read()
        async with self._session.request(
            request.method, url, params=request.query, data=body or None, headers=headers
        ) as answer:
            reply = web.StreamResponse(status=answer.status)
            reply.headers.update({name: text for name, text in answer.headers.items() if name != "Transfer-Encoding"})
            await reply.prepare(request)
            async for chunk in answer.content.iter_any():
                await reply.write(chunk)
            return reply


async def test_page_works_behind_a_proxy_with_a_path(demo: Demo, browser: Browser) -> None:
    async with Proxy(target=demo.url) as proxy:
        await browser.ask("Page.navigate", url=proxy.url)  # without the slash
        await browser.until("document.querySelector('.attention li')")
        browser.faults.clear()  # the browser looks for the files before the page adds the slash
        await visit(browser, f"{proxy.url}/#/jobs?state=scheduled")
        await browser.until(f"{ROWS} === 100")

        assert await browser.value("location.pathname") == f"{FOLDER}/"
        assert browser.faults == []


async def test_page_stays_readable_without_the_service_and_recovers(browser: Browser) -> None:
    async with Demo() as demo:
        await visit(browser, f"{demo.url}/#/queues")
        await browser.until(f"{ROWS} > 3")
        port = int(demo.url.rpartition(":")[2])
    await browser.until(f"{BANNER}.includes('No response from the service since')")
    shown = await browser.value(text_of(".rows"))

    async with Demo(is_empty=True, port=port, at=START + SECOND):
        await click(browser, "#banner button", "Retry now")
        await browser.until(f"{BANNER}.includes('The service restarted at')")
        await browser.until("document.querySelector('.rows .empty')")

    assert "mail" in shown


async def test_hidden_tab_closes_its_stream(demo: Demo, browser: Browser) -> None:
    await visit(browser, f"{demo.url}/")
    opened = await count_streams(demo, browser, 1)
    await browser.value("Object.defineProperty(document, 'hidden', {get: () => window.isHidden}); 0")
    await browser.value("window.isHidden = true; document.dispatchEvent(new Event('visibilitychange'))")
    hidden = await count_streams(demo, browser, 0)
    await browser.value("window.isHidden = false; document.dispatchEvent(new Event('visibilitychange'))")
    shown = await count_streams(demo, browser, 1)

    assert (opened, hidden, shown) == (1, 0, 1)


async def count_streams(demo: Demo, browser: Browser, streams: int) -> int:
    """Wait until so many streams are open and return their number."""
    while demo.node.services.events.streams != streams:
        await browser.value("new Promise(resolve => setTimeout(resolve, 20))")
    return demo.node.services.events.streams


async def test_operation_is_refused_if_more_jobs_match_than_were_confirmed(demo: Demo, browser: Browser) -> None:
    await visit(browser, f"{demo.url}/#/failed")
    await browser.until(f"{ROWS} === 4")
    await click(browser, ".rows button", "Retry…")
    await browser.until("document.querySelector('dialog[open]')?.innerText.includes('Retry 41 jobs?')")
    job = {"kind": "echo", "queue": "webhooks", "retry": {"max_attempts": 1}}
    job |= {"params": {"fail": "HTTP 503: upstream connect error after 9 ms"}}
    for _ in range(2):
        made = await demo.change("POST", "jobs", job)
        await demo.read(f"jobs/{made['id']}?wait=5")

    await click(browser, "dialog button", "Retry 41 jobs")
    await browser.until("document.getElementById('said').textContent.startsWith('Nothing was changed')")

    assert (await demo.read("jobs?state=failed&limit=1&count=true"))["count"]["n"] == 72
