"""The command line: `erelong <command>`."""

from __future__ import annotations

import argparse
import http.client
import json
import logging
import math
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from erelong import config, log
from erelong.access import Scope, fingerprint_of, new_key
from erelong.errors import Exit
from erelong.shapes import NAME, NAME_CHARACTERS
from erelong.version import VERSION

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

HEALTH_TIMEOUT = 3.0
NEW_KEY = "Make an API key, and print it with the lines for the settings. Nothing is kept: it is shown this once."
ANYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}  # noqa: S104 - where to ask one that listens there


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit code says how it went."""
    asked = _parser().parse_args(arguments)
    try:
        return _COMMANDS[asked.command](asked)
    except Exit as reason:
        print(f"erelong: {reason}", file=sys.stderr)
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
    strange = [scope for scope in scopes if scope not in [*Scope]]
    if strange:
        raise argparse.ArgumentTypeError(f"no scope {strange[0]!r}: give one or more of {','.join(Scope)}")
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


def _load(asked: argparse.Namespace) -> config.Config:
    settings = config.load(asked.config, os.environ, data=asked.data)
    if "host" not in asked:
        return settings
    given = {"host": asked.host, "port": asked.port}
    server = settings.server.model_copy(update={name: value for name, value in given.items() if value is not None})
    return settings.model_copy(update={"server": server})


def _folders(asked: argparse.Namespace) -> list[Path]:
    """Where modules of declared kinds are looked for: beside the settings, then here."""
    return [(asked.config or config.DEFAULT_FILE).resolve().parent, Path.cwd()]


def _serve(asked: argparse.Namespace) -> int:
    from erelong.main import serve

    settings = _load(asked)
    log.setup(settings.log.level, settings.log.format)
    log.take_failures()
    return serve(settings, _folders(asked))


def _check_config(asked: argparse.Namespace) -> int:
    from erelong.door import refuse_open_door
    from erelong.handlers import make_handlers

    settings = _load(asked)
    refuse_open_door(settings)
    handlers = make_handlers(settings, folders=_folders(asked))
    print(f"the settings can be used; kinds: {', '.join(handlers)}")
    return 0


def _health(asked: argparse.Namespace) -> int:
    server = _load(asked).server
    host = ANYWHERE.get(server.host, server.host)
    connection = http.client.HTTPConnection(host, server.port, timeout=HEALTH_TIMEOUT)
    try:
        connection.request("GET", "/livez")
        status = connection.getresponse().status
    except (OSError, http.client.HTTPException) as error:
        raise Exit(f"no answer from {host} port {server.port}: {error}") from error
    finally:
        connection.close()
    if status != http.HTTPStatus.OK:
        raise Exit(f"{host} port {server.port} answered {status}")
    print("alive")
    return 0


def _backup(asked: argparse.Namespace) -> int:
    from erelong.stores.backup import back_up

    copy = back_up(_store_path(asked), asked.file)
    print(f"{asked.file} holds {copy.jobs} jobs in {copy.bytes} bytes, read back and found sound")
    return 0


def _restore(asked: argparse.Namespace) -> int:
    from erelong.stores.backup import restore

    path = _store_path(asked)
    copy, aside = restore(path, asked.file)
    print(f"{path} holds the {copy.jobs} jobs of {asked.file}")
    if aside is not None:
        print(f"what was there is kept as {aside}")
    print("what was submitted since the copy was made is not in it; what ran since then may run again")
    return 0


def _store_path(asked: argparse.Namespace) -> Path:
    store = _load(asked).store
    if store.kind != "sqlite":
        raise config.ConfigError([f'store.kind = "{store.kind}" keeps nothing in a file: there is nothing to copy'])
    return store.path


def _new_key(asked: argparse.Namespace) -> int:
    key = new_key()
    fingerprint = fingerprint_of(key)
    name = asked.name or f"key-{fingerprint.partition(':')[0]}"
    lines = [f"sha256 = {json.dumps(fingerprint)}", f"scopes = {json.dumps(asked.scopes)}"]
    if asked.queues:
        lines.append(f"queues = {json.dumps(asked.queues)}")
    if asked.rate:
        lines.append(f"rate = {{ per_second = {asked.rate:g} }}")
    print(f'The key. It is shown this once; clients send it as "Authorization: Bearer <key>":\n\n{key}\n')
    print("The lines for config.toml, which do not betray it:\n")
    print(f"[auth.keys.{json.dumps(name) if '.' in name else name}]", *lines, sep="\n")
    print(f"\nOr in the environment:\n\nERELONG_AUTH__KEYS__{_variable(name)}='{{ {', '.join(lines)} }}'")
    return 0


def _variable(name: str) -> str:
    """The name of a key as a part of one of the environment: there two underscores part, and _FILE is not the key."""
    word = "_".join(re.findall("[A-Z0-9]+", name.upper())) or "KEY"
    return f"{word}_KEY" if word.endswith("_FILE") else word


_COMMANDS: dict[str, Callable[[argparse.Namespace], int]] = {
    "serve": _serve,
    "check-config": _check_config,
    "health": _health,
    "backup": _backup,
    "restore": _restore,
    "new-key": _new_key,
}
