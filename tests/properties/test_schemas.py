"""Random schemas and values: declared kinds take the same params as the jsonschema library, which is the model."""

from __future__ import annotations

from typing import Any

import orjson
from hypothesis import assume, given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError
from referencing import Registry

from erelong.handlers.pull.checker import Run
from erelong.handlers.pull.rules import find_faults

NAMES = st.sampled_from(["a", "b", "c"])
NUMBERS = st.sampled_from([0, 1, 2, -1, 1.0, 0.5, 1e308, 3])
SCALARS = st.none() | st.booleans() | NUMBERS | st.sampled_from(["", "a", "ab", "é"])
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3), max_leaves=6
)
TYPES = st.sampled_from(["array", "boolean", "integer", "null", "number", "object", "string"])
COUNTS = st.sampled_from([0, 1, 2, 1.0])


def of_schemas(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    several = st.lists(inner, min_size=1, max_size=3)
    by_name = st.dictionaries(NAMES, inner, max_size=3)
    keywords: dict[str, st.SearchStrategy[Any]] = {
        "type": TYPES | st.lists(TYPES, min_size=1, max_size=3, unique=True),
        "enum": st.lists(VALUES, max_size=3),
        "const": VALUES,
        "$ref": st.sampled_from(["#", "#/$defs/a", "#/$defs/b"]),
        "$defs": by_name,
        **dict.fromkeys(["allOf", "anyOf", "oneOf", "prefixItems"], several),
        **dict.fromkeys(["not", "if", "then", "else", "items", "contains", "propertyNames"], inner),
        "additionalProperties": inner,
        **dict.fromkeys(["properties", "dependentSchemas"], by_name),
        **dict.fromkeys(["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"], NUMBERS),
        "multipleOf": st.sampled_from([1, 2, 0.5, 1e-308, 1.5]),
        **dict.fromkeys(["minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"], COUNTS),
        **dict.fromkeys(["minContains", "maxContains"], COUNTS),
        "uniqueItems": st.booleans(),
        "required": st.lists(NAMES, max_size=2, unique=True),
        "dependentRequired": st.dictionaries(NAMES, st.lists(NAMES, max_size=2, unique=True), max_size=2),
    }
    chosen = st.lists(st.sampled_from([*keywords]), min_size=1, max_size=3, unique=True)
    return st.booleans() | chosen.flatmap(lambda names: st.fixed_dictionaries({name: keywords[name] for name in names}))


SCHEMAS = st.recursive(st.booleans(), of_schemas, max_leaves=8)
DEFINED = st.fixed_dictionaries(
    {"$defs": st.fixed_dictionaries({"a": SCHEMAS, "b": SCHEMAS}), "properties": st.dictionaries(NAMES, SCHEMAS)}
)


def fresh(value: Any) -> Any:
    return orjson.loads(orjson.dumps(value))


@given(schema=DEFINED, value=st.dictionaries(NAMES, VALUES, max_size=3))
def test_params_fit_as_the_library_says(schema: dict[str, Any], value: dict[str, Any]) -> None:
    schema, value = fresh(schema), fresh(value)
    assume(find_faults(schema) == [])

    faults = [*Run(schema, 100_000, {}).faults(schema, value, ())]

    assert (not faults) is Draft202012Validator(schema, registry=Registry()).is_valid(value)
    assert all(fault.detail for fault in faults)


@given(
    schema=DEFINED, extra=st.dictionaries(st.sampled_from(["type", "required", "minLength", "anyOf", "enum"]), VALUES)
)
def test_only_schemas_that_the_library_accepts_are_accepted(schema: dict[str, Any], extra: dict[str, Any]) -> None:
    schema = fresh({"properties": schema, "additionalProperties": extra})
    faults = find_faults(schema)

    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError:
        assert faults
    else:
        allowed = ("without an end", "names no part of the schema", "should name a schema")
        assert all(any(part in fault.detail for part in allowed) for fault in faults), faults
