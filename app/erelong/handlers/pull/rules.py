"""The rules for schemas of clients: draft 2020-12, without keywords that could hold the loop or fetch other schemas."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import orjson

from erelong.errors import Fault
from erelong.handlers.pull.checker import CHECKS, NAMES
from erelong.handlers.pull.references import find_part
from erelong.model.faults import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Path = tuple[str | int, ...]

MAX_SCHEMA: Final = 65_536  # bytes
MAX_DEPTH: Final = 32
DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"

_LARGE: Final = "large schemas are refused; describe less, or check the rest in the worker"
_NO_PATTERN: Final = "a regular expression could hold up the service: remove it, and check the text in the worker"
_NO_ANCHOR: Final = 'name parts by their place: "$ref": "#/$defs/<name>"'
_EXPLICIT: Final = "list all properties or items, and use additionalProperties or items"
REFUSED: Final = {
    "pattern": _NO_PATTERN,
    "patternProperties": _NO_PATTERN,
    "$id": "only the whole schema may have one",
    "$schema": "only the whole schema may have one",
    "$anchor": _NO_ANCHOR,
    "$dynamicAnchor": _NO_ANCHOR,
    "$dynamicRef": _NO_ANCHOR,
    "$recursiveAnchor": _NO_ANCHOR,
    "$recursiveRef": _NO_ANCHOR,
    "unevaluatedItems": _EXPLICIT,
    "unevaluatedProperties": _EXPLICIT,
    "dependencies": "is of an older draft; use dependentRequired or dependentSchemas",
    "additionalItems": "is of an older draft; use items beside prefixItems",
}
"""Keywords that no schema of a client may have, and what to do instead."""

_ONE: Final = frozenset(
    {"not", "if", "then", "else", "items", "contains", "additionalProperties", "propertyNames", "contentSchema"}
)
_LIST: Final = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_MAP: Final = frozenset({"$defs", "definitions", "properties", "dependentSchemas"})
_IN_PLACE: Final = frozenset({"$ref", "not", "if", "then", "else", "allOf", "anyOf", "oneOf", "dependentSchemas"})
"""Keywords whose schemas apply to the same value again."""


def find_faults(schema: dict[str, Any]) -> list[Fault]:
    """Return the faults of a schema that a client declares, with pointers into it."""
    size = len(orjson.dumps(schema))
    if size > MAX_SCHEMA:
        return [Fault("", f"has {size} bytes of JSON, and may have {MAX_SCHEMA}; {_LARGE}")]
    if _depth(schema) > MAX_DEPTH:
        return [Fault("", f"is more than {MAX_DEPTH} levels deep; {_LARGE}")]
    return [*_faults_of_root(schema)] or [*Walk(schema).faults()]


def _faults_of_root(schema: dict[str, Any]) -> Iterator[Fault]:
    dialect = schema.get("$schema", DIALECT)
    if dialect not in (DIALECT, f"{DIALECT}#"):
        yield Fault("/$schema", f"is {shown(dialect)}; schemas are read as {DIALECT}: remove it, or name that one")
    types = schema.get("type", "object")
    if types != "object" and not (isinstance(types, list) and "object" in types):
        yield Fault("/type", f'is {shown(types)}, and params are always an object; send "object"')


def _depth(value: Any) -> int:
    depth, level = 0, [value]
    while level := [part for part in level if isinstance(part, (dict, list))]:
        depth += 1
        level = [inner for part in level for inner in (part.values() if isinstance(part, dict) else part)]
    return depth


class Walk:
    """Visits every part of a schema that is a schema itself, and those that references name, once each."""

    def __init__(self, root: dict[str, Any]) -> None:
        self._root = root
        self._seen: dict[int, Path] = {}
        self._again: dict[int, list[dict[str, Any]]] = {}  # the schemas that apply to the same value
        self._left: list[tuple[Any, Path]] = [(root, ())]

    def faults(self) -> Iterator[Fault]:
        while self._left:
            schema, path = self._left.pop()
            if isinstance(schema, dict) and id(schema) not in self._seen:
                self._seen[id(schema)] = path
                for keyword, value in schema.items():
                    yield from self._faults_of(keyword, value, schema, (*path, keyword))
            elif not isinstance(schema, (dict, bool)):
                yield Fault.at(path, f"should be a schema, which is an object, true or false, not {shown(schema)}")
        yield from self._endless()

    def _faults_of(self, keyword: str, value: Any, schema: dict[str, Any], path: Path) -> Iterator[Fault]:
        if keyword in REFUSED and (len(path) > 1 or keyword not in ("$id", "$schema")):
            yield Fault.at(path, f"is not accepted: {REFUSED[keyword]}")
            return
        is_fit, wish = SHAPES.get(keyword, ANYTHING)
        if not is_fit(value):
            yield Fault.at(path, f"should be {wish}, not {shown(value)}")
            return
        try:
            for inner, place in self._parts_of(keyword, value, path):
                self._add(keyword, inner, schema, place)
        except ValueError as error:
            yield Fault.at(path, f"is {shown(value)}; it {error}")

    def _parts_of(self, keyword: str, value: Any, path: Path) -> list[tuple[Any, Path]]:
        """Return the schemas that a keyword contains or names. Raise ValueError for a reference to none."""
        if keyword == "$ref":
            return [(find_part(self._root, value), path)]
        if keyword in _ONE:
            return [(value, path)]
        if keyword in _LIST:
            return [(inner, (*path, index)) for index, inner in enumerate(value)]
        return [(inner, (*path, name)) for name, inner in value.items()] if keyword in _MAP else []

    def _add(self, keyword: str, inner: Any, schema: dict[str, Any], path: Path) -> None:
        self._left.append((inner, path))
        if keyword in _IN_PLACE and isinstance(inner, dict):
            self._again.setdefault(id(schema), []).append(inner)

    def _endless(self) -> Iterator[Fault]:
        """Yield a fault for a schema that applies to the same value again without an end."""
        done: set[int] = set()
        stack: list[tuple[int, bool]] = [(place, False) for place in self._again]
        entered: set[int] = set()
        while stack:
            place, is_over = stack.pop()
            if is_over:
                entered.discard(place)
                done.add(place)
            elif place in entered:
                yield Fault.at(self._seen[place], "applies to the same value without an end; remove that reference")
                return
            elif place not in done:
                entered.add(place)
                stack += [(place, True), *((id(inner), False) for inner in self._again.get(place, ()))]


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_count(value: Any) -> bool:
    return _is_number(value) and value >= 0 and value == int(value)


def _are_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value) and len({*value}) == len(value)


def _are_types(value: Any) -> bool:
    if isinstance(value, str):
        return value in NAMES
    return isinstance(value, list) and bool(value) and _are_names(value) and NAMES.keys() >= {*value}


ANYTHING: Final = (lambda _: True, "anything")
_NUMBER: Final = (_is_number, "a number")
_COUNT: Final = (_is_count, "an integer, 0 or more")
_OBJECT: Final = (lambda value: isinstance(value, dict), "an object of schemas by name")
_SCHEMAS: Final = (lambda value: isinstance(value, list) and bool(value), "a list of one schema or more")
_A_LIST: Final = (lambda value: isinstance(value, list), "a list")
SHAPES: Final[dict[str, tuple[Callable[[Any], bool], str]]] = {
    "$ref": (lambda value: isinstance(value, str), "a text such as #/$defs/<name>"),
    "type": (_are_types, f"one of {', '.join(NAMES)}, or a list of these"),
    "enum": _A_LIST,
    "examples": _A_LIST,
    "multipleOf": (lambda value: _is_number(value) and value > 0, "a number above 0"),
    "required": (_are_names, "a list of different names"),
    "dependentRequired": (
        lambda value: isinstance(value, dict) and all(map(_are_names, value.values())),
        "an object with lists of different names",
    ),
    "uniqueItems": (lambda value: isinstance(value, bool), "true or false"),
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), _NUMBER),
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems", "minContains", "maxContains"), _COUNT),
    **dict.fromkeys(("minProperties", "maxProperties"), _COUNT),
    **dict.fromkeys(_LIST, _SCHEMAS),
    **dict.fromkeys(_MAP, _OBJECT),
}

assert CHECKS.keys() - {"const"} <= SHAPES.keys() | _ONE
