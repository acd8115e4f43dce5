"""Example params of a kind, made from its schema."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import orjson

from erelong.errors import Invalid
from erelong.handlers.pull.references import find_part

if TYPE_CHECKING:
    from collections.abc import Mapping

    from erelong.handlers.kinds import Kind

MAX_DEPTH: Final = 8
DEEP: Final = 2  # levels: below them, only required properties are made
MAX_ITEMS: Final = 3
TEXTS: Final = {
    "date": "2027-01-31",
    "date-time": "2027-01-31T09:00:00Z",
    "duration": "PT1H",
    "email": "ann@app.example",
    "time": "09:00:00Z",
    "uri": "https://app.example/",
    "uuid": "8c1f2f0e-5a0b-4c51-9a80-3b1d2f5a7c9e",
}


def with_example(kind: Kind) -> Kind:
    """Return a kind with example params, if it has none and such can be made."""
    if kind.example is not None:
        return kind
    made = _example_of(kind.params_schema, kind.params_schema, 0)
    example = made if isinstance(made, dict) else {}
    try:
        kind.params.check(orjson.dumps(example))
    except Invalid:
        return kind
    return replace(kind, example=example)


def _example_of(schema: Any, root: Mapping[str, Any], depth: int) -> Any:
    """Return a value that a schema probably accepts: its own example, or the simplest value of its type."""
    if not isinstance(schema, dict) or depth > MAX_DEPTH:
        return None
    for choices in (schema.get("examples"), schema.get("enum")):
        if isinstance(choices, list) and choices:
            return choices[0]
    for name in ("const", "default"):
        if name in schema:
            return schema[name]
    if "$ref" in schema:
        return _example_of(_part(root, schema["$ref"]), root, depth + 1)
    for name in ("allOf", "anyOf", "oneOf"):
        if isinstance(schema.get(name), list) and "type" not in schema:
            made = (_example_of(part, root, depth + 1) for part in schema[name])
            return next((example for example in made if example is not None), None)
    types = schema.get("type", "object" if "properties" in schema else None)
    return _of_type(types[0] if isinstance(types, list) and types else types, schema, root, depth)


def _of_type(type_: Any, schema: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> Any:
    match type_:
        case "object":
            properties = schema.get("properties", {})
            names = schema.get("required") or ([*properties] if depth < DEEP else [])
            return {name: _example_of(properties.get(name, {}), root, depth + 1) for name in names}
        case "array":
            number = min(max(schema.get("minItems", 0), int(depth < DEEP)), MAX_ITEMS)
            return [_example_of(schema.get("items", {}), root, depth + 1) for _ in range(number)]
        case "string":
            return TEXTS.get(schema.get("format", ""), "text".ljust(min(schema.get("minLength", 0), 100), "."))
        case "integer" | "number":
            least = schema.get("minimum", schema.get("exclusiveMinimum", 0) + 1)
            return min(least, schema.get("maximum", least))
        case "boolean":
            return True
        case _:
            return None


def _part(root: Mapping[str, Any], ref: Any) -> Any:
    try:
        return find_part(root, ref)
    except (ValueError, AttributeError):
        return None
