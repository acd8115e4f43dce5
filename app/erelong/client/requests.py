"""Requests and their answers as values, and which requests may be repeated."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, Final, NamedTuple
from urllib.parse import quote, urlencode

from erelong.client.values import dump

JSON: Final = "application/json"


class Repeat(Enum):
    """When a request may be sent again."""

    READ = "read"
    """Always: it changes nothing."""

    SAFE = "safe"
    """Always: a second one has no further effect, by its nature or by its Idempotency-Key."""

    UNBEGUN = "unbegun"
    """Only if the service certainly did not begin it."""


class Request(NamedTuple):
    """One request. `wait` is how long the service may hold it. `maybe_gone`: once it is repeated, 404 means done."""

    method: str
    path: str
    body: bytes | None = None
    headers: Mapping[str, str] = {}
    repeat: Repeat = Repeat.READ
    wait: float = 0.0
    maybe_gone: bool = False


class Answer(NamedTuple):
    """One response. Names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Cut(Exception):
    """The transport got no whole answer. `is_sent`: the service may have got the request.

    `is_lasting`: trying again cannot help, as with a wrong certificate.
    """

    def __init__(self, reason: str, *, is_sent: bool, is_lasting: bool = False) -> None:
        super().__init__(reason)
        self.is_sent = is_sent
        self.is_lasting = is_lasting


def tls_cut(url: str, error: Any) -> Cut:
    """Return the end of a connection that could not be secured; `error` is of the module ssl.

    Another try helps only if the other side has hung up.
    """
    reason = str(getattr(error, "reason", None) or error).replace("_", " ").lower()
    is_plain = reason in ("wrong version number", "record layer failure", "http request")
    remedy = f"it seems to be a plain port: write {url.replace('https://', 'http://', 1)}" if is_plain else reason
    return Cut(f"no TLS connection to {url}: {remedy}", is_sent=False, is_lasting="eof" not in reason)


def get(path: str, query: Mapping[str, Any] | None = None, *, wait: float = 0.0) -> Request:
    return Request(method="GET", path=with_query(path, query or {}), wait=wait)


def send(
    method: str,
    path: str,
    body: Any = None,
    *,
    query: Mapping[str, Any] | None = None,
    headers: Mapping[str, str] | None = None,
    repeat: Repeat = Repeat.SAFE,
    wait: float = 0.0,
) -> Request:
    """Return a request that changes something, with a JSON body if there is one."""
    content = {} if body is None else {"Content-Type": JSON}
    return Request(
        method=method,
        path=with_query(path, query or {}),
        body=None if body is None else dump(body),
        headers={**content, **(headers or {})},
        repeat=repeat,
        wait=wait,
        maybe_gone=method == "DELETE",
    )


def with_headers(request: Request, **headers: str) -> Request:
    """Return a request with further headers."""
    return request._replace(headers={**request.headers, **headers})


def with_query(path: str, query: Mapping[str, Any]) -> str:
    pairs = [
        (name, text)
        for name, value in query.items()
        if value is not None
        for text in (value if isinstance(value, list | tuple | set | frozenset) else [value])
    ]
    text = urlencode([(name, _text(value)) for name, value in pairs])
    return f"{path}?{text}" if text else path


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def segment(name: str) -> str:
    """Return a name as one segment of a path."""
    return quote(name, safe="~")
