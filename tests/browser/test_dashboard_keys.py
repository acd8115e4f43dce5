"""Who may see and do what on the dashboard: keys, scopes, queues, other tabs, foreign hosts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from erelong.model.caller import Scope
from tests.browser.test_dashboard import click, fill, text_of, visit
from tests.support.browser import EVIL, Browser
from tests.support.demo import Demo
from tests.support.keyed import Keys

pytestmark = [pytest.mark.real_loop, pytest.mark.timeout(60)]

AWAY = """const original = window.fetch; window.fetch = (url, options) => {
  if (sessionStorage.away && String(url).endsWith('/me')) return Promise.reject(new TypeError('away'));
  return original(url, options);
};"""
CARD = "document.querySelector('dialog.signin[open]')"


@pytest.fixture(scope="module")
def keys() -> Keys:
    keys = Keys().add("root").add("viewer", Scope.READ).add("worker", Scope.WORK).add("sender", Scope.SUBMIT)
    return keys.add("mailer", Scope.READ, Scope.SUBMIT, queues=["mail"])


@pytest_asyncio.fixture
async def demo(keys: Keys) -> AsyncIterator[Demo]:
    async with Demo(keys=keys) as demo:
        yield demo


async def sign_in(browser: Browser, demo: Demo, key: str, screen: str = "#/") -> None:
    await browser.ask("Page.navigate", url=f"{demo.url}/{screen}")
    await browser.until(CARD)
    await fill(browser, "#key", key)
    await click(browser, "dialog button", "Sign in")
    await browser.until("document.querySelector('.screen h1')")


async def test_wrong_key_is_refused_and_a_right_one_opens_the_page(demo: Demo, keys: Keys, browser: Browser) -> None:
    await browser.ask("Page.navigate", url=f"{demo.url}/")
    await browser.until(CARD)
    await fill(browser, "#key", "erl_wrong")
    await click(browser, "dialog button", "Sign in")
    await browser.until("document.querySelector('dialog .fault:not(:empty)')")
    said = await browser.value(text_of("dialog .fault"))

    await fill(browser, "#key", keys.texts["root"])
    await click(browser, "dialog button", "Sign in")
    await browser.until("document.querySelector('.tiles dd')?.textContent.includes('7,')")

    assert "not a key of the service" in said
    assert await browser.value("document.cookie + JSON.stringify(localStorage)") == "{}"
    assert "root" in await browser.value(text_of("#top"))


async def test_key_that_may_only_read_sees_no_buttons_that_change(demo: Demo, keys: Keys, browser: Browser) -> None:
    await sign_in(browser, demo, keys.texts["viewer"])
    (job,) = (await demo.read("jobs?key=order-7-reminder"))["jobs"]
    seen = {}
    for screen in ("", "queues", "queues/mail", "failed", "schedules/daily-report", "submit", f"jobs/{job['id']}"):
        await visit(browser, f"{demo.url}/#/{screen}")
        texts = "[...document.querySelectorAll('main button:not([hidden]), #top .button')].map(one => one.innerText)"
        seen[screen] = set(await browser.value(texts))
        if screen.startswith("jobs/"):
            await browser.until("document.querySelector('main').innerText.includes('but not change')")

    changing = {"Pause", "Resume", "Retry…", "Delete…", "Delete", "Edit", "Trigger", "Save", "Run now", "Cancel"}
    assert {screen: buttons & changing for screen, buttons in seen.items() if buttons & changing} == {}
    assert "Submit" not in set().union(*seen.values())


async def test_key_of_one_queue_sees_that_alone(demo: Demo, keys: Keys, browser: Browser) -> None:
    await sign_in(browser, demo, keys.texts["mailer"], "#/queues")
    await browser.until("document.querySelector('.rows tbody th a')")
    rows = await browser.value("[...document.querySelectorAll('.rows tbody th')].map(one => one.innerText)")
    await visit(browser, f"{demo.url}/#/")
    await browser.until("document.querySelector('.attention li')")
    attention = await browser.value(text_of(".attention"))
    await visit(browser, f"{demo.url}/#/queues/webhooks")
    await browser.until("document.querySelector('.panel > .fault:not(:empty)')")

    assert rows == ["mail"]
    assert "1 issue needs attention" in attention
    assert "may not use queue 'webhooks'; its queues: mail" in await browser.value(
        text_of(".panel > .fault:not(:empty)")
    )


@pytest.mark.parametrize("name", ["worker", "sender"])
async def test_key_without_read_says_what_is_missing(demo: Demo, keys: Keys, browser: Browser, name: str) -> None:
    await sign_in(browser, demo, keys.texts[name])
    await browser.until("document.querySelector('main').innerText.includes('needs a key with the scope read')")
    await asyncio.sleep(1.2)

    assert await browser.value(
        "document.querySelector('#banner').innerText + document.querySelector('main').innerText"
    ) == ("This key may not read\n\nThe dashboard needs a key with the scope read.")
    assert "no response" not in await browser.value(text_of("#top"))


async def test_key_that_may_read_takes_the_place_of_one_that_may_not(demo: Demo, keys: Keys, browser: Browser) -> None:
    await sign_in(browser, demo, keys.texts["worker"])
    await click(browser, "#top button", "worker")
    await click(browser, "dialog button", "Sign out")
    await browser.until(CARD)
    await fill(browser, "#key", keys.texts["viewer"])
    await click(browser, "dialog button", "Sign in")
    await browser.until("document.querySelector('.tiles dd')?.textContent.includes('7,')")

    assert "viewer" in await browser.value(text_of("#top"))


async def test_key_that_may_only_read_selects_no_rows(demo: Demo, keys: Keys, browser: Browser) -> None:
    await sign_in(browser, demo, keys.texts["viewer"], "#/jobs")
    await browser.until("document.querySelector('.rows tbody th a')")

    assert await browser.value("document.querySelectorAll('.rows input').length") == 0


async def test_new_tab_gets_the_key_and_sign_out_ends_both(demo: Demo, keys: Keys, browser: Browser) -> None:
    await sign_in(browser, demo, keys.texts["root"])
    async with browser.tab() as other:
        await other.ask("Page.navigate", url=f"{demo.url}/#/queues")
        await other.until("document.querySelector('.rows tbody th a')")

        await other.value("document.querySelector('#top [title=\"Sign out\"]').click()")
        await other.until("document.querySelector('dialog[open]')?.innerText.includes('Sign out of all tabs?')")
        await click(other, "dialog button", "Sign out")
        await other.until(CARD)
        await browser.until(CARD)

        assert await browser.value("sessionStorage.getItem('erelong.key')") is None
        assert await other.value("sessionStorage.getItem('erelong.key')") is None


async def test_key_survives_a_reload_while_the_service_is_away(demo: Demo, keys: Keys, browser: Browser) -> None:
    await browser.ask("Page.addScriptToEvaluateOnNewDocument", source=AWAY)
    await sign_in(browser, demo, keys.texts["root"])
    await browser.value("sessionStorage.setItem('away', 'yes')")
    await browser.ask("Page.reload")
    await browser.until("document.querySelector('main .card')")
    said = await browser.value(text_of("main .card"))

    await browser.value("sessionStorage.removeItem('away')")
    await click(browser, ".card button", "Try again")
    await browser.until(f"document.querySelector('.screen h1') || {CARD}")

    assert "No response from the service" in said
    assert await browser.value(f"!!{CARD}") is False


async def test_foreign_host_shows_the_reason_instead_of_the_card(browser: Browser) -> None:
    async with Demo(is_empty=True) as demo:
        await browser.ask("Page.navigate", url=demo.url.replace("127.0.0.1", EVIL) + "/")
        await browser.until("document.querySelector('main .card')")

        assert "refused Host" in await browser.value(text_of("main"))
        assert await browser.value(f"!!{CARD}") is False
        assert EVIL in await browser.value(text_of("main"))
