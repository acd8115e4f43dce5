"""Options that commands share, and how their text becomes values."""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

STATES: Final = ("scheduled", "running", "succeeded", "failed", "cancelled", "expired")
_TIMES: Final = [f"{what}_{side}" for what in ("due", "created", "finished") for side in ("after", "before")]
_SELECTION: Final = ("state", "queue", "kind", "key", "cause", "schedule", *_TIMES)
_LISTING: Final = ("error", "attempt_min", "occurrence")


SYNONYMS: Final = {"--delay": "--in", "--execute-at": "--at", "--timezone": "--zone", "--host": "--url"}
SETTABLE: Final = ("priority", "timeout", "expires_after", "spread", "retry")
_UNKNOWN: Final = re.compile("unrecognized arguments: (--[a-z-]+)(?:[ =]([^- ][^ ]*))?")


class Parser(argparse.ArgumentParser):
    """A parser whose usage names the arguments only: help lists the options below it, and errors point to help."""

    def format_usage(self) -> str:
        return f"usage: {self.usage}\n"

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}{self._hint(message)}; see: {self.prog} --help\n")

    def _hint(self, message: str) -> str:
        """Return what to write in place of an option that does not exist."""
        found = _UNKNOWN.match(message)
        if found is None:
            return ""
        option, value = found[1], found[2] or "…"
        known = self._option_string_actions
        if option.removeprefix("--") in SETTABLE and "--set" in known:
            return f"; write --set {option.removeprefix('--')}={value}"
        if SYNONYMS.get(option) in known:
            return f"; did you mean {SYNONYMS[option]}?"
        return did_you_mean(option, known)

    def set_usage(self) -> None:
        words = [self.prog, *(_shown(action) for action in self._actions if not action.option_strings)]
        self.usage = " ".join([*words, "[OPTION…]"])


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return the end of a message about an unknown word: the known one that resembles it, if there is one."""
    from difflib import get_close_matches  # commands start in milliseconds

    close = get_close_matches(word, [*known], n=1)
    return f"; did you mean {close[0]}?" if close else ""


def _shown(action: argparse.Action) -> str:
    name = str(
        action.metavar or (f"{{{','.join(map(str, action.choices))}}}" if action.choices else action.dest.upper())
    )
    return {"*": f"[{name} …]", "+": f"{name} …", "?": f"[{name}]"}.get(str(action.nargs), name)


def make_parser(name: str, summary: str) -> Parser:
    parser = Parser(prog=f"erelong {name}", description=f"{summary[0].upper()}{summary[1:]}.", allow_abbrev=False)
    parser._positionals.title = "arguments"
    return parser


def add_shared(parser: argparse.ArgumentParser) -> None:
    """Add the options of all commands, after those of the command itself, as help shows them in this order."""
    shared = parser.add_argument_group("connection and output")
    shared.add_argument("--url", help="address of the service")
    shared.add_argument("--key-file", type=Path, metavar="FILE", help="file that has the API key")
    shared.add_argument("--profile", metavar="NAME", help="profile of ~/.config/erelong/cli.toml")
    shared.add_argument(
        "--request-timeout", type=seconds, default=30.0, metavar="DURATION", help="for each request, with its retries"
    )
    shared.add_argument("-v", "--verbose", action="store_true", help="show each request and its answer")
    shared.add_argument("--json", action="store_true", help="print the objects of the API, one per line")
    shared.add_argument("--fields", type=comma_list, metavar="A,B", help="print only these fields")
    shared.add_argument("-q", "--quiet", action="store_true", help="print only ids or names")
    shared.add_argument("--utc", action="store_true", help="print times in UTC instead of local time")


def add_change(parser: argparse.ArgumentParser, *, check: str | None = None) -> None:
    """Add the options of commands that change something. `check` says what --check does, if there is one."""
    if check:
        parser.add_argument("--check", action="store_true", help=check)
    parser.add_argument("--curl", action="store_true", help="print the change as a curl command and do not send it")
    parser.add_argument("--yes", action="store_true", help="do not ask")


def add_filters(parser: argparse.ArgumentParser, *, is_listing: bool = False) -> None:
    """Add the conditions that select jobs; a listing has a few more."""
    group = parser.add_argument_group("which jobs", "All conditions must hold; see: erelong help filters")
    group.add_argument("--state", action="append", choices=STATES, help="repeatable")
    group.add_argument("--queue", action="append", help="repeatable")
    group.add_argument("--kind", action="append", help="repeatable")
    group.add_argument("--key", help="the key of a job")
    add_labels(group)
    group.add_argument("--schedule", metavar="NAME", help="jobs of this schedule")
    group.add_argument("--cause", help="cause of the error, from: erelong errors")
    if is_listing:
        group.add_argument("--error", action="append", metavar="TYPE", help="such as timeout; repeatable")
        group.add_argument("--attempt-min", type=int, metavar="N", help="at least this many attempts")
        group.add_argument("--occurrence", metavar="TIME", help="of the schedule")
    for name in _TIMES:
        group.add_argument(_option(name), metavar="TIME", help=_help_of_time(name))


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _help_of_time(name: str) -> str:
    what, _, side = name.partition("_")
    return f"{what} {'at or after' if side == 'after' else 'before'} this"


def add_labels(group: Any) -> None:
    group.add_argument("--label", action="append", type=pair, default=[], metavar="NAME=VALUE", help="repeatable")


def filters_of(options: argparse.Namespace) -> dict[str, Any]:
    """Return the conditions that were given."""
    names = (*_SELECTION, *_LISTING)
    filters = {name: value for name in names if (value := getattr(options, name, None)) is not None}
    return filters | ({"label": labels_of(options)} if options.label else {})


def labels_of(options: argparse.Namespace) -> dict[str, str]:
    """Return the labels that were given; raise ValueError if one has two values."""
    labels: dict[str, str] = {}
    for name, value in options.label:
        if labels.setdefault(name, value) != value:
            raise ValueError(f"--label {name} is given twice: as {labels[name]} and as {value}")
    return labels


def add_ids(parser: argparse.ArgumentParser, nargs: str = "+") -> None:
    default: dict[str, Any] = {"default": []} if nargs == "*" else {}  # without it, argparse requires one
    parser.add_argument(
        "ids", nargs=nargs, metavar="ID", **default, help="id, or ~ and a key; - reads ids from standard input"
    )


def ids_of(options: argparse.Namespace) -> list[str]:
    """Return the ids of the arguments, and those of standard input, one per line or in its first column."""
    ids = [id for id in options.ids if id != "-"]
    if "-" in options.ids:
        ids += [line.split()[0] for line in sys.stdin if line.strip()]
    return ids


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
        if last in inner:
            raise ValueError(f"{name} is given twice")
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
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration: write seconds, or a number and ms, s, m, h or d")
    return number


def positive(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of at least 1")
    return number


def params_of(items: Sequence[str]) -> Mapping[str, Any]:
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


def json_of_stdin() -> Any:
    try:
        return json.load(sys.stdin)
    except ValueError as error:
        raise ValueError(f"standard input is not JSON: {error}") from None


def _json(item: str, text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise ValueError(f"{item!r} is not JSON: {error}") from None
