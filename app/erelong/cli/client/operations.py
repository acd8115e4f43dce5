"""Operations on many jobs: the command that lists and stops them, and how a command follows its own."""

from __future__ import annotations

import sys
import time
from itertools import islice
from typing import TYPE_CHECKING, Final

from erelong.cli.console.blocks import bar
from erelong.cli.console.options import add_change, positive
from erelong.cli.console.running import CONFLICT, REFUSED, Usage, client_of, output_of

if TYPE_CHECKING:
    import argparse

    from erelong.client.sync.operations import Operation

COLUMNS: Final = ("id", "action", "state", "matches", "done", "skipped", "failed", "created_at")
WIDTH: Final = 20
TICK: Final = 1.0


def add(_: str, parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", nargs="?", metavar="ID", help="show this one")
    parser.add_argument("--wait", action="store_true", help="wait until it is over, with its progress")
    parser.add_argument("--stop", action="store_true", help="stop it; finished changes stay")
    parser.add_argument("--limit", type=positive, metavar="N", default=20, help="operations to list (20)")
    add_change(parser)
    parser.set_defaults(call=show)


def show(options: argparse.Namespace) -> int:
    output = output_of(options)
    if options.id is None and (options.wait or options.stop):
        raise Usage("give the id of the operation; erelong operations lists them")
    with client_of(options) as client:
        if options.id is None:
            found = (operation.raw for operation in client.operations.list())
            output.rows(islice(found, options.limit), COLUMNS)
            return 0
        operation = client.operations.get(options.id)
        if options.stop:
            operation = operation.cancel()
        if options.wait:
            return follow(operation, options)
        output.item(operation.raw)
    return 0


def follow(operation: Operation, options: argparse.Namespace) -> int:
    """Wait for an operation, with its progress; print it, and return the exit code."""
    while not operation.is_over:
        try:
            operation = _wait(operation)
        except KeyboardInterrupt:
            operation = _interrupted(operation)
    if sys.stderr.isatty():
        print("\r\x1b[K", end="", file=sys.stderr)
    if options.json or options.quiet or options.fields:
        output_of(options).item(operation.raw)
    skipped = f", {operation.skipped:,} changed meanwhile" if operation.skipped else ""
    failed = f", {operation.failed:,} failed" if operation.failed else ""
    left = f", {operation.remaining:,} not reached" if operation.remaining else ""
    counts = f"{operation.done:,} done{skipped}{failed}{left}"
    print(f"{operation.raw['action']}: {operation.state}, {counts}", file=sys.stderr)
    if operation.state == "refused":
        return CONFLICT
    return 0 if operation.state == "succeeded" and not operation.failed else REFUSED


def _wait(operation: Operation) -> Operation:
    began = time.monotonic()
    try:
        return operation.wait(timeout=TICK)
    except TimeoutError:
        operation = operation.get()
    if not operation.is_over and time.monotonic() - began >= TICK / 2:
        most = operation.matches or 0
        line = f"{operation.done:,} of {most:,} done"
        if sys.stderr.isatty():
            filled = bar(operation.done / most if most else 0.0, WIDTH)
            print(f"\r\x1b[K{filled:{WIDTH}} {line}", end="", file=sys.stderr, flush=True)
        else:
            print(f"  {line}", file=sys.stderr)
    return operation


def _interrupted(operation: Operation) -> Operation:
    """Ask whether to stop an operation; without a terminal, or for a no, leave it running and say how to stop it."""
    if sys.stdin.isatty():
        print("\nStop the operation? Finished changes stay. [y/N] ", end="", file=sys.stderr, flush=True)
        if sys.stdin.readline().strip().lower() in ("y", "yes"):
            return operation.cancel().wait()
    print(f"erelong: the operation goes on; stop it with: erelong operations {operation.id} --stop", file=sys.stderr)
    raise KeyboardInterrupt
