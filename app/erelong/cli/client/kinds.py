"""The command about kinds: which there are, and how to submit a job of one."""

from __future__ import annotations

import json
import shlex
import sys
from typing import TYPE_CHECKING, Any

from erelong.cli.console.running import NOT_FOUND, client_of, output_of

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping

COLUMNS = ("name", "type", "declared", "counts.waiting", "counts.due", "counts.failed", "polling")
PARAMS = ("param", "type", "required", "description")


def add(_: str, parser: argparse.ArgumentParser) -> None:
    parser.add_argument("kind", nargs="?", metavar="KIND", help="show its params, and a command that submits a job")
    parser.set_defaults(call=show)


def show(options: argparse.Namespace) -> int:
    output = output_of(options)
    with client_of(options) as client:
        found = [kind.raw for kind in client.kinds()]
    if options.kind is None:
        output.rows(found, COLUMNS, name="name")
        return 0
    named = next((kind for kind in found if kind["name"] == options.kind), None)
    if named is None:
        known = ", ".join(kind["name"] for kind in found)
        print(f"erelong: no kind {options.kind!r}; known: {known}", file=sys.stderr)
        return NOT_FOUND
    if options.json:
        output.item(named, name="name")
        return 0
    rows = [*_rows(named.get("params_schema") or {})]
    if rows:
        output.rows(rows, PARAMS, name="param")
    else:
        print("the params are any JSON object", file=sys.stderr)
    print(f"\n{command_of(named)}", file=sys.stderr)
    return 0


def _rows(schema: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    required = schema.get("required", [])
    for name, part in schema.get("properties", {}).items():
        yield {
            "param": name,
            "type": type_of(part),
            "required": "yes" if name in required else "",
            "description": _described(part),
        }


def type_of(schema: Mapping[str, Any]) -> str:
    if "anyOf" in schema:
        return " or ".join(type_of(part) for part in schema["anyOf"])
    named = schema.get("type", "any")
    return " or ".join(named) if isinstance(named, list) else str(named)


def _described(schema: Mapping[str, Any]) -> str:
    texts = [schema["description"]] if "description" in schema else []
    texts += [f"one of {', '.join(map(str, schema['enum']))}"] if "enum" in schema else []
    texts += [f"default {json.dumps(schema['default'])}"] if "default" in schema else []
    return "; ".join(texts)


def command_of(kind: Mapping[str, Any]) -> str:
    """Return a command that submits a job of a kind, with the example params that the service gives."""
    example = kind.get("example")
    if not isinstance(example, dict):  # an older service gives none
        example = dict.fromkeys((kind.get("params_schema") or {}).get("required", ()), "…")
    return " ".join(["erelong submit", kind["name"], *(shlex.quote(item) for item in _items(example))])


def _items(params: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    for name, value in params.items():
        if isinstance(value, dict) and value and not any("." in inner for inner in value):
            yield from _items(value, f"{prefix}{name}.")
        elif isinstance(value, str) and not value.startswith("@"):
            yield f"{prefix}{name}={value}"
        else:
            yield f"{prefix}{name}:={json.dumps(value, ensure_ascii=False)}"
