"""The command that submits a job."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from erelong.cli.client.options import add_labels, nested, params_of, seconds, setting
from erelong.cli.client.running import Usage, client_of, output_of
from erelong.client.calls import jobs as calls
from erelong.client.calls.jobs import NEW_KEY
from erelong.client.drafts import Draft
from erelong.client.errors import job_error
from erelong.client.requests import with_query
from erelong.client.sync.jobs import Job

if TYPE_CHECKING:
    import argparse

ITEMS = "params: name=text, name:=json, name=@file, a.b=nested; - reads them as JSON from standard input"


def add(_: str, parser: argparse.ArgumentParser) -> None:
    parser.add_argument("kind", help="see: erelong kinds")
    parser.add_argument("params", nargs="*", metavar="NAME=VALUE", help=ITEMS)
    parser.add_argument("--in", dest="delay", metavar="DURATION", help="due after this: 2h, 90s, PT5M")
    parser.add_argument("--at", metavar="TIME", help="due at this time, with offset: 2026-12-01T09:00:00+01:00")
    parser.add_argument("--zone", help="time zone of --at, if it has no offset: Europe/Berlin")
    parser.add_argument("--queue")
    parser.add_argument("--priority", type=int)
    parser.add_argument("--key", help="names the job while it lives")
    parser.add_argument("--on-conflict", choices=("reject", "keep", "replace", "reschedule"), help="with --key")
    add_labels(parser)
    parser.add_argument(
        "--retry", type=setting, action="append", default=[], metavar="NAME=VALUE", help="max_attempts=3"
    )
    parser.add_argument("--timeout", metavar="DURATION", help="of each attempt")
    parser.add_argument("--expires-after", metavar="DURATION", help="do not start later than this after the due time")
    parser.add_argument("--spread", metavar="DURATION", help="move the due time by a share of this")
    parser.add_argument(
        "--idempotency-key", default=NEW_KEY, metavar="KEY", help="repeating the command makes no other job"
    )
    parser.add_argument("--check", action="store_true", help="check the job without storing it")
    parser.add_argument("--wait", type=seconds, nargs="?", const=-1.0, metavar="DURATION", help="wait for the end")
    parser.set_defaults(call=submit)


def submit(options: argparse.Namespace) -> int:
    draft: Draft[Any] = Draft(options.kind, _params(options.params), **_options(options))
    request = calls.submit(draft, None if options.check else options.idempotency_key)
    with client_of(options) as client:
        if options.check:
            path = with_query(request.path, {"dry_run": True})
            client.send(request._replace(path=path))
            print("the job is valid", file=sys.stderr)
            return 0
        job: Job[Any] = Job(client.send(request), client)
        if options.wait is not None:
            job = job.wait(None if options.wait < 0 else options.wait)
    output = output_of(options)
    if not (output.is_terminal or options.json or options.fields or options.wait is not None):
        print(job.id)  # for id=$(erelong submit …)
    else:
        output.item(job.raw)
    if options.wait is not None and job.state != "succeeded":
        raise job_error(job)
    return 0


def _params(items: list[str]) -> dict[str, Any]:
    if items != ["-"]:
        return {**params_of(items)}
    params = json.load(sys.stdin)
    if not isinstance(params, dict):
        raise Usage("the params on standard input are not a JSON object")
    return params


def _options(options: argparse.Namespace) -> Any:
    """Return the options that were given, by their names in the client."""
    names = ("delay", "queue", "priority", "key", "on_conflict", "timeout", "expires_after", "spread")
    given = {name: value for name in names if (value := getattr(options, name)) is not None}
    if options.at is not None and options.zone is not None:
        given |= {"local_time": options.at, "zone": options.zone}
    elif options.at is not None:
        given["at"] = options.at
    elif options.zone is not None:
        raise Usage("--zone is the zone of --at: give --at as well")
    given |= {"labels": dict(options.label)} if options.label else {}
    return given | ({"retry": nested(options.retry)} if options.retry else {})
