"""All commands, and the modules that are imported when they are named."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Final, NamedTuple

from erelong.version import VERSION

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence


class Command(NamedTuple):
    """A command: the module that has its options and its code, and one line about it."""

    module: str
    summary: str


SERVICE: Final = "parser"
COMMANDS: Final[dict[str, Command]] = {
    "submit": Command("client.submit", "submit a job"),
    "get": Command("client.jobs", "show jobs"),
    "list": Command("client.jobs", "list jobs"),
    "wait": Command("client.jobs", "wait until jobs have ended"),
    "explain": Command("client.jobs", "explain why a job has not run"),
    "errors": Command("client.jobs", "group failed jobs by cause"),
    "cancel": Command("client.actions", "cancel jobs"),
    "retry": Command("client.actions", "run failed, cancelled or expired jobs again"),
    "run": Command("client.actions", "make waiting jobs due now"),
    "reschedule": Command("client.actions", "move waiting jobs to another time"),
    "edit": Command("client.actions", "change waiting jobs"),
    "delete": Command("client.actions", "delete jobs"),
    "import": Command("client.importing", "submit the jobs of a file"),
    "export": Command("client.exporting", "write jobs to standard output"),
    "queues": Command("client.queues", "list queues"),
    "queue": Command("client.queues", "show, set, pause, resume or purge a queue"),
    "schedules": Command("client.schedules", "list schedules"),
    "schedule": Command("client.schedules", "show, put, pause, resume, trigger or delete a schedule"),
    "operations": Command("client.operations", "list operations on many jobs, or stop one"),
    "kinds": Command("client.service", "list kinds and their params"),
    "status": Command("client.service", "show the checks and counts of the service"),
    "whoami": Command("client.service", "show what the API key may do"),
    "tail": Command("client.tail", "follow what happens"),
    "work": Command("client.work", "run the jobs of pull kinds"),
    "schema": Command("client.work", "print the kinds of a worker as lines of config.toml"),
    "api": Command("client.service", "send any request of the HTTP API"),
    "login": Command("client.service", "test an API key and store it in a profile"),
    "completion": Command("client.completion", "print the completion script of a shell"),
    "serve": Command(SERVICE, "run the service"),
    "check-config": Command(SERVICE, "check the settings"),
    "health": Command(SERVICE, "check that a running service is alive"),
    "backup": Command(SERVICE, "copy the store"),
    "restore": Command(SERVICE, "replace the store by a copy"),
    "copy": Command(SERVICE, "copy the store to SQLite or PostgreSQL"),
    "new-key": Command(SERVICE, "make an API key"),
}

USAGE: Final = "usage: erelong COMMAND …      erelong COMMAND --help\n"
SETTINGS: Final = """
The commands that use a service take its address and key from --url and --key-file, from ERELONG_URL, ERELONG_KEY or
ERELONG_KEY_FILE, or from a profile. The default is http://127.0.0.1:8080 without a key.
"""


INTERRUPTED: Final = 130
PIPE_CLOSED: Final = 141


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return its exit code."""
    try:
        code = _run([*(sys.argv[1:] if arguments is None else arguments)])
        sys.stdout.flush()
    except BrokenPipeError:  # such as `erelong list | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PIPE_CLOSED
    except KeyboardInterrupt:
        return INTERRUPTED
    return code


def _run(words: list[str]) -> int:
    name = words[0] if words else ""
    if name in ("-h", "--help", "help"):
        print(_help())
        return 0
    if name == "--version":
        print(f"erelong {VERSION}")
        return 0
    if name not in COMMANDS:
        print(_unknown(name), file=sys.stderr)
        return 2
    if COMMANDS[name].module == SERVICE:
        return _serve(words)
    from erelong.cli.client.running import run

    return run(parser_of(name), words[1:])


def parser_of(name: str) -> argparse.ArgumentParser:
    """Return the parser of a command that uses a service; its default `call` runs it."""
    from erelong.cli.client.options import make_parser

    command = COMMANDS[name]
    parser = make_parser(name, command.summary)
    import_module(f"erelong.cli.{command.module}").add(name, parser)
    return parser


def _serve(words: list[str]) -> int:
    """Run a command of the service itself."""
    try:
        from erelong.cli import parser
    except ModuleNotFoundError as error:
        print(f"erelong: {error.name} is not installed; run: pip install 'erelong[server]'", file=sys.stderr)
        return 78
    return parser.main(words)


def _help() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:{width}}  {command.summary}" for name, command in COMMANDS.items()]
    return "\n".join([USAGE, *lines, SETTINGS])


def _unknown(name: str) -> str:
    from difflib import get_close_matches

    if not name:
        return f"{USAGE}erelong: no command; erelong --help lists them"
    close = get_close_matches(name, COMMANDS, n=1)
    return f"erelong: no command {name!r}; " + (f"did you mean {close[0]}?" if close else "erelong --help lists them")
