"""Turns the fields of a line into those of a job: what options add, what --map renames, and the cells of CSV."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any, Final

from erelong.cli.console.options import did_you_mean, json_or_text, nested

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

JSON_SUFFIX: Final = ":json"
TEXTS: Final = frozenset({"kind", "queue", "key", "on_conflict", "zone", "local_time"})
FIELDS: Final = (
    *("kind", "params", "execute_at", "delay", "local_time", "zone", "spread", "queue", "priority", "timeout", "retry"),
    *("expires_after", "labels", "key", "on_conflict", "on_finish"),
)
"""The fields of a submit."""

Schemas = dict[str, dict[str, Any]]
"""The schema of each param, by kind."""


def mapping(text: str) -> tuple[str, str]:
    """Read `params.url=link`: the field of the job, and the field or column that it comes from."""
    field, equals, source = text.partition("=")
    if not (equals and field and source):
        raise argparse.ArgumentTypeError(f"{text!r}: write FIELD=COLUMN, such as params.url=link")
    first = field.removesuffix(JSON_SUFFIX).partition(".")[0]
    if first not in FIELDS:
        raise argparse.ArgumentTypeError(f"{text!r}: a job has no field {first!r}; it has {', '.join(FIELDS)}")
    return field, source


class Fields:
    """Makes jobs of lines. `maps` are pairs of `mapping`: with them, a job has no other fields of its line."""

    def __init__(self, *, defaults: Mapping[str, Any], maps: Sequence[tuple[str, str]], schemas: Schemas) -> None:
        self._defaults = defaults
        self._maps = maps
        self._schemas = schemas

    @property
    def is_plain(self) -> bool:
        """Whether lines of JSON are jobs as they are."""
        return not (self._defaults or self._maps)

    def require_columns(self, columns: Iterable[str]) -> None:
        """Raise ValueError if a column that is mapped does not exist."""
        known = [*columns]
        for _, source in self._maps:
            if source not in known:
                close = did_you_mean(source, known) or f"; columns: {', '.join(known)}"
                raise ValueError(f"--map: the file has no column {source!r}{close}")

    def of_line(self, line: bytes) -> bytes:
        """Return a line of JSON as a job. A line that is no object stays as it is: the service names the fault."""
        try:
            found = json.loads(line)
        except ValueError:
            return line
        if not isinstance(found, dict):
            return line
        if self._maps:
            pairs = [(field.removesuffix(JSON_SUFFIX), _find(found, source)) for field, source in self._maps]
            found = nested([(field, value) for field, value in pairs if value is not None])
        return _dump(self._with_defaults(found))

    def of_row(self, row: Mapping[str, str | None]) -> bytes:
        """Return a row of CSV as a job. Dots nest, `:json` marks JSON, and blank cells are not given."""
        cells = {name: cell for name, cell in row.items() if name and cell}
        if self._maps:
            cells = {field: cells[source] for field, source in self._maps if source in cells}
        kind = cells.get("kind") or self._defaults.get("kind", "")
        types = self._schemas.get(kind, {})
        job = nested([(name.removesuffix(JSON_SUFFIX), _cell(name, cell, types)) for name, cell in cells.items()])
        return _dump(self._with_defaults(job))

    def _with_defaults(self, job: dict[str, Any]) -> dict[str, Any]:
        labels = {**self._defaults.get("labels", {}), **(job.get("labels") or {})}
        return {**self._defaults, **job, **({"labels": labels} if labels else {})}


def schemas_of(kinds: Sequence[Mapping[str, Any]]) -> Schemas:
    return {kind["name"]: (kind.get("params_schema") or {}).get("properties") or {} for kind in kinds}


def _cell(name: str, text: str, types: Mapping[str, Any]) -> Any:
    if name.endswith(JSON_SUFFIX):
        return json.loads(text)
    if name in TEXTS or name.startswith("labels."):
        return text
    if name.startswith("params."):
        schema = types.get(name.removeprefix("params."))
        if schema is not None and "string" in _types_of(schema):
            return text  # such as a phone number, which could be read as a number
    return json_or_text(text)


def _types_of(schema: Mapping[str, Any]) -> set[str]:
    """Return the types that a schema names, also as alternatives."""
    named = schema.get("type", ())
    types = {named} if isinstance(named, str) else {*named}
    for part in schema.get("anyOf", ()):
        types |= _types_of(part)
    return types


def _find(item: Mapping[str, Any], path: str) -> Any:
    """Return a field: one of this very name, or one of an object within."""
    if path in item:
        return item[path]
    value: Any = item
    for part in path.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def _dump(job: Mapping[str, Any]) -> bytes:
    return json.dumps(job, separators=(",", ":"), ensure_ascii=False).encode()
