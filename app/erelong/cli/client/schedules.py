"""Commands about schedules."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from erelong.cli.client.options import params_of, setting
from erelong.cli.client.running import Usage, client_of, output_of
from erelong.client.drafts import Draft

if TYPE_CHECKING:
    import argparse

    from erelong.client.sync.schedules import Schedules

COLUMNS = ("name", "described", "zone", "next_at", "paused", "counts.made", "counts.missed")
ACTIONS = ("show", "put", "pause", "resume", "trigger", "preview", "backfill", "delete")
TIMING = ("cron", "every", "zone", "gap", "fold", "spread", "missed", "catchup", "overlap", "starts_at", "ends_at")


def add(name: str, parser: argparse.ArgumentParser) -> None:
    if name == "schedules":
        parser.add_argument("--queue")
        parser.add_argument("--kind")
        parser.set_defaults(call=list_schedules)
        return
    parser.add_argument("name", metavar="SCHEDULE")
    parser.add_argument("action", nargs="?", choices=ACTIONS, default="show")
    parser.add_argument("params", nargs="*", metavar="NAME=VALUE", help="of put: the params of its jobs")
    parser.add_argument("--kind", help="of put: the kind of its jobs")
    parser.add_argument("--queue", help="of put: the queue of its jobs")
    parser.add_argument("--job", type=setting, action="append", default=[], metavar="NAME=VALUE", help="timeout=2m")
    for option in TIMING:
        parser.add_argument(f"--{option.replace('_', '-')}")
    parser.add_argument("--reason", help="of a pause")
    parser.add_argument("--count", type=int, default=10, help="of preview")
    parser.add_argument("--from", dest="start", metavar="TIME", help="of backfill")
    parser.add_argument("--to", dest="end", metavar="TIME", help="of backfill")
    parser.set_defaults(call=change)


def list_schedules(options: argparse.Namespace) -> int:
    filters = {name: getattr(options, name) for name in ("queue", "kind") if getattr(options, name)}
    with client_of(options) as client:
        output_of(options).rows((schedule.raw for schedule in client.schedules.list(**filters)), COLUMNS, name="name")
    return 0


def change(options: argparse.Namespace) -> int:
    output, name = output_of(options), options.name
    with client_of(options) as client:
        schedules = client.schedules
        match options.action:
            case "preview":
                output.rows(schedules.preview(name, count=options.count), ("occurrence", "local", "note"))
            case "trigger":
                output.item(schedules.trigger(name).raw)
            case "backfill":
                if not (options.start and options.end):
                    raise Usage("give --from and --to")
                output.item(schedules.backfill(name, options.start, options.end).raw)
            case "delete":
                schedules.delete(name)
                print(f"schedule {name} deleted; its jobs stay", file=sys.stderr)
            case _:
                output.item(_changed(options, schedules).raw, name="name")
    return 0


def _changed(options: argparse.Namespace, schedules: Schedules) -> Any:
    match options.action:
        case "put":
            if options.kind is None:
                raise Usage("give the --kind of its jobs, and --cron or --every")
            job: Any = dict(options.job) | ({"queue": options.queue} if options.queue else {})
            timing: Any = {name: value for name in TIMING if (value := getattr(options, name)) is not None}
            return schedules.put(options.name, Draft(options.kind, params_of(options.params), **job), **timing)
        case "pause":
            return schedules.pause(options.name, options.reason)
        case "resume":
            return schedules.resume(options.name)
        case _:
            return schedules.get(options.name)
