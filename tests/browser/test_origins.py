"""A real browser with pages of other origins: they neither change nor read a service without API keys."""

from __future__ import annotations

import urllib.request

import orjson
import pytest

from tests.support.browser import EVIL, Browser
from tests.support.process import ServiceProcess

pytestmark = [pytest.mark.real_loop, pytest.mark.timeout(60)]


async def visit(browser: Browser, url: str) -> None:
    """Open a page without a content security policy, as pages of other sites may be."""
    await browser.ask("Page.navigate", url=url)
    await browser.until("location.protocol === 'http:' && document.readyState === 'complete'")


def is_paused(service: ServiceProcess) -> bool:
    with urllib.request.urlopen(f"{service.url}/v1/queues/default") as answer:
        paused: bool = orjson.loads(answer.read())["paused"]
        return paused


def submit(service: ServiceProcess) -> None:
    body, headers = b'{"kind": "echo", "delay": 1000}', {"Content-Type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(f"{service.url}/v1/jobs", body, headers)) as answer:
        assert answer.status == 201


async def test_simple_request_of_another_origin_has_no_effect(service: ServiceProcess, browser: Browser) -> None:
    submit(service)
    await visit(browser, service.url.replace("127.0.0.1", "localhost") + "/livez")

    how = "{method: 'POST', mode: 'no-cors'}"
    kind = await browser.value(f"fetch('{service.url}/v1/queues/default/pause', {how}).then(answer => answer.type)")

    assert kind == "opaque"  # the request reached the service
    assert not is_paused(service)


async def test_page_with_a_rebound_name_reads_and_changes_nothing(service: ServiceProcess, browser: Browser) -> None:
    submit(service)
    await visit(browser, service.url.replace("127.0.0.1", EVIL) + "/livez")

    read = await browser.value("fetch('/v1/jobs').then(answer => answer.status)")
    changed = await browser.value("fetch('/v1/queues/default/pause', {method: 'POST'}).then(answer => answer.status)")

    assert (read, changed) == (403, 403)
    assert not is_paused(service)


async def test_page_of_the_service_reads_and_changes(service: ServiceProcess, browser: Browser) -> None:
    submit(service)
    await visit(browser, f"{service.url}/livez")

    read = await browser.value("fetch('/v1/jobs').then(answer => answer.status)")
    changed = await browser.value("fetch('/v1/queues/default/pause', {method: 'POST'}).then(answer => answer.status)")

    assert (read, changed) == (200, 200)
    assert is_paused(service)
