"""What clients say in headers and queries: versions, preferences, keys, cursors; and what is said back."""

from __future__ import annotations

import base64
import binascii
import re
from hashlib import sha256
from typing import TYPE_CHECKING, Any, TypeVar

import orjson
from pydantic import BaseModel, ValidationError

from app.api.errors import faults_of
from app.errors import BadCursor, BadHeader, Fault, Invalid
from app.stores.base import Memo

if TYPE_CHECKING:
    from collections.abc import Collection

    from aiohttp import web

M = TypeVar("M", bound=BaseModel)

LABEL_PREFIX = "label."

_TAG = re.compile(r'\s*(?:W/)?"(\d{1,18})"\s*')
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_IDEMPOTENCY_KEY = re.compile(r"[\x20-\x7e]{1,255}")
_WAIT = re.compile(r"(?:^|[,;\s])wait\s*=\s*\"?(\d{1,9})\"?\s*(?:$|[,;])")
_NUMBER = re.compile(r"-?\d+(\.\d+)?([eE][+-]?\d+)?")


def is_request_id(text: str) -> bool:
    return _REQUEST_ID.fullmatch(text) is not None


def expected_versions(request: web.Request) -> frozenset[int] | None:
    """The versions of `If-Match`; None for any."""
    return _versions(request, "If-Match")


def known_versions(request: web.Request) -> frozenset[int] | None:
    """The versions of `If-None-Match`; None if it is not there."""
    return _versions(request, "If-None-Match")


def _versions(request: web.Request, name: str) -> frozenset[int] | None:
    text = request.headers.get(name)
    if text is None or text.strip() == "*":
        return None
    tags = [_TAG.fullmatch(part) for part in text.split(",")]
    if not all(tags):
        raise BadHeader(f'{name}: {text!r} is not a list of versions; send one as ETag gave it, such as "3", or *')
    return frozenset(int(tag[1]) for tag in tags if tag)


def preferred_wait(request: web.Request) -> float | None:
    """The seconds of `Prefer: wait=…`; preferences that are not understood are to be ignored."""
    found = _WAIT.search(request.headers.get("Prefer", ""))
    return float(found[1]) if found else None


def idempotency_memo(request: web.Request, body: Any) -> Memo | None:
    """What is remembered of a submit that carries an `Idempotency-Key`: equal JSON values are the same body."""
    key = request.headers.get("Idempotency-Key")
    if key is None:
        return None
    if not _IDEMPOTENCY_KEY.fullmatch(key):
        raise BadHeader("Idempotency-Key: 1 to 255 printable ASCII characters are taken")
    text = request.path.encode() + b"\0" + orjson.dumps(body, option=orjson.OPT_SORT_KEYS)
    return Memo(caller="", key=key, digest=sha256(text).digest())


def read_query(request: web.Request, model: type[M], *, context: dict[str, Any] | None = None) -> M:
    """The query as its model says; unknown names are refused, a lone value of a list is a list."""
    values: dict[str, Any] = {}
    faults: list[Fault] = []
    for name in dict.fromkeys(request.query):
        given = request.query.getall(name)
        field = model.model_fields.get(name)
        if field is None:
            faults.append(Fault(f"/{name}", f"no such parameter; known: {', '.join(model.model_fields)}"))
        elif str(field.annotation).startswith("list"):
            values[name] = given
        elif len(given) > 1:
            faults.append(Fault(f"/{name}", "given more than once"))
        else:
            values[name] = _as_number(given[0])
    try:
        checked = model.model_validate(values, context=context)
    except ValidationError as error:
        faults += faults_of(error.errors(include_url=False))
    if faults:
        raise Invalid("the query cannot be understood", faults=faults)
    return checked


def take_labels(request: web.Request) -> tuple[web.Request, dict[str, str]]:
    """Take the `label.<name>` parameters out of the query."""
    labels = {name[len(LABEL_PREFIX) :]: text for name, text in request.query.items() if name.startswith(LABEL_PREFIX)}
    if not labels:
        return request, labels
    rest = [(name, text) for name, text in request.query.items() if not name.startswith(LABEL_PREFIX)]
    return request.clone(rel_url=request.rel_url.with_query(rest)), labels


def write_cursor(filters: Collection[Any], position: tuple[int, int]) -> str:
    return base64.urlsafe_b64encode(orjson.dumps([_bound(filters), *position])).decode().rstrip("=")


def read_cursor(text: str, filters: Collection[Any]) -> tuple[int, int]:
    """The position of a cursor made for these filters."""
    try:
        bound, at, seq = orjson.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
        position = (int(at), int(seq))
    except (ValueError, TypeError, binascii.Error):
        raise BadCursor("this is not a cursor; send `next` of the page before as it came") from None
    if bound != _bound(filters) or not all(0 <= part < 1 << 62 for part in position):
        raise BadCursor("this cursor belongs to other filters; send it with those of the page before")
    return position


def _bound(filters: Collection[Any]) -> str:
    return sha256(orjson.dumps(filters)).hexdigest()[:12]


def _as_number(text: str) -> Any:
    if not _NUMBER.fullmatch(text):
        return text
    return int(text) if text.lstrip("-").isdigit() and len(text) < 16 else float(text)
