"""The command that follows events."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from erelong.cli.console.options import add_labels, positive
from erelong.cli.console.output import printable, to_json
from erelong.cli.console.running import client_of, output_of

if TYPE_CHECKING:
    import argparse

    from erelong.client.records import Event

ENDED_BADLY: Final = ("job.failed", "job.cancelled", "job.expired")
FILTERS: Final = ("queue", "kind", "state", "key", "schedule", "job")


def add(_: str, parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--failed", action="store_true", help="only jobs that ended without success")
    parser.add_argument("--type", action="append", help="such as job.started; repeatable")
    for name in ("queue", "kind", "state"):
        parser.add_argument(f"--{name}", action="append", help="repeatable")
    parser.add_argument("--job", action="append", metavar="ID", help="repeatable; begins with the job as it is now")
    parser.add_argument("--key")
    parser.add_argument("--schedule", metavar="NAME")
    add_labels(parser)
    parser.add_argument("--limit", type=positive, metavar="N", help="end after this many events")
    parser.set_defaults(call=tail)


def tail(options: argparse.Namespace) -> int:
    types = [*(options.type or ()), *(ENDED_BADLY if options.failed else ())]
    filters = {name: value for name in FILTERS if (value := getattr(options, name)) is not None}
    output, left = output_of(options), options.limit
    with client_of(options) as client:
        for event in client.events(type=types, label=dict(options.label), **filters):
            if event.type == "reset":
                print(f"erelong: events may be missing here: {event.raw['reason']}", file=sys.stderr)
                continue
            if options.json:
                print(to_json(event.raw))
            else:
                output.line(event.raw["time"], _cells(event))
            sys.stdout.flush()
            left = None if left is None else left - 1
            if left == 0:
                return 0
    return 0


def _cells(event: Event) -> list[str]:
    job = event.raw.get("job")
    if job is None:
        about = {name: value for name, value in event.raw.items() if name not in ("type", "time")}
        return [event.type, to_json(about)]
    error = job.get("error") or {}
    cells = [event.type, job["id"], job.get("kind", ""), job.get("queue", ""), error.get("message", "")]
    return [*map(printable, cells)]
