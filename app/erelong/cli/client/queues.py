"""Commands about queues."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

from erelong.cli.console.options import add_change, nested, setting
from erelong.cli.console.output import counted
from erelong.cli.console.running import REFUSED, Usage, client_of, output_of
from erelong.client.errors import NotFound

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from erelong.client.sync.queues import Queue

COLUMNS: Final = ("name", "paused", "counts.due", "counts.scheduled", "counts.running", "counts.failed", "late_p99")
ACTIONS: Final = ("show", "set", "reset", "pause", "resume", "purge")
ORDERS: Final = {
    "due": lambda queue: -queue["counts"]["due"],
    "late": lambda queue: -(queue.get("late_p99") or 0.0),
    "failed": lambda queue: -queue["counts"]["failed"],
    "name": lambda queue: queue["name"],
}
SHORT: Final = {"rate": "per_second"}
"""Settings that are objects, and the field that a single value is: `rate=50`."""


def add(name: str, parser: argparse.ArgumentParser) -> None:
    if name == "queues":
        parser.add_argument("--order", choices=ORDERS, default="due", help="most due jobs first (default), …")
        parser.set_defaults(call=list_queues)
        return
    parser.add_argument("name", metavar="QUEUE")
    parser.add_argument("action", nargs="?", choices=ACTIONS, default="show", help="show (default), or change it")
    parser.add_argument(
        "settings",
        nargs="*",
        default=[],
        type=setting,
        metavar="NAME=VALUE",
        help="of set, such as concurrency=10 rate=50",
    )
    parser.add_argument("--reason", help="of a pause")
    add_change(parser, check="of set: check the settings without storing them")
    parser.set_defaults(call=change)


def list_queues(options: argparse.Namespace) -> int:
    with client_of(options) as client:
        queues = [queue.raw for queue in client.queues()]
    output_of(options).rows(sorted(queues, key=ORDERS[options.order]), COLUMNS, name="name")
    return 0


def change(options: argparse.Namespace) -> int:
    if bool(options.settings) != (options.action == "set"):
        raise Usage("settings go with set, such as: erelong queue mail set concurrency=10")
    if options.check and options.action != "set":
        raise Usage("--check goes with set")
    with client_of(options) as client:
        queue = client.queue(options.name)
        match options.action:
            case "set":
                queue.set(**_merged(queue, nested(options.settings)))
            case "reset":
                queue.reset()
            case "pause":
                queue.pause(options.reason)
            case "resume":  # it may be unknown afterwards
                output_of(options).item(queue.resume().raw, name="name")
            case "purge":
                if not _is_confirmed(options, queue):
                    return REFUSED
                print(f"{counted(queue.purge(), 'job')} cancelled", file=sys.stderr)
            case _:
                pass
        if options.check:
            print("the settings are valid", file=sys.stderr)
        elif options.action not in ("reset", "resume"):
            output_of(options).item(queue.get().raw, name="name")
    return 0


def _merged(queue: Queue, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings to store: those given, and those of an override that is in force. Null restores a default."""
    try:
        found = queue.get().raw
    except NotFound:
        found = {}
    kept = found["settings"] if found.get("overridden") else {}
    wanted = {
        name: {SHORT[name]: value} if name in SHORT and not isinstance(value, dict | None) else value
        for name, value in given.items()
    }
    return {name: value for name, value in {**kept, **wanted}.items() if value is not None}


def _is_confirmed(options: argparse.Namespace, queue: Queue) -> bool:
    if options.yes or options.curl:
        return True
    if not sys.stdin.isatty():
        raise Usage("without a terminal, confirm with --yes")
    waiting = queue.get().counts["scheduled"]
    print(f"Type {queue.name} to cancel its {counted(waiting, 'waiting job')}: ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip() == queue.name:
        return True
    print("erelong: nothing was changed", file=sys.stderr)
    return False
