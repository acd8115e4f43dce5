"""The OpenAPI document is valid and true. Every API test also checks its responses against it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from erelong.api import openapi
from erelong.settings.kinds import KindSettings
from tests.support.contract import Contract
from tests.support.served import Serve, Served


async def get_document(service: Served) -> dict[str, Any]:
    document: dict[str, Any] = (await service.get("/openapi.json")).json
    return document


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, item in document["paths"].items():
        for method, operation in item.items():
            yield method, path, operation


def refs(part: Any) -> Iterator[str]:
    if isinstance(part, dict):
        if isinstance(part.get("$ref"), str):
            yield part["$ref"]
        for inner in part.values():
            yield from refs(inner)
    elif isinstance(part, list):
        for inner in part:
            yield from refs(inner)


async def test_document_is_of_version_3_1(service: Served) -> None:
    document = await get_document(service)

    assert document["openapi"] == "3.1.0"
    assert {"title", "version"} <= set(document["info"])
    assert set(document) <= {"openapi", "info", "servers", "tags", "paths", "components"}


async def test_document_is_made_once(service: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    first = await service.get("/openapi.json")
    monkeypatch.delattr(openapi, "_operation")

    assert (await service.get("/openapi.json")).body == first.body


async def test_every_reference_leads_somewhere(service: Served) -> None:
    document = await get_document(service)
    contract = Contract(document)

    for ref in {*refs(document)}:
        assert contract.resolve(ref) is not None, ref


async def test_names_of_components_are_valid(service: Served) -> None:
    components = (await get_document(service))["components"]

    for section in components.values():
        assert [name for name in section if not re.fullmatch(r"[a-zA-Z0-9._-]+", name)] == []


async def test_every_operation_has_a_unique_id_and_a_summary(service: Served) -> None:
    document = await get_document(service)
    found = [operation for _, _, operation in operations(document)]

    assert len({operation["operationId"] for operation in found}) == len(found)
    assert all(operation["summary"] and operation["tags"] for operation in found)
    assert {tag["name"] for tag in document["tags"]} == {tag for operation in found for tag in operation["tags"]}
    assert all(re.fullmatch(r"[a-z]+_[a-z]+", operation["operationId"]) for operation in found)


async def test_every_name_in_a_path_is_a_parameter(service: Served) -> None:
    for _, path, operation in operations(await get_document(service)):
        places = [parameter["name"] for parameter in operation["parameters"] if parameter.get("in") == "path"]
        assert places == re.findall(r"{(\w+)}", path)


async def test_every_answer_is_described(service: Served) -> None:
    for method, path, operation in operations(await get_document(service)):
        for status, answer in operation["responses"].items():
            assert re.fullmatch(r"[2345]\d\d", status)
            assert answer["description"], (method, path, status)
        assert any(status.startswith("2") for status in operation["responses"])


async def test_writes_accept_versions_and_submits_accept_keys(service: Served) -> None:
    headers = {
        f"{method} {path}": {ref.rpartition("/")[2] for ref in refs(operation["parameters"])} - {"X-Request-Id"}
        for method, path, operation in operations(await get_document(service))
    }

    assert {name for name, taken in headers.items() if "If-Match" in taken} == {
        "patch /v1/jobs/{id}",
        "delete /v1/jobs/{id}",
        "post /v1/jobs/{id}/cancel",
        "post /v1/jobs/{id}/run",
        "post /v1/jobs/{id}/retry",
        "put /v1/schedules/{schedule}",
        "patch /v1/schedules/{schedule}",
        "delete /v1/schedules/{schedule}",
        "post /v1/schedules/{schedule}/pause",
        "post /v1/schedules/{schedule}/resume",
    }
    assert {name for name, taken in headers.items() if "Idempotency-Key" in taken} == {
        "post /v1/jobs",
        "post /v1/jobs/batch",
        "post /v1/schedules/{schedule}/trigger",
        "post /v1/operations",
        "post /v1/schedules/{schedule}/backfill",
    }
    assert headers["get /v1/jobs/{id}"] == {"If-None-Match", "Prefer"}


async def test_labels_are_parameters_by_their_names(service: Served) -> None:
    document = await get_document(service)
    (label,) = [p for p in document["paths"]["/v1/jobs"]["get"]["parameters"] if p.get("name") == "label"]

    assert (label["style"], label["explode"], label["schema"]["type"]) == ("form", True, "object")
    assert label["schema"]["propertyNames"] == {"pattern": r"^label\."}


@pytest.mark.parametrize(
    ("body", "is_allowed"),
    [
        ({"kind": "echo"}, True),
        ({"kind": "echo", "params": None, "execute_at": 1767225600}, True),
        ({"kind": "http", "params": {"url": "https://x.example"}}, True),
        ({"kind": "http", "params": {}}, False),
        ({"kind": "echo", "params": {"sleep": -1}}, False),
        ({"kind": "echo", "priority": 101}, False),
        ({"kind": "echo", "execute_at": None}, False),
        ({"kind": "nope"}, False),
        ({"kind": "echo", "on_conflict": "ignore"}, False),
        ({"kind": "echo", "labels": {"a": "x" * 65}}, False),
        ({"delay": 5}, False),
    ],
)
async def test_document_and_service_agree_on_a_submit(service: Served, body: dict[str, Any], is_allowed: bool) -> None:
    contract = Contract(await get_document(service))

    faults = [*contract.faults(body, contract.resolve("#/components/schemas/JobIn"))]
    answer = await service.post("/v1/jobs", body)

    assert (faults == [], answer.status == 201) == (is_allowed, is_allowed)


async def test_params_of_declared_kinds_are_shown_with_their_own_references(serve: Serve) -> None:
    service = await serve(declared={"tree": KindSettings(python="tests.api.functions:grow")})
    contract = Contract(await get_document(service))
    job_in = contract.resolve("#/components/schemas/JobIn")

    fits = {"kind": "tree", "params": {"name": "a", "children": [{"name": "b", "children": []}]}}
    misfit = {"kind": "tree", "params": {"name": "a", "children": [{"name": 7, "children": []}]}}

    assert [*contract.faults(fits, job_in)] == []
    assert [*contract.faults(misfit, job_in)] != []


def test_contract_check_finds_violations() -> None:
    contract = Contract({"paths": {}})
    schema = {
        "type": "object",
        "properties": {"a": {"type": ["integer", "null"], "minimum": 1}, "b": {"enum": ["x"]}},
        "required": ["a"],
        "additionalProperties": False,
    }

    assert [*contract.faults({"a": 1, "b": "x"}, schema)] == []
    misfits: list[Any] = [{}, {"a": 0}, {"a": True}, {"a": 1, "b": "y"}, {"a": 1, "c": 1}, []]
    for wrong in misfits:
        assert [*contract.faults(wrong, schema)] != [], wrong
    with pytest.raises(AssertionError, match="does not know"):
        [*contract.faults("x", {"contains": 7})]
