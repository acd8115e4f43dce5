"""All commands, and the modules that are imported when they are named."""

from __future__ import annotations

import os
import shlex
import sys
from importlib import import_module
from io import TextIOWrapper
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
GROUPS: Final[dict[str, dict[str, Command]]] = {
    "Jobs": {
        "submit": Command("client.submit", "submit a job"),
        "get": Command("client.jobs", "show jobs"),
        "list": Command("client.jobs", "list jobs, and follow them with --watch"),
        "wait": Command("client.jobs", "wait until jobs have ended"),
        "explain": Command("client.jobs", "explain why a job has not run"),
        "errors": Command("client.jobs", "group failed jobs by cause"),
        "cancel": Command("client.actions", "cancel jobs"),
        "retry": Command("client.actions", "run failed, cancelled or expired jobs again"),
        "run": Command("client.actions", "make waiting jobs due now"),
        "reschedule": Command("client.actions", "move waiting jobs to another time"),
        "edit": Command("client.actions", "change waiting jobs"),
        "delete": Command("client.actions", "delete jobs"),
    },
    "Files": {
        "import": Command("files.importing", "submit the jobs, or put the schedules, of a file"),
        "export": Command("files.exporting", "write jobs or schedules"),
    },
    "Queues, schedules, operations": {
        "queues": Command("client.queues", "list queues"),
        "queue": Command("client.queues", "show, set, reset, pause, resume or purge a queue"),
        "schedules": Command("client.schedules", "list schedules"),
        "schedule": Command("client.schedules", "show, put, pause, resume, trigger, preview, backfill or delete one"),
        "operations": Command("client.operations", "list operations on many jobs, show or stop one"),
        "kinds": Command("client.kinds", "list kinds, or show the params of one"),
    },
    "See what happens": {
        "status": Command("client.status", "show the health of the service, and what needs attention"),
        "due": Command("client.status", "show how many jobs are due when"),
        "top": Command("live.top", "watch due times, queues and failures in the terminal"),
        "tail": Command("live.tail", "follow events"),
        "open": Command("client.profiles", "open the dashboard in a browser"),
    },
    "Build with it": {
        "work": Command("client.work", "run the jobs of pull kinds"),
        "schema": Command("client.work", "print the kinds of a worker as lines of config.toml"),
        "listen": Command("live.listen", "receive webhooks, to try them out"),
        "api": Command("client.api", "send any request of the HTTP API"),
    },
    "This command": {
        "login": Command("client.profiles", "test an API key and store it in a profile"),
        "logout": Command("client.profiles", "remove a profile and its key"),
        "whoami": Command("client.profiles", "show what the API key may do"),
        "completion": Command("client.completion", "print the completion script of a shell"),
        "help": Command("client.topics", "explain a command, or a topic"),
    },
    "The service itself, with the extra erelong[server]": {
        "serve": Command(SERVICE, "run the service"),
        "check-config": Command(SERVICE, "check the settings"),
        "health": Command(SERVICE, "check that a running service is alive"),
        "backup": Command(SERVICE, "copy the store"),
        "restore": Command(SERVICE, "replace the store by a copy"),
        "copy": Command(SERVICE, "copy the store to SQLite or PostgreSQL"),
        "new-key": Command(SERVICE, "make an API key"),
    },
}
COMMANDS: Final = {name: command for group in GROUPS.values() for name, command in group.items()}
TOPICS: Final = {
    "environment": "where the address and the API key come from",
    "exit-codes": "what each exit code means",
    "filters": "which jobs a command lists or changes",
    "output": "tables, pipes, JSON and colours",
    "times": "instants, durations and time zones",
}

LOCAL: Final = frozenset({"schema", "completion", "help"})
"""The commands that ask no service."""

USAGE: Final = "usage: erelong COMMAND …"

INTERRUPTED: Final = 130
PIPE_CLOSED: Final = 141
IO_ERROR: Final = 74


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return its exit code."""
    _open_output()
    try:
        code = _code_of([*(sys.argv[1:] if arguments is None else arguments)])
        sys.stdout.flush()
    except BrokenPipeError:  # such as `erelong list | head`
        _discard_output()
        return PIPE_CLOSED
    except OSError as error:  # such as a full disk
        _discard_output()
        about = f"{error.filename}: " if error.filename else "the output cannot be written: "
        print(f"erelong: {about}{error.strerror or error}", file=sys.stderr)
        return IO_ERROR
    except KeyboardInterrupt:
        return INTERRUPTED
    return code


def _open_output() -> None:
    """Let text that the terminal cannot show be shown as `?`, and a closed output be no error."""
    for name in ("stdin", "stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # such as `erelong list >&-`
            setattr(sys, name, open(os.devnull, "r" if name == "stdin" else "w"))  # noqa: SIM115 - until the end
        elif name != "stdin" and isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")


def _discard_output() -> None:
    """Keep Python from an error at its exit, when it flushes the output once more."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _code_of(words: list[str]) -> int:
    try:
        return _run(words)
    except SystemExit as end:  # of argparse: a wrong argument, or --help, whose text is still to be written
        return end.code if isinstance(end.code, int) else 0


def _run(words: list[str]) -> int:
    name = words[0] if words else ""
    if name in ("-h", "--help") or words == ["help"]:
        print(_help())
        return 0
    if name == "--version":
        print(f"erelong {VERSION}")
        return 0
    if name not in COMMANDS:
        print(_unknown(name, words), file=sys.stderr)
        return 2
    if COMMANDS[name].module == SERVICE:
        return serve(words)
    from erelong.cli.console.running import run

    return run(parser_of(name), words[1:])


def parser_of(name: str) -> argparse.ArgumentParser:
    """Return the parser of a command that uses a service; its default `call` runs it."""
    from erelong.cli.console.options import add_shared, make_parser

    command = COMMANDS[name]
    parser = make_parser(name, command.summary)
    import_module(f"erelong.cli.{command.module}").add(name, parser)
    if name not in LOCAL:
        add_shared(parser)
    parser.set_usage()
    return parser


def serve(words: list[str]) -> int:
    """Run a command of the service itself."""
    from erelong.cli import parser

    return parser.main(words)


def _help() -> str:
    width = max(map(len, COMMANDS))
    lines = [USAGE, ""]
    for group, commands in GROUPS.items():
        lines += [f"{group}:", *(f"  {name:{width}}  {command.summary}" for name, command in commands.items()), ""]
    lines += ["Topics:", *(f"  {name:{width}}  {summary}" for name, summary in TOPICS.items()), ""]
    return "\n".join(
        [*lines, "erelong COMMAND --help lists the options of a command, erelong help TOPIC explains one."]
    )


def _unknown(name: str, words: Sequence[str]) -> str:
    from difflib import get_close_matches

    if not name:
        return f"{USAGE}\nerelong: no command; erelong --help lists them"
    if name.startswith("-"):
        command = next((word for word in words if word in COMMANDS), "COMMAND")
        line = shlex.join([command, *(word for word in words if word != command)])
        return f"erelong: options follow the command: erelong {line}"
    close = get_close_matches(name, COMMANDS, n=1)
    return f"erelong: no command {name!r}; " + (f"did you mean {close[0]}?" if close else "erelong --help lists them")
