"""Commands that read jobs."""

from __future__ import annotations

import sys
from itertools import islice
from typing import TYPE_CHECKING, Any

from erelong.cli.client.options import add_filters, filters_of, seconds
from erelong.cli.client.running import JOB_FAILED, NOT_FOUND, TIMED_OUT, client_of, exit_code, output_of, report
from erelong.client.errors import ErelongError
from erelong.client.requests import get as get_request

if TYPE_CHECKING:
    import argparse

COLUMNS = ("id", "kind", "queue", "state", "due_at", "attempt", "waiting_for", "error.message")
CAUSES = ("cause", "count", "kind", "type", "message", "last_at")


def add(name: str, parser: argparse.ArgumentParser) -> None:
    calls = {"get": get, "list": list_jobs, "wait": wait, "explain": explain, "errors": errors}
    parser.set_defaults(call=calls[name])
    if name in ("get", "wait", "explain"):
        add_ids(parser)
    if name == "wait":
        parser.add_argument("--for", dest="until", choices=("all", "first", "first_failure"), default="all")
        parser.add_argument("--timeout", type=seconds, metavar="DURATION", help="exit with 124 after this")
    if name in ("list", "errors"):
        add_filters(parser)
    if name == "list":
        parser.add_argument("--order", help="created (default), due_at, finished_at, started_at")
        parser.add_argument("--limit", type=int, default=100, help="jobs to list (100)")
        parser.add_argument("--all", action="store_true", help="list all jobs that match")
        parser.add_argument(
            "--full", action="store_true", help="with params, result and attempts, for --json or --fields"
        )


def add_ids(parser: argparse.ArgumentParser, nargs: str = "+") -> None:
    parser.add_argument("ids", nargs=nargs, metavar="ID", help="id, or ~ and a key; - reads ids from standard input")


def ids_of(options: argparse.Namespace) -> list[str]:
    """Return the ids of the arguments, and those of standard input, one per line or in its first column."""
    ids = [id for id in options.ids if id != "-"]
    if "-" in options.ids:
        ids += [line.split()[0] for line in sys.stdin if line.strip()]
    return ids


def get(options: argparse.Namespace) -> int:
    output, code = output_of(options), 0
    with client_of(options) as client:
        for id in ids_of(options):
            try:
                output.item(client.get(id).raw)
            except ErelongError as error:
                code = report(error, id)
    return code


def list_jobs(options: argparse.Namespace) -> int:
    view = "full" if options.full or (options.fields and {"params", "result", "attempts"} & {*options.fields}) else None
    filters: Any = {**filters_of(options), "order": options.order, "view": view}
    filters["limit"] = 1_000 if options.all else min(options.limit, 1_000)
    with client_of(options) as client:
        jobs = (job.raw for job in client.list(**filters))
        output_of(options).rows(jobs if options.all else islice(jobs, options.limit), COLUMNS)
    return 0


def wait(options: argparse.Namespace) -> int:
    ids = ids_of(options)
    with client_of(options) as client:
        waited = client.wait(ids, until=options.until, timeout=options.timeout)
    output_of(options).rows([job.raw for job in waited.done], ("id", "state", "result", "error.message"))
    for id in waited.missing:
        print(f"erelong: no job {id}", file=sys.stderr)
    if waited.missing:
        return NOT_FOUND
    if any(job.state != "succeeded" for job in waited.done):
        return JOB_FAILED
    is_late = not waited.done if options.until == "first" else waited.pending
    if is_late:
        print(f"erelong: {len(waited.pending)} of {len(ids)} jobs have not ended", file=sys.stderr)
        return TIMED_OUT
    return 0


def explain(options: argparse.Namespace) -> int:
    output, code = output_of(options), 0
    with client_of(options) as client:
        for id in ids_of(options):
            try:
                explanation = client.explain(id)
            except ErelongError as error:
                code = exit_code(error)
                report(error, id)
                continue
            if options.json:
                output.item(explanation)
                continue
            print(explanation["summary"])
            for blocker in explanation["blockers"]:
                print(f"  {blocker['type']}: {blocker['detail']}")
    return code


def errors(options: argparse.Namespace) -> int:
    filters = filters_of(options)
    labels = {f"label.{name}": value for name, value in filters.pop("label", {}).items()}
    with client_of(options) as client:
        found = client.send(get_request("/v1/jobs/errors", {**filters, **labels}))
    output_of(options).rows(found["causes"], CAUSES, name="cause")
    if found["scanned"] < found["of"]:
        print(f"erelong: of the newest {found['scanned']:,} of {found['of']:,} jobs", file=sys.stderr)
    return 0
