"""The command that submits a job."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from erelong.cli.console.options import (
    add_change,
    add_labels,
    json_of_stdin,
    labels_of,
    nested,
    params_of,
    seconds,
    setting,
)
from erelong.cli.console.running import Usage, client_of, output_of
from erelong.client.calls import jobs as calls
from erelong.client.calls.jobs import NEW_KEY
from erelong.client.drafts import Draft
from erelong.client.errors import job_error
from erelong.client.sync.jobs import Job

if TYPE_CHECKING:
    import argparse

ITEMS = "params: name=text, name:=json, name=@file, a.b=nested; - reads them as JSON from standard input"
ON_CONFLICT = ("reject", "keep", "replace", "reschedule")


def add(_: str, parser: argparse.ArgumentParser) -> None:
    parser.add_argument("kind", metavar="KIND", help="such as http or echo; erelong kinds lists them")
    parser.add_argument("params", nargs="*", default=[], metavar="NAME=VALUE", help=ITEMS)
    parser.add_argument("--in", dest="delay", metavar="DURATION", help="due after this: 90s, 2h, 7d; without it, now")
    parser.add_argument("--at", metavar="TIME", help="due at this time, with offset: 2026-12-01T09:00:00+01:00")
    parser.add_argument("--zone", help="time zone of --at, if it has no offset: Europe/Berlin")
    parser.add_argument("--queue", help="its queue (default)")
    parser.add_argument("--priority", type=int, metavar="N", help="from -100 to 100 (0); higher ones start first")
    parser.add_argument("--key", help="names the job while it lives; ~KEY stands for its id")
    parser.add_argument("--on-conflict", choices=ON_CONFLICT, help="if another live job has the --key (reject)")
    add_labels(parser)
    parser.add_argument(
        "--retry", type=setting, action="append", default=[], metavar="NAME=VALUE", help="such as max_attempts=3"
    )
    parser.add_argument("--timeout", metavar="DURATION", help="of each attempt")
    parser.add_argument("--expires-after", metavar="DURATION", help="do not start later than this after the due time")
    parser.add_argument("--spread", metavar="DURATION", help="make it due later by a part of this")
    parser.add_argument("--on-finish", metavar="URL", help="call this URL when the job has ended")
    parser.add_argument(
        "--idempotency-key", default=NEW_KEY, metavar="KEY", help="submit once, however often the command is repeated"
    )
    parser.add_argument(
        "--wait",
        type=seconds,
        nargs="?",
        const=-1.0,
        metavar="DURATION",
        help="wait until it has ended; --wait=30s: not longer, then exit with 124",
    )
    add_change(parser, check="check the job without storing it")
    parser.set_defaults(call=submit)


def submit(options: argparse.Namespace) -> int:
    draft: Draft[Any] = Draft(options.kind, _params(options.params), **_options(options))
    with client_of(options) as client:
        job: Job[Any] = Job(client.send(calls.submit(draft, options.idempotency_key)), client)
        if options.check:
            print("the job is valid", file=sys.stderr)
            return 0
        if options.wait is not None:
            job = _wait(job, options.wait)
    output = output_of(options)
    if not (output.is_terminal or options.json or options.fields or options.wait is not None):
        print(job.id)  # for id=$(erelong submit …)
    else:
        output.item(job.raw)
    if options.wait is not None and job.state != "succeeded":
        raise job_error(job)
    return 0


def _wait(job: Job[Any], seconds: float) -> Job[Any]:
    """Wait for the end of a job; if that fails, its id is not lost."""
    try:
        return job.wait(None if seconds < 0 else seconds)
    except BaseException:
        print(f"erelong: submitted {job.id}", file=sys.stderr)
        raise


def _params(items: list[str]) -> dict[str, Any]:
    if items != ["-"]:
        return {**params_of(items)}
    params = json_of_stdin()
    if not isinstance(params, dict):
        raise Usage("the params on standard input are not a JSON object")
    return params


def _options(options: argparse.Namespace) -> Any:
    """Return the options that were given, by their names in the client."""
    names = ("delay", "queue", "priority", "key", "on_conflict", "timeout", "expires_after", "spread")
    given = {name: value for name in names if (value := getattr(options, name)) is not None}
    if "delay" in given and options.at is not None:
        raise Usage("give --in or --at, not both")
    given |= time_of(options)
    given |= {"labels": labels_of(options)} if options.label else {}
    given |= {"on_finish": {"url": options.on_finish}} if options.on_finish else {}
    return given | ({"retry": nested(options.retry)} if options.retry else {})


def time_of(options: argparse.Namespace) -> dict[str, str]:
    """Return the fields for --at and --zone."""
    if options.at is not None and options.zone is not None:
        return {"local_time": options.at, "zone": options.zone}
    if options.zone is not None:
        raise Usage("--zone is the zone of --at: give --at as well")
    return {} if options.at is None else {"at": options.at}
