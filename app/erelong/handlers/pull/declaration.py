"""Makes pull kinds, those of the settings and those that clients declare."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import orjson
from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError, ValidationError
from referencing import Registry
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT202012

from erelong.errors import Fault
from erelong.handlers.base import Stop
from erelong.handlers.kinds import Kind, Origin
from erelong.handlers.param_errors import MAX_FAULTS, invalid
from erelong.handlers.pull.checker import BoundedParams
from erelong.handlers.python.signature import InvalidKind
from erelong.model.faults import REQUIRED

if TYPE_CHECKING:
    from erelong.settings.kinds import KindSettings

ANY_OBJECT: Final[dict[str, Any]] = {"type": "object"}
NOTHING_FETCHED: Final[Registry[Any]] = Registry()
"""Resolves references within a schema alone. The default of the library would fetch others over the network."""


class SchemaParams:
    """Checks params against a JSON schema of the settings."""

    def __init__(self, *, name: str, schema: dict[str, Any]) -> None:
        self._name = name
        self._validator = Draft202012Validator(schema, registry=NOTHING_FETCHED)

    def check(self, params: bytes) -> None:
        errors = sorted(self._validator.iter_errors(orjson.loads(params)), key=lambda error: list(map(str, error.path)))
        if errors:
            faults = [_fault_of(error) for error in errors[:MAX_FAULTS]]
            raise invalid(self._name, faults)


def _fault_of(error: ValidationError) -> Fault:
    names: Any = error.validator_value
    if error.validator == "required":  # the library names each missing one in an error of the object
        for name in names:
            if error.message.startswith(f"{name!r} is "):
                return Fault.at((*error.absolute_path, name), REQUIRED)
    return Fault.at(error.absolute_path, error.message)


def make_pull_kind(*, name: str, schema: dict[str, Any] | Path | None = None) -> Kind:
    """Make a pull kind; raise InvalidKind when `schema`, a table or a file, is not a JSON schema."""
    table = _read(schema) if isinstance(schema, Path) else schema or ANY_OBJECT
    try:
        Draft202012Validator.check_schema(table)
    except SchemaError as error:
        raise InvalidKind(f"params_schema is not a JSON schema: {error.message}") from None
    _refuse_foreign_refs(table)
    # A worker learns of a cancel when it extends its lease.
    params = SchemaParams(name=name, schema=table)
    return Kind(name=name, type="pull", stop=Stop.COOPERATIVE, params_schema=table, params=params, runner=None)


def make_declared_kind(name: str, settings: KindSettings) -> Kind:
    """Make the pull kind that a client declares, whose schema `rules.find_faults` has checked."""
    schema = settings.params_schema if isinstance(settings.params_schema, dict) else ANY_OBJECT
    return Kind(
        name=name,
        type="pull",
        stop=Stop.COOPERATIVE,
        params_schema=schema,
        params=BoundedParams(name=name, schema=schema),
        runner=None,
        declared=Origin.API,
        timeout=settings.timeout,
        retry=settings.retry,
    )


def _read(path: Path) -> dict[str, Any]:
    try:
        table: dict[str, Any] = orjson.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise InvalidKind(f"params_schema cannot be read: {error}") from None
    return table


def _refuse_foreign_refs(table: dict[str, Any]) -> None:
    """Raise InvalidKind for a reference that leads out of the schema."""
    root = DRAFT202012.create_resource(table)
    left = [(root, NOTHING_FETCHED.resolver_with_root(root))]
    while left:
        resource, resolver = left.pop()
        ref = resource.contents.get("$ref") if isinstance(resource.contents, dict) else None
        try:
            if ref is not None:
                resolver.lookup(ref)
        except Unresolvable:
            remedy = "nothing is fetched; copy the part into $defs of this schema"
            raise InvalidKind(f"params_schema refers to {ref!r}, which it does not contain: {remedy}") from None
        left += [(inner, resolver.in_subresource(inner)) for inner in resource.subresources()]
