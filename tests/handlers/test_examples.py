"""Example params of kinds: made from their schemas, and always accepted."""

from __future__ import annotations

from typing import Any

import pytest

from erelong.handlers.examples import with_example
from erelong.handlers.pull.declaration import make_declared_kind
from erelong.handlers.registry import make_kinds
from erelong.settings.kinds import KindSettings
from erelong.settings.sections import Config


def example_of(schema: dict[str, Any]) -> Any:
    return with_example(make_declared_kind("crop", KindSettings(pull=True, params_schema=schema))).example


@pytest.mark.parametrize(
    ("schema", "example"),
    [
        ({}, {}),
        ({"examples": [{"a": 1}], "properties": {"a": {"const": 1}}}, {"a": 1}),
        ({"properties": {"a": {"type": "string"}, "b": {"type": "integer"}}, "required": ["b"]}, {"b": 1}),
        ({"properties": {"a": {"type": "string", "format": "uri"}}}, {"a": "https://app.example/"}),
        ({"properties": {"a": {"type": "string", "minLength": 6}}}, {"a": "text.."}),
        ({"properties": {"a": {"type": "integer", "minimum": 5, "maximum": 9}}}, {"a": 5}),
        ({"properties": {"a": {"type": "number", "maximum": -2}}}, {"a": -2}),
        ({"properties": {"a": {"enum": ["x", "y"]}, "b": {"const": 2}}}, {"a": "x", "b": 2}),
        ({"properties": {"a": {"default": 3}, "b": {"type": ["boolean", "null"]}}}, {"a": 3, "b": True}),
        ({"properties": {"a": {"type": "array", "items": {"type": "string"}, "minItems": 2}}}, {"a": ["text", "text"]}),
        ({"properties": {"a": {"anyOf": [{"type": "null"}, {"type": "integer"}]}}}, {"a": 1}),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"properties": {"b": {"type": "boolean"}}}}}, {"b": True}),
        ({"properties": {"a": {"type": "integer", "multipleOf": 7}}, "required": ["a"]}, None),
        ({"properties": {"a": {"properties": {"b": {"$ref": "#/properties/a"}}, "type": "object"}}}, {"a": {"b": {}}}),
    ],
)
def test_example_is_made_from_the_schema(schema: dict[str, Any], example: Any) -> None:
    assert example_of(schema) == example


def test_function_has_an_example() -> None:
    kinds = make_kinds(Config(kinds={"grow": KindSettings(python="tests.api.functions:grow")}))

    assert kinds["grow"].example == {"name": "text", "children": []}
