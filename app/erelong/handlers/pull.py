"""The pull kinds: run by workers outside, which lease their jobs; here only their params are checked."""

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
from erelong.handlers.python.signature import Unfit

ANY_OBJECT: dict[str, Any] = {"type": "object"}


class SchemaParams:
    """Holds params to a JSON schema."""

    def __init__(self, *, name: str, schema: dict[str, Any]) -> None:
        self._name = name
        self._validator = Draft202012Validator(schema)

    def check(self, params: bytes) -> None:
        found = sorted(self._validator.iter_errors(orjson.loads(params)), key=lambda error: list(map(str, error.path)))
        if found:
            faults = [Fault.at(error.absolute_path, error.message) for error in found[:MAX_FAULTS]]
            raise invalid(self._name, faults)


def make_pull_kind(*, name: str, schema: dict[str, Any] | Path | None = None) -> Kind:
    """Read the schema of a pull kind, a table or the name of a file; raise Unfit when it is none."""
    table = _read(schema) if isinstance(schema, Path) else schema or ANY_OBJECT
    try:
        Draft202012Validator.check_schema(table)
    except SchemaError as error:
        raise Unfit(f"params_schema is not a JSON schema: {error.message}") from None
    # A worker outside stops when it asks and learns of a cancel.
    params = SchemaParams(name=name, schema=table)
    return Kind(name=name, type="pull", stop=Stop.COOPERATIVE, params_schema=table, params=params, runner=None)


def _read(path: Path) -> dict[str, Any]:
    try:
        table: dict[str, Any] = orjson.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise Unfit(f"params_schema cannot be read: {error}") from None
    return table
