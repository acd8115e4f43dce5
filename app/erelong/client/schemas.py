"""JSON Schemas of the params of functions, by their annotations: what a service can check before a job is stored."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import MISSING, fields, is_dataclass
from datetime import date, datetime
from enum import Enum
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Union, get_args, get_origin, get_type_hints

from erelong.client.values import plain

if TYPE_CHECKING:
    from erelong.client.kinds import Kind

Schema = dict[str, Any]

PLAIN: Final[dict[type, Schema]] = {
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    str: {"type": "string"},
    NoneType: {"type": "null"},
    dict: {"type": "object"},
    list: {"type": "array"},
    tuple: {"type": "array"},
    set: {"type": "array"},
    frozenset: {"type": "array"},
    datetime: {"type": "string"},
    date: {"type": "string"},
}
REFUSED: Final = frozenset({"pattern", "patternProperties", "$id", "$schema"})
"""Keywords that the service accepts in no part of a schema. What they forbid fails in the worker instead."""


def declaration(kind: Kind[..., Any, Any]) -> dict[str, Any]:
    """Return what a function says about its kind: the schema of its params, its timeout and its retry policy."""
    options = {name: value for name, value in kind.options.items() if name in ("timeout", "retry")}
    return {"params_schema": params_schema(kind), **options}


def params_schema(kind: Kind[..., Any, Any]) -> Schema:
    """Return the schema of the params of a kind. An annotation that says nothing about JSON permits any value."""
    maker = SchemaMaker()
    if kind.whole is not None:
        return maker.complete(maker.schema_of(kind.whole.annotation))
    properties: Schema = {}
    required = []
    is_open = False
    for parameter in kind.parameters.parameters.values():
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            is_open = True
            continue
        schema = maker.schema_of(parameter.annotation)
        if parameter.default is inspect.Parameter.empty:
            required.append(parameter.name)
        else:
            schema = _with_default(schema, parameter.default)
        properties[parameter.name] = schema
    return maker.complete(_object(properties, required, is_open=is_open))


class SchemaMaker:
    """Makes schemas of types, and keeps those of classes, to which others refer by name."""

    def __init__(self) -> None:
        self._definitions: Schema = {}
        self._names: dict[type, str] = {}

    def complete(self, schema: Schema) -> Schema:
        """Return a schema with all that it refers to."""
        whole = {"type": "object", **schema}
        return {**whole, "$defs": self._definitions} if self._definitions else whole

    def schema_of(self, annotation: Any) -> Schema:
        origin, parts = get_origin(annotation), get_args(annotation)
        if origin is Annotated:
            return self.schema_of(parts[0])
        if origin in (Union, UnionType):
            return {"anyOf": [self.schema_of(part) for part in parts]}
        if origin is Literal and None in parts:
            return {
                "anyOf": [self.schema_of(Literal[tuple(part for part in parts if part is not None)]), PLAIN[NoneType]]
            }
        if origin is Literal:
            return {"enum": [plain(value) for value in parts]}
        if isinstance(origin, type):
            return self._of_collection(origin, parts)
        kind = NoneType if annotation is None else annotation
        return self._of_class(kind) if isinstance(kind, type) else {}

    def _of_collection(self, origin: type, parts: tuple[Any, ...]) -> Schema:
        if origin is tuple and parts[-1:] != (...,):
            items = [self.schema_of(part) for part in parts]
            return {"type": "array", "prefixItems": items, "minItems": len(items), "maxItems": len(items)}
        if issubclass(origin, Mapping):
            return {"type": "object", "additionalProperties": self.schema_of(parts[1])}
        if issubclass(origin, Sequence | AbstractSet):
            return {"type": "array", "items": self.schema_of(parts[0])}
        return {}

    def _of_class(self, kind: type) -> Schema:
        if kind in PLAIN:
            return {**PLAIN[kind]}
        if issubclass(kind, Enum):
            return {"enum": [plain(member.value) for member in kind]}
        if hasattr(kind, "model_json_schema") or is_dataclass(kind):
            return {"$ref": f"#/$defs/{self._name_of(kind)}"}
        return {"type": "string"} if (kind.__module__, kind.__name__) == ("uuid", "UUID") else {}

    def _name_of(self, kind: Any) -> str:
        """Return the name under which the schema of a class is kept."""
        if kind in self._names:
            return self._names[kind]
        name: str = kind.__name__
        while name in self._definitions:  # a class of another module, or of a model
            name += "_"
        self._names[kind], self._definitions[name] = name, {}  # known before it is complete: it may contain itself
        self._definitions[name] = self._of_model(kind) if hasattr(kind, "model_json_schema") else self._of_fields(kind)
        return name

    def _of_model(self, kind: Any) -> Schema:
        """Return the schema of a pydantic model."""
        schema: Schema = _without_refused(kind.model_json_schema(ref_template="#/$defs/{model}"))
        parts = schema.pop("$defs", {})
        if schema.keys() == {"$ref"}:  # it contains itself
            schema = parts.pop(schema["$ref"].rpartition("/")[2])
        self._definitions |= parts
        return schema

    def _of_fields(self, kind: Any) -> Schema:
        """Return the schema of a dataclass."""
        hints = get_type_hints(kind, include_extras=True)
        made = [field for field in fields(kind) if field.init]
        required = [field.name for field in made if field.default is MISSING and field.default_factory is MISSING]
        return _object({field.name: self.schema_of(hints.get(field.name, Any)) for field in made}, required)


def _object(properties: Schema, required: list[str], *, is_open: bool = False) -> Schema:
    schema = {"type": "object", "properties": properties, "additionalProperties": is_open}
    return {**schema, "required": required} if required else schema


def _with_default(schema: Schema, default: Any) -> Schema:
    try:
        return {**schema, "default": plain(default)}
    except (TypeError, ValueError):
        return schema


def _without_refused(schema: Any) -> Any:
    """Return a schema without the keywords that the service refuses; names of properties are no keywords."""
    if isinstance(schema, list):
        return [_without_refused(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {name: value for name, value in schema.items() if name not in REFUSED}
    return {
        name: {key: _without_refused(part) for key, part in value.items()}
        if name in ("properties", "$defs")
        else _without_refused(value)
        for name, value in kept.items()
    }
