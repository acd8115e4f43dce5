"""The pull kinds: run by workers outside, which lease their jobs; here only their params are checked."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError

from erelong.errors import Fault
from erelong.handlers.base import Stop
from erelong.handlers.param_errors import MAX_FAULTS, invalid
from erelong.handlers.python.signature import Unfit

if TYPE_CHECKING:
    from erelong.model.job import Job

ANY_OBJECT: dict[str, Any] = {"type": "object"}


class PullHandler:
    """Checks params by a JSON schema, if there is one. A worker outside stops when it asks and learns of a cancel."""

    type = "pull"
    isolation = None
    stop = Stop.COOPERATIVE
    abandoned = 0
    result_schema = None

    def __init__(self, *, name: str, schema: dict[str, Any]) -> None:
        self._name = name
        self._validator = Draft202012Validator(schema)
        self.params_schema = schema

    def check(self, params: bytes) -> None:
        found = sorted(self._validator.iter_errors(orjson.loads(params)), key=lambda error: list(map(str, error.path)))
        if found:
            faults = [Fault.at(error.absolute_path, error.message) for error in found[:MAX_FAULTS]]
            raise invalid(self._name, faults)

    async def open(self) -> None:
        pass

    async def close(self) -> None:
        pass

    async def run(self, job: Job) -> bytes:
        raise RuntimeError(f"jobs of kind {self._name} are leased, not run here")


def make_pull_handler(*, name: str, schema: dict[str, Any] | Path | None) -> PullHandler:
    """Read the schema of a pull kind, a table or the name of a file; raise Unfit when it is none."""
    table = _read(schema) if isinstance(schema, Path) else schema or ANY_OBJECT
    try:
        Draft202012Validator.check_schema(table)
    except SchemaError as error:
        raise Unfit(f"params_schema is not a JSON schema: {error.message}") from None
    return PullHandler(name=name, schema=table)


def _read(path: Path) -> dict[str, Any]:
    try:
        table: dict[str, Any] = orjson.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise Unfit(f"params_schema cannot be read: {error}") from None
    return table
