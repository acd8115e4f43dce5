"""Reads the command line of a command of the service itself, and runs it."""

from __future__ import annotations

import argparse
import logging
import math
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from erelong.cli.console.options import make_parser
from erelong.clock.instants import parse_start
from erelong.errors import Exit
from erelong.model.caller import Scope

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from erelong.cli.console.options import Parser

NOW = "now"
VIRTUAL_CLOCK = (
    "for tests: run on a clock that stands still at an instant (default: now) and is moved by POST /v1/clock; jobs are "
    "kept in memory unless --data is given"
)
TARGET = "a new file, the URL of a PostgreSQL database (postgresql://user@host/database), or @ and a file with it"
HELP = {
    "serve": "run the service",
    "check-config": "check the settings",
    "health": "check that a running service is alive: exit code 0 or 1",
    "backup": "copy the store to a new file; the service may be running",
    "restore": "replace the store by a copy and keep the old store aside; the service must not be running",
    "copy": "copy the store to a new SQLite file or to PostgreSQL, with everything in it; no service may use it",
    "new-key": "make an API key, and print it with the lines for the settings; it is not stored, and shown only once",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return its exit code."""
    name, *words = sys.argv[1:] if arguments is None else arguments
    try:
        options = parser_of(name).parse_args(words)
        call = _call_of(name)
    except ModuleNotFoundError as error:
        print(f"erelong: {error.name} is not installed; run: pip install 'erelong[server]'", file=sys.stderr)
        return 78
    try:
        return call(options)
    except Exit as reason:
        logging.shutdown()  # so the reason is the last line
        print(reason.line, file=sys.stderr)
        return reason.code
    finally:
        logging.shutdown()


def parser_of(name: str) -> Parser:
    """Return the parser of a command. It needs only the standard library, so that help does."""
    command = make_parser(name, HELP[name])
    if name == "new-key":
        _add_key_options(command)
    else:
        _add_options(name, command)
    command.set_usage()
    return command


def _add_options(name: str, command: Parser) -> None:
    command.add_argument("--config", type=Path, metavar="FILE", help="settings (default: ./config.toml if it exists)")
    command.add_argument("--data", type=Path, metavar="DIR", help="folder for all files that the service writes")
    if name in ("backup", "restore"):
        command.add_argument("file", type=Path, metavar="FILE", help="the copy")
    elif name == "copy":
        command.add_argument("target", metavar="TARGET", help=TARGET)
        command.add_argument("--skip-damaged", action="store_true", help="leave out jobs that cannot be read")
    else:
        command.add_argument("--host", help="address to listen on or to check; overrides [server] host")
        command.add_argument("--port", type=_port, help="port; overrides [server] port")
    if name == "serve":
        command.add_argument(
            "--virtual-clock", type=_instant, nargs="?", const=NOW, metavar="INSTANT", help=VIRTUAL_CLOCK
        )
    elif name == "health":
        command.add_argument("--url", help="address of the service; without options, that of ERELONG_URL")


def _add_key_options(command: Parser) -> None:
    command.add_argument("--name", type=_name, help="its name in settings, log and responses")
    command.add_argument("--scopes", type=_scopes, required=True, help=f"comma-separated list of {', '.join(Scope)}")
    command.add_argument("--queues", type=_names, help="comma-separated list of the only queues that it may use")
    command.add_argument("--rate", type=_rate, metavar="N", help="requests per second, on average")


def _name(text: str) -> str:
    from erelong.settings.names import NAME, NAME_CHARACTERS

    if not re.fullmatch(NAME, text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a valid name: use {NAME_CHARACTERS}")
    return text


def _names(text: str) -> list[str]:
    return [_name(part) for part in text.split(",")]


def _scopes(text: str) -> list[str]:
    scopes = text.split(",")
    unknown = [scope for scope in scopes if scope not in [*Scope]]
    if unknown:
        raise argparse.ArgumentTypeError(f"no scope {unknown[0]!r}: give one or more of {','.join(Scope)}")
    return scopes


def _rate(text: str) -> float:
    try:
        rate = float(text)
    except ValueError:
        rate = math.nan
    if not 0 < rate < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is not a valid rate: give requests per second, such as 50 or 0.5")
    return rate


def _instant(text: str) -> int:
    """Return an instant; 0 stands for now."""
    if text == NOW:
        return 0
    try:
        return parse_start(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _port(text: str) -> int:
    number = int(text) if text.removeprefix("-").isdecimal() else -1
    if not 0 <= number <= 65_535:
        raise argparse.ArgumentTypeError(f"{text} is not a valid port: give one from 0 to 65535 (0: any free port)")
    return number


def _call_of(name: str) -> Callable[[argparse.Namespace], int]:
    """Import the module of a command, and only that; return its function."""
    match name:
        case "serve" | "check-config" | "health":
            from erelong.cli import serve

            return {"serve": serve.serve, "check-config": serve.check_config, "health": serve.health}[name]
        case "backup" | "restore":
            from erelong.cli import store

            return store.backup if name == "backup" else store.restore
        case "copy":
            from erelong.cli import copying

            return copying.copy
        case _:
            from erelong.cli import keys

            return keys.make_key
