"""The dashboard in a real browser: every screen obeys its policy, and what people do on it reaches the service."""

from __future__ import annotations

import asyncio
import json

import pytest

from tests.browser.screens import SCREENS, dress
from tests.support.browser import Browser
from tests.support.demo import Demo

EVIL = [
    "<img src=x onerror=isHacked=1>", "javascript:isHacked=1", "</script><script>isHacked=1</script>", "\u202egnp.exe",
    "<svg onload=isHacked=1>", "<iframe srcdoc='<script>parent.isHacked=1</script>'>", "' onfocus=isHacked=1 x='",
    '"><b onclick=isHacked=1>', "{{isHacked=1}}${isHacked=1}", "<a href=javascript:isHacked=1>",
    "\ufeff\u2028<b>",
    "<style>*{display:none}</style>",
]  # fmt: skip
IS_LOADING = "part => part.offsetParent && part.textContent === 'Loading…'"

pytestmark = [pytest.mark.real_loop, pytest.mark.timeout(60)]


async def visit(browser: Browser, url: str) -> None:
    """Show a screen: by a change of the address if the dashboard is open, otherwise by loading it."""
    base, _, hash = url.partition("#")
    shown = await browser.value("location.href.split('#')[0] === " + json.dumps(base) + " && location.hash")
    if isinstance(shown, str) and shown != f"#{hash}":
        await browser.value(
            f"document.querySelector('.screen').classList.add('past'); location.hash = {json.dumps(hash)}; 0"
        )
    else:
        await browser.ask("Page.navigate", url="about:blank")
        await browser.ask("Page.navigate", url=url)
    await browser.until("document.querySelector('.screen:not(.past) h1')")
    await browser.until(f"![...document.querySelectorAll('.loading, .stamp')].some({IS_LOADING})")


async def type_key(browser: Browser, *keys: str) -> None:
    for key in keys:
        for kind in ("keyDown", "keyUp"):
            text = {"text": key} if len(key) == 1 and kind == "keyDown" else {}
            if key == "Enter" and kind == "keyDown":
                text = {"text": "\r"}
            codes = {"Enter": 13, "Escape": 27, "Tab": 9}
            code = {"windowsVirtualKeyCode": codes[key]} if key in codes else {}
            await browser.ask("Input.dispatchKeyEvent", type=kind, key=key, **text, **code)


def text_of(selector: str) -> str:
    return f"document.querySelector({json.dumps(selector)})?.innerText || ''"


async def click(browser: Browser, selector: str, text: str = "") -> None:
    """Click the first visible element that has a text."""
    find = (
        f"[...document.querySelectorAll({json.dumps(selector)})]"
        f".find(one => one.innerText.includes({json.dumps(text)}) && one.offsetParent !== null)"
    )
    await browser.until(find)
    await browser.value(f"{find}.click()")


async def fill(browser: Browser, selector: str, value: str) -> None:
    field = f"document.querySelector({json.dumps(selector)})"
    await browser.until(field)
    await browser.value(
        f"{field}.value = {json.dumps(value)}; {field}.dispatchEvent(new Event('input', {{bubbles: true}})); 0"
    )


async def pick(browser: Browser, selector: str, value: str) -> None:
    """Choose an option of a select."""
    find = f"document.querySelector({json.dumps(selector)})"
    await browser.until(find)
    await browser.value(f"{find}.value = {json.dumps(value)}; {find}.dispatchEvent(new Event('change')); 0")


async def test_every_screen_fits_every_width_and_obeys_the_policy(demo: Demo, browser: Browser) -> None:
    for width, scheme in ((360, "light"), (768, "dark"), (1440, "light")):
        await dress(browser, width, 800, scheme)
        for name, address in SCREENS.items():
            await visit(browser, f"{demo.url}/{address}")

            shown = await browser.value(
                "[document.documentElement.scrollWidth, document.querySelector('main').innerText]"
            )
            assert shown[0] <= width, (name, width)
            assert "undefined" not in shown[1], name
            assert "[object" not in shown[1], name
            assert "NaN" not in shown[1], name
    assert browser.faults == []


async def test_empty_service_says_how_to_begin(empty: Demo, browser: Browser) -> None:
    await visit(browser, f"{empty.url}/#/jobs")
    jobs = await browser.value(text_of("main"))
    await visit(browser, f"{empty.url}/#/")
    overview = await browser.value(text_of("main"))
    await visit(browser, f"{empty.url}/#/failed")
    failed = await browser.value(text_of("main"))

    assert "No jobs yet." in jobs
    assert f"curl {empty.url}/v1/jobs" in jobs
    assert "No job is waiting." in overview
    assert "needs attention" not in overview
    assert "No failed jobs." in failed
    assert browser.faults == []


async def test_overview_says_what_is_wrong_and_mends_it(demo: Demo, browser: Browser) -> None:
    await visit(browser, f"{demo.url}/")
    await browser.until("document.querySelector('.attention li')")
    said = await browser.value(text_of(".attention"))

    await click(browser, ".attention button", "Resume")
    await browser.until("document.getElementById('said').textContent === 'mail resumed.'")

    assert "1,204 due jobs, the oldest 14 min overdue: paused (SMTP relay is down)" in said
    assert "SMTP relay is down" in said
    assert (await demo.read("queues/mail"))["paused"] is False


async def test_lists_hide_the_values_of_secrets(demo: Demo, browser: Browser) -> None:
    params = {
        "headers": {"Authorization": "Bearer s3cret"},
        "url": "x",
        "tokens": ["s3cret"],
        "password": 's3cret","a":"b',
    }
    await demo.change("POST", "jobs", {"kind": "echo", "delay": 60, "queue": "quiet", "params": params})
    await visit(browser, f"{demo.url}/#/jobs?queue=quiet")
    await browser.until("document.querySelector('.rows .preview')?.innerText.includes('Authorization')")

    shown = await browser.value(text_of(".rows tbody"))
    assert "s3cret" not in shown
    assert '"url":"x"' in shown


async def test_thousand_queues_are_read_in_pages_and_found_by_name(empty: Demo, browser: Browser) -> None:
    jobs = [{"kind": "echo", "delay": 900, "queue": f"tenant-{number}"} for number in range(1_000)]
    await empty.change("POST", "jobs/batch", {"jobs": jobs})
    await visit(browser, f"{empty.url}/#/queues")
    await browser.until("document.querySelectorAll('.rows tbody tr').length === 25")

    await click(browser, "main button", "Show more")
    await browser.until("document.querySelectorAll('.rows tbody tr').length === 50")
    await fill(browser, "main [type=search]", "tenant-77")
    await browser.until("document.querySelectorAll('.rows tbody tr').length === 11")

    names = await browser.value("[...document.querySelectorAll('.rows tbody th')].map(one => one.innerText)")
    assert sorted(names) == sorted(f"tenant-{number}" for number in (77, *range(770, 780)))


async def test_queue_shows_what_starts_next_and_what_starts_last(demo: Demo, browser: Browser) -> None:
    await demo.change("POST", "jobs", {"kind": "echo", "queue": "mail", "key": "urgent", "priority": 90})
    await demo.change("POST", "jobs", {"kind": "echo", "queue": "mail", "key": "idle", "priority": -90})
    await visit(browser, f"{demo.url}/#/queues/mail")
    await browser.until("document.querySelectorAll('ol.list li').length === 5")
    first = await browser.value(text_of("ol.list li"))

    await click(browser, "main .tools a", "From the end")
    await browser.until("document.querySelectorAll('.rows tbody tr').length === 100")

    assert first.startswith("urgent")
    assert "idle" in await browser.value(text_of(".rows tbody tr"))
    assert await browser.value("document.querySelector('.toolbar label select').value") == "last"


async def test_secret_that_is_left_hidden_in_an_edit_or_a_copy_stays(demo: Demo, browser: Browser) -> None:
    params = {"api_token": "s3cret", "list": [{"password": "s3cret"}], "n": 1}
    job = await demo.change("POST", "jobs", {"kind": "echo", "delay": 3_600, "params": params})
    await visit(browser, f"{demo.url}/#/jobs/{job['id']}")
    await type_key(browser, "e")
    area = "document.querySelector('dialog [data-pointer=\"/params\"] textarea').value"
    await browser.until("document.querySelector('dialog textarea')")
    text = await browser.value(area)
    await fill(browser, "dialog [data-pointer='/params'] textarea", text.replace('"n": 1', '"n": 2'))
    await click(browser, "dialog button", "Save")
    await browser.until("!document.querySelector('dialog')")
    await visit(browser, f"{demo.url}/#/submit?from={job['id']}")
    await browser.until("document.querySelector('main pre')")
    page = await browser.value(
        "main.innerHTML + [...document.querySelectorAll('input, textarea')].map(one => one.value)"
    )
    await click(browser, "main button", "Submit")
    await browser.until("document.querySelector('.result a')")

    copied = await demo.read(f"jobs/{await browser.value(text_of('.result a'))}")
    assert "s3cret" not in text
    assert "s3cret" not in page
    assert "Replace •••• by the secret that it hides." in page
    assert (await demo.read(f"jobs/{job['id']}"))["params"] == copied["params"] == params | {"n": 2}


async def test_failed_job_is_retried_with_other_params(demo: Demo, browser: Browser) -> None:
    (job,) = (await demo.read("jobs?key=order-7002-reports"))["jobs"]
    await visit(browser, f"{demo.url}/#/jobs/{job['id']}")
    await click(browser, "main button", "Edit and retry…")
    await fill(browser, "dialog [data-pointer='/params'] textarea", "{")
    await click(browser, "dialog button.main")
    await browser.until("document.querySelector('dialog [data-pointer=\"/params\"] .fault:not(:empty)')")
    await fill(browser, "dialog [data-pointer='/params'] textarea", '{"order": 7}')
    await click(browser, "dialog button.main")
    await browser.until("!document.querySelector('dialog')")

    ended = await demo.read(f"jobs/{job['id']}?wait=5")
    assert (ended["state"], ended["params"], ended["retry"]) == ("succeeded", {"order": 7}, job["retry"])


async def test_due_chart_is_read_with_the_keyboard(demo: Demo, browser: Browser) -> None:
    await visit(browser, f"{demo.url}/")
    await browser.until("document.querySelector('.due .bar')")

    await browser.value("document.querySelector('.due .plot').focus()")
    await type_key(browser, "End")
    await browser.until("document.querySelector('.readout').textContent")
    readout = await browser.value(text_of(".readout"))
    await click(browser, ".due summary", "Table")
    table = await browser.value(text_of(".numbers"))
    await type_key(browser, "Enter")
    await browser.until("location.hash.startsWith('#/jobs?')")

    assert readout.endswith(" due")
    assert ":" in table
    assert "due_after=" in await browser.value("location.hash")


async def test_failures_of_a_cause_are_retried_together(demo: Demo, browser: Browser) -> None:
    await visit(browser, f"{demo.url}/#/failed")
    await browser.until("document.querySelectorAll('.rows tbody tr').length === 4")

    await click(browser, ".rows button", "Retry…")
    await browser.until("document.querySelector('dialog[open]')?.innerText.includes('Spread')")
    asked = await browser.value(text_of("dialog"))
    await click(browser, "dialog button", "Retry 41 jobs")
    await browser.until("document.getElementById('said').textContent.startsWith('Retried')")
    said = await browser.value("document.getElementById('said').textContent")

    assert "Retry 41 jobs?" in asked
    assert "webhooks 41" in asked
    assert said == "Retried 41 of 41"
    (operation,) = (await demo.read("operations"))["operations"]
    assert operation["at_most"] == 41
    await visit(browser, f"{demo.url}/#/operations")
    await browser.until("document.querySelector('.rows tbody').innerText.includes('Retried 41 of 41')")


async def test_operation_on_listed_jobs_says_how_many(demo: Demo, browser: Browser) -> None:
    jobs = (await demo.read("jobs?state=scheduled&limit=2"))["jobs"]
    asked = {"action": "run", "filter": {"jobs": [job["id"] for job in jobs]}, "at_most": 2}
    await demo.change("POST", "operations", asked)

    await visit(browser, f"{demo.url}/#/operations")
    await browser.until("document.querySelector('.rows tbody tr')")

    assert "2 jobs chosen by id" in await browser.value(text_of(".rows tbody tr"))


async def test_failures_of_the_last_hour_are_counted_by_cause(demo: Demo, browser: Browser) -> None:
    await visit(browser, f"{demo.url}/#/failed?since=3600")
    counts = "[...document.querySelectorAll('.rows tbody th')].map(one => Number(one.innerText))"
    await browser.until(f"{counts}.length > 0 && {counts}[0] > 0")
    shown = await browser.value(counts)
    known = (await demo.read("jobs/errors?finished_after=2026-12-01T10:05:22Z"))["causes"]

    assert shown == [cause["count"] for cause in known]
    assert 0 < sum(shown) < 70
    assert await browser.value(text_of(".stamp")) == f"{sum(shown)} in the last hour, based on all 70"


async def test_retry_says_that_the_queue_is_paused(demo: Demo, browser: Browser) -> None:
    await visit(browser, f"{demo.url}/#/failed?queue=mail")
    await click(browser, ".rows button", "Retry…")
    await browser.until("document.querySelector('dialog[open]')?.innerText.includes('Spread')")

    assert "within the limits of their queues (mail: paused)." in await browser.value(text_of("dialog"))


async def test_tab_of_all_jobs_leaves_a_state(demo: Demo, browser: Browser) -> None:
    await visit(browser, f"{demo.url}/#/jobs?state=running&queue=mail")
    await browser.until("document.querySelector('.tabs a[aria-current]')")

    tabs = await browser.value("[...document.querySelectorAll('.tabs a')].map(one => one.hash)")

    assert "#/jobs?queue=mail" in tabs


async def test_waiting_job_is_explained_edited_and_run(demo: Demo, browser: Browser) -> None:
    (job,) = (await demo.read("jobs?key=order-7-reminder"))["jobs"]
    await visit(browser, f"{demo.url}/#/jobs/{job['id']}")
    await browser.until("document.querySelectorAll('.blockers li').length === 3")
    page = await browser.value(text_of("main"))

    await type_key(browser, "e")
    await fill(browser, "dialog [data-pointer='/priority'] input", "7")
    await click(browser, "dialog button", "Save")
    await browser.until("document.querySelector('main').innerText.includes('version 2')")
    await type_key(browser, "u")
    await browser.until("document.querySelector('main').innerText.includes('version 3')")

    assert "queue 'mail' is paused (SMTP relay is down) since 10:51:22" in page
    assert "1,204 due jobs of queue 'mail' before it" in page
    assert "s3cret" not in page
    changed = await demo.read(f"jobs/{job['id']}")
    assert changed["priority"] == 7
    assert changed["due_at"] < job["due_at"]


async def test_edit_of_a_job_that_has_changed_is_not_lost(demo: Demo, browser: Browser) -> None:
    (job,) = (await demo.read("jobs?key=order-7-reminder"))["jobs"]
    await visit(browser, f"{demo.url}/#/jobs/{job['id']}")
    await type_key(browser, "e")
    await browser.until("document.querySelector('dialog[open]')")
    await demo.change("PATCH", f"jobs/{job['id']}", {"timeout": 11})

    await fill(browser, "dialog [data-pointer='/priority'] input", "7")
    await click(browser, "dialog button", "Save")
    await browser.until("document.querySelector('dialog').innerText.includes('changed by someone else')")
    differences = await browser.value(text_of("dialog .fault .facts"))
    await click(browser, "dialog button", "Apply my changes")
    await browser.until("!document.querySelector('dialog')")

    changed = await demo.read(f"jobs/{job['id']}")
    assert (changed["priority"], changed["timeout"]) == (7, 11.0)
    assert differences.split() == ["Timeout", "now", "11"]


async def test_job_is_checked_and_submitted_with_the_form_of_its_kind(demo: Demo, browser: Browser) -> None:
    await visit(browser, f"{demo.url}/#/submit?kind=resize")
    await fill(browser, "[data-pointer='/params/width'] input", "99999")
    await click(browser, "main button", "Check")
    await browser.until("document.querySelector('[data-pointer=\"/params/width\"] .fault:not(:empty)')")
    wrong = await browser.value(text_of("[data-pointer='/params/width'] .fault"))

    await fill(browser, "[data-pointer='/params/width'] input", "640")
    await fill(browser, "[data-pointer='/params/path'] input", "a.png")
    await pick(browser, "[data-pointer^='/delay'] select", "in")
    await fill(browser, "[data-pointer^='/delay'] input:not([hidden])", "2h")
    await browser.until("document.querySelector('[data-pointer^=\"/delay\"] time')?.innerText.startsWith('in 2 h')")
    await click(browser, "main button", "Submit")
    await browser.until("document.querySelector('.result a')")
    id = await browser.value(text_of(".result a"))

    assert "8000" in wrong
    job = await demo.read(f"jobs/{id}")
    assert (job["kind"], job["params"]) == ("resize", {"path": "a.png", "width": 640})
    assert job["due_at"] == "2026-12-01T13:05:22.000Z"
    await pick(browser, "[data-pointer^='/delay'] select", "at")
    await fill(browser, "[data-pointer^='/delay'] [type=datetime-local]", "2026-12-02T09:30")
    await fill(browser, "[data-pointer^='/delay'] [aria-label='Time zone']", "Europe/Berlim")
    await browser.until("document.querySelector('[data-pointer^=\"/delay\"] .fault')?.innerText.includes('Berlim')")
    await click(browser, "main button", "Check")
    await browser.until("document.activeElement?.closest('[data-pointer^=\"/delay\"]')")
    assert (await browser.value("document.querySelector('[data-pointer^=\"/delay\"]').innerText")).count("Berlim") == 1
    await fill(browser, "[data-pointer^='/delay'] [aria-label='Time zone']", "Europe/Berlin")
    await click(browser, "main button", "Check")
    await browser.until("document.querySelector('.result .good time')?.dateTime === '2026-12-02T08:30:00.000Z'")


async def test_schedule_is_triggered_and_made(demo: Demo, browser: Browser) -> None:
    await visit(browser, f"{demo.url}/#/schedules/daily-report")
    await click(browser, "main button", "Trigger")
    await browser.until("document.getElementById('said').textContent === 'daily-report triggered.'")
    await visit(browser, f"{demo.url}/#/schedules/thumbnails")
    before = (await demo.read("schedules/thumbnails"))["counts"]["made"]
    await click(browser, "main button", "Trigger")
    await click(browser, "dialog button", "Trigger anyway")
    await browser.until("document.getElementById('said').textContent === 'thumbnails triggered.'")
    assert (await demo.read("schedules/thumbnails"))["counts"]["made"] == before + 1

    await visit(browser, f"{demo.url}/#/schedules/+")
    await fill(browser, ".form .field:nth-child(1) input", "nightly")
    await fill(browser, "[data-pointer='/cron'] input", "0 3 * * *")
    await browser.until("document.querySelectorAll('.preview li').length === 5")
    await click(browser, "main button", "Create")
    await browser.until("location.hash === '#/schedules/nightly'")

    assert (await demo.read("schedules/nightly"))["cron"] == "0 3 * * *"
    assert (await demo.read("schedules/daily-report"))["counts"]["made"] == 2


async def test_texts_of_strangers_stay_text(demo: Demo, browser: Browser) -> None:
    schema = {"description": EVIL[0], "properties": {EVIL[1]: {"description": EVIL[2]}, "x": {"default": EVIL[3]}}}
    await demo.change("PUT", "kinds/evil", {"params_schema": {"type": "object", **schema}})
    params = {"fail": EVIL[4], "__proto__": EVIL[5], **{text: text for text in EVIL}, "long": "<b>" * 21_000}
    labels = {f"label{number}": text[:64] for number, text in enumerate(EVIL)}
    job = {
        "kind": "echo",
        "params": params,
        "retry": {"max_attempts": 1},
        "key": EVIL[6],
        "labels": labels,
        "queue": "evil",
    }
    failed = await demo.change("POST", "jobs", job)
    await demo.read(f"jobs/{failed['id']}?wait=5")
    await demo.change("POST", "queues/evil/pause", {"reason": EVIL[7]})
    await demo.change("PUT", "schedules/evil", {"every": "1h", "job": {"kind": "echo", "params": {"x": EVIL[8]}}})
    await demo.change("POST", "schedules/evil/pause", {"reason": EVIL[9]})
    waiting = await demo.change("POST", "jobs", {"kind": "evil", "queue": "evil", "params": {"x": EVIL[10]}})
    await demo.change("POST", f"jobs/{waiting['id']}/cancel", {"reason": EVIL[11]})

    for address in (
        *(f"#/jobs/{one['id']}" for one in (failed, waiting)), f"#/submit?from={failed['id']}", "#/submit?kind=evil",
        "#/jobs?queue=evil", "#/failed", "#/queues", "#/queues/evil", "#/", "#/kinds", "#/schedules",
        "#/schedules/evil",
    ):  # fmt: skip
        await visit(browser, f"{demo.url}/{address}")
        await browser.value("document.querySelectorAll('details').forEach(one => { one.open = true })")
        made = "main :is(img, script, iframe, b b, [href^=javascript], [onerror], [onload])"
        assert await browser.value(f"document.querySelectorAll('{made}').length") == 0, address
    assert browser.faults == []
    assert await browser.value("window.isHacked") is None


async def test_rows_keep_their_place_while_events_arrive(demo: Demo, browser: Browser) -> None:
    await visit(browser, f"{demo.url}/#/jobs?state=scheduled")
    ids = "[...document.querySelectorAll('.rows tbody tr')].map(row => row.querySelector('a').title)"
    await browser.until("document.querySelectorAll('.rows tbody tr').length === 100")
    before = await browser.value(ids)
    await browser.value("document.querySelectorAll('.rows tbody input')[3].click()")
    await asyncio.sleep(0.3)  # the stream opens

    await demo.change("POST", f"jobs/{before[1]}/cancel", {})
    jobs = [{"kind": "echo", "delay": 500} for _ in range(200)]
    await demo.change("POST", "jobs/batch", {"jobs": jobs})
    await browser.until("document.querySelector('.news').innerText.includes('200 new')")

    assert await browser.value(ids) == before
    assert await browser.value("document.querySelectorAll('.rows tbody input')[3].checked")
    assert await browser.value("document.querySelectorAll('.rows tr.gone').length") == 0  # nothing changes beside it
    await browser.value("document.querySelectorAll('.rows tbody input')[3].click()")
    await browser.until("document.querySelectorAll('.rows tr.gone').length === 1")
    assert await browser.value(ids) == before
    await click(browser, ".news button")
    await browser.until(f"JSON.stringify({ids}) !== {json.dumps(json.dumps(before, separators=(',', ':')))}")
