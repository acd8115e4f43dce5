"""Forms of the dashboard: what they refuse, keep, send once and show after somebody else has changed something."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.browser.test_dashboard import click, fill, pick, text_of, type_key, visit
from tests.support.browser import Browser
from tests.support.demo import Demo

pytestmark = [pytest.mark.real_loop, pytest.mark.timeout(60)]

SAID = "document.getElementById('said').textContent"
TRUTH = ("cron", "every", "anchor", "zone", "starts_at", "ends_at", "spread", "missed", "catchup", "overlap", "job")
HELD = """{
  const original = window.fetch;
  window.fetch = async (url, options = {}) => {
    const answer = await original(url, options);
    if (!window.isLost(String(url), options)) return answer;
    await window.held;
    throw new TypeError('lost');
  };
}"""


def fault_of(pointer: str) -> str:
    return f"document.querySelector('[data-pointer=\"{pointer}\"] .fault')?.innerText"


async def type_into(browser: Browser, pointer: str, value: str) -> None:
    await fill(browser, f"[data-pointer='{pointer}'] :is(input, textarea)", value)


async def hold(browser: Browser, condition: str) -> None:
    """Let the answers of requests that meet a condition be lost, once the page calls `release`."""
    await browser.value(f"{HELD}; window.isLost = (url, options) => {condition};")
    await browser.value("window.held = new Promise(resolve => { window.release = resolve; }); 0")


async def test_edit_of_a_schedule_keeps_what_its_form_does_not_show(empty: Demo, browser: Browser) -> None:
    definition = {
        "every": "1h",
        "anchor": "2026-11-30T00:10:00Z",
        "starts_at": "2026-12-01T00:00:00Z",
        "ends_at": "2027-12-01T00:00:00Z",
        "spread": 60,
        "missed": "once",
        "catchup": "5m",
        "job": {"kind": "echo", "on_finish": {"url": "https://app.example/"}, "retry": {"delay": 7.0}},
    }
    before = await empty.change("PUT", "schedules/bounded", definition)
    await visit(browser, f"{empty.url}/#/schedules/bounded")
    await click(browser, "main button", "Edit")
    await pick(browser, "dialog [data-pointer='/overlap'] select", "allow")
    await click(browser, "dialog button", "Save")
    await browser.until("!document.querySelector('dialog')")

    after = await empty.read("schedules/bounded")
    assert after["version"] == 2
    assert {name: after[name] for name in TRUTH} == {name: before[name] for name in TRUTH} | {"overlap": "allow"}


async def test_intervals_spreads_and_seconds_are_read_as_people_write_them(empty: Demo, browser: Browser) -> None:
    await visit(browser, f"{empty.url}/#/schedules/+")
    await type_into(browser, "/cron", "5 30 9 * * *")
    await browser.until("document.querySelectorAll('.preview li').length === 5")
    preview = await browser.value(text_of(".preview"))

    await type_into(browser, "/name", "rounds")
    await type_into(browser, "/cron", "1h30m")
    await type_into(browser, "/spread", "30")
    await click(browser, "main button", "Create")
    await browser.until("location.hash === '#/schedules/rounds'")

    made = await empty.read("schedules/rounds")
    assert "moved" not in preview
    assert (made["every"], made["spread"], made["cron"]) == (5_400, 30, None)


@pytest.mark.parametrize(
    ("field", "typed", "said"),
    [
        ("concurrency", "ten", "“ten” is not a number"),
        ("concurrency", "", "needs a number"),
        ("rate", "5/s", "“5/s” is not a number"),
        ("burst", "5", "needs a rate"),
        ("each", "2", "needs a label"),
        ("label_concurrency", "tenant", "needs a number"),
        ("max_backlog", "3,5", "“3,5” is not a number"),
    ],
)
async def test_limit_that_is_no_number_is_not_saved(
    empty: Demo, browser: Browser, field: str, typed: str, said: str
) -> None:
    await empty.change("PUT", "queues/mail", {"concurrency": 7})
    await visit(browser, f"{empty.url}/#/queues/mail")
    await browser.until("document.querySelector('[data-pointer=\"/concurrency\"] input')?.value === '7'")
    await type_into(browser, f"/{field}", typed)
    await click(browser, "main button", "Save")

    place = "each" if field == "label_concurrency" else field
    await browser.until(f"{fault_of(f'/{place}')} === {json.dumps(said)}")
    settings = (await empty.read("queues/mail"))["settings"]
    assert (settings["concurrency"], settings["rate"], settings["label_concurrency"]) == (7, None, None)


async def test_submit_with_text_for_a_number_is_not_sent(empty: Demo, browser: Browser) -> None:
    await visit(browser, f"{empty.url}/#/submit?kind=echo")
    await browser.value("document.querySelector('details.more').open = true")
    await click(browser, "[data-pointer='/labels'] button", "Add")
    await fill(browser, "[data-pointer='/labels'] [aria-label='value']", "t1")
    await click(browser, "main button", "Submit")
    await browser.until(f"{fault_of('/labels')} === '“t1” needs a name'")
    await fill(browser, "[data-pointer='/labels'] [aria-label='name']", "tenant")
    for pointer, typed in (("/priority", "high"), ("/retry", "x"), ("/others", "7")):
        await type_into(browser, pointer, typed)
        await browser.value("document.querySelector('details.more').open = false")
        await click(browser, "main button", "Submit")
        await browser.until(fault_of(pointer))
        assert await browser.value("document.querySelector('details.more').open")
        await type_into(browser, pointer, "")

    assert (await empty.read("jobs"))["jobs"] == []
    await click(browser, "main button", "Submit")
    await browser.until("document.querySelector('.result a')")
    (job,) = (await empty.read("jobs"))["jobs"]
    assert job["labels"] == {"tenant": "t1"}


async def test_edit_of_a_job_with_text_for_a_number_is_not_saved(demo: Demo, browser: Browser) -> None:
    (job,) = (await demo.read("jobs?key=order-7-reminder"))["jobs"]
    await visit(browser, f"{demo.url}/#/jobs/{job['id']}")
    await click(browser, "main button", "Edit")
    for pointer, typed in (("/priority", "high"), ("/retry", "")):
        await type_into(browser, pointer, typed)
        await click(browser, "dialog button", "Save")
        await browser.until(fault_of(pointer))
        await type_into(browser, pointer, "5")

    assert (await demo.read(f"jobs/{job['id']}"))["version"] == 1


async def test_past_occurrences_are_counted_and_confirmed(empty: Demo, browser: Browser) -> None:
    await empty.change("PUT", "schedules/often", {"every": "1m", "overlap": "allow", "job": {"kind": "echo"}})
    await visit(browser, f"{empty.url}/#/schedules/often")
    await click(browser, "main button", "Make past occurrences…")
    await fill(browser, "dialog [data-pointer='/from'] input", "2026-11-30T00:00:00")
    await fill(browser, "dialog [data-pointer='/to'] input", "2026-12-01T00:00:00Z")
    await click(browser, "dialog button", "Count jobs")
    await browser.until(f"{fault_of('/from')}?.includes('no offset')")
    await fill(browser, "dialog [data-pointer='/from'] input", "2026-11-30T00:00:00Z")
    await click(browser, "dialog button", "Count jobs")
    await browser.until("document.querySelector('dialog')?.innerText.includes('Make 1,440 jobs?')")
    await click(browser, "dialog button", "Make 1,440 jobs")
    await browser.until("document.querySelector('dialog .fault:not(:empty)')")
    before = (await empty.read("operations"))["operations"]

    await fill(browser, "dialog [data-pointer='/confirm'] input", "1,440")
    await click(browser, "dialog button", "Make 1,440 jobs")
    await browser.until(f"{SAID} === 'Made 1,440 of 1,440'")

    assert before == []
    assert len((await empty.read("operations"))["operations"]) == 1


async def test_second_click_and_lost_answer_make_no_second_job(empty: Demo, browser: Browser) -> None:
    await visit(browser, f"{empty.url}/#/submit?kind=echo")
    await browser.until("document.querySelector('main pre')")
    await hold(browser, "options.method === 'POST' && url.endsWith('/jobs')")
    await browser.value("document.querySelector('main [type=submit]').click()")
    await browser.value("document.querySelector('main [type=submit]').click()")
    await browser.value("release()")
    await browser.until("document.querySelector('.card > .fault').innerText.includes('No response')")
    await browser.value("window.isLost = () => false; 0")
    await click(browser, "main button", "Submit")
    await browser.until("document.querySelector('.result a')")

    assert len((await empty.read("jobs"))["jobs"]) == 1
    await click(browser, "main button", "Submit")
    await browser.until("document.querySelectorAll('.result a').length === 2")
    assert len((await empty.read("jobs"))["jobs"]) == 2


async def test_copy_of_a_job_has_all_but_its_key(empty: Demo, browser: Browser) -> None:
    job: dict[str, Any] = {
        "kind": "echo",
        "delay": 3_600,
        "key": "order-7",
        "labels": {"note": "a=b, c=d", "tenant": "t1"},
        "priority": 5,
        "timeout": 11,
        "retry": {"max_attempts": 4, "delay": 7, "factor": 1.5},
        "expires_after": 600,
        "on_finish": {"url": "https://app.example/", "headers": {"Authorization": "s3cret"}, "states": ["failed"]},
    }
    original = await empty.change("POST", "jobs", job)
    await visit(browser, f"{empty.url}/#/submit?from={original['id']}")
    await browser.until("document.querySelector('main pre')")
    typed = "[...document.querySelectorAll('main textarea')].map(one => one.value)"
    shown = await browser.value(f"main.innerText + {typed}")
    is_open = await browser.value("document.querySelector('details.more').open")
    await pick(browser, "[data-pointer^='/delay'] select", "in")
    await click(browser, "main button", "Submit")
    await browser.until("document.querySelector('.result a')")

    copied = await empty.read(f"jobs/{await browser.value(text_of('.result a'))}")
    names = ("kind", "params", "queue", "labels", "priority", "timeout", "retry", "on_finish")
    assert {name: copied[name] for name in names} == {name: original[name] for name in names}
    assert copied["expires_at"][:19] == "2026-12-01T12:15:22"
    assert copied["key"] is None
    assert is_open
    assert "s3cret" not in shown


async def test_limits_show_what_the_service_has(empty: Demo, browser: Browser) -> None:
    concurrency = "document.querySelector('[data-pointer=\"/concurrency\"] input')"
    await empty.change("PUT", "queues/mail", {"concurrency": 7, "max_backlog": 50})
    await empty.change("POST", "jobs", {"kind": "echo", "queue": "mail", "delay": 3_600})
    await visit(browser, f"{empty.url}/#/queues/mail")
    await browser.until(f"{concurrency}?.value === '7'")
    await empty.change("PUT", "queues/mail", {"concurrency": 8, "max_backlog": 60})
    await browser.until(f"{concurrency}.value === '8'")

    await type_into(browser, "/concurrency", "9")
    await empty.change("PUT", "queues/mail", {"concurrency": 8, "max_backlog": 70})
    await click(browser, "main button", "Save")
    await browser.until(f"{SAID}.startsWith('Limits saved')")
    merged = (await empty.read("queues/mail"))["settings"]
    await type_into(browser, "/concurrency", "10")
    await empty.change("PUT", "queues/mail", {"concurrency": 20})
    await click(browser, "main button", "Save")
    await browser.until("document.querySelector('main form .fault[role]').innerText.includes('concurrency is 20')")
    refused = (await empty.read("queues/mail"))["settings"]
    await click(browser, "main button", "Save")
    await browser.until("!document.querySelector('main form .fault[role]').innerText")
    saved = (await empty.read("queues/mail"))["settings"]
    await click(browser, "main button", "Reset to config")
    await browser.until(f"{concurrency}.value === '100'")

    assert (merged["concurrency"], merged["max_backlog"]) == (9, 70)
    assert refused["concurrency"] == 20
    assert saved["concurrency"] == 10
    assert (await empty.read("queues/mail"))["overridden"] is False


async def test_late_answer_about_due_jobs_is_dropped(demo: Demo, browser: Browser) -> None:
    await visit(browser, f"{demo.url}/#/queues/webhooks")
    await browser.until("document.querySelector('.due figcaption')?.innerText.includes('Peak')")
    await browser.value(
        """{
          const original = window.fetch;
          window.held = new Promise(resolve => { window.release = resolve; });
          window.fetch = async (url, options) => {
            const answer = await original(url, options);
            if (String(url).includes('step=10&')) { window.isHeld = true; await window.held; window.isPast = true; }
            return answer;
          };
        }"""
    )
    await click(browser, ".due button", "10 min")
    await browser.until("window.isHeld")
    await click(browser, ".due button", "7 d")
    await browser.value("new Promise(resolve => setTimeout(resolve, 300))")
    before = await browser.value(text_of(".due figcaption"))
    await browser.value("release()")
    await browser.value("new Promise(resolve => setTimeout(resolve, 300))")

    assert await browser.value("window.isPast")
    assert await browser.value(text_of(".due figcaption")) == before


async def test_forecast_of_a_rate_does_not_depend_on_the_span(demo: Demo, browser: Browser) -> None:
    await demo.change("PUT", "queues/slow", {"rate": {"per_second": 0.5}})
    jobs = [{"kind": "resize", "queue": "slow", "params": {"path": "a"}} for _ in range(600)]
    await demo.change("POST", "jobs/batch", {"jobs": jobs})
    await visit(browser, f"{demo.url}/#/queues/slow")
    said = set()
    for span in ("10 min", "1 h", "30 d"):
        await click(browser, ".due button", span)
        await browser.until(f"document.querySelector('.due [aria-pressed=true]').innerText === {json.dumps(span)}")
        await browser.value("new Promise(resolve => setTimeout(resolve, 300))")
        caption = await browser.value(text_of(".due figcaption"))
        said.add(caption[caption.index("slow is limited") :])

    assert said == {"slow is limited to 0.5/s and catches up at about 11:25."}


async def test_paused_queue_keeps_its_row_and_the_focus(demo: Demo, browser: Browser) -> None:
    await visit(browser, f"{demo.url}/#/queues")
    await browser.until("document.querySelectorAll('.rows tbody tr').length > 3")
    await browser.value(
        """window.fewest = 99;
        window.row = [...document.querySelectorAll('.rows tbody tr')].find(one => one.innerText.includes('mail'));
        window.mail = [...row.querySelectorAll('button')].find(one => one.innerText === 'Resume');
        new MutationObserver(() => {
          window.fewest = Math.min(window.fewest, document.querySelectorAll('.rows tbody tr').length);
        }).observe(document.querySelector('.rows'), { childList: true, subtree: true });
        mail.focus(); 0"""
    )
    await type_key(browser, "Enter")
    await browser.until(f"{SAID} === 'mail resumed.' && row.innerText.includes('active')")
    await browser.value("new Promise(resolve => setTimeout(resolve, 300))")

    assert await browser.value("window.fewest") > 3
    assert await browser.value("document.activeElement === window.mail && mail.innerText") == "Pause"


async def test_submit_says_nothing_that_is_not_true_of_its_form(empty: Demo, browser: Browser) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    await empty.change("PUT", "kinds/counted", {"params_schema": schema})
    await visit(browser, f"{empty.url}/#/submit?kind=counted")
    await fill(browser, "[data-pointer='/params/n'] input", "")
    await browser.until("document.querySelector('main').innerText.includes('Incomplete: needs a whole number')")
    faults = await browser.value(
        "[...document.querySelectorAll('main .fault')].map(one => one.innerText).filter(Boolean)"
    )
    is_old = await browser.value("!!document.querySelector('main .panel.old')")
    await fill(browser, "[data-pointer='/params/n'] input", "7")
    await click(browser, "main button", "Check")
    await browser.until("document.querySelector('.result .good')")
    await fill(browser, "[data-pointer='/params/n'] input", "8")

    assert (faults, is_old) == ([], False)
    assert not await browser.value("document.querySelector('.result .good')")


async def test_schedule_shows_how_its_jobs_ended(empty: Demo, browser: Browser) -> None:
    job = {"kind": "echo", "params": {"fail": "no such order"}, "retry": {"max_attempts": 1}}
    await empty.change("PUT", "schedules/failing", {"every": "10m", "job": job})
    await empty.change("POST", "clock", {"advance": "10m"})
    await visit(browser, f"{empty.url}/#/schedules/failing")

    await browser.until("document.querySelector('.timeline .state.failed')")
    assert await browser.value("document.querySelector('.timeline a').hash.startsWith('#/jobs/')")
