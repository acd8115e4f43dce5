"""The pull kinds: external workers lease and run their jobs; the service only checks params."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError

from erelong.errors import Fault
from erelong.handlers.base import Stop
from erelong.handlers.kinds import Kind
from erelong.handlers.param_errors import MAX_FAULTS, invalid
from erelong.handlers.python.signature import InvalidKind

ANY_OBJECT: dict[str, Any] = {"type": "object"}


class SchemaParams:
    """Checks params against a JSON schema."""

    def __init__(self, *, name: str, schema: dict[str, Any]) -> None:
        self._name = name
        self._validator = Draft202012Validator(schema)

    def check(self, params: bytes) -> None:
        errors = sorted(self._validator.iter_errors(orjson.loads(params)), key=lambda error: list(map(str, error.path)))
        if errors:
            faults = [Fault.at(error.absolute_path, error.message) for error in errors[:MAX_FAULTS]]
            raise invalid(self._name, faults)


def make_pull_kind(*, name: str, schema: dict[str, Any] | Path | None = None) -> Kind:
    """Make a pull kind; raise InvalidKind when `schema`, a table or a file, is not a JSON schema."""
    table = _read(schema) if isinstance(schema, Path) else schema or ANY_OBJECT
    try:
        Draft202012Validator.check_schema(table)
    except SchemaError as error:
        raise InvalidKind(f"params_schema is not a JSON schema: {error.message}") from None
    # A worker learns of a cancel when it extends its lease.
    params = SchemaParams(name=name, schema=table)
    return Kind(name=name, type="pull", stop=Stop.COOPERATIVE, params_schema=table, params=params, runner=None)


def _read(path: Path) -> dict[str, Any]:
    try:
        table: dict[str, Any] = orjson.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise InvalidKind(f"params_schema cannot be read: {error}") from None
    return table
