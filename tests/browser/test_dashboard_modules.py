"""The modules of the dashboard alone: times and numbers, the search, forms made of schemas."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web
from aiohttp.test_utils import TestServer

from erelong.dashboard.face import STATIC
from tests.api.functions import Tree
from tests.browser.test_dashboard import type_key
from tests.support.browser import Browser
from tests.support.demo import RESIZE

pytestmark = [pytest.mark.real_loop, pytest.mark.timeout(60)]

BLANK = '<!doctype html><link rel="icon" href="data:,"><link rel="stylesheet" href="ui.css"><main></main>'
NOW = "2026-12-01T11:05:22Z"
DURATIONS = {
    0: "0 ms", 0.0041: "4.1 ms", 0.25: "250 ms", 1: "1 s", 2.5: "2.5 s", 59.6: "1 min", 61: "1 min 1 s",
    3_600: "1 h", 8_040: "2 h 14 min", 90_000: "1 d 1 h",
}  # fmt: skip
SIZES = {0: "0 B", 1_023: "1023 B", 1_536: "1.5 KiB", 50 * 2**30: "50 GiB"}
SEARCHES = {
    "queue:mail kind:http,echo": "queue=mail&kind=http&kind=echo",
    "key:order-7 label.tenant:t1": "key=order-7&label.tenant=t1",
    "order-7": "key=order-7",
    "attempt:>1": "attempt_min=2",
    'label.note:"two words"': "label.note=two+words",
    "due:<1h": "due_before=1h",
    "due:<-1h": "due_after=-1h",
    "created:<1d ended:>10m": "created_after=-1d&finished_before=-10m",
    "due:>2026-12-01T12:00:00.000Z": "due_after=2026-12-01T12%3A00%3A00.000Z",
}
PREVIEWS = {
    '{"headers":{"Authorization":"Bearer s3cret"},"url":"x"}': '{"headers":{"Authorization":••••},"url":"x"}',
    '{"tokens":["s3cret",{"a":["s3cret"]}],"b":1}': '{"tokens":••••,"b":1}',
    '{"o":{"secrets":{"db":"s3cret"}},"b":1}': '{"o":{"secrets":••••},"b":1}',
    r'{"password":"s3cret\",\"a\":\"b","c":2}': '{"password":••••,"c":2}',
    r'{"a\"token": 12345, "note":"a token: b"}': r'{"a\"token":••••, "note":"a token: b"}',
    '{"secrets":{"db":"s3c': '{"secrets":••••',
    '{"cookie":"s3c': '{"cookie":••••',
    "": "",
}
VALUES = "[m.number(1048211), m.number(null), m.rate(3388.2), m.rate(0.01), m.short(2e6)]"
TREE = Tree.model_json_schema()["$defs"]["Tree"]
TEXTS = {"type": "object", "additionalProperties": {"type": "string"}}
INSTANT = {"anyOf": [{"type": "string", "format": "date-time"}, {"type": "null"}]}
SCHEMAS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    (RESIZE, {"path": "a.png", "width": 640, "format": "webp"}),
    (RESIZE, {"path": ""}),
    (
        {"properties": {"on": {"type": "boolean"}, "n": {"type": ["integer", "null"]}}},
        {"on": False, "n": 3, "more": [1, {"a": None}]},
    ),
    ({"properties": {"tags": {"type": "array", "items": {"type": "string"}}}}, {"tags": ["a", "b"]}),
    ({"properties": {"headers": TEXTS}}, {"headers": {"X-A": "1"}}),
    (
        {"properties": {"tree": {"$ref": "#/$defs/Tree"}}, "required": ["tree"], "$defs": {"Tree": TREE}},
        {"tree": {"name": "oak", "children": [{"name": "twig", "children": []}]}},
    ),
    ({"properties": {"when": INSTANT, "a/b~c": {"type": "number"}}}, {"when": "2026-12-01T09:00:00Z", "a/b~c": 1.5}),
    ({}, {"anything": [1, "x", None, {"deep": True}]}),
]


@pytest_asyncio.fixture
async def page(browser: Browser) -> AsyncIterator[Browser]:
    """A blank page beside the modules as they are in the source."""

    async def blank(_: web.Request) -> web.Response:
        return web.Response(text=BLANK, content_type="text/html")

    app = web.Application()
    app.router.add_get("/", blank)
    app.router.add_static("/", STATIC)
    async with TestServer(app) as server:
        await browser.ask("Page.navigate", url=str(server.make_url("/")))
        await browser.until("document.querySelector('main') && document.readyState === 'complete'")
        await run(browser, "text.js", f"m.setClock({json.dumps(NOW)}, 0, true)")
        yield browser


async def run(page: Browser, module: str, script: str) -> Any:
    """Return the value of a script with a module of the dashboard as `m`."""
    return await page.value(f"import('./{module}').then(m => {script})")


async def test_every_module_loads(page: Browser) -> None:
    for path in STATIC.glob("*.js"):
        if path.name != "main.js":  # begins at once
            assert await run(page, path.name, "Object.keys(m).length") > 0

    assert page.faults == []


async def test_numbers_are_written_for_people(page: Browser) -> None:
    durations = await run(page, "text.js", f"{json.dumps([*DURATIONS])}.map(m.duration)")
    sizes = await run(page, "text.js", f"{json.dumps([*SIZES])}.map(m.bytes)")
    others = await run(page, "text.js", VALUES)

    assert durations == [*DURATIONS.values()]
    assert sizes == [*SIZES.values()]
    assert others == ["1,048,211", "–", "3,388/s", "<0.1/s", "2M"]


@pytest.mark.parametrize(
    ("zone", "step", "start"),
    [
        ("UTC", 43_200, "2026-12-01T00:00:00.000Z"),
        ("Europe/Berlin", 43_200, "2026-12-01T11:00:00.000Z"),
        ("Asia/Kolkata", 7_200, "2026-12-01T10:30:00.000Z"),
        ("America/New_York", 43_200, "2026-12-01T05:00:00.000Z"),
        ("Europe/Berlin", 60, "2026-12-01T11:05:00.000Z"),
    ],
)
async def test_steps_begin_with_the_day_of_the_zone(page: Browser, zone: str, step: int, start: str) -> None:
    await page.ask("Emulation.setTimezoneOverride", timezoneId=zone)

    shown = await run(page, "text.js", f"m.stepStart({step})")
    await run(page, "text.js", "m.switchZone()")
    in_utc = await run(page, "text.js", f"m.stepStart({step})")
    await run(page, "text.js", "m.switchZone()")

    assert shown == start
    assert in_utc == {43_200: "2026-12-01T00:00:00.000Z", 7_200: "2026-12-01T10:00:00.000Z"}.get(step, start)


async def test_slow_answer_does_not_set_the_clock_again(page: Browser) -> None:
    instant = "new Date(Date.now() + {}).toISOString()"
    slow_first = await run(
        page, "text.js?new", f"(m.setClock({instant.format(5_000)}, 3_000, false), m.browserAhead())"
    )
    slow = await run(page, "text.js?new", f"(m.setClock({instant.format(0)}, 30_000, false), m.browserAhead())")
    quick = await run(page, "text.js?new", f"(m.setClock({instant.format(0)}, 10, false), m.browserAhead())")

    assert slow_first == slow == pytest.approx(-6.5, abs=0.3)
    assert quick == pytest.approx(0, abs=0.3)


async def test_lateness_at_the_end_of_the_histogram_is_a_bound(page: Browser) -> None:
    assert await run(page, "text.js", "[m.lateness(300), m.lateness(60), m.lateness(null)]") == [
        "> 5 min",
        "1 min",
        "–",
    ]


async def test_preview_of_params_shows_no_secret(page: Browser) -> None:
    shown = await run(page, "text.js", f"{json.dumps([*PREVIEWS])}.map(m.withoutSecrets)")

    assert shown == [*PREVIEWS.values()]


async def test_search_becomes_the_parameters_of_the_list(page: Browser) -> None:
    texts = json.dumps([*SEARCHES])
    found = await run(page, "filter.js", f"{texts}.map(text => m.read(text).params.toString())")
    again = await run(page, "filter.js", f"{texts}.map(text => m.read(m.write(m.read(text).params)).params.toString())")
    due = await run(page, "filter.js", "m.instants(m.read('due:<1h').params).get('due_before')")
    wrong = await run(page, "filter.js", "m.read('quue:x due:soon attempt:x').faults")
    id = await run(page, "filter.js", "m.read('0000000002cadeb473dcc18e00').id")

    assert found == again == [*SEARCHES.values()]
    assert due.startswith("2026-12-01T12:05:2")
    assert [fault.split(";")[0].split(" takes")[0].split(" only")[0] for fault in wrong] == [
        "There is no filter quue:",
        "due:",
        "attempt:",
    ]
    assert id == "0000000002cadeb473dcc18e00"


async def test_form_of_a_schema_returns_the_value_it_was_given(page: Browser) -> None:
    for schema, value in SCHEMAS:
        both = f"{json.dumps(schema)}, {json.dumps(value)}"
        found = await run(page, "form.js", f"m.form({both}).read()")

        assert found == value, schema


@pytest.mark.parametrize(
    ("reason", "attempt", "said"),
    [
        ("time", 0, "not due yet"),
        ("time", 1, "waits for retry"),
        ("pause", 1, "queue paused"),
        (None, 1, "about to start"),
    ],
)
async def test_waiting_job_says_why(page: Browser, reason: str | None, attempt: int, said: str) -> None:
    job = json.dumps({"state": "scheduled", "waiting_for": reason, "attempt": attempt})

    assert await run(page, "dom.js", f"m.state({job}).textContent") == said


async def test_hidden_secret_is_put_back_only_where_it_was(page: Browser) -> None:
    stored = json.dumps({"token": "a", "list": [{"name": "x", "password": "b"}, {"name": "y", "password": "c"}]})
    kept = await run(page, "form.js", f"m.unmasked(m.masked({stored}), {stored})")
    renamed = "{list: [{name: 'x', password: '••••'}, {name: 'z', password: 'd'}]}"
    edited = await run(page, "form.js", f"m.unmasked({renamed}, {stored})")
    retyped = "{list: [{name: 'x', password: 'e'}, {name: 'y', password: 'f'}]}"
    faults = [
        await run(
            page,
            "form.js",
            f"{{ try {{ return m.unmasked({typed}, {stored}) }} catch (fault) {{ return fault.message }} }}",
        )
        for typed in (
            "{list: [{name: 'x', password: '••••'}]}",
            "{list: [{name: 'y', password: '••••'}, {name: 'x', password: '••••'}]}",
            "{key: {token: '••••'}}",
        )
    ]

    assert kept == json.loads(stored)
    assert edited == {"list": [{"name": "x", "password": "b"}, {"name": "z", "password": "d"}]}
    assert (await run(page, "form.js", f"m.unmasked({retyped}, {stored})"))["list"][1]["password"] == "f"
    assert faults == ["•••• stands for no known value: write it out"] * 3


async def test_backfill_says_that_jobs_were_there(page: Browser) -> None:
    operation = {"state": "succeeded", "done": 1, "matches": 10, "skipped": 9, "failed": 0}
    texts = [
        await run(page, "dialog.js", f"m.toldOf({json.dumps({'action': action, **operation})})")
        for action in ("backfill", "retry")
    ]

    assert texts == ["Made 1 of 10 · 9 had a job already", "Retried 1 of 10 · 9 changed meanwhile"]


async def test_number_is_read_with_commas_and_from_nothing_else(page: Browser) -> None:
    typed = ["1,048,211", " 2.5 ", "", "1,5", "Infinity", "x"]
    read = "{ try { return m.numberOf(text, '/n') ?? null } catch (fault) { return fault.message + fault.pointer } }"

    assert await run(page, "form.js", f"{json.dumps(typed)}.map(text => {read})") == [
        1_048_211, 2.5, None, "“1,5” is not a number/n", "“Infinity” is not a number/n", "“x” is not a number/n",
    ]  # fmt: skip


async def test_form_names_the_line_of_wrong_json(page: Browser) -> None:
    script = "{ const field = m.jsonField({}, '/params/x'); field.node.value = '{\\n a: 1}';"
    script += " try { field.read() } catch (fault) { return [fault.message, fault.pointer] } }"
    fault = await run(page, "form.js", script)

    assert "line 2" in fault[0]
    assert fault[1] == "/params/x"


async def test_chart_of_bars_says_its_numbers(page: Browser) -> None:
    data = "{from: Date.parse('2026-12-01T11:00:00Z'), step: 60, counts: [0, 3, 0, 1200], limit: 600, caption: 'Busy.'}"
    make = "{ const chart = m.bars({label: 'Due', unit: 'due', open: (from, to) => { window.opened = [from, to]; }});"
    make += f" document.querySelector('main').replaceChildren(chart.node); chart.show({data}); }}"
    await run(page, "chart.js", make)
    await page.until("document.querySelectorAll('.bar').length === 2")

    await page.value("document.querySelector('.plot').focus()")
    await type_key(page, "ArrowRight", "ArrowRight")
    await page.until("document.querySelector('.readout').innerText === '11:01–11:02: 3 due'")
    await type_key(page, "End", "Enter")
    await page.until("window.opened")
    await page.value("document.querySelector('.chart summary').click()")

    assert await page.value("window.opened[1] - window.opened[0]") == 60_000
    assert await page.value("document.querySelector('.numbers').innerText.split(/\\s+/).join(' ')") == (
        "Time due 11:01–11:02 3 11:03–11:04 1,200"
    )
    assert await page.value("document.querySelector('figcaption').innerText") == "Busy."
    assert "rate limit" in await page.value("document.querySelector('.plot').textContent")


async def test_chart_of_lines_says_its_latest_numbers_and_leaves_gaps(page: Browser) -> None:
    data = "{from: 0, step: 10, marks: [[29000, 'start']], lines: [['p50', [1, null, 3]], ['p99', [2, 4, null]]]}"
    make = "{ const chart = m.lines({label: 'Late', format: String});"
    make += f" document.querySelector('main').replaceChildren(chart.node); chart.show({data}); }}"
    await run(page, "chart.js", make)
    await page.until("document.querySelectorAll('.line').length === 2")

    assert await page.value("document.querySelector('.plot').getAttribute('aria-label')") == "Late: p50 3, p99 4"
    assert await page.value("document.querySelector('.line0').getAttribute('d').match(/[ML]/g).join('')") == "MM"
    assert await page.value("document.querySelector('.line1').getAttribute('d').match(/[ML]/g).join('')") == "ML"
    assert await page.value("""(() => {
      const right = (spec) => document.querySelector(spec).getBoundingClientRect().right;
      return right('.mark + .tick') <= right('.plot');
    })()""")


async def test_panel_stays_grey_until_a_read_succeeds(page: Browser) -> None:
    await run(
        page,
        "dom.js",
        """{ window.part = m.panel('Some'); document.querySelector('main').replaceChildren(part.node);
           part.show('read'); part.node.dataset.until = Date.now() + 60_000; part.fail(new Error('gone'));
           window.tick = m.tick; }""",
    )
    await page.value("window.tick()")
    failed = await page.value("part.node.classList.contains('old')")
    await page.value("part.show('again'); window.tick()")

    assert failed
    assert await page.value("part.node.classList.contains('old')") is False
