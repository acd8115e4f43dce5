"""Reads the command line and runs the command that it names."""

from __future__ import annotations

import argparse
import logging
import math
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from erelong.clock.instants import parse_start
from erelong.errors import Exit
from erelong.model.caller import Scope
from erelong.settings.names import NAME, NAME_CHARACTERS
from erelong.version import VERSION

if TYPE_CHECKING:
    from collections.abc import Sequence

NOW = "now"
VIRTUAL_CLOCK = (
    "for tests: run on a clock that stands still at an instant (default: now) and is moved by POST /v1/clock; jobs are "
    "kept in memory unless --data is given"
)
TARGET = "a new file, the URL of a PostgreSQL database (postgresql://user@host/database), or @ and a file with it"
NEW_KEY = "Make an API key, and print it with the lines for the settings. The key is not stored: it is shown only once."


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return its exit code."""
    options = _parser().parse_args(arguments)
    try:
        return _run(options)
    except Exit as reason:
        logging.shutdown()  # so the reason is the last line
        print(reason.line, file=sys.stderr)
        return reason.code
    finally:
        logging.shutdown()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="erelong", description="A delayed-task service: submit jobs over HTTP to run at a set time."
    )
    parser.add_argument("--version", action="version", version=f"erelong {VERSION}")
    commands = parser.add_subparsers(dest="command", required=True)
    for name, help in (
        ("serve", "run the service"),
        ("check-config", "check the settings"),
        ("health", "check that a running service is alive: exit code 0 or 1"),
        ("backup", "copy the store to a new file; the service may be running"),
        ("restore", "replace the store by a copy and keep the old store aside; the service must not be running"),
        ("copy", "copy the store to a new SQLite file or to PostgreSQL, with everything in it; no service may use it"),
    ):
        command = commands.add_parser(name, help=help, description=help)
        command.add_argument(
            "--config", type=Path, metavar="FILE", help="settings (default: ./config.toml if it exists)"
        )
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
    command = commands.add_parser("new-key", help="make an API key", description=NEW_KEY)
    command.add_argument("--name", type=_name, help="its name in settings, log and responses")
    command.add_argument("--scopes", type=_scopes, required=True, help=f"comma-separated list of {', '.join(Scope)}")
    command.add_argument("--queues", type=_names, help="comma-separated list of the only queues that it may use")
    command.add_argument("--rate", type=_rate, metavar="N", help="requests per second, on average")
    return parser


def _name(text: str) -> str:
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
    rate = float(text)
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
    number = int(text)
    if not 0 <= number <= 65_535:
        raise argparse.ArgumentTypeError(f"{number} is not a valid port: give one from 0 to 65535 (0: any free port)")
    return number


def _run(options: argparse.Namespace) -> int:
    """Run a command. Import only its module."""
    match options.command:
        case "serve" | "check-config" | "health":
            from erelong.cli import serve

            commands = {"serve": serve.serve, "check-config": serve.check_config, "health": serve.health}
            return commands[options.command](options)
        case "backup" | "restore":
            from erelong.cli import store

            return store.backup(options) if options.command == "backup" else store.restore(options)
        case "copy":
            from erelong.cli import copying

            return copying.copy(options)
        case _:
            from erelong.cli import keys

            return keys.make_key(options)
