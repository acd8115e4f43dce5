"""The list of jobs: what is new, what may be done, and searches that are kept."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from typing import Any

import pytest

from tests.browser.test_dashboard import click, fill, pick, text_of, type_key, visit
from tests.support.browser import Browser
from tests.support.demo import Demo
from tests.support.process import ServiceProcess

pytestmark = [pytest.mark.real_loop, pytest.mark.timeout(60)]

ROWS = "document.querySelectorAll('.rows tbody tr').length"
SAID = "document.getElementById('said').textContent"
SEARCH = "[type=search]"
SAVED = "[aria-label='Saved searches']"


async def test_new_rows_are_added_to_all_that_were_loaded(demo: Demo, browser: Browser) -> None:
    await visit(browser, f"{demo.url}/#/jobs?state=scheduled")
    await browser.until(f"{ROWS} === 100")
    await click(browser, ".foot button", "Show more")
    await browser.until(f"{ROWS} === 200")

    new = await demo.change("POST", "jobs", {"kind": "echo", "delay": 500})
    await click(browser, ".news button", "Show 1 new")
    await browser.until(f"{ROWS} > 200")

    first = await browser.value("document.querySelector('.rows tbody a').title")
    assert first == new["id"]


async def test_nothing_is_said_about_new_jobs_that_may_not_match(demo: Demo, browser: Browser) -> None:
    await visit(browser, f"{demo.url}/#/jobs?state=scheduled&attempt_min=1")
    await asyncio.sleep(0.3)  # the stream opens
    await demo.change("POST", "jobs", {"kind": "echo", "delay": 500})
    await asyncio.sleep(1.5)

    assert await browser.value(text_of(".news")) == ""


async def test_list_of_due_jobs_says_that_more_have_become_due(service: ServiceProcess, browser: Browser) -> None:
    post(service, "queues/mail/pause", {})
    post(service, "jobs", {"kind": "echo", "queue": "mail"})
    await visit(browser, f"{service.url}/#/jobs?state=due&queue=mail")
    await browser.until(f"{ROWS} === 1 && document.querySelector('.rows tbody a')")
    post(service, "jobs/batch", {"jobs": [{"kind": "echo", "queue": "mail", "delay": 1}] * 3})
    await click(browser, ".news button", "Show 3 new")
    await browser.until(f"{ROWS} === 4")

    assert await browser.value(text_of(".foot")) == "4 of 4"
    assert await browser.value(text_of(".news")) == ""


def post(service: ServiceProcess, path: str, body: dict[str, Any]) -> None:
    request = urllib.request.Request(
        f"{service.url}/v1/{path}", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=5):
        pass


async def test_search_is_saved_as_it_is_typed(demo: Demo, browser: Browser) -> None:
    await visit(browser, f"{demo.url}/#/jobs?state=failed")
    await pick(browser, SAVED, "+")
    await browser.until("document.querySelector('.screen > .fault').innerText.includes('Type the search')")
    await fill(browser, SEARCH, "queue:mail ended:<10m")
    await pick(browser, SAVED, "+")
    await pick(browser, SAVED, "queue:mail ended:<10m")
    await browser.until("location.hash.includes('queue=mail')")

    assert await browser.value("location.hash") == "#/jobs?queue=mail&finished_after=-10m&state=failed"
    await browser.until(f"document.querySelector('{SEARCH}').value === 'queue:mail ended:<10m'")


async def test_states_of_a_search_are_all_marked_and_kept(demo: Demo, browser: Browser) -> None:
    await visit(browser, f"{demo.url}/#/jobs?state=failed&state=expired")
    marked = await browser.value("[...document.querySelectorAll('.tabs [aria-current]')].map(tab => tab.innerText)")
    await fill(browser, SEARCH, "queue:mail")
    await click(browser, ".search button", "Search")
    await browser.until("location.hash.includes('mail')")

    assert [text.split()[0] for text in marked] == ["Failed", "Expired"]
    assert await browser.value("location.hash") == "#/jobs?queue=mail&state=failed&state=expired"


async def test_broken_address_shows_a_screen(demo: Demo, browser: Browser) -> None:
    await visit(browser, f"{demo.url}/#/jobs/%E0%A4%A")

    assert not [fault for fault in browser.faults if "URIError" in fault]


async def test_only_actions_for_the_state_are_offered(demo: Demo, browser: Browser) -> None:
    await visit(browser, f"{demo.url}/#/jobs?state=succeeded")
    await browser.value("document.querySelector('.rows tbody input').click()")
    offered = await browser.value("[...document.querySelectorAll('.selection button')].map(one => one.innerText)")
    await visit(browser, f"{demo.url}/#/jobs?state=running")
    await browser.until(f"{ROWS} === 3")
    await type_key(browser, "j", "e")
    await browser.until(f"{SAID} === 'This job is already running.'")

    assert "Delete" in offered
    assert "Retry" not in offered
    assert await browser.value("document.querySelector('dialog')") is None


async def test_change_of_a_job_is_checked_and_confirmed(demo: Demo, browser: Browser) -> None:
    (job,) = (await demo.read("jobs?key=order-7-reminder"))["jobs"]
    await visit(browser, f"{demo.url}/#/jobs/{job['id']}")
    await click(browser, ".actions button", "Edit")
    await fill(browser, "[data-pointer='/priority'] input", "high")
    await click(browser, "dialog button", "Save")
    await browser.until("document.querySelector('[data-pointer=\"/priority\"] .fault').innerText.includes('high')")
    await fill(browser, "[data-pointer='/priority'] input", "7")
    await click(browser, "dialog button", "Save")
    await browser.until(f"{SAID} === 'Saved.'")
    await click(browser, ".actions button", "Reschedule")
    await fill(browser, "dialog .times input:not([hidden])", "3h")
    await click(browser, "dialog button", "Reschedule")
    await browser.until(f"{SAID} === 'Rescheduled.'")

    assert (await demo.read(f"jobs/{job['id']}"))["priority"] == 7


@pytest.mark.parametrize("screen", ["", "jobs/"])
async def test_paused_page_does_not_change(demo: Demo, browser: Browser, screen: str) -> None:
    (job,) = (await demo.read("jobs?key=order-7-reminder"))["jobs"]
    await visit(browser, f"{demo.url}/#/{screen}{job['id'] if screen else ''}")
    part = ".heading .stamp" if screen else ".tiles dd"
    await browser.until(f"document.querySelector('{part}')?.innerText")
    before = await browser.value(text_of(part))
    await type_key(browser, ".")
    await demo.change("POST", f"jobs/{job['id']}/cancel")
    await demo.change("POST", "jobs/batch", {"jobs": [{"kind": "echo", "delay": 500}] * 2})
    await asyncio.sleep(4)  # the page of a job rests for 3 s after its first read
    during = await browser.value(text_of(part))
    await type_key(browser, ".")
    await browser.until(f"{text_of(part)} !== {json.dumps(before)}")

    assert during == before
