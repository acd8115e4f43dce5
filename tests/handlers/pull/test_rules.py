"""The rules for schemas that clients declare. Each fault names the place and what to write instead."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from erelong.handlers.pull.rules import MAX_DEPTH, MAX_SCHEMA, find_faults


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(levels // 2):
        schema = {"properties": {"x": schema}}
    return schema


ROUND = {"$defs": {"a": {"not": {"$ref": "#/$defs/b"}}, "b": {"if": {"$ref": "#/$defs/a"}}}}


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "object", "properties": {"url": {"type": "string", "format": "uri", "minLength": 1}}},
        {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": "https://app.example/s", "title": "T"},
        {"properties": {"pattern": {"type": "string"}, "$ref": {"const": {"pattern": "(a+)+"}}}},
        {"$defs": {"node": {"properties": {"next": {"$ref": "#/$defs/node"}}}}, "$ref": "#/$defs/node"},
        {"properties": {"self": {"$ref": "#"}, "all": {"items": {"$ref": "#/properties/self"}}}},
        {"default": {"pattern": 1}, "examples": [{"pattern": 1}], "enum": [{"pattern": 1}]},
        {"type": ["object", "null"], "minProperties": 1.0},
        nested(MAX_DEPTH - 1),
    ],
)
def test_schema_is_accepted(schema: dict[str, Any]) -> None:
    assert find_faults(schema) == []


@pytest.mark.parametrize(
    ("schema", "pointer", "part"),
    [
        ({"pattern": "a"}, "/pattern", "check the text in the worker"),
        ({"properties": {"x": {"pattern": "(a+)+$"}}}, "/properties/x/pattern", "regular expression"),
        ({"patternProperties": {"a": {}}}, "/patternProperties", "regular expression"),
        ({"x-own": {"pattern": "a"}, "$ref": "#/x-own"}, "/$ref/pattern", "regular expression"),
        ({"definitions": {"a": {"pattern": "a"}}}, "/definitions/a/pattern", "regular expression"),
        ({"items": {"$id": "http://app.example"}}, "/items/$id", "only the whole schema may have one"),
        ({"items": {"$schema": "http://json-schema.org/draft-07/schema#"}}, "/items/$schema", "only the whole schema"),
        ({"$schema": "http://json-schema.org/draft-07/schema#"}, "/$schema", "schemas are read as https://"),
        ({"$dynamicRef": "#a"}, "/$dynamicRef", '"$ref": "#/$defs/<name>"'),
        ({"unevaluatedProperties": False}, "/unevaluatedProperties", "additionalProperties"),
        ({"dependencies": {"a": ["b"]}}, "/dependencies", "dependentRequired"),
        ({"items": {"$ref": "http://127.0.0.1/x"}}, "/items/$ref", 'should begin with "#/"'),
        ({"$ref": "other.json"}, "/$ref", 'should begin with "#/"'),
        ({"$ref": "#anchor"}, "/$ref", 'should begin with "#/"'),
        ({"$ref": "#/$defs/none"}, "/$ref", "names no part of the schema"),
        ({"required": ["a"], "$ref": "#/required/0"}, "/$ref", "should name a schema"),
        ({"$ref": 7}, "/$ref", "should be a text such as #/$defs/<name>"),
        ({"type": "strng"}, "/type", "params are always an object"),
        ({"type": "array"}, "/type", "params are always an object"),
        ({"properties": {"x": {"type": "strng"}}}, "/properties/x/type", 'one of array, boolean, integer, null'),
        ({"properties": {"x": "string"}}, "/properties/x", 'should be a schema, which is an object, true or false'),
        ({"properties": ["x"]}, "/properties", "should be an object of schemas by name, not a list"),
        ({"properties": {"x": {"required": True}}}, "/properties/x/required", "a list of different names, not true"),
        ({"required": ["a", "a"]}, "/required", "a list of different names"),
        ({"items": [{}]}, "/items", "should be a schema"),
        ({"anyOf": []}, "/anyOf", "a list of one schema or more"),
        ({"enum": "a"}, "/enum", "should be a list"),
        ({"minimum": "1"}, "/minimum", 'should be a number, not "1"'),
        ({"exclusiveMinimum": True}, "/exclusiveMinimum", "should be a number, not true"),
        ({"multipleOf": 0}, "/multipleOf", "a number above 0"),
        ({"minLength": -1}, "/minLength", "an integer, 0 or more, not -1"),
        ({"uniqueItems": 1}, "/uniqueItems", "true or false"),
        ({"$ref": "#"}, "", "applies to the same value without an end"),
        ({"allOf": [{"anyOf": [{"$ref": "#/allOf/0"}]}]}, None, "without an end"),
        (ROUND | {"$ref": "#/$defs/a"}, None, "without an end"),
        (nested(MAX_DEPTH + 2), "", f"is more than {MAX_DEPTH} levels deep"),
        ({"description": "x" * MAX_SCHEMA}, "", f"may have {MAX_SCHEMA}"),
    ],
)  # fmt: skip
def test_schema_is_refused_with_a_remedy(schema: dict[str, Any], pointer: str | None, part: str) -> None:
    (fault,) = find_faults(schema)

    assert pointer in (None, fault.pointer)
    assert part in fault.detail


def test_schema_of_the_greatest_size_is_accepted() -> None:
    schema = {"description": ""}
    schema["description"] = "x" * (MAX_SCHEMA - len(orjson.dumps(schema)))

    assert find_faults(schema) == []


def test_every_fault_of_a_schema_is_found() -> None:
    schema = {"properties": {"a": {"type": "int"}, "b": {"pattern": "x"}}, "required": "a"}

    assert {fault.pointer for fault in find_faults(schema)} == {
        "/properties/a/type",
        "/properties/b/pattern",
        "/required",
    }
