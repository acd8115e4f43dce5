"""Commands that change jobs: those named by ids one by one, those that match filters by an operation."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

from erelong.cli.client.operations import follow
from erelong.cli.client.submit import time_of
from erelong.cli.console.options import add_change, add_filters, add_ids, filters_of, ids_of, nested, params_of, setting
from erelong.cli.console.output import counted, printable
from erelong.cli.console.running import CONFLICT, REFUSED, Usage, client_of, output_of, report
from erelong.client.calls import jobs as calls
from erelong.client.errors import ErelongError
from erelong.client.requests import Repeat

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from erelong.cli.console.session import Session
    from erelong.client.requests import Request
    from erelong.client.sync.operations import Operation

ACTIONS: Final = {"reschedule": "patch", "edit": "patch"}
COLUMNS: Final = ("id", "kind", "queue", "state", "due_at", "version")
CHECKED: Final = ("reschedule", "edit")
SAMPLE: Final = 3


def add(name: str, parser: argparse.ArgumentParser) -> None:
    add_ids(parser, "*")
    if name == "cancel":
        parser.add_argument("--reason", help="shown in the error of the jobs")
    if name == "reschedule":
        parser.add_argument("--in", dest="delay", metavar="DURATION", help="due after this, from now")
        parser.add_argument("--at", metavar="TIME", help="due at this time, with offset")
        parser.add_argument("--zone", help="time zone of --at, if it has no offset: Europe/Berlin")
        parser.add_argument("--by", metavar="DURATION", help="many jobs: move by this, such as 2h or -30m")
    if name in ("edit", "retry"):
        parser.add_argument(
            "--set", type=setting, action="append", default=[], metavar="NAME=VALUE", help="such as priority=3"
        )
        parser.add_argument(
            "--param", action="append", default=[], metavar="NAME=VALUE", help="as in submit; replaces all params"
        )
    parser.add_argument("--version", type=int, metavar="N", help="only if this is still the version of the job")
    count = "only count the jobs that match"
    add_change(parser, check=f"only check the change of a job, or {count}" if name in CHECKED else count)
    add_filters(parser)
    parser.add_argument("--all-jobs", action="store_true", help="every job, in place of other conditions")
    many = parser.add_argument_group("for many jobs")
    many.add_argument("--at-most", type=int, metavar="N", help="change none if more match")
    many.add_argument("--rate", type=float, metavar="N", help="jobs per second")
    if name in ("run", "retry"):
        many.add_argument("--spread", metavar="DURATION", help="spread the new times over this")
    parser.set_defaults(call=change, name=name)


def change(options: argparse.Namespace) -> int:
    filters = filters_of(options) | ({"all": True} if options.all_jobs else {})
    queue = filters.pop("queue", []) if options.ids else []  # of ~KEY
    if bool(options.ids) == bool(filters) or len(queue) > 1:
        raise Usage("give ids, or conditions such as --state and --queue; --help lists them")
    changes = _changes(options)
    with client_of(options) as client:
        if options.ids:
            return _change_each(client, options, changes, queue[0] if queue else None)
        return _change_many(client, options, filters, changes)


def _changes(options: argparse.Namespace) -> dict[str, Any]:
    if options.name == "reschedule":
        given = [name for name in ("delay", "at", "by") if getattr(options, name) is not None]
        if len(given) != 1:
            raise Usage("give one of --in, --at and --by")
        return time_of(options) or {given[0]: getattr(options, given[0])}
    if options.name in ("edit", "retry"):
        params = {"params": params_of(options.param)} if options.param else {}
        if options.name == "edit" and not (options.set or params):
            raise Usage("give --set name=value or --param name=value")
        return nested(options.set) | params
    return {}


# by ids


def _change_each(client: Session, options: argparse.Namespace, changes: Any, queue: str | None) -> int:
    if options.check and options.name not in CHECKED:
        raise Usage("--check needs conditions instead of ids")
    if "by" in changes:
        raise Usage("--by needs conditions instead of ids: give --in or --at")
    if options.version is not None and (len(options.ids) > 1 or options.ids == ["-"]):
        raise Usage("--version is that of one job: give one id")
    output, code = output_of(options), 0
    for id in ids_of(options):
        try:
            found = client.send(_request(options, id, changes, queue))
        except ErelongError as error:
            code = report(error, id, options.typed)
        else:
            output.rows([found or {"id": id, "state": "deleted"}], COLUMNS)
    return code


def _request(options: argparse.Namespace, id: str, changes: Any, queue: str | None) -> Request:
    version = options.version
    match options.name:
        case "cancel" if version is not None:  # a second try would find another version
            return calls.cancel(id, options.reason, version, queue)._replace(repeat=Repeat.UNBEGUN)
        case "cancel":
            return calls.cancel(id, options.reason, version, queue)
        case "retry":
            return calls.retry(id, changes, version)
        case "run":
            return calls.run(id, version, queue)
        case "delete":
            return calls.delete(id, version, queue)
        case _:
            return calls.edit(id, changes, version, queue)


# by conditions


def _change_many(client: Session, options: argparse.Namespace, filters: Any, changes: Any) -> int:
    if options.version is not None or (options.name == "retry" and changes):
        raise Usage("--version, and the changes of retry, need an id instead of conditions")
    action = ACTIONS.get(options.name, options.name)
    by = changes.get("by")
    found = client.operations.count(action, changes=None if by else changes or None, by=by, **filters)
    _describe(found)
    if options.check or not found["matches"]:
        return 0
    if options.at_most is not None and found["matches"] > options.at_most and not options.curl:
        print(f"erelong: {found['matches']:,} match, --at-most {options.at_most}: nothing was changed", file=sys.stderr)
        return CONFLICT
    at_most = _confirmed(options, found)
    if at_most is None:
        return REFUSED
    return follow(_start(client, options, filters, changes, at_most), options)


def _describe(found: Mapping[str, Any]) -> None:
    verb = "matches" if found["matches"] == 1 else "match"
    print(f"{counted(found['matches'], 'job')}{' or more' if found['more'] else ''} {verb}", file=sys.stderr)
    for what, numbers in found["by"].items():
        if numbers:
            shown = ", ".join(f"{name} {number:,}" for name, number in list(numbers.items())[:8])
            print(f"  by {what}: {printable(shown)}", file=sys.stderr)
    if found["sample"]:
        print(f"  such as {', '.join(found['sample'][:SAMPLE])}", file=sys.stderr)


def _confirmed(options: argparse.Namespace, found: Mapping[str, Any]) -> int | None:
    """Return the bound that somebody has confirmed, or None."""
    matches: int = found["matches"]
    bound: int | None = options.at_most
    if options.curl:
        return matches if bound is None else bound
    if options.yes or not sys.stdin.isatty():
        if not options.yes or bound is None:
            raise Usage(f"without a terminal, confirm with: --yes --at-most {matches}")
        return bound
    verb = options.name.capitalize()
    print(f"{verb} {counted(matches, 'job')}? Type {matches} to confirm: ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().replace(",", "") != str(matches):
        print("erelong: nothing was changed", file=sys.stderr)
        return None
    return matches if bound is None else bound


def _start(
    client: Session, options: argparse.Namespace, filters: Any, changes: dict[str, Any], at_most: int
) -> Operation:
    rate: dict[str, Any] = {"rate": options.rate, "at_most": at_most, **filters}
    operations = client.operations
    match options.name:
        case "cancel":
            return operations.cancel(reason=options.reason, **rate)
        case "run":
            return operations.run(spread=options.spread, **rate)
        case "retry":
            return operations.retry(spread=options.spread, **rate)
        case "delete":
            return operations.delete(**rate)
        case _ if "by" in changes:
            return operations.shift(changes["by"], **rate)
        case _:
            return operations.edit(changes, **rate)  # type: ignore[arg-type]  # checked by the service
