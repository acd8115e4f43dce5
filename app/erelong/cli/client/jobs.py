"""Commands that read jobs."""

from __future__ import annotations

import sys
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from erelong.cli.console.options import add_filters, add_ids, filters_of, ids_of, positive, seconds
from erelong.cli.console.output import printable
from erelong.cli.console.running import JOB_FAILED, NOT_FOUND, TIMED_OUT, Usage, client_of, key_hint, output_of, report
from erelong.client.errors import ErelongError
from erelong.client.requests import get as get_request

if TYPE_CHECKING:
    import argparse

    from erelong.cli.console.session import Session

COLUMNS: Final = ("id", "kind", "queue", "state", "due_at", "attempt", "waiting_for", "error.message")
CAUSES: Final = ("cause", "count", "kind", "type", "message", "last_at")
ORDERS: Final = ("created", "due_at", "finished_at", "started_at", "next")
UNTIL: Final = {"all": "all", "any": "first", "first_failure": "first_failure"}
WATCHED: Final = frozenset({"state", "queue", "kind", "key", "schedule", "label"})
PAGE: Final = 1_000


def add(name: str, parser: argparse.ArgumentParser) -> None:
    calls = {"get": get, "list": list_jobs, "wait": wait, "explain": explain, "errors": errors}
    parser.set_defaults(call=calls[name])
    if name in ("get", "wait", "explain"):
        add_ids(parser)
    if name in ("get", "wait", "explain"):
        parser.add_argument("--queue", help="the queue of ~KEY (default)")
    if name == "wait":
        parser.add_argument("--for", dest="until", choices=UNTIL, default="all", help="wait for all (default), or one")
        parser.add_argument("--timeout", type=seconds, metavar="DURATION", help="exit with 124 after this")
    if name in ("list", "errors"):
        add_filters(parser, is_listing=True)
    if name == "errors":
        parser.add_argument("--last", type=positive, metavar="N", help="read the newest N jobs (10,000)")
    if name == "list":
        parser.add_argument("--order", choices=ORDERS, help="created (default); next needs one --queue")
        parser.add_argument("--reverse", action="store_true", help="with --order next: from the other end")
        size = parser.add_mutually_exclusive_group()
        size.add_argument("--limit", type=positive, metavar="N", default=100, help="jobs to list (100)")
        size.add_argument("--all", action="store_true", help="list all jobs that match")
        size.add_argument("--count", action="store_true", help="print only how many jobs match")
        parser.add_argument("-w", "--watch", action="store_true", help="then print each change, until Ctrl-C")
        parser.add_argument(
            "--full", action="store_true", help="with params, result and attempts, for --json or --fields"
        )


def get(options: argparse.Namespace) -> int:
    output, code = output_of(options), 0
    with client_of(options) as client:
        for number, id in enumerate(ids_of(options)):
            if number and output.is_terminal:
                print()
            try:
                output.item(client.get(id, queue=options.queue).raw)
            except ErelongError as error:
                code = report(error, id, options.typed)
    return code


# list


def list_jobs(options: argparse.Namespace) -> int:
    filters = filters_of(options)
    if options.watch and not WATCHED.issuperset(filters):
        known = ", ".join(f"--{name}" for name in sorted(WATCHED))
        raise Usage(f"--watch takes only {known}: events have no other conditions")
    with client_of(options) as client:
        if options.count:
            return _count(client, filters)
        if options.watch:
            return _watch(client, options, filters)
        _print_jobs(client, options, filters)
    return 0


def _print_jobs(client: Session, options: argparse.Namespace, filters: dict[str, Any]) -> None:
    is_full = options.full or bool(options.fields and {"params", "result", "attempts"} & {*options.fields})
    query: Any = {**filters, "order": options.order, "view": "full" if is_full else None}
    query |= {"reverse": True} if options.reverse else {}
    query["limit"] = PAGE if options.all else min(options.limit, PAGE)
    jobs = (job.raw for job in client.list(**query))
    output = output_of(options)
    output.rows(jobs if options.all else islice(jobs, options.limit), COLUMNS)
    if output.is_terminal and not options.all and next(jobs, None) is not None:
        print("erelong: more jobs match; --all lists them, --count counts them", file=sys.stderr)


def _count(client: Session, filters: dict[str, Any]) -> int:
    labels = {f"label.{name}": value for name, value in filters.pop("label", {}).items()}
    found = client.send(get_request("/v1/jobs", {**filters, **labels, "count": True, "limit": 1}))["count"]
    print(found["n"])
    if not found["exact"]:
        print("erelong: at least this many; the count was cut short", file=sys.stderr)
    return 0


def _watch(client: Session, options: argparse.Namespace, filters: dict[str, Any]) -> int:
    """List jobs, then print each change.

    The service answers a place that it does not know with a reset: so the listing is read when the stream is already
    open, at first and after each interruption, and no change is lost.
    """
    output, labels = output_of(options), filters.get("label")
    about = {name: value for name, value in filters.items() if name != "label"}
    for event in client.events(since="start", label=labels, **about):
        if event.type == "reset":
            _print_jobs(client, options, filters)
        else:
            output.row(event.raw["job"], COLUMNS)
        sys.stdout.flush()
    return 0


# wait, explain, errors


def wait(options: argparse.Namespace) -> int:
    with client_of(options) as client:
        ids = [client.get(id, queue=options.queue).id if id.startswith("~") else id for id in ids_of(options)]
        waited = client.wait(ids, until=UNTIL[options.until], timeout=options.timeout)
    if waited.done:
        output_of(options).rows([job.raw for job in waited.done], ("id", "state", "result", "error.message"))
    for id in waited.missing:
        print(printable(f"erelong: no job {id}{key_hint(id)}"), file=sys.stderr)
    if waited.missing:
        return NOT_FOUND
    if any(job.state != "succeeded" for job in waited.done):
        return JOB_FAILED
    is_late = not waited.done if options.until == "any" else waited.pending
    if is_late:
        print(f"erelong: {len(waited.pending)} of {len(ids)} jobs have not ended", file=sys.stderr)
        return TIMED_OUT
    return 0


def explain(options: argparse.Namespace) -> int:
    output, code, ids = output_of(options), 0, ids_of(options)
    with client_of(options) as client:
        for id in ids:
            try:
                explanation = client.explain(id, queue=options.queue)
            except ErelongError as error:
                code = report(error, id, options.typed)
                continue
            if options.json:
                output.item(explanation)
                continue
            print(f"{f'{id}: ' if len(ids) > 1 else ''}{printable(explanation['summary'])}")
            for blocker in explanation["blockers"]:
                print(f"  {blocker['type']}: {printable(blocker['detail'])}")
    return code


def errors(options: argparse.Namespace) -> int:
    filters = filters_of(options)
    labels = {f"label.{name}": value for name, value in filters.pop("label", {}).items()}
    with client_of(options) as client:
        found = client.send(get_request("/v1/jobs/errors", {**filters, **labels, "last": options.last}))
    output_of(options).rows(found["causes"], CAUSES, name="cause")
    if found["scanned"] < found["of"]:
        print(f"erelong: of the newest {found['scanned']:,} of {found['of']:,} jobs", file=sys.stderr)
    return 0
