"""The dashboard for everybody: names, contrast, the keyboard alone, targets, forced colours."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.browser.screens import SCREENS, dress
from tests.browser.test_dashboard import text_of, type_key, visit
from tests.support.browser import Browser
from tests.support.demo import Demo

pytestmark = [pytest.mark.real_loop, pytest.mark.timeout(60)]

NAMED = ("button", "link", "textbox", "searchbox", "checkbox", "combobox", "img")
SLOW = {"offline": False, "latency": 300, "downloadThroughput": -1, "uploadThroughput": -1}
PALE = """(() => {
  const parse = text => text.match(/[\\d.]+/g).map(Number);
  const linear = one => one <= 10.3 ? one / 3294.6 : ((one / 255 + .055) / 1.055) ** 2.4;
  const light = ([r, g, b]) => .2126 * linear(r) + .7152 * linear(g) + .0722 * linear(b);
  const ground = element => {
    for (let at = element; at; at = at.parentElement) {
      const color = parse(getComputedStyle(at).backgroundColor);
      if (color.length === 3 || color[3] === 1) return color;
    }
    return [255, 255, 255];
  };
  const found = new Set();
  for (const element of document.querySelectorAll('body *')) {
    const text = [...element.childNodes].some(node => node.nodeType === 3 && node.data.trim());
    const isShown = element.checkVisibility({visibilityProperty: true});
    if (!text || !isShown || element.closest('.hidden, :disabled, .gone, svg')) continue;
    const [a, b] = [light(parse(getComputedStyle(element).color)), light(ground(element))].sort((x, y) => y - x);
    if ((a + .05) / (b + .05) < 4.5) found.add(element.className + ': ' + element.textContent.slice(0, 30));
  }
  return [...found];
})()"""
SMALL = """[...document.querySelectorAll('button, select, input, .button')].filter(one => {
  const box = one.getBoundingClientRect();
  const margin = one.type === 'checkbox' ? 8 : 0;
  return box.width && (box.height + margin < 24 || box.width + margin < 24);
}).map(one => one.outerHTML.slice(0, 80))"""

LOW = """[...document.querySelectorAll(':is(.tiles, .list, .rows) a')].filter(one => {
  const box = one.getBoundingClientRect();
  return box.width && (box.height < 24 || box.width < 24);
}).map(one => one.innerText)"""
CUT = """[...document.querySelectorAll('.rows tr > *')].filter(one => {
  const box = one.getBoundingClientRect();
  const isWide = one.scrollWidth > one.clientWidth && getComputedStyle(one).overflowX === 'visible';
  return box.width && (isWide || box.right > innerWidth);
}).map(one => one.innerText)"""


async def test_every_control_has_a_name(demo: Demo, browser: Browser) -> None:
    await browser.ask("Accessibility.enable")
    for name, address in SCREENS.items():
        await visit(browser, f"{demo.url}/{address}")
        tree: dict[str, Any] = await browser.ask("Accessibility.getFullAXTree")
        shown = [node for node in tree["nodes"] if not node.get("ignored") and node["role"]["value"] in NAMED]

        assert shown
        assert [node["role"]["value"] for node in shown if not node.get("name", {}).get("value")] == [], name


async def test_links_of_a_phone_have_size_and_the_status_its_word(demo: Demo, browser: Browser) -> None:
    await dress(browser, 360, 740, "light")
    for name in ("overview", "queues", "schedules"):
        await visit(browser, f"{demo.url}/{SCREENS[name]}")
        await browser.until("document.querySelector('main .name, .rows th a')")

        assert await browser.value(LOW) == [], name
    assert "live" in await browser.value(text_of(".status"))
    assert "Pause updates" in await browser.value("document.querySelector('.status').ariaLabel")


async def test_names_and_actions_of_rows_have_room(demo: Demo, browser: Browser) -> None:
    long = "q" * 64
    await demo.change("POST", "jobs", {"kind": "echo", "queue": long, "delay": 60})
    await demo.change("PUT", f"schedules/{long}", {"every": "1h", "job": {"kind": "echo"}})
    for width in (768, 1280):
        await dress(browser, width, 900, "light")
        for name in ("queues", "schedules", "failed"):
            await visit(browser, f"{demo.url}/{SCREENS[name]}")
            await browser.until("document.querySelector('.rows .actions :is(button, summary)')")

            assert await browser.value(CUT) == [], (name, width)


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_text_has_contrast_and_targets_have_size(demo: Demo, browser: Browser, scheme: str) -> None:
    await dress(browser, 1280, 800, scheme)
    for name, address in SCREENS.items():
        await visit(browser, f"{demo.url}/{address}")

        assert await browser.value(PALE) == [], name
        assert await browser.value(SMALL) == [], name


async def test_each_screen_has_one_heading_with_the_focus_and_a_title(demo: Demo, browser: Browser) -> None:
    titles = set()
    for name, address in SCREENS.items():
        await visit(browser, f"{demo.url}/{address}")
        headings = "[...document.querySelectorAll('h1')].map(one => one === document.activeElement)"

        assert await browser.value(headings) == [True], name
        titles.add(await browser.value("document.title"))
    assert all(title.endswith(" · erelong") for title in titles)
    assert len(titles) >= len(SCREENS) - 2  # lists of jobs in one state share a title


async def test_jobs_are_found_selected_and_cancelled_with_the_keyboard_alone(demo: Demo, browser: Browser) -> None:
    await visit(browser, f"{demo.url}/")
    await browser.ask("Network.enable")
    await browser.ask("Network.emulateNetworkConditions", **SLOW)  # all keys are typed before there are rows
    await type_key(browser, "g", "j", "/", *"queue:images", "Enter", "j", "x", "j", "x", "c")
    await browser.until("document.querySelector('dialog[open]')?.innerText.includes('Reason')")
    asked = await browser.value(text_of("dialog"))
    await type_key(browser, "Enter")
    await browser.until("document.getElementById('said').textContent.startsWith('Cancelled 2 of 2')")
    await type_key(browser, "j", "Enter")
    await browser.until("location.hash.match(/jobs\\/0/)")

    assert "Cancel 2 jobs?" in asked


async def test_job_is_steered_with_the_keyboard_alone(demo: Demo, browser: Browser) -> None:
    said = "document.getElementById('said').textContent"
    (job,) = (await demo.read("jobs?key=order-7-reminder"))["jobs"]
    await visit(browser, f"{demo.url}/#/jobs/{job['id']}")

    await type_key(browser, "e")
    await browser.until("document.querySelector('dialog[open]')")
    await type_key(browser, "Escape")
    await browser.until("!document.querySelector('dialog')")
    for keys, text in (("u", "Due now."), ("c", "Cancelled."), ("r", "Scheduled again."), (".", "Updates are paused.")):
        await type_key(browser, keys)
        if keys == "c":
            await browser.until("document.querySelector('dialog[open]')")
            await type_key(browser, "Enter")
        await browser.until(f"{said} === {json.dumps(text)}")
    await type_key(browser, ".", "t")
    await browser.until(f"{said} === 'Times are shown in UTC.'")
    await type_key(browser, "n")
    await browser.until("location.hash === '#/submit'")

    assert (await demo.read(f"jobs/{job['id']}"))["version"] == 4


async def test_menu_is_opened_and_closed_with_the_keyboard(demo: Demo, browser: Browser) -> None:
    await visit(browser, f"{demo.url}/#/queues")
    await browser.until("document.querySelector('.menu summary')")
    await browser.value("document.querySelector('.menu summary').focus()")

    await type_key(browser, "Enter")
    await browser.until("document.querySelector('.menu[open]')?.innerText.includes('Limits')")
    await type_key(browser, "Escape")
    await browser.until("!document.querySelector('.menu[open]')")
    await type_key(browser, "Enter", "Tab", "Enter")
    await browser.until("location.hash.startsWith('#/queues/')")

    assert await browser.value("location.hash") == "#/queues/mail"


async def test_keys_can_be_switched_off_and_do_nothing_in_fields(demo: Demo, browser: Browser) -> None:
    await visit(browser, f"{demo.url}/#/jobs")
    await browser.value("document.querySelector('[type=search]').focus()")
    await type_key(browser, "g", "q", "?")
    typed = await browser.value("document.querySelector('[type=search]').value")
    await browser.value("document.activeElement.blur(); localStorage.setItem('erelong.keys', 'off')")
    await type_key(browser, "g", "q")
    hash = await browser.value("location.hash")
    await type_key(browser, "?")
    await browser.until("document.querySelector('dialog[open]')")

    assert (typed, hash) == ("gq?", "#/jobs")


async def test_page_works_in_forced_colors_without_motion(demo: Demo, browser: Browser) -> None:
    features = [{"name": "forced-colors", "value": "active"}, {"name": "prefers-reduced-motion", "value": "reduce"}]
    await browser.ask("Emulation.setEmulatedMedia", features=features)
    await visit(browser, f"{demo.url}/#/jobs?state=failed")
    await browser.until("document.querySelector('.state.failed')")

    assert "failed" in await browser.value(text_of(".state.failed"))
    assert await browser.value("getComputedStyle(document.querySelector('button')).transitionDuration") == "0s"
