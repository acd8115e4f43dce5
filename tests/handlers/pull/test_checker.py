"""Params against schemas that clients declare: every keyword, faults with pointers, and a bound on the work."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from erelong.errors import Invalid
from erelong.handlers.pull import checker
from erelong.handlers.pull.checker import BASE, PER_BYTE, BoundedParams
from erelong.handlers.pull.rules import find_faults


def faults_of(schema: dict[str, Any], params: Any) -> list[str]:
    assert find_faults(schema) == []
    try:
        BoundedParams(name="thumbnail", schema=schema).check(orjson.dumps(params))
    except Invalid as invalid:
        return [f"{fault.pointer}: {fault.detail}" for fault in invalid.faults]
    return []


def of_x(schema: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"x": schema}}


@pytest.mark.parametrize(
    ("schema", "value", "fault"),
    [
        ({"type": "integer"}, "7", '/x: should be an integer, not "7"'),
        ({"type": "integer"}, True, "/x: should be an integer, not true"),
        ({"type": ["string", "null"]}, 7, "/x: should be a string or null, not 7"),
        ({"type": "number"}, None, "/x: should be a number, not null"),
        ({"type": "array"}, {}, "/x: should be a list, not an object"),
        ({"enum": ["a", 1]}, True, '/x: should be one of "a", 1, not true'),
        ({"const": 1}, True, "/x: should be 1, not true"),
        ({"minimum": 3}, 2, "/x: should be 3 or more, not 2"),
        ({"maximum": 3}, 4, "/x: should be 3 or less, not 4"),
        ({"exclusiveMinimum": 3}, 3, "/x: should be more than 3, not 3"),
        ({"exclusiveMaximum": 3}, 3.0, "/x: should be less than 3, not 3.0"),
        ({"multipleOf": 0.5}, 0.7, "/x: should be a multiple of 0.5, not 0.7"),
        ({"minLength": 3}, "ab", "/x: should have at least 3 characters, not 2"),
        ({"maxLength": 1}, "ab", "/x: should have at most 1 characters, not 2"),
        ({"minItems": 1}, [], "/x: should have at least 1 items, not 0"),
        ({"maxItems": 1}, [1, 2], "/x: should have at most 1 items, not 2"),
        ({"uniqueItems": True}, [{"a": 1}, 2, {"a": 1.0}], "/x/2: is equal to item 0, and all items should differ"),
        ({"items": {"type": "string"}}, ["a", 1], "/x/1: should be a string, not 1"),
        ({"prefixItems": [True, {"type": "string"}]}, [1, 2], "/x/1: should be a string, not 2"),
        ({"prefixItems": [True], "items": False}, [1, 2], "/x/1: is not allowed"),
        (
            {"contains": {"type": "string"}},
            [1],
            "/x: should have at least 1 items that fit the schema of contains, not 0",
        ),
        (
            {"contains": {"type": "string"}, "maxContains": 1},
            ["a", "b"],
            "/x: should have at most 1 items that fit the schema of contains, not 2",
        ),
        ({"minProperties": 1}, {}, "/x: should have at least 1 names, not 0"),
        ({"maxProperties": 0}, {"a": 1}, "/x: should have at most 0 names, not 1"),
        ({"required": ["a", "b"]}, {"a": 1}, "/x/b: is required"),
        ({"dependentRequired": {"a": ["b"]}}, {"a": 1}, "/x/b: is required beside a"),
        ({"dependentSchemas": {"a": {"required": ["b"]}}}, {"a": 1}, "/x/b: is required"),
        (
            {"properties": {"a": True}, "additionalProperties": False},
            {"a": 1, "b/c": 2},
            "/x/b~1c: is unknown; known fields: a",
        ),
        ({"additionalProperties": {"type": "string"}}, {"a": 1}, "/x/a: should be a string, not 1"),
        ({"propertyNames": {"maxLength": 1}}, {"ab": 1}, "/x/ab: as a name, should have at most 1 characters, not 2"),
        ({"allOf": [{"minimum": 3}, {"maximum": 1}]}, 4, "/x: should be 1 or less, not 4"),
        ({"anyOf": [{"type": "null"}, {"type": "integer", "minimum": 3}]}, 2, "/x: should be 3 or more, not 2"),
        ({"anyOf": [{"minimum": 3}, {"const": 1}]}, 2, "/x: fits none of 2 alternatives"),
        ({"oneOf": [{"minimum": 3}, {"minimum": 2}]}, 4, "/x: fits 2 of 2 alternatives, and should fit only one"),
        ({"not": {"type": "string"}}, "a", "/x: fits a schema that it should not fit"),
        ({"if": {"type": "string"}, "then": {"minLength": 2}}, "a", "/x: should have at least 2 characters, not 1"),
        ({"if": {"type": "string"}, "else": False}, 1, "/x: is not allowed"),
        (False, 1, "/x: is not allowed"),
    ],
)
def test_fault_names_the_place_the_wish_and_the_value(schema: Any, value: Any, fault: str) -> None:
    assert faults_of(of_x(schema), {"x": value}) == [fault]


def test_reference_is_followed_within_the_schema() -> None:
    tree = {"type": "object", "properties": {"next": {"$ref": "#/definitions/a~1b"}, "name": {"type": "string"}}}
    schema = {"$ref": "#/definitions/a%7E1b", "definitions": {"a/b": tree}}

    assert faults_of(schema, {"next": {"next": {"name": "x"}}}) == []
    assert faults_of(schema, {"next": {"next": {"name": 1}}}) == ["/next/next/name: should be a string, not 1"]


def test_annotations_and_formats_are_no_checks() -> None:
    schema = {"title": "T", "format": "uri", "default": 1, "examples": ["x"], "x-own": {}, "contentSchema": {}}

    assert faults_of(of_x(schema), {"x": "no uri"}) == []


def test_at_most_20_faults_are_found() -> None:
    assert len(faults_of(of_x({"items": {"type": "string"}}), {"x": [0] * 100})) == 20


NESTED = {"$defs": {"n": {"items": {"anyOf": [{"$ref": "#/$defs/n"}] * 2}, "contains": False}}}
LAUGHS = {
    "$defs": {f"d{i}": {"allOf": [{"$ref": f"#/$defs/d{i + 1}"}] * 2} for i in range(30)} | {"d30": {"minimum": 0}}
}
COSTLY = {
    "alternatives that double with each level": (NESTED | of_x({"$ref": "#/$defs/n"}), [[[[[[[[[[[[[1]]]]]]]]]]]]]),
    "references that double with each other": (LAUGHS | of_x({"$ref": "#/$defs/d0"}), 1),
    "a long text that fits no alternative": (
        LAUGHS
        | {"$defs": {f"d{i}": {"anyOf": [{"$ref": f"#/$defs/d{i + 1}"}] * 2} for i in range(30)} | {"d30": False}}
        | of_x({"$ref": "#/$defs/d0"}),
        "x" * 60_000,
    ),
    "a chain of references that is too deep": (
        {"$defs": {f"d{i}": {"$ref": f"#/$defs/d{i + 1}"} for i in range(1_500)} | {"d1500": True}}
        | of_x({"$ref": "#/$defs/d0"}),
        1,
    ),
    "many keywords for each item": (of_x({"items": {"allOf": [{"minimum": 0}] * 50}}), [1] * 5_000),
}


@pytest.mark.parametrize("name", COSTLY)
def test_costly_check_ends_with_a_fault(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    schema, value = COSTLY[name]
    calls = 0
    spend = checker.Run.spend

    def counted(run: checker.Run, steps: int = 1) -> None:
        nonlocal calls
        calls += 1
        spend(run, steps)

    monkeypatch.setattr(checker.Run, "spend", counted)
    size = len(orjson.dumps({"x": value}))

    (fault,) = faults_of(schema, {"x": value})

    assert fault.startswith(": take more than ")
    assert fault.endswith("send less, or declare a simpler schema")
    assert calls <= BASE + PER_BYTE * size + 1


def test_large_usual_params_are_checked() -> None:
    item = {"type": "object", "properties": {"id": {"type": "integer", "minimum": 1}}, "required": ["id"]}

    assert faults_of(of_x({"items": item}), {"x": [{"id": number} for number in range(1, 4_000)]}) == []
    assert faults_of(of_x({"items": {"type": "integer", "minimum": 0}}), {"x": list(range(12_000))}) == []
    assert faults_of(of_x({"uniqueItems": True}), {"x": [{"id": number} for number in range(4_000)]}) == []
    assert faults_of(of_x({"items": {"enum": [f"k{i}" for i in range(5_000)]}}), {"x": ["k4999"] * 5_000}) == []


def test_alternatives_by_a_constant_are_checked_for_many_items() -> None:
    kinds = [{"type": "object", "properties": {"kind": {"const": f"k{i}"}}, "required": ["kind"]} for i in range(8)]

    found = faults_of(of_x({"items": {"anyOf": kinds}}), {"x": [{"kind": f"k{i % 8}", "n": i} for i in range(1_000)]})

    assert found == []
