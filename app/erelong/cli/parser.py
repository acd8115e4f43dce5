"""Reads the command line and runs the command that it names."""

from __future__ import annotations

import argparse
import logging
import math
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from erelong.errors import Exit
from erelong.model.caller import Scope
from erelong.settings.names import NAME, NAME_CHARACTERS
from erelong.version import VERSION

if TYPE_CHECKING:
    from collections.abc import Sequence

NEW_KEY = "Make an API key, and print it with the lines for the settings. Nothing is kept: it is shown this once."


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit code says how it went."""
    asked = _parser().parse_args(arguments)
    try:
        return _run(asked)
    except Exit as reason:
        logging.shutdown()  # why it ends comes last
        print(reason.line, file=sys.stderr)
        return reason.code
    finally:
        logging.shutdown()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="erelong", description="Runs jobs at their time, asked for over HTTP.")
    parser.add_argument("--version", action="version", version=f"erelong {VERSION}")
    commands = parser.add_subparsers(dest="command", required=True)
    for name, help in (
        ("serve", "run the service"),
        ("check-config", "say whether the settings can be used"),
        ("health", "ask a running service whether it is alive: exit code 0 or 1"),
        ("backup", "copy the store to a file that is not there yet; the service may run on"),
        ("restore", "put such a copy in the place of the store, and that aside; the service must not run"),
    ):
        command = commands.add_parser(name, help=help, description=help)
        command.add_argument("--config", type=Path, metavar="FILE", help="settings (default: ./config.toml if there)")
        command.add_argument("--data", type=Path, metavar="DIR", help="folder for everything that is written")
        if name in ("backup", "restore"):
            command.add_argument("file", type=Path, metavar="FILE", help="the copy")
        else:
            command.add_argument("--host", help="address to listen on or to ask, over [server] host")
            command.add_argument("--port", type=_port, help="port, over [server] port")
    command = commands.add_parser("new-key", help="make an API key", description=NEW_KEY)
    command.add_argument("--name", type=_name, help="what it is called in settings, log and answers")
    command.add_argument("--scopes", type=_scopes, required=True, help=f"of {', '.join(Scope)}; with commas between")
    command.add_argument("--queues", type=_names, help="the only queues it is good for; with commas between")
    command.add_argument("--rate", type=_rate, metavar="N", help="requests a second, on average")
    return parser


def _name(text: str) -> str:
    if not re.fullmatch(NAME, text):
        raise argparse.ArgumentTypeError(f"{text!r} cannot be a name: take {NAME_CHARACTERS}")
    return text


def _names(text: str) -> list[str]:
    return [_name(part) for part in text.split(",")]


def _scopes(text: str) -> list[str]:
    scopes = text.split(",")
    foreign = [scope for scope in scopes if scope not in [*Scope]]
    if foreign:
        raise argparse.ArgumentTypeError(f"no scope {foreign[0]!r}: give one or more of {','.join(Scope)}")
    return scopes


def _rate(text: str) -> float:
    rate = float(text)
    if not 0 < rate < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is no rate: give requests a second, such as 50 or 0.5")
    return rate


def _port(text: str) -> int:
    number = int(text)
    if not 0 <= number <= 65_535:
        raise argparse.ArgumentTypeError(f"{number} is no port: give one from 0 to 65535 (0: any that is free)")
    return number


def _run(asked: argparse.Namespace) -> int:
    """Run a command; its module is imported only then."""
    match asked.command:
        case "serve" | "check-config" | "health":
            from erelong.cli import serve

            commands = {"serve": serve.serve, "check-config": serve.check_config, "health": serve.health}
            return commands[asked.command](asked)
        case "backup" | "restore":
            from erelong.cli import store

            return store.backup(asked) if asked.command == "backup" else store.restore(asked)
        case _:
            from erelong.cli import keys

            return keys.make_key(asked)
