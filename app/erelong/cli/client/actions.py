"""Commands that change jobs: those named by ids one by one, those that match filters by an operation."""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING, Any, Final

from erelong.cli.client.jobs import add_ids, ids_of
from erelong.cli.client.options import add_filters, filters_of, params_of, setting
from erelong.cli.client.running import CONFLICT, REFUSED, Usage, client_of, output_of, report
from erelong.client.errors import ErelongError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from erelong.client.sync.client import Client
    from erelong.client.sync.operations import Operation

ACTIONS: Final = {"reschedule": "patch", "edit": "patch"}
COLUMNS: Final = ("id", "kind", "queue", "state", "due_at", "version")
TICK: Final = 1.0


def add(name: str, parser: argparse.ArgumentParser) -> None:
    add_ids(parser, "*")
    add_filters(parser)
    parser.add_argument("--all-jobs", action="store_true", help="every job, in place of other conditions")
    many = parser.add_argument_group("for many jobs")
    many.add_argument("--at-most", type=int, metavar="N", help="change none if more match")
    many.add_argument("--yes", action="store_true", help="do not ask; needs --at-most")
    many.add_argument("--check", action="store_true", help="only count the jobs that match")
    many.add_argument("--rate", type=float, metavar="N", help="jobs per second")
    if name == "cancel":
        parser.add_argument("--reason")
    if name in ("run", "retry"):
        many.add_argument("--spread", metavar="DURATION", help="spread the new times over this")
    if name == "reschedule":
        parser.add_argument("--in", dest="delay", metavar="DURATION", help="due after this, from now")
        parser.add_argument("--at", metavar="TIME", help="due at this time, with offset")
        parser.add_argument("--by", metavar="DURATION", help="many jobs: move by this, such as 2h or -30m")
    if name == "edit":
        parser.add_argument("--set", type=setting, action="append", default=[], metavar="NAME=VALUE", help="priority=3")
        parser.add_argument("--param", action="append", default=[], metavar="NAME=VALUE", help="replaces all params")
    parser.set_defaults(call=change, name=name)


def change(options: argparse.Namespace) -> int:
    filters = filters_of(options) | ({"all": True} if options.all_jobs else {})
    if bool(options.ids) == bool(filters):
        raise Usage("give ids, or conditions such as --state and --queue; --help lists them")
    changes = _changes(options)
    with client_of(options) as client:
        if options.ids:
            return _change_each(client, options, changes)
        return _change_many(client, options, filters, changes)


def _changes(options: argparse.Namespace) -> dict[str, Any]:
    if options.name == "reschedule":
        given = [name for name in ("delay", "at", "by") if getattr(options, name) is not None]
        if len(given) != 1:
            raise Usage("give one of --in, --at and --by")
        return {given[0]: getattr(options, given[0])}
    if options.name == "edit":
        params = {"params": params_of(options.param)} if options.param else {}
        if not (options.set or params):
            raise Usage("give --set name=value or --param name=value")
        return dict(options.set) | params
    return {}


# by ids


def _change_each(client: Client, options: argparse.Namespace, changes: Any) -> int:
    if options.check or "by" in changes:
        raise Usage("--check and --by are for conditions, not for ids")
    output, code = output_of(options), 0
    for id in ids_of(options):
        try:
            job = _change_one(client, options, id, changes)
        except ErelongError as error:
            code = report(error, id)
        else:
            output.rows([job], COLUMNS)
    return code


def _change_one(client: Client, options: argparse.Namespace, id: str, changes: Any) -> Mapping[str, Any]:
    match options.name:
        case "cancel":
            return client.cancel(id, reason=options.reason).raw
        case "retry":
            return client.retry(id).raw
        case "run":
            return client.run(id).raw
        case "delete":
            client.delete(id)
            return {"id": id, "state": "deleted"}
        case _:
            return client.edit(id, **changes).raw


# by conditions


def _change_many(client: Client, options: argparse.Namespace, filters: Any, changes: Any) -> int:
    action = ACTIONS.get(options.name, options.name)
    by = changes.get("by")
    counted = client.operations.count(action, changes=None if by else changes or None, by=by, **filters)
    _describe(options.name, counted)
    if options.check or not counted["matches"]:
        return 0
    at_most = _confirmed(options, counted)
    if at_most is None:
        return CONFLICT
    operation = _start(client, options, filters, changes, at_most)
    return _follow(operation, options)


def _describe(name: str, counted: Mapping[str, Any]) -> None:
    more = " or more" if counted["more"] else ""
    print(f"{name}: {counted['matches']:,}{more} jobs match", file=sys.stderr)
    for what, numbers in counted["by"].items():
        if not numbers:
            continue
        shown = ", ".join(f"{name} {number:,}" for name, number in list(numbers.items())[:8])
        print(f"  by {what}: {shown}", file=sys.stderr)
    if counted["sample"]:
        print(f"  such as {', '.join(counted['sample'][:3])}", file=sys.stderr)


def _confirmed(options: argparse.Namespace, counted: Mapping[str, Any]) -> int | None:
    """Return the bound that somebody has confirmed, or None."""
    if options.yes or not sys.stdin.isatty():
        if not (options.yes and options.at_most is not None):
            raise Usage(f"without a terminal, confirm with: --yes --at-most {counted['matches']}")
        bound: int = options.at_most
        return bound
    print(f"Type {counted['matches']} to {options.name} them: ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().replace(",", "") != str(counted["matches"]):
        print("erelong: nothing was changed", file=sys.stderr)
        return None
    at_most: int = counted["matches"] if options.at_most is None else options.at_most
    return at_most


def _start(
    client: Client, options: argparse.Namespace, filters: Any, changes: dict[str, Any], at_most: int
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


def _follow(operation: Operation, options: argparse.Namespace) -> int:
    """Wait for an operation with a line of progress. Ctrl-C leaves it running and says how to stop it."""
    try:
        while not operation.is_over:
            began = time.monotonic()
            try:
                operation = operation.wait(timeout=TICK)
            except TimeoutError:
                operation = operation.get()
            if not operation.is_over and time.monotonic() - began >= TICK / 2:
                print(f"  {operation.done:,} of {operation.matches or 0:,} done", file=sys.stderr)
    except KeyboardInterrupt:
        print(f"erelong: it goes on; stop it with: erelong operations --stop {operation.id}", file=sys.stderr)
        raise
    if options.json:
        print(json.dumps(operation.raw, separators=(",", ":")))
    skipped = f", {operation.skipped:,} changed meanwhile" if operation.skipped else ""
    print(f"{options.name}: {operation.state}, {operation.done:,} done{skipped}", file=sys.stderr)
    if operation.state == "refused":
        return CONFLICT
    return 0 if operation.state == "succeeded" and not operation.failed else REFUSED
