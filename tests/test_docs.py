"""What is built is documented: every route, metric, code of a problem. (Settings: `settings/test_sections.py`.)"""

from __future__ import annotations

import inspect
import re
from typing import Any

from erelong import errors
from erelong.settings.sections import Config
from erelong.telemetry.metrics import Level, Metrics, Spread, Tally
from tests.support import ROOT
from tests.support.served import Served
from tests.support.virtual import VirtualClock


def problems() -> list[type[errors.Problem]]:
    classes = [found for _, found in inspect.getmembers(errors, inspect.isclass)]
    with_code = [found for found in classes if issubclass(found, errors.Problem) and "code" in vars(found)]
    return [found for found in with_code if found is not errors.Problem] + [errors.Internal]


async def get_document(service: Served) -> dict[str, Any]:
    document: dict[str, Any] = (await service.get("/openapi.json")).json
    return document


async def test_every_route_that_serves_is_in_the_document_and_no_other(clock: VirtualClock) -> None:
    async with Served(clock=clock) as service:
        paths = (await get_document(service))["paths"]
        routes = {name for name in service.node.router.routes() if not name.startswith("HEAD ")}

    assert {f"{method.upper()} {path}" for path, item in paths.items() for method in item} == routes


async def test_every_code_of_a_problem_is_in_the_document_and_no_other(clock: VirtualClock) -> None:
    async with Served(clock=clock) as service:
        schema = (await get_document(service))["components"]["schemas"]["Problem"]

    assert schema["properties"]["code"]["enum"] == sorted(problem.code for problem in problems())


def test_every_problem_has_a_code_of_its_own_and_says_what_it_is() -> None:
    codes = [problem.code for problem in problems()]

    assert len(set(codes)) == len(codes)
    for problem in problems():
        assert 400 <= problem.status < 600
        assert problem.title
        assert problem.__doc__
        assert problem.__doc__.endswith(".")


def test_compose_file_leaves_the_service_time_to_drain() -> None:
    (grace,) = re.findall(r"^ +stop_grace_period: (\d+)s$", (ROOT / "compose.yaml").read_text(), re.MULTILINE)

    assert int(grace) > Config().server.drain_timeout + Config().workers.grace


def test_compose_file_shows_the_service_to_this_machine_alone() -> None:
    (ports,) = re.findall(r"^ +ports: (.*)$", (ROOT / "compose.yaml").read_text(), re.MULTILINE)

    assert ports == '["127.0.0.1:8080:8080"]'


async def test_every_check_is_in_the_readme_and_no_other(clock: VirtualClock) -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    table = text.partition("| check |")[2].partition("\n\n")[0]
    async with Served(clock=clock) as service:
        checks = set(service.node.health.checks())

    assert set(re.findall(r"`([a-z_]+)`", "".join(row.split("|")[1] for row in table.splitlines()[2:]))) == checks


def test_every_metric_is_in_the_readme_with_its_labels_and_no_other() -> None:
    told = set(re.findall(r"`(erelong_[a-z_]+(?:\{[a-z,]+\})?)`", (ROOT / "README.md").read_text(encoding="utf-8")))

    declared = [item for item in vars(Metrics()).values() if isinstance(item, Tally | Spread | Level)]
    assert told == {_as_exposed(item) for item in declared}


def _as_exposed(metric: Tally | Spread | Level) -> str:
    total = "_total" if metric.collect().type == "counter" else ""
    return metric.name + total + (f"{{{','.join(metric.labels)}}}" if metric.labels else "")
