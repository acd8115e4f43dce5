"""`/docs` in a real browser: it shows every call, sends it, and obeys its own content security policy."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import pytest_asyncio

from tests.support.browser import Browser
from tests.support.process import ServiceProcess

pytestmark = [pytest.mark.real_loop, pytest.mark.timeout(60)]


@pytest_asyncio.fixture
async def page(browser: Browser, service: ServiceProcess) -> Browser:
    """Return a browser with the page loaded and rendered."""
    await browser.ask("Page.navigate", url=f"{service.url}/docs")
    await browser.until("document.querySelector('.call')")
    return browser


def form(call: str) -> str:
    return f"document.querySelector('#{call} form')"


async def send(page: Browser, call: str, fields: dict[str, str], body: dict[str, Any] | None = None) -> str:
    """Open a call, fill in its form, send it and return the text of the response."""
    await page.value(f"document.getElementById('{call}').open = true")
    await page.until(form(call))
    for name, value in fields.items():
        label = f"[...{form(call)}.querySelectorAll('label')].find(l => l.textContent.trim() === {json.dumps(name)})"
        await page.value(f"{label}.querySelector('input').value = {json.dumps(value)}")
    if body is not None:
        await page.value(f"{form(call)}.querySelector('textarea').value = {json.dumps(json.dumps(body))}")
    await page.value(f"{form(call)}.requestSubmit()")
    await page.until(f"{form(call)}.querySelector('[aria-live] strong')")
    text: str = await page.value(f"{form(call)}.querySelector('[aria-live]').textContent")
    return text


async def test_every_call_is_shown_on_screens_of_every_width(page: Browser) -> None:
    document = await page.value("fetch('openapi.json').then(answer => answer.json())")
    operations = [operation for item in document["paths"].values() for operation in item.values()]

    shown = await page.value("[...document.querySelectorAll('.call')].map(call => call.id)")
    await page.value("document.querySelectorAll('details').forEach(part => { part.open = true })")
    await page.until(f"document.querySelectorAll('.call form').length === {len(operations)}")
    links = await page.value("[...document.querySelectorAll('a[href^=\"#\"]')].map(link => link.hash.slice(1))")
    ids = await page.value("[...document.querySelectorAll('[id]')].map(part => part.id)")

    assert sorted(shown) == sorted(operation["operationId"] for operation in operations)
    assert set(links) <= set(ids)
    main = await page.value("document.querySelector('main').innerText")
    assert re.findall(r".*(?:undefined|\[object).*", main) == []
    assert page.faults == []
    for width in (1280, 768, 360):
        await page.ask("Emulation.setDeviceMetricsOverride", width=width, height=740, deviceScaleFactor=1, mobile=True)
        assert await page.value("document.documentElement.scrollWidth") <= width
        await page.until(f"document.querySelector('nav details').open === {'true' if width > 832 else 'false'}")


async def test_filled_in_call_is_sent_and_its_response_shown(page: Browser) -> None:
    key = "secret & <b>"
    await page.value(f"document.querySelector('#key input').value = {json.dumps(key)}")

    made = await send(page, "job_create", {"X-Request-Id": "from-the-page"}, {"kind": "echo", "params": {"n": 7}})
    listed = await send(page, "listing_jobs", {"queue": "default, other", "limit": "5"})
    missing = await send(page, "job_read", {"id": "a/b?c"})

    assert "201 Created" in made
    assert "x-request-id: from-the-page" in made
    assert '"n": 7' in made
    assert "Bearer …" in made
    assert key not in made
    assert "queue=default&queue=other&limit=5" in listed
    assert "200 OK" in listed
    assert "/v1/jobs/a%2Fb%3Fc" in missing
    assert "job_not_found" in missing
    assert [fault for fault in page.faults if "404" not in fault] == []  # the browser reports 404s by itself
