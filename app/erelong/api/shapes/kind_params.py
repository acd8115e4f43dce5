"""The params of kinds in the OpenAPI document, which describes the other parts once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from erelong.handlers.kinds import Kind, Kinds

Schema = dict[str, Any]

SCHEMA = "#/components/schemas/"


class KindParams:
    """Adds the kinds to a document. The schema of each is prepared once, since clients may declare many."""

    def __init__(self) -> None:
        self._made: dict[str, tuple[Kind, Schema]] = {}

    def add(self, document: Schema, kinds: Kinds) -> Schema:
        """Return the document with these kinds."""
        components = document["components"]
        schemas = {**components["schemas"], "JobIn": _with_kinds(components["schemas"]["JobIn"], kinds)}
        return document | {"components": components | {"schemas": schemas | self._schemas(kinds)}}

    def _schemas(self, kinds: Kinds) -> dict[str, Schema]:
        before, self._made = self._made, {}
        for name, kind in kinds.items():
            known = before.get(name)
            self._made[name] = known if known is not None and known[0] is kind else (kind, _of_params(kind))
        return {_params_name(name): schema for name, (_, schema) in self._made.items()}


def _with_kinds(job_in: Schema, kinds: Iterable[str]) -> Schema:
    """Return the schema of a submit, in which the kind decides on the params."""
    names = [*kinds]
    properties = job_in["properties"]
    kind = properties["kind"] | {"enum": names}
    return job_in | {"properties": properties | {"kind": kind}, "allOf": [_params_of(name) for name in names]}


def _params_name(kind: str) -> str:
    return f"params.{kind}"


def _params_of(kind: str) -> Schema:
    params = {"anyOf": [{"$ref": SCHEMA + _params_name(kind)}, {"type": "null"}]}
    is_it = {"properties": {"kind": {"const": kind}}, "required": ["kind"]}
    return {"if": is_it, "then": {"properties": {"params": params}}}


def _of_params(kind: Kind) -> Schema:
    schema: Schema = _moved(kind.params_schema, kind.name)
    schema.pop("$id", None)  # references would begin there
    return schema


def _moved(schema: Any, kind: str) -> Any:
    """Return a kind's schema with its internal references moved to the document's root."""
    if isinstance(schema, list):
        return [_moved(part, kind) for part in schema]
    if not isinstance(schema, dict):
        return schema
    moved = {name: _moved(part, kind) for name, part in schema.items()}
    target = moved.get("$ref")
    if isinstance(target, str) and target.startswith("#"):
        moved["$ref"] = f"{SCHEMA}{_params_name(kind)}{target[1:]}"
    return moved
