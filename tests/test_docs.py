"""The guide documents all routes, settings, metrics, log events, problems, checks and exit codes, in plain English."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeGuard

import pytest

from erelong import errors
from erelong.model.blocker import Hold
from erelong.model.caller import Scope
from erelong.model.job import STATES
from erelong.model.outcome import End
from erelong.settings.section import ConfigError
from erelong.settings.sections import Config
from erelong.telemetry.metrics import CounterMetric, GaugeMetric, HistogramMetric, Metrics
from tests.docs.pages import EVERY, FENCE, GUIDE, README, prose, read
from tests.support import ROOT, SOURCE
from tests.support.served import Served
from tests.support.virtual import EPOCH, VirtualClock

CODEMAP = "app/README.md"
CHANGELOG = "CHANGELOG.md"
MOST_LINES = {README: 230, CODEMAP: 175}
LINES = 150
OF_THE_DASHBOARD = {"GET /", "GET /ui/{digest}/{file}"}

ODD = re.compile(
    r"\b(comes? back|anew|for ever|all the same|likewise|outright|thrice|whoever|but for|elsewhere"
    r"|(?:is|are) told|told of|tells of|look(?:ed|s)? at|who (?:asks|waits|has|gets)"
    r"|what (?:is|was|came|comes|waits|runs|it|of)\b)",
    re.IGNORECASE,
)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


# the code


def problems() -> list[type[errors.Problem]]:
    classes = [found for _, found in inspect.getmembers(errors, inspect.isclass)]
    with_code = [found for found in classes if issubclass(found, errors.Problem) and "code" in vars(found)]
    return [found for found in with_code if found is not errors.Problem] + [errors.Internal]


def events() -> Iterator[str]:
    """Find the name of each event in the calls that log it."""
    client = SOURCE / "erelong" / "client"  # logs in the programs of users
    for path in sorted(path for path in SOURCE.rglob("*.py") if client not in path.parents):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and node.args and _logs(node.func):
                yield from _texts(node.args[0])


def _logs(function: ast.expr) -> bool:
    if isinstance(function, ast.Name):
        return function.id == "_own_record"  # the log's records about itself
    return isinstance(function, ast.Attribute) and function.attr in ("debug", "info", "warning", "error")


def _texts(argument: ast.expr) -> Iterator[str]:
    if isinstance(argument, ast.IfExp):
        yield from _texts(argument.body)
        yield from _texts(argument.orelse)
    elif isinstance(argument, ast.Constant):
        yield str(argument.value)


def rows(page: str, heading: str) -> list[list[str]]:
    """Return the cells of all tables with this text in their first cell."""
    tables = re.findall(rf"^\| {heading} \|.*\n\|[-|]+\|\n((?:\|.*\n)+)", read(page), re.MULTILINE)
    return [
        [cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]] for table in tables for row in table.splitlines()
    ]


def names(page: str, heading: str, column: int = 0) -> list[str]:
    """Return the code spans in a column of the tables with this heading."""
    return [name for row in rows(page, heading) for name in re.findall(r"`([^`]+)`", row[column])]


async def get_document(service: Served) -> dict[str, Any]:
    document: dict[str, Any] = (await service.get("/openapi.json")).json
    return document


# the guide


@pytest.mark.parametrize("virtual_from", [None, EPOCH])
async def test_every_route_that_serves_is_in_the_document_and_no_other(
    clock: VirtualClock, virtual_from: int | None
) -> None:
    async with Served(clock=clock, virtual_from=virtual_from) as service:
        paths = (await get_document(service))["paths"]
        routes = {name for name in service.node.router.routes() if not name.startswith("HEAD ")}

    assert {f"{method.upper()} {path}" for path, item in paths.items() for method in item} == routes - OF_THE_DASHBOARD


async def test_every_route_is_in_the_guide(clock: VirtualClock) -> None:
    text = "".join(map(read, GUIDE))
    async with Served(clock=clock, virtual_from=EPOCH) as service:
        routes = {name for name in service.node.router.routes() if not name.startswith("HEAD ")}

    assert {route for route in routes if not re.search(rf"{re.escape(route)}(?![\w/])", text)} == set()


async def test_every_code_of_a_problem_is_in_the_document_and_no_other(clock: VirtualClock) -> None:
    async with Served(clock=clock, virtual_from=EPOCH) as service:
        schema = (await get_document(service))["components"]["schemas"]["Problem"]

    assert schema["properties"]["code"]["enum"] == sorted(problem.code for problem in problems())


def test_every_problem_is_in_the_guide_with_its_status_and_no_other() -> None:
    documented = [(int(status), code.strip("`")) for status, code, _ in rows("docs/errors.md", "status")]

    assert sorted(documented) == sorted((problem.status, problem.code) for problem in problems())


def test_every_problem_has_a_unique_code_and_a_description() -> None:
    codes = [problem.code for problem in problems()]

    assert len(set(codes)) == len(codes)
    for problem in problems():
        assert 400 <= problem.status < 600
        assert problem.title
        assert problem.__doc__
        assert problem.__doc__.endswith(".")


def test_every_outcome_state_and_scope_is_in_the_guide_and_no_other() -> None:
    assert {*names("docs/errors.md", "outcome")} == {*End}
    assert {*STATES} <= {*re.findall(r"`(\w+)`", read("docs/jobs.md"))}
    assert {*names("docs/security.md", "scope")} >= {*Scope}


async def test_every_reason_to_wait_is_in_the_guide_and_no_other(clock: VirtualClock) -> None:
    async with Served(clock=clock) as service:
        job = (await get_document(service))["components"]["schemas"]["Job"]["properties"]

    assert names("docs/explain.md", "`waiting_for`") == [reason for reason in job["waiting_for"]["enum"] if reason]


def test_every_blocker_is_in_the_guide_in_order() -> None:
    assert names("docs/explain.md", "blocker") == [*Hold]


async def test_every_check_is_in_the_guide_and_no_other(clock: VirtualClock) -> None:
    async with Served(clock=clock) as service:
        checks = set(service.node.health.checks())

    assert {*names("docs/operating.md", "check")} == checks


def test_every_metric_is_in_the_guide_with_its_labels_and_no_other() -> None:
    declared = [
        item for item in vars(Metrics()).values() if isinstance(item, CounterMetric | HistogramMetric | GaugeMetric)
    ]

    assert sorted(names("docs/metrics.md", "metric")) == sorted([*map(_as_exposed, declared), "process_*"])


def _as_exposed(metric: CounterMetric | HistogramMetric | GaugeMetric) -> str:
    total = "_total" if metric.collect().type == "counter" else ""
    return metric.name + total + (f"{{{','.join(metric.labels)}}}" if metric.labels else "")


def test_every_log_event_is_in_the_guide_and_no_other() -> None:
    assert sorted(names("docs/log.md", "event")) == sorted(set(events()))


def test_every_exit_code_is_in_the_guide_and_no_other() -> None:
    exits: list[type[errors.Exit]] = [ConfigError, *(found for found in vars(errors).values() if _is_exit(found))]
    raised = {found.code for found in exits}

    documented = {int(code) for cell, *_ in rows("docs/operating.md", "code") for code in cell.split(", ")}
    assert documented == raised | {0, 2, 130, 143}  # drained; argparse; a second signal


def _is_exit(found: object) -> TypeGuard[type[errors.Exit]]:
    return inspect.isclass(found) and issubclass(found, errors.Exit)


def test_every_setting_has_a_comment() -> None:
    """One comment may cover the lines right below it."""
    lines = read("config.toml").splitlines()
    assignment = re.compile(r"#?[a-z_]+ = ")

    bare = [
        line
        for before, line in pairwise(lines)
        if assignment.match(line) and not (before.startswith("# ") or assignment.match(before) or before[:2] == "#[")
    ]

    assert bare == []


@pytest.mark.parametrize("page", EVERY)
def test_every_setting_named_by_a_page_exists(page: str) -> None:
    named = {(section, name) for section, name in re.findall(r"`\[(\w+)\] (\w+)", read(page))}

    assert {f"{section}.{name}" for section, name in named if name not in _names_in(section)} == set()


def _names_in(section: str) -> set[str]:
    model = Config.model_fields[section].annotation
    return {*getattr(model, "model_fields", ())}


def test_compose_file_leaves_the_service_time_to_drain() -> None:
    (grace,) = re.findall(r"^ +stop_grace_period: (\d+)s$", (ROOT / "compose.yaml").read_text(), re.MULTILINE)

    assert int(grace) > Config().server.drain_timeout + Config().workers.grace


def test_compose_file_publishes_the_service_only_on_loopback() -> None:
    (ports,) = re.findall(r"^ +ports: (.*)$", (ROOT / "compose.yaml").read_text(), re.MULTILINE)

    assert ports == '["127.0.0.1:8080:8080"]'


# The codemap


def _codemap_rooms() -> dict[str, set[str]]:
    """Return the names written as code in the row of each room."""
    return {
        name.strip("`/"): {code.rpartition("/")[2] for code in re.findall(r"`([^`]+)`", modules)}
        for name, modules in rows(CODEMAP, "room")
    }


def test_every_room_has_a_row_in_the_codemap_and_no_other() -> None:
    packages = {path.parent.name for path in (SOURCE / "erelong").glob("*/__init__.py")}

    assert {*_codemap_rooms()} == packages | {"the root"}


def test_every_module_is_in_the_row_of_its_room() -> None:
    rooms = _codemap_rooms()
    missing = []
    for path in (SOURCE / "erelong").rglob("*.py"):
        room, *inner = path.relative_to(SOURCE / "erelong").parts
        is_named = path.stem in rooms[room if inner else "the root"]
        if not is_named and not (inner and path.stem == "__init__"):
            missing.append(path.relative_to(SOURCE))

    assert missing == []


def test_every_path_in_the_codemap_is_there() -> None:
    """A path may begin in the root of the repository, of the package or of the engine, and end in a function."""
    roots = (ROOT, SOURCE / "erelong", SOURCE / "erelong" / "engine")
    paths = re.findall(r"`([a-z_]+/[a-z_/]+)((?:\.\w+)?)`", prose(CODEMAP))
    missing = [path + end for path, end in paths if not any(_is_there(root / path, end) for root in roots)]

    assert missing == []
    assert len(paths) > 30


def _is_there(path: Path, end: str) -> bool:
    if end in (".py", ".toml", ".md") or path.is_dir():
        return path.with_name(path.name + end).exists()
    module = path.with_name(path.name + ".py")
    return module.exists() and (not end or f"def {end[1:]}(" in module.read_text(encoding="utf-8"))


def test_codemap_has_few_decisions_and_few_words_of_its_own() -> None:
    numbers = [int(decision.partition(".")[0]) for decision, _ in rows(CODEMAP, "decision")]
    words = [word for word, _ in rows(CODEMAP, "word")]

    assert numbers == [*range(1, len(numbers) + 1)]
    assert 10 <= len(numbers) <= 25
    assert 10 <= len(words) <= 20


# How it is written


@pytest.mark.parametrize("page", [*EVERY, CODEMAP])
def test_page_is_short(page: str) -> None:
    assert len(read(page).splitlines()) <= MOST_LINES.get(page, LINES)


@pytest.mark.parametrize("page", [*EVERY, CODEMAP, CHANGELOG, "config.toml"])
def test_page_has_no_odd_phrase(page: str) -> None:
    assert [match[0] for match in ODD.finditer(read(page))] == []


@pytest.mark.parametrize("page", [*EVERY, CODEMAP, CHANGELOG])
def test_links_of_a_page_resolve(page: str) -> None:
    folder = (ROOT / page).parent
    for link in LINK.findall(prose(page)):
        if link.startswith(("https://", "http://")):
            continue
        path, _, anchor = link.partition("#")
        target = (folder / path).resolve() if path else ROOT / page
        assert target.exists(), link
        assert not anchor or anchor in _anchors(target.read_text(encoding="utf-8")), link


def _anchors(text: str) -> set[str]:
    """Return the anchors of a page's headings."""
    headings = re.findall(r"^#+ (.*)$", FENCE.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_page_is_linked_from_readme_and_the_index() -> None:
    for index, prefix in ((README, "docs/"), ("docs/README.md", "")):
        linked = {link.partition("#")[0].removeprefix(prefix) for link in LINK.findall(prose(index))}
        assert {page.removeprefix("docs/") for page in GUIDE} - {README} - {"README.md"} <= linked
