"""The command that follows events."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from erelong.cli.client.options import add_labels
from erelong.cli.client.running import client_of, output_of

if TYPE_CHECKING:
    import argparse

    from erelong.client.records import Event

ENDED_BADLY = ("job.failed", "job.cancelled", "job.expired")


def add(_: str, parser: argparse.ArgumentParser) -> None:
    for name in ("type", "queue", "kind", "state"):
        parser.add_argument(f"--{name}", action="append", help="repeatable")
    parser.add_argument("--key")
    parser.add_argument("--schedule")
    add_labels(parser)
    parser.add_argument("--failed", action="store_true", help="only jobs that ended without success")
    parser.add_argument("--limit", type=int, help="end after so many events")
    parser.set_defaults(call=tail)


def tail(options: argparse.Namespace) -> int:
    types = [*(options.type or ()), *(ENDED_BADLY if options.failed else ())]
    names = ("queue", "kind", "state", "key", "schedule")
    filters = {name: value for name in names if (value := getattr(options, name)) is not None}
    output, left = output_of(options), options.limit
    with client_of(options) as client:
        for event in client.events(type=types, label=dict(options.label), **filters):
            if event.type == "reset":
                print(f"erelong: events may be missing here: {event.raw['reason']}", file=sys.stderr)
                continue
            text = json.dumps(event.raw, separators=(",", ":")) if options.json else _line(event)
            print(output.time(event.raw["time"]) + "  " + text if output.is_terminal and not options.json else text)
            sys.stdout.flush()
            left = None if left is None else left - 1
            if left == 0:
                return 0
    return 0


def _line(event: Event) -> str:
    job = event.raw.get("job")
    if job is None:
        about = {name: value for name, value in event.raw.items() if name not in ("type", "time")}
        return f"{event.type}\t{json.dumps(about, separators=(',', ':'))}"
    error = job.get("error") or {}
    return "\t".join(
        [event.type, job["id"], job.get("kind", ""), job.get("queue", ""), error.get("message", "")]
    ).rstrip()
