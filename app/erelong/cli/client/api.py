"""The command that sends any request of the HTTP API."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from erelong.cli.console.options import add_change, json_of_stdin, params_of
from erelong.cli.console.output import printable
from erelong.cli.console.running import NOT_FOUND, Usage, client_of
from erelong.client.errors import Unsupported
from erelong.client.requests import Repeat, Request, send, with_query

if TYPE_CHECKING:
    import argparse

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")


def add(_: str, parser: argparse.ArgumentParser) -> None:
    parser.add_argument("method", metavar="METHOD", type=str.upper, choices=METHODS, help=", ".join(METHODS))
    parser.add_argument("path", metavar="PATH", help="such as /v1/jobs?state=failed")
    parser.add_argument(
        "items",
        nargs="*",
        default=[],
        metavar="NAME=VALUE",
        help="the body, or the query of a GET, as in submit; - reads the body",
    )
    parser.add_argument(
        "--idempotency-key", metavar="KEY", help="repeat the request if its answer is lost: the service does it once"
    )
    add_change(parser)
    parser.set_defaults(call=call)


def call(options: argparse.Namespace) -> int:
    if not options.path.startswith("/"):
        raise Usage(f"{options.path!r} is not a path: begin it with /, such as /v1/jobs")
    body = json_of_stdin() if options.items == ["-"] else (params_of(options.items) if options.items else None)
    request = _request(options, body)
    with client_of(options) as client:
        if options.curl:
            client.print_as_curl(request)
        try:
            answer = client.ask(request)
        except Unsupported:
            where = f"{client.url} has no {request.method} {request.path.partition('?')[0]}"
            print(f"erelong: {printable(where)}: check the path; {client.url}/docs lists all of them", file=sys.stderr)
            return NOT_FOUND
    text = answer.body.decode(errors="replace")
    sys.stdout.write(text if text.endswith("\n") or not text else f"{text}\n")
    return 0


def _request(options: argparse.Namespace, body: object) -> Request:
    if options.method == "GET":
        if body is not None and not isinstance(body, dict):
            raise Usage("the query of a GET is an object: give name=value")
        return Request(method="GET", path=with_query(options.path, body or {}))
    if options.idempotency_key is None:
        return send(options.method, options.path, body, repeat=Repeat.UNBEGUN)
    return send(options.method, options.path, body, headers={"Idempotency-Key": options.idempotency_key})
