"""Requests as text: a trace of them on standard error, and the command line of curl. Neither shows an API key."""

from __future__ import annotations

import shlex
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from erelong.cli.console.output import printable
from erelong.client.requests import Cut
from erelong.client.sync.transport import Transport

if TYPE_CHECKING:
    from collections.abc import Iterator

    from erelong.client.requests import Answer, Request

MAX_SHOWN: Final = 2_000  # characters of a body


def as_curl(request: Request, url: str, *, has_key: bool) -> str:
    words = ["curl", "-s"]
    if request.method != ("GET" if request.body is None else "POST"):
        words += ["-X", request.method]
    words.append(shlex.quote(url + request.path))
    for name, value in request.headers.items():
        words += ["-H", shlex.quote(f"{name}: {value}")]
    if has_key:
        words += ["-H", '"Authorization: Bearer $ERELONG_KEY"']  # the shell fills it in
    if request.body is not None:
        words += ["-d", shlex.quote(request.body.decode())]
    return " ".join(words)


class TracedTransport(Transport):
    """A transport that prints each try of a request and its answer."""

    def send(self, request: Request, timeout: float) -> Answer:
        self._print_request(request)
        began = time.monotonic()
        try:
            answer = super().send(request, timeout)
        except Cut as cut:
            _print(f"! {cut}")
            raise
        _print(f"< {answer.status} in {(time.monotonic() - began) * 1_000:.1f} ms")
        for name in ("x-request-id", "retry-after", "idempotency-replayed"):
            if name in answer.headers:
                _print(f"< {name}: {answer.headers[name]}")
        _print_body("<", answer.body)
        return answer

    @contextmanager
    def stream(self, request: Request, silence: float) -> Iterator[Iterator[bytes]]:
        self._print_request(request)
        with super().stream(request, silence) as lines:
            _print("< stream")
            yield lines

    def _print_request(self, request: Request) -> None:
        _print(f"> {request.method} {self._url}{request.path}")
        for name, value in {**self._headers, **request.headers}.items():
            _print(f"> {name.lower()}: {'Bearer erl_…' if name == 'Authorization' else value}")
        _print_body(">", request.body or b"")


def _print_body(sign: str, body: bytes) -> None:
    if body:
        text = body[:MAX_SHOWN].decode(errors="replace")
        _print(f"{sign} {text}{f' … {len(body):,} bytes' if len(body) > MAX_SHOWN else ''}")


def _print(text: str) -> None:
    print(printable(text), file=sys.stderr)
