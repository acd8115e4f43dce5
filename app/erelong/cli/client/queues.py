"""Commands about queues."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from erelong.cli.client.options import nested, setting
from erelong.cli.client.running import Usage, client_of, output_of

if TYPE_CHECKING:
    import argparse

COLUMNS = ("name", "paused", "counts.due", "counts.scheduled", "counts.running", "counts.failed", "late_p99")
ACTIONS = ("show", "set", "reset", "pause", "resume", "purge")


def add(name: str, parser: argparse.ArgumentParser) -> None:
    if name == "queues":
        parser.set_defaults(call=list_queues)
        return
    parser.add_argument("name", metavar="QUEUE")
    parser.add_argument("action", nargs="?", choices=ACTIONS, default="show")
    parser.add_argument(
        "settings", nargs="*", type=setting, metavar="NAME=VALUE", help="of set: concurrency=10 rate.per_second=50"
    )
    parser.add_argument("--reason", help="of a pause")
    parser.add_argument("--yes", action="store_true", help="purge without asking")
    parser.set_defaults(call=change)


def list_queues(options: argparse.Namespace) -> int:
    with client_of(options) as client:
        queues = [queue.raw for queue in client.queues()]
    output_of(options).rows(sorted(queues, key=lambda queue: -queue["counts"]["due"]), COLUMNS, name="name")
    return 0


def change(options: argparse.Namespace) -> int:
    if bool(options.settings) != (options.action == "set"):
        raise Usage("settings go with set, such as: erelong queue mail set concurrency=10")
    with client_of(options) as client:
        queue = client.queue(options.name)
        match options.action:
            case "set":
                queue.set(**nested(options.settings))
            case "reset":
                queue.reset()
            case "pause":
                queue.pause(options.reason)
            case "resume":
                queue.resume()
            case "purge":
                _confirm(options, queue.get().counts)
                print(f"purge: {queue.purge():,} jobs cancelled", file=sys.stderr)
            case _:
                pass
        if options.action != "reset":
            output_of(options).item(queue.get().raw, name="name")
    return 0


def _confirm(options: argparse.Namespace, counts: dict[str, Any]) -> None:
    if options.yes:
        return
    if not sys.stdin.isatty():
        raise Usage("without a terminal, confirm with --yes")
    print(
        f"Type {options.name} to cancel its {counts['scheduled']:,} waiting jobs: ", end="", file=sys.stderr, flush=True
    )
    if sys.stdin.readline().strip() != options.name:
        raise Usage("nothing was changed")
