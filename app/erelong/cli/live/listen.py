"""The command that receives webhooks, to try them out."""

from __future__ import annotations

import errno
import sys
from datetime import UTC, datetime
from pathlib import Path
from queue import Empty
from typing import TYPE_CHECKING, Any, Final

from erelong.cli.console.options import positive, seconds
from erelong.cli.console.output import has_colours, printable, to_json
from erelong.cli.console.running import Usage, client_of
from erelong.cli.live.answers import Answers, plan
from erelong.cli.live.receiver import Receiver
from erelong.client.calls import jobs as calls
from erelong.client.drafts import Draft
from erelong.client.errors import ErelongError, Invalid, NoAnswer
from erelong.webhooks import InvalidSignature, verify

if TYPE_CHECKING:
    import argparse

    from erelong.cli.live.receiver import Received

LOOK: Final = 0.5  # seconds between two looks for Ctrl-C
MAX_SHOWN: Final = 2_000  # characters of a body
LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")
_INDENT: Final = "          "


def add(_: str, parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--port", type=int, default=9_000, help="listen on this port (9000); 0 is any free one")
    parser.add_argument("--host", default="127.0.0.1", help="listen on this address (127.0.0.1)")
    parser.add_argument(
        "--answer", type=plan, default=[200], metavar="PLAN", help="503x2,200: fail twice, then accept (200)"
    )
    parser.add_argument("--delay", type=seconds, default=0.0, metavar="DURATION", help="wait before each answer")
    parser.add_argument(
        "--secret", action="append", default=[], metavar="WHSEC", help="verify signatures; one of signing_secrets"
    )
    parser.add_argument("--secret-file", type=Path, metavar="FILE", help="file that has such secrets, one per line")
    parser.add_argument("--headers", action="store_true", help="show all headers")
    parser.add_argument("--limit", type=positive, metavar="N", help="end after this many requests")
    parser.set_defaults(call=listen)


def listen(options: argparse.Namespace) -> int:
    secrets = [*options.secret]
    if options.secret_file is not None:
        secrets += options.secret_file.read_text(encoding="utf-8").split()
    answers = Answers(options.answer)
    try:
        receiver = Receiver(host=options.host, port=options.port, answers=answers, delay=options.delay)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        raise Usage(f"port {options.port} is in use: give another --port, or 0 for a free one") from None
    with receiver:
        host = f"[{options.host}]" if ":" in options.host else options.host
        _advise(options, f"http://{host}:{receiver.server_address[1]}/")
        left = options.limit
        while left is None or left > 0:
            try:
                received = receiver.received.get(timeout=LOOK)
            except Empty:
                continue
            _show(received, _verdict(received, secrets), options)
            sys.stdout.flush()
            left = None if left is None else left - 1
    return 0


def _advise(options: argparse.Namespace, url: str) -> None:
    """Say how to send a webhook here, and what keeps the service from it."""
    print(f"erelong: listening on {url}; try: erelong submit http url={url}hello json.n:=1", file=sys.stderr)
    request = calls.submit(Draft("http", {"url": url}), None)
    options.request_timeout = min(options.request_timeout, 2.0)
    try:
        with client_of(options, retries=False) as client:
            client.send(request._replace(path=f"{request.path}?dry_run=true"))
    except Invalid as problem:
        if any(error.get("pointer") == "/params/url" for error in problem.errors):
            print(_of_networks(options.host), file=sys.stderr)
    except NoAnswer:
        print("erelong: no service responds; start one with: erelong serve", file=sys.stderr)
    except ErelongError:
        return  # such as a key that may not submit: it is no matter of this command


def _of_networks(host: str) -> str:
    network = "::1/128" if ":" in host else ("127.0.0.0/8" if host in LOOPBACK else f"{host}/32")
    return (
        f"erelong: the service does not call {host} yet. Add this to its config.toml, and restart it:\n\n"
        f'[webhooks]\nallow_networks = ["{network}"]\n'
    )


def _verdict(received: Received, secrets: list[str]) -> str:
    """Return a phrase about the signature of a request."""
    if not secrets:
        return "signed, not verified: give --secret" if "webhook-signature" in received.headers else "not signed"
    try:
        verify(received.headers, received.body, secrets)
    except InvalidSignature as error:
        return str(error)
    return "signature ok"


def _show(received: Received, verdict: str, options: argparse.Namespace) -> None:
    headers = received.headers
    job, attempt = headers.get("webhook-id", ""), headers.get("x-erelong-attempt", "")
    body = received.body.decode(errors="replace")
    instant = datetime.fromtimestamp(received.at, UTC)
    if options.json:
        fields: dict[str, Any] = {"time": instant.isoformat(), **received._asdict(), "signature": verdict, "body": body}
        print(to_json({name: value for name, value in fields.items() if name != "at"}))
        return
    if not sys.stdout.isatty():
        cells = [instant.isoformat(), received.method, received.path, job, attempt, verdict, str(received.status), body]
        print("\t".join(printable(cell) for cell in cells))
        return
    local = instant.astimezone(UTC if options.utc else None)
    about = f"  job {job}, attempt {attempt}{_lateness(received)}" if job else ""
    print(printable(f"{local:%H:%M:%S}  {received.method} {received.path}{about}"))
    if options.headers:
        for name, value in headers.items():
            print(printable(f"{_INDENT}{name}: {value}"))
    if body:
        print(_INDENT + printable(body[:MAX_SHOWN]))
    colour = "32" if verdict == "signature ok" else "33"
    print(f"{_INDENT}{_coloured(printable(verdict), colour)}; answered {received.status}")


def _lateness(received: Received) -> str:
    """Return how long after its due time a first attempt came; clocks of two machines may differ."""
    try:
        due_at = datetime.fromisoformat(received.headers["x-erelong-due-at"]).timestamp()
    except (KeyError, ValueError):
        return ""
    return f", {(received.at - due_at) * 1_000:,.1f} ms after it was due"


def _coloured(text: str, colour: str) -> str:
    return f"\x1b[{colour}m{text}\x1b[0m" if has_colours() else text
