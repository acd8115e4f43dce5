"""The dashboard on bad days: a service that is gone or restarts, a proxy, hidden tabs, refused operations."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime

import aiohttp
import pytest
from aiohttp import web

from erelong.clock.instants import SECOND
from erelong.service.overview import causes
from tests.browser.screens import dress
from tests.browser.test_dashboard import click, fill, text_of, visit
from tests.support.browser import Browser
from tests.support.demo import START, Demo
from tests.support.process import ServiceProcess
from tests.system.trials import sized

pytestmark = [pytest.mark.real_loop, pytest.mark.timeout(60)]

BANNER = "document.getElementById('banner').innerText"
GONE = "document.querySelectorAll('.rows tr.gone').length"
ROWS = "document.querySelectorAll('.rows tbody tr').length"
FOLDER = "/x/y"
MANY = sized(2_000, 20_000)
DEAF = """const original = window.fetch; window.fetch = async (url, options) => {
  if (!String(url).includes('/events')) return original(url, options);
  const body = new ReadableStream({start: (sink) => {
    window.reset = () => sink.enqueue(new TextEncoder().encode('id: a-1\\nevent: reset\\ndata: {}\\n\\n'));
  }});
  return new Response(body);
};"""
CHECKS = """const original = window.fetch; window.fetch = async (url, options) => {
  const answer = await original(url, options);
  if (!String(url).includes('/stats')) return answer;
  return new Response(JSON.stringify({...await answer.json(), checks: {checks}}), {headers: answer.headers});
};"""


class Proxy:
    """Passes requests below a folder to a service, as a reverse proxy does."""

    def __init__(self, *, target: str) -> None:
        self._target = target
        self._transports: set[asyncio.Transport] = set()
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

    def cut(self) -> None:
        """Break the connections of all requests that are under way."""
        for transport in self._transports:
            transport.abort()

    async def _pass(self, request: web.Request) -> web.StreamResponse:
        if isinstance(request.transport, asyncio.Transport):
            self._transports.add(request.transport)
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
    jobs = [{"kind": "echo", "delay": 3_600, "queue": "many"} for _ in range(MANY)]
    for first in range(0, len(jobs), 5_000):
        await demo.change("POST", "jobs/batch", {"jobs": jobs[first : first + 5_000]})
    await visit(browser, f"{demo.url}/#/jobs?queue=many&state=scheduled")
    await browser.until(f"{ROWS} === 100")
    await browser.value("document.querySelector('.rows thead input').click()")
    await click(browser, ".selection .soft button", "Cancel")
    await browser.until(f"document.querySelector('dialog[open]')?.innerText.includes('Cancel {MANY:,} jobs?')")
    await fill(browser, "dialog [data-pointer='/confirm'] input", f"{MANY - 1:,}")
    await click(browser, "dialog button", f"Cancel {MANY:,} jobs")
    await browser.until(f"document.querySelector('dialog')?.innerText.includes('Type {MANY} to confirm.')")
    await asyncio.sleep(0.1)  # the page and the service count in milliseconds
    for _ in range(2):
        await demo.change("POST", "jobs", jobs[0])

    await fill(browser, "dialog [data-pointer='/confirm'] input", f"{MANY:,}")
    await click(browser, "dialog button", f"Cancel {MANY:,} jobs")
    await browser.until("document.getElementById('said').textContent.startsWith('Nothing was changed')")

    assert (await demo.read("jobs?state=cancelled&limit=1&count=true"))["count"]["n"] == 0


async def test_stream_that_is_cut_is_joined_again_and_continues(demo: Demo, browser: Browser) -> None:
    async with Proxy(target=demo.url) as proxy:
        await visit(browser, f"{proxy.url}/#/jobs?state=scheduled")
        await browser.until(f"{ROWS} === 100")
        await count_streams(demo, browser, 1)
        ids = await browser.value("[...document.querySelectorAll('.rows tbody a')].map(one => one.title)")
        await demo.change("POST", f"jobs/{ids[0]}/cancel", {})
        await browser.until(f"{GONE} === 1")

        proxy.cut()
        await demo.change("POST", f"jobs/{ids[1]}/cancel", {})
        await browser.until(f"{GONE} === 2")

        assert await count_streams(demo, browser, 1) == 1


async def test_reset_of_the_stream_reads_the_rows_again(demo: Demo, browser: Browser) -> None:
    await browser.ask("Page.addScriptToEvaluateOnNewDocument", source=DEAF)
    await visit(browser, f"{demo.url}/#/jobs?state=scheduled")
    await browser.until(f"{ROWS} === 100")
    ids = await browser.value("[...document.querySelectorAll('.rows tbody a')].map(one => one.title)")

    await demo.change("POST", f"jobs/{ids[0]}/cancel", {})
    await demo.change("DELETE", f"jobs/{ids[1]}")
    await browser.value("window.reset(); 0")
    await browser.until(f"{GONE} === 2")

    assert await browser.value("[...document.querySelectorAll('.rows tbody a')].map(one => one.title)") == ids


async def test_wrong_clock_of_the_browser_is_reported_and_not_used(browser: Browser, service: ServiceProcess) -> None:
    ahead = "const read = Date.now; Date.now = () => read() + 7_200_000;"
    await browser.ask("Page.addScriptToEvaluateOnNewDocument", source=ahead)
    await visit(browser, f"{service.url}/")
    await browser.until(f"{BANNER}.includes('The clock of this browser is 2 h ahead')")

    shown = await browser.value("document.querySelector('#top button').innerText")
    known = datetime.now(UTC).strftime("%H:%M")
    assert shown[:4] == known[:4] or shown[:5] > known  # the minute may have passed


@pytest.mark.parametrize(
    ("check", "banner"),
    [
        ({"service": "draining"}, "The service is shutting down."),
        ({"store": "ok, but the disk is full: submits are refused"}, "Disk full: new jobs are rejected."),
    ],
)
async def test_drain_and_full_disk_are_told_above_all_screens(
    demo: Demo, browser: Browser, check: dict[str, str], banner: str
) -> None:
    await browser.ask("Page.addScriptToEvaluateOnNewDocument", source=CHECKS.replace("{checks}", json.dumps(check)))
    await visit(browser, f"{demo.url}/#/kinds")
    await browser.until(BANNER)

    assert banner in await browser.value(BANNER)


async def test_retried_failures_soon_leave_the_list(browser: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(causes, "LIFE", 0.0)  # by the virtual clock, which stands still
    async with Demo() as demo:
        await visit(browser, f"{demo.url}/#/failed")
        await click(browser, ".rows button", "Retry…")
        await click(browser, "dialog button.main:enabled", "Retry 41 jobs")
        await browser.until("document.getElementById('tasks').innerText.includes('Retried 41 of 41')")

        await browser.until("!document.querySelector('.rows').innerText.includes('HTTP 503')", within=10)


async def test_menu_of_a_row_is_inside_the_page(demo: Demo, browser: Browser) -> None:
    for width in (360, 1280):
        await dress(browser, width, 740, "light")
        await visit(browser, f"{demo.url}/#/queues")
        await browser.until("document.querySelector('.rows .menu')")
        await browser.value("document.querySelector('.rows .menu summary').click()")
        missing = await browser.value("""[...document.querySelectorAll('.menu[open] > div > *')].filter((item) => {
          const {left, right, top} = item.getBoundingClientRect();
          return [left + 2, right - 2].some((x) => document.elementFromPoint(x, top + 9) !== item);
        }).map((item) => item.textContent)""")

        assert missing == [], width
        assert await browser.value("document.documentElement.scrollWidth") <= width


async def test_current_screen_is_visible_among_the_tabs_of_a_phone(demo: Demo, browser: Browser) -> None:
    await dress(browser, 360, 740, "light")
    for screen in ("kinds", "", "schedules"):
        await visit(browser, f"{demo.url}/#/{screen}")
        left, right = await browser.value("""(() => {
          const {left, right} = document.querySelector('nav [aria-current=page]').getBoundingClientRect();
          return [left, right];
        })()""")

        assert 0 <= left < right <= 360, screen
