"""The tables of docs/moving.md: a real service takes each field, body and call that they name for erelong."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

import pytest

import erelong
from erelong.settings.kinds import KindSettings
from tests.docs import recipes_pages, recipes_stage
from tests.docs.recipes_stage import Stage
from tests.support import ROOT

SYSTEMS = ["Celery", "BullMQ", "Cloud Tasks", "APScheduler"]
KINDS = "[kinds.remind]\npull = true\n\n[kinds.resize]\npull = true\n"
CALL = re.compile(r"(GET|POST|PUT|PATCH|DELETE) (/\S+)")
CODE = re.compile(r"`([^`]+)`")
SECTION = re.compile(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
FAIL = "POST /v1/leases/{token}/fail"


class Row(NamedTuple):
    """One feature of another system, and the part of erelong that takes its place."""

    system: str
    theirs: str
    ours: str

    @property
    def codes(self) -> list[str]:
        return CODE.findall(self.ours)

    @property
    def target(self) -> str:
        """The call that a body of this row belongs to."""
        calls = [code for code in self.codes if CALL.fullmatch(code) and not code.startswith("GET ")]
        return FAIL if "`…/fail`" in self.ours else calls[0]


def rows() -> list[Row]:
    found = []
    for title, text in SECTION.findall(recipes_pages.MOVING.read_text(encoding="utf-8")):
        for line in text.splitlines() if title in SYSTEMS else ():
            if line.startswith("| ") and not line.startswith(f"| {title} |"):
                theirs, ours = line.strip("| ").split(" | ")
                found.append(Row(title, theirs, ours))
    return found


def with_codes(begin: str) -> list[tuple[Row, str]]:
    return [(row, code) for row in rows() for code in row.codes if code.startswith(begin)]


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with recipes_stage.running(tmp_path_factory.mktemp("moving"), config=KINDS) as stage:
        yield stage


@pytest.fixture(scope="module")
def document(stage: Stage) -> dict[str, Any]:
    _, document = stage.ask("GET", "/openapi.json")
    return dict(document)


def make_real(stage: Stage, path: str) -> str:
    """Put a job, a queue and a lease in place of their names in a path."""
    if "{id}" in path:
        _, job = stage.ask("POST", "/v1/jobs", {"kind": "echo", "delay": "1h"})
        path = path.replace("{id}", job["id"])
    if "{token}" in path:
        stage.ask("POST", "/v1/jobs", {"kind": "remind"})
        _, given = stage.ask("POST", "/v1/leases", {"kinds": ["remind"], "wait": 5})
        path = path.replace("{token}", given["leases"][0]["token"])
    return path.replace("{queue}", "moving")


@pytest.mark.parametrize("system", SYSTEMS)
def test_every_system_has_a_table(system: str) -> None:
    assert sum(row.system == system for row in rows()) >= 15


def test_page_has_no_block_that_nothing_runs() -> None:
    assert recipes_pages.parse("moving.md", recipes_pages.MOVING.read_text(encoding="utf-8")).blocks == []


def test_fields_of_a_submit_are_accepted(stage: Stage) -> None:
    for number, (row, code) in enumerate(with_codes('"')):
        fields = json.loads(f"{{{code}}}")
        job = {"kind": "echo", "queue": f"row-{number}"} | fields
        waits = {} if {"delay", "execute_at"} & job.keys() else {"delay": "1h"}

        status, answer = stage.ask("POST", "/v1/jobs", job | waits | ({"key": "k"} if "on_conflict" in job else {}))

        assert status == 201, f"{row.theirs}: {code}: {answer}"


def test_bodies_are_accepted_by_the_call_of_their_row(stage: Stage) -> None:
    bodies = [(row, code) for row, code in with_codes("{") if not code.startswith("{secret:")]
    for row, code in bodies:
        method, path = row.target.split(" ")

        status, answer = stage.ask(method, make_real(stage, path), json.loads(code))

        assert status == 200, f"{row.theirs}: {row.target} {code}: {answer}"
    assert len(bodies) >= 15


def test_calls_are_in_the_openapi_document(document: dict[str, Any]) -> None:
    calls = CALL.findall(" ".join(CODE.findall(recipes_pages.MOVING.read_text(encoding="utf-8"))))
    for method, target in calls:
        url = urlsplit(target)
        operation = document["paths"].get(url.path, {}).get(method.lower())

        assert operation is not None, f"{method} {target}"
        parameters = {parameter_name(document, parameter) for parameter in operation.get("parameters", ())}
        assert parse_qs(url.query).keys() <= parameters, f"{method} {target}"
    assert len(calls) >= 30


def parameter_name(document: dict[str, Any], parameter: dict[str, str]) -> str:
    reference = parameter.get("$ref", "").rpartition("/")[2]
    return str(document["components"]["parameters"][reference]["name"] if reference else parameter["name"])


def test_every_other_name_is_one_of_erelong(document: dict[str, Any]) -> None:
    guides = [path for path in (ROOT / "docs").glob("*.md") if path != recipes_pages.MOVING]
    texts = [path.read_text(encoding="utf-8") for path in (ROOT / "config.toml", ROOT / "README.md", *guides)]
    known = "".join([json.dumps(document), *texts])
    for row in rows():
        for code in row.codes:
            match code.split(" "):
                case [("GET" | "POST" | "PUT" | "PATCH" | "DELETE"), _] | ["…/fail"]:
                    continue
                case ["raise", error]:
                    assert hasattr(erelong, error.partition("(")[0]), code
                case _ if code.startswith(('"', "{")):
                    continue
                case [*_, setting, "=", _]:
                    assert setting in KindSettings.model_fields, code
                case _:
                    assert code in known, f"{row.theirs}: no {code}"
