"""`EventSource` of a real browser follows jobs, and survives a restart of the service."""

from __future__ import annotations

import urllib.request
from typing import Any

import orjson
import pytest

from tests.docs.pages import blocks_of
from tests.support.browser import Browser
from tests.support.process import ServiceProcess

pytestmark = [pytest.mark.real_loop, pytest.mark.timeout(60)]

PAGE = "var shown = [], reloads = 0, show = job => shown.push(job), reload = () => reloads++;"


def submit(service: ServiceProcess, **fields: Any) -> None:
    body = orjson.dumps({"kind": "echo", "params": {"fail": "boom"}, "retry": {"max_attempts": 1}, **fields})
    request = urllib.request.Request(f"{service.url}/v1/jobs", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        assert answer.status == 201


async def test_event_source_of_the_guide_follows_jobs_over_a_restart(service: ServiceProcess, browser: Browser) -> None:
    (script,) = blocks_of("docs/events.md", "js")
    await browser.ask("Page.navigate", url=f"{service.url}/livez")
    await browser.until("location.protocol === 'http:' && document.readyState === 'complete'")

    await browser.value(f"{PAGE} {script.text.replace('const events', 'var events')}; 0")
    await browser.until("events.readyState === EventSource.OPEN")
    submit(service, queue="mail")
    submit(service, queue="other")
    await browser.until("shown.length === 1")
    service.keep_port()
    service.kill()
    service.start()
    await browser.until("reloads === 1")
    submit(service, queue="mail")
    await browser.until("shown.length === 2")

    assert await browser.value("shown.map(job => job.error.message)") == ["boom", "boom"]
