"""Options that commands share, and how their text becomes values."""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

STATES: Final = ("scheduled", "running", "succeeded", "failed", "cancelled", "expired")


def make_parser(name: str, summary: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"erelong {name}", description=f"{summary[0].upper()}{summary[1:]}.")
    shared = parser.add_argument_group("connection and output")
    shared.add_argument("--url", help="address of the service")
    shared.add_argument("--key-file", type=Path, metavar="FILE", help="file that has the API key")
    shared.add_argument("--profile", help="profile of ~/.config/erelong/cli.toml")
    shared.add_argument("--request-timeout", type=seconds, default=30.0, metavar="S", help="seconds for each request")
    shared.add_argument("--json", action="store_true", help="print the objects of the API, one per line")
    shared.add_argument("--fields", type=comma_list, metavar="A,B", help="print only these fields")
    shared.add_argument("-q", "--quiet", action="store_true", help="print only ids or names")
    shared.add_argument("--utc", action="store_true", help="print times in UTC instead of local time")
    return parser


def add_filters(parser: argparse.ArgumentParser) -> None:
    """Add the conditions that select jobs."""
    group = parser.add_argument_group("which jobs")
    group.add_argument("--state", action="append", choices=STATES, help="repeatable")
    group.add_argument("--queue", action="append", help="repeatable")
    group.add_argument("--kind", action="append", help="repeatable")
    group.add_argument("--key", metavar="KEY")
    group.add_argument("--cause", help="cause of the error, from `erelong errors`")
    group.add_argument("--schedule")
    add_labels(group)
    for what in ("due", "created", "finished"):
        group.add_argument(f"--{what}-after", metavar="TIME")
        group.add_argument(f"--{what}-before", metavar="TIME")


def add_labels(group: Any) -> None:
    group.add_argument("--label", action="append", type=pair, default=[], metavar="NAME=VALUE", help="repeatable")


def filters_of(options: argparse.Namespace) -> dict[str, Any]:
    """Return the conditions that were given."""
    times = [f"{what}_{side}" for what in ("due", "created", "finished") for side in ("after", "before")]
    names = ("state", "queue", "kind", "key", "cause", "schedule", *times)
    filters = {name: value for name in names if (value := getattr(options, name)) is not None}
    return filters | ({"label": dict(options.label)} if options.label else {})


def pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise argparse.ArgumentTypeError(f"{text!r}: write name=value")
    return name, value


def setting(text: str) -> tuple[str, Any]:
    """Return a name and a value, which is JSON if it can be: `concurrency=10`, `rate.per_second=50`."""
    name, value = pair(text)
    return name, json_or_text(value)


def json_or_text(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def nested(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Return names with dots as objects within objects."""
    tree: dict[str, Any] = {}
    for name, value in pairs:
        *path, last = name.split(".")
        inner = tree
        for part in path:
            inner = inner.setdefault(part, {})
            if not isinstance(inner, dict):
                raise ValueError(f"{name}: {part} has a value already")
        inner[last] = value
    return tree


def comma_list(text: str) -> list[str]:
    return [part for part in text.split(",") if part]


def seconds(text: str) -> float:
    """Return a number of seconds; also from text such as 30s, 5m or 2h."""
    units = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
    unit = next((unit for unit in units if text.endswith(unit)), "")
    try:
        number = float(text.removesuffix(unit)) * units.get(unit, 1.0)
    except ValueError:
        number = math.nan
    if not 0 <= number < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is no duration: write seconds, or a number and ms, s, m, h or d")
    return number


def params_of(items: Sequence[str], read_file: Any = None) -> Mapping[str, Any]:
    """Return params: `name=text`, `name:=json`, `name=@file`, `name:=@file`; dots nest."""
    pairs = []
    for item in items:
        name, equals, value = item.partition("=")
        if not (equals and name.rstrip(":")):
            raise ValueError(f"{item!r}: write name=text, name:=json, name=@file or name:=@file")
        if value.startswith("@"):
            value = Path(value[1:]).read_text(encoding="utf-8")
        pairs.append((name.removesuffix(":"), _json(item, value) if name.endswith(":") else value))
    return nested(pairs)


def _json(item: str, text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise ValueError(f"{item!r} is not JSON: {error}") from None
