"""Checks params against a schema that a client has declared, in a bounded number of steps.

No library bounds the work of a schema: alternatives multiply with every level, and each failure may quote all params.
The keywords are those that `rules` accepts; random schemas find the same faults here and in the jsonschema library.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import orjson

from erelong.errors import Fault
from erelong.handlers.param_errors import MAX_FAULTS, invalid
from erelong.handlers.pull.references import find_part
from erelong.model.faults import MAX_HINTS, REQUIRED, shown, unknown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    Schema = bool | dict[str, Any]
    Around = Mapping[str, Any]
    Path = tuple[str | int, ...]
    Check = Callable[["Run", Any, Any, Around, Path], Iterable[Fault]]

BASE: Final = 2_000
PER_BYTE: Final = 3
"""Steps for each byte of params: enough for every item of a list, and milliseconds for params of the usual size."""
PER_FAULT: Final = 4
MAX_SHOWN: Final = 10  # names or values in one fault
NAMES: Final = {
    "array": "a list",
    "boolean": "true or false",
    "integer": "an integer",
    "null": "null",
    "number": "a number",
    "object": "an object",
    "string": "a string",
}
_TRUE, _FALSE = object(), object()  # other than 1 and 0, to which True and False are equal


class TooCostly(Exception):
    """A check has used up its steps."""


class BoundedParams:
    """Checks params against a schema that `rules` accepts."""

    def __init__(self, *, name: str, schema: dict[str, Any]) -> None:
        self._name = name
        self._schema = schema
        self._choices: dict[int, frozenset[object]] = {}

    def check(self, params: bytes) -> None:
        steps = BASE + PER_BYTE * len(params)
        run = Run(self._schema, steps, self._choices)
        try:
            found = run.faults(self._schema, orjson.loads(params), ())
            faults = [*islice(found, MAX_FAULTS)]
        except (TooCostly, RecursionError):
            detail = f"take more than {steps} steps to check against the schema; send less, or declare a simpler schema"
            faults = [Fault("", detail)]
        if faults:
            raise invalid(self._name, faults)


class Run:
    """One check: finds faults until its steps are used up, then raises `TooCostly`.

    `choices` keeps the forms of the values of an `enum`, by the id of its list, for all checks of a schema.
    """

    def __init__(self, root: Schema, steps: int, choices: dict[int, frozenset[object]]) -> None:
        self.root = root
        self._left = steps
        self._choices = choices
        self._refs: dict[str, Schema] = {}

    def spend(self, steps: int = 1) -> None:
        self._left -= steps
        if self._left < 0:
            raise TooCostly

    def faults(self, schema: Schema, value: Any, path: Path) -> Iterator[Fault]:
        """Yield the faults of a value at a path."""
        self.spend()
        if schema is False:
            self.spend(PER_FAULT)
            yield Fault.at(path, "is not allowed")
        if not isinstance(schema, dict):
            return
        for keyword, wish in schema.items():
            check = CHECKS.get(keyword)
            if check is not None:
                self.spend()
                found = check(self, wish, value, schema, path)
                if isinstance(found, list):  # made here, and not by a schema inside
                    self.spend(PER_FAULT)
                yield from found

    def fits(self, schema: Schema, value: Any) -> bool:
        return next(self.faults(schema, value, ()), None) is None

    def resolve(self, ref: str) -> Schema:
        if ref not in self._refs:
            self._refs[ref] = find_part(self.root, ref)
        return self._refs[ref]

    def form_of(self, value: Any) -> object:
        return _form_of(value, self.spend)

    def is_among(self, value: Any, choices: list[Any]) -> bool:
        forms = self._choices.get(id(choices))
        if forms is None:
            forms = self._choices[id(choices)] = frozenset(_form_of(choice, _spend_nothing) for choice in choices)
        return self.form_of(value) in forms


def _form_of(value: Any, spend: Callable[[], None]) -> object:
    """Return a hashable form that equal JSON values share."""
    spend()
    match value:
        case bool():
            return _TRUE if value else _FALSE
        case dict():
            return frozenset((name, _form_of(inner, spend)) for name, inner in value.items())
        case list():
            return tuple(_form_of(inner, spend) for inner in value)
        case _:
            return value


def _spend_nothing() -> None:
    """Do not count the form of a choice, which is made once."""


# keywords for all values


def _ref(run: Run, ref: str, value: Any, _: Around, path: Path) -> Iterable[Fault]:
    return run.faults(run.resolve(ref), value, path)


def _type(_: Run, wish: str | list[str], value: Any, __: Around, path: Path) -> Iterable[Fault]:
    types = [wish] if isinstance(wish, str) else wish
    if any(_is(value, type_) for type_ in types):
        return ()
    return [Fault.at(path, f"should be {' or '.join(NAMES[type_] for type_ in types)}, not {shown(value)}")]


def _enum(run: Run, choices: list[Any], value: Any, _: Around, path: Path) -> Iterable[Fault]:
    if run.is_among(value, choices):
        return ()
    listed = ", ".join(map(shown, choices[:MAX_SHOWN])) + (", …" if len(choices) > MAX_SHOWN else "")
    return [Fault.at(path, f"should be one of {listed}, not {shown(value)}")]


def _const(run: Run, wish: Any, value: Any, _: Around, path: Path) -> Iterable[Fault]:
    if run.form_of(wish) == run.form_of(value):
        return ()
    return [Fault.at(path, f"should be {shown(wish)}, not {shown(value)}")]


def _all_of(run: Run, schemas: list[Schema], value: Any, _: Around, path: Path) -> Iterable[Fault]:
    for schema in schemas:
        yield from run.faults(schema, value, path)


def _any_of(run: Run, schemas: list[Schema], value: Any, _: Around, path: Path) -> Iterable[Fault]:
    return () if any(run.fits(schema, value) for schema in schemas) else _none_fits(run, schemas, value, path)


def _one_of(run: Run, schemas: list[Schema], value: Any, _: Around, path: Path) -> Iterable[Fault]:
    fitting = sum(run.fits(schema, value) for schema in schemas)
    if fitting > 1:
        return [Fault.at(path, f"fits {fitting} of {len(schemas)} alternatives, and should fit only one")]
    return () if fitting else _none_fits(run, schemas, value, path)


def _none_fits(run: Run, schemas: list[Schema], value: Any, path: Path) -> Iterable[Fault]:
    """Return the faults of the only alternative for values of this type, if there is one."""
    likely = [schema for schema in schemas if _is_likely(run, schema, value)]
    if len(likely) == 1:
        return run.faults(likely[0], value, path)
    return [Fault.at(path, f"fits none of {len(schemas)} alternatives")]


def _is_likely(run: Run, schema: Schema, value: Any) -> bool:
    return isinstance(schema, dict) and not _type(run, schema.get("type", [*NAMES]), value, schema, ())


def _not(run: Run, schema: Schema, value: Any, _: Around, path: Path) -> Iterable[Fault]:
    return [Fault.at(path, "fits a schema that it should not fit")] if run.fits(schema, value) else ()


def _if(run: Run, schema: Schema, value: Any, around: Around, path: Path) -> Iterable[Fault]:
    return run.faults(around.get("then" if run.fits(schema, value) else "else", True), value, path)


# keywords for numbers and texts


def _bound(is_met: Callable[[Any, Any], bool], words: str, measure: Callable[[Any], float | None]) -> Check:
    def check(_: Run, wish: float, value: Any, __: Around, path: Path) -> Iterable[Fault]:
        measured = measure(value)
        if measured is None or is_met(measured, wish):
            return ()
        return [Fault.at(path, f"should {words.format(shown(wish))}, not {shown(measured)}")]

    return check


def _number(value: Any) -> float | None:
    return value if _is(value, "number") else None


def _length(value: Any) -> int | None:
    return len(value) if isinstance(value, str) else None


def _items(value: Any) -> int | None:
    return len(value) if isinstance(value, list) else None


def _names(value: Any) -> int | None:
    return len(value) if isinstance(value, dict) else None


def _multiple_of(_: Run, wish: Any, value: Any, __: Around, path: Path) -> Iterable[Fault]:
    if not _is(value, "number") or _is_multiple(value, wish):
        return ()
    return [Fault.at(path, f"should be a multiple of {shown(wish)}, not {shown(value)}")]


def _is_multiple(value: Any, wish: Any) -> bool:
    if not isinstance(wish, float):
        return not value % wish
    try:
        return bool(int(value / wish) == value / wish)
    except OverflowError:
        return (Fraction(value) / Fraction(wish)).denominator == 1


# keywords for lists


def _each_item(run: Run, schema: Schema, value: Any, around: Around, path: Path) -> Iterable[Fault]:
    if isinstance(value, list):
        for index in range(len(around.get("prefixItems", ())), len(value)):
            yield from run.faults(schema, value[index], (*path, index))


def _first_items(run: Run, schemas: list[Schema], value: Any, _: Around, path: Path) -> Iterable[Fault]:
    for index, (inner, schema) in enumerate(zip(value, schemas, strict=False)) if isinstance(value, list) else ():
        yield from run.faults(schema, inner, (*path, index))


def _contains(run: Run, schema: Schema, value: Any, around: Around, path: Path) -> Iterable[Fault]:
    if not isinstance(value, list):
        return ()
    fitting = sum(run.fits(schema, inner) for inner in value)
    least, most = around.get("minContains", 1), around.get("maxContains", len(value))
    if least <= fitting <= most:
        return ()
    wish = f"at least {least}" if fitting < least else f"at most {most}"
    return [Fault.at(path, f"should have {wish} items that fit the schema of contains, not {fitting}")]


def _unique(run: Run, wish: bool, value: Any, _: Around, path: Path) -> Iterable[Fault]:
    if not wish or not isinstance(value, list):
        return
    seen: dict[object, int] = {}
    for index, inner in enumerate(value):
        first = seen.setdefault(run.form_of(inner), index)
        if first != index:
            yield Fault.at((*path, index), f"is equal to item {first}, and all items should differ")
            return


# keywords for objects


def _each_property(run: Run, schemas: dict[str, Schema], value: Any, _: Around, path: Path) -> Iterable[Fault]:
    if isinstance(value, dict):
        run.spend(len(schemas))
        for name, schema in schemas.items():
            if name in value:
                yield from run.faults(schema, value[name], (*path, name))


def _other_properties(run: Run, schema: Schema, value: Any, around: Around, path: Path) -> Iterable[Fault]:
    if not isinstance(value, dict):
        return
    known, hints = around.get("properties", {}), MAX_HINTS
    for name, inner in value.items():
        run.spend()
        if name in known:
            continue
        if schema is False:
            hints -= 1
            listed = [*known] if len(known) <= MAX_SHOWN else None
            yield Fault.at((*path, name), unknown(name, listed, has_hint=hints >= 0))
        else:
            yield from run.faults(schema, inner, (*path, name))


def _property_names(run: Run, schema: Schema, value: Any, _: Around, path: Path) -> Iterable[Fault]:
    for name in value if isinstance(value, dict) else ():
        for fault in run.faults(schema, name, (*path, name)):
            yield Fault(fault.pointer, f"as a name, {fault.detail}")


def _required(run: Run, names: list[str], value: Any, _: Around, path: Path) -> Iterable[Fault]:
    if isinstance(value, dict):
        run.spend(len(names))
        yield from (Fault.at((*path, name), REQUIRED) for name in names if name not in value)


def _required_with(run: Run, names: dict[str, list[str]], value: Any, _: Around, path: Path) -> Iterable[Fault]:
    for name, others in names.items() if isinstance(value, dict) else ():
        run.spend(1 + len(others))
        missing = [other for other in others if name in value and other not in value]
        yield from (Fault.at((*path, other), f"is required beside {name}") for other in missing)


def _schemas_with(run: Run, schemas: dict[str, Schema], value: Any, _: Around, path: Path) -> Iterable[Fault]:
    for name, schema in schemas.items() if isinstance(value, dict) else ():
        run.spend()
        if name in value:
            yield from run.faults(schema, value, path)


def _is(value: Any, type_: str) -> bool:
    match type_:
        case "object":
            return isinstance(value, dict)
        case "array":
            return isinstance(value, list)
        case "string":
            return isinstance(value, str)
        case "null":
            return value is None
        case "boolean":
            return isinstance(value, bool)
        case "integer" if isinstance(value, float):
            return value.is_integer()
        case "number" if isinstance(value, float):
            return True
        case _:
            return isinstance(value, int) and not isinstance(value, bool)


CHECKS: Final[dict[str, Check]] = {
    "$ref": _ref,
    "type": _type,
    "enum": _enum,
    "const": _const,
    "allOf": _all_of,
    "anyOf": _any_of,
    "oneOf": _one_of,
    "not": _not,
    "if": _if,
    "minimum": _bound(lambda value, wish: value >= wish, "be {} or more", _number),
    "maximum": _bound(lambda value, wish: value <= wish, "be {} or less", _number),
    "exclusiveMinimum": _bound(lambda value, wish: value > wish, "be more than {}", _number),
    "exclusiveMaximum": _bound(lambda value, wish: value < wish, "be less than {}", _number),
    "multipleOf": _multiple_of,
    "minLength": _bound(lambda length, wish: length >= wish, "have at least {} characters", _length),
    "maxLength": _bound(lambda length, wish: length <= wish, "have at most {} characters", _length),
    "minItems": _bound(lambda number, wish: number >= wish, "have at least {} items", _items),
    "maxItems": _bound(lambda number, wish: number <= wish, "have at most {} items", _items),
    "uniqueItems": _unique,
    "items": _each_item,
    "prefixItems": _first_items,
    "contains": _contains,
    "minProperties": _bound(lambda number, wish: number >= wish, "have at least {} names", _names),
    "maxProperties": _bound(lambda number, wish: number <= wish, "have at most {} names", _names),
    "properties": _each_property,
    "additionalProperties": _other_properties,
    "propertyNames": _property_names,
    "required": _required,
    "dependentRequired": _required_with,
    "dependentSchemas": _schemas_with,
}
