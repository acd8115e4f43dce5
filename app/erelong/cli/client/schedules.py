"""Commands about schedules."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

from erelong.cli.console.options import add_change, params_of, positive, setting
from erelong.cli.console.running import REFUSED, Usage, client_of, output_of
from erelong.client.drafts import Draft

if TYPE_CHECKING:
    import argparse

    from erelong.client.sync.schedules import Schedules

COLUMNS: Final = ("name", "described", "zone", "next_at", "paused", "counts.made", "counts.missed")
ACTIONS: Final = ("show", "put", "pause", "resume", "trigger", "preview", "backfill", "delete")
TIMING: Final = {
    "cron": "such as '0 9 * * MON-FRI'",
    "every": "in place of --cron, such as 10m",
    "zone": "of --cron, such as Europe/Berlin (UTC)",
    "gap": "for local times that do not exist: shift or skip",
    "fold": "for local times that occur twice: first, second or both",
    "spread": "make all its jobs due later by a part of this",
    "missed": "after a downtime, make the missed jobs: once, skip or all",
    "catchup": "make no missed job that is older than this",
    "overlap": "while a job is live: skip, queue_one, replace or allow",
    "starts_at": "no occurrence before this instant",
    "ends_at": "no occurrence at or after this instant",
}
CHECKED: Final = ("put", "backfill")


def add(name: str, parser: argparse.ArgumentParser) -> None:
    if name == "schedules":
        parser.add_argument("--queue", help="of its jobs")
        parser.add_argument("--kind", help="of its jobs")
        parser.add_argument("--paused", action="store_true", help="only those that are paused")
        parser.set_defaults(call=list_schedules)
        return
    parser.add_argument("name", metavar="SCHEDULE")
    parser.add_argument("action", nargs="?", choices=ACTIONS, default="show", help="show (default), or change it")
    parser.add_argument(
        "params", nargs="*", default=[], metavar="NAME=VALUE", help="of put: the params of its jobs, as in submit"
    )
    put = parser.add_argument_group("of put: creates or replaces the schedule")
    put.add_argument("--kind", help="the kind of its jobs")
    put.add_argument("--queue", help="the queue of its jobs")
    put.add_argument(
        "--job",
        type=setting,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="other fields, such as timeout=2m",
    )
    for option, help in TIMING.items():
        put.add_argument(f"--{option.replace('_', '-')}", metavar="WHAT", help=help)
    other = parser.add_argument_group("of other actions")
    other.add_argument("--reason", help="of pause")
    other.add_argument("--count", type=positive, default=10, metavar="N", help="of preview: occurrences to show (10)")
    other.add_argument("--from", dest="start", metavar="TIME", help="of backfill and preview")
    other.add_argument("--to", dest="end", metavar="TIME", help="of backfill: before this")
    add_change(parser, check="of put and backfill: only check them")
    parser.set_defaults(call=change)


def list_schedules(options: argparse.Namespace) -> int:
    filters = {name: getattr(options, name) for name in ("queue", "kind") if getattr(options, name)}
    filters |= {"paused": True} if options.paused else {}
    with client_of(options) as client:
        output_of(options).rows((schedule.raw for schedule in client.schedules.list(**filters)), COLUMNS, name="name")
    return 0


def change(options: argparse.Namespace) -> int:
    output, name = output_of(options), options.name
    if options.check and options.action not in CHECKED:
        raise Usage("--check goes with put and backfill")
    with client_of(options) as client:
        schedules = client.schedules
        match options.action:
            case "preview":
                found = schedules.preview(name, start=options.start, count=options.count)
                output.rows(found, ("occurrence", "local", "note"), name="occurrence")
            case "trigger":
                output.item(schedules.trigger(name).raw)
            case "backfill":
                if not (options.start and options.end):
                    raise Usage("give --from and --to")
                output.item(schedules.backfill(name, options.start, options.end).raw)
            case "delete":
                if not _is_confirmed(options):
                    return REFUSED
                schedules.delete(name)
                print(f"schedule {name} deleted; its jobs stay", file=sys.stderr)
            case _:
                output.item(_changed(options, schedules).raw, name="name")
    if options.check:
        print("the request is valid; nothing was changed", file=sys.stderr)
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


def _is_confirmed(options: argparse.Namespace) -> bool:
    """Ask on a terminal: a deleted schedule cannot be restored."""
    if options.yes or options.curl or not sys.stdin.isatty():
        return True
    print(f"Delete the schedule {options.name}? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() in ("y", "yes"):
        return True
    print("erelong: nothing was changed", file=sys.stderr)
    return False
