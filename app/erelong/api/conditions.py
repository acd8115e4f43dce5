"""Reads headers, queries and new names (versions, preferences, idempotency keys, cursors), and writes cursors."""

from __future__ import annotations

import base64
import binascii
import re
from hashlib import sha256
from typing import TYPE_CHECKING, Any, TypeVar, get_origin

import orjson
from multidict import istr
from pydantic import BaseModel, ValidationError

from erelong.errors import BadCursor, BadHeader, Fault, Invalid
from erelong.model.faults import MAX_HINTS, hint
from erelong.model.submission import IdempotencyRecord
from erelong.settings.names import PATH_NAMES, is_name
from erelong.web.problems import MAX_FAULTS, faults_of
from erelong.web.router import name_in

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aiohttp import web
    from pydantic.fields import FieldInfo

    from erelong.model.caller import Caller

M = TypeVar("M", bound=BaseModel)

MAX_PARAMETERS = 400  # of a query

IDEMPOTENCY_KEY = istr("Idempotency-Key")

_TAG = re.compile(r'\s*(?:W/)?"([0-9]{1,18})"\s*')
_IDEMPOTENCY_KEY = re.compile(r"[\x20-\x7e]{1,255}")
_WAIT = re.compile(r"(?:^|[,;\s])wait\s*=\s*\"?([0-9]{1,9})\"?\s*(?:$|[,;])", re.IGNORECASE)


def expected_versions(request: web.Request) -> frozenset[int] | None:
    """Return the versions of `If-Match`; None means any."""
    return _versions(request, "If-Match")


def known_versions(request: web.Request) -> frozenset[int] | None:
    """Return the versions of `If-None-Match` of a write, or None without that header."""
    return _versions(request, "If-None-Match")


def is_known(request: web.Request, version: int) -> bool:
    """Return whether `If-None-Match` of a read names a version. Tags of other forms match none."""
    return has_tag(request, f'"{version}"')


def has_tag(request: web.Request, tag: str) -> bool:
    """Return whether `If-None-Match` names this tag."""
    if "If-None-Match" not in request.headers:
        return False
    tags = [part.strip() for part in ",".join(request.headers.getall("If-None-Match")).split(",")]
    return tag in tags or f"W/{tag}" in tags or "*" in tags


def _versions(request: web.Request, name: str) -> frozenset[int] | None:
    if name not in request.headers:
        return None
    text = ",".join(request.headers.getall(name))
    if text.strip() == "*":
        return None
    tags = [_TAG.fullmatch(part) for part in text.split(",")]
    if not all(tags):
        raise BadHeader(f'{name}: {text!r} is not a list of versions; send one from an ETag, such as "3", or *')
    return frozenset(int(tag[1]) for tag in tags if tag)


def preferred_wait(request: web.Request) -> float | None:
    """Return the seconds of `Prefer: wait=…`. Other preferences are ignored, as RFC 7240 requires."""
    if "Prefer" not in request.headers:
        return None
    match = _WAIT.search(",".join(request.headers.getall("Prefer")))
    return float(match[1]) if match else None


def idempotency_record(request: web.Request, body: Any, caller: Caller) -> IdempotencyRecord | None:
    """Return the record of a submit with an `Idempotency-Key`. Bodies with equal JSON values have the same digest."""
    if IDEMPOTENCY_KEY not in request.headers:
        return None
    keys = request.headers.getall(IDEMPOTENCY_KEY)
    key = keys[0]
    if len(keys) > 1 or not _IDEMPOTENCY_KEY.fullmatch(key):
        raise BadHeader("Idempotency-Key: send one key of 1 to 255 printable ASCII characters")
    text = request.path.encode() + b"\0" + orjson.dumps(body, option=orjson.OPT_SORT_KEYS)
    return IdempotencyRecord(caller=caller.name, key=key, digest=sha256(text).digest())


def new_name(request: web.Request, what: str) -> str:
    """Return the name in the path of something that the request may create, such as a queue."""
    name = name_in(request)
    if not is_name(name):
        fault = Fault("", f"{name!r} is not a valid {what} name; use {PATH_NAMES}")
        raise Invalid(f"the {what} name is not valid", faults=[fault])
    return name


def read_query(request: web.Request, model: type[M], *, context: dict[str, Any] | None = None) -> M:
    """Return the query as its model. Refuse unknown names. A single value of a list field becomes a list.

    A parameter `label.tenant` sets the item `tenant` of the dict field `label`.
    """
    if len(request.query) > MAX_PARAMETERS:
        detail = f"{len(request.query)} parameters; send at most {MAX_PARAMETERS}"
        raise Invalid("the query is not valid", faults=[Fault("", detail)])
    known = {name: _form(field) for name, field in model.model_fields.items()}
    values: dict[str, Any] = {}
    faults: list[Fault] = []
    for name in dict.fromkeys(request.query):
        given = request.query.getall(name)
        stem, dot, part = name.partition(".")
        form = known.get(stem) if dot else known.get(name)
        if form is None or (form is dict) is not bool(dot):
            faults.append(Fault(f"/{name}", _unknown(name, known, has_hint=len(faults) < MAX_HINTS)))
        elif len(given) > 1 and form is not list:
            faults.append(Fault(f"/{name}", "given more than once"))
        elif form is dict:
            values.setdefault(stem, {})[part] = given[0]
        else:
            values[name] = given if form is list else given[0]
    try:
        checked = model.model_validate(values, context=context)
    except ValidationError as error:
        faults += faults_of(error.errors(include_url=False), model)
    if faults:
        raise Invalid("the query is not valid", faults=faults[:MAX_FAULTS])
    return checked


def _unknown(name: str, known: Mapping[str, type], *, has_hint: bool) -> str:
    if known.get(name) is dict:
        return f"lacks a name; send {name}.<name>=<value>"
    return f"no such parameter; known: {_names(known)}{hint(name, (*known,)) if has_hint else ''}"


def _names(known: Mapping[str, type]) -> str:
    return ", ".join(f"{name}.<name>" if form is dict else name for name, form in known.items()) or "none"


def _form(field: FieldInfo) -> type:
    origin = get_origin(field.annotation)
    return origin if origin in (list, dict) else str


def write_cursor(filters: Mapping[str, Any], position: tuple[int, int]) -> str:
    return base64.urlsafe_b64encode(orjson.dumps([_bound(filters), *position])).decode().rstrip("=")


def read_cursor(text: str, filters: Mapping[str, Any]) -> tuple[int, int]:
    """Return the position in a cursor that was made for these filters."""
    try:
        bound, at, seq = orjson.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
        position = (int(at), int(seq))
    except (ValueError, TypeError, binascii.Error):
        raise BadCursor("this is not a cursor; send `next` of the previous page unchanged") from None
    if bound != _bound(filters) or not all(0 <= part < 1 << 62 for part in position):
        raise BadCursor("this cursor belongs to other filters; send it with the filters of the previous page")
    return position


def write_rank_cursor(filters: Mapping[str, Any], rank: float, name: str) -> str:
    """Return a cursor of a listing by a rank, then by name."""
    return write_name_cursor(filters, f"{rank!r}/{name}")


def read_rank_cursor(text: str, filters: Mapping[str, Any]) -> tuple[float, str]:
    """Return the rank and the name in a cursor that was made for these filters."""
    rank, _, name = read_name_cursor(text, filters).partition("/")
    try:
        return float(rank), name
    except ValueError:
        raise BadCursor("this is not a cursor; send `next` of the previous page unchanged") from None


def write_name_cursor(filters: Mapping[str, Any], name: str) -> str:
    """Return a cursor of a listing by name."""
    return base64.urlsafe_b64encode(orjson.dumps([_bound(filters), name])).decode().rstrip("=")


def read_name_cursor(text: str, filters: Mapping[str, Any]) -> str:
    """Return the name in a cursor that was made for these filters."""
    try:
        bound, name = orjson.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except (ValueError, TypeError, binascii.Error):
        raise BadCursor("this is not a cursor; send `next` of the previous page unchanged") from None
    if bound != _bound(filters) or not isinstance(name, str):
        raise BadCursor("this cursor belongs to other filters; send it with the filters of the previous page")
    return name


def write_entries(filters: Mapping[str, Any], entries: Sequence[int]) -> str:
    """Return a cursor of a listing in start order, after these entries of a lane."""
    return write_name_cursor(filters, ",".join(f"{entry:x}" for entry in entries))


def read_entries(text: str, filters: Mapping[str, Any]) -> list[int]:
    """Return the entries in a cursor that was made for these filters."""
    try:
        return [int(entry, 16) for entry in read_name_cursor(text, filters).split(",")]
    except ValueError:
        raise BadCursor("this is not a cursor; send `next` of the previous page unchanged") from None


def _bound(filters: Mapping[str, Any]) -> str:
    """Return a digest of filters. The order of the values of one filter does not matter."""
    filters = {name: sorted({*value}) if isinstance(value, list) else value for name, value in filters.items()}
    return sha256(orjson.dumps(filters, option=orjson.OPT_SORT_KEYS)).hexdigest()[:12]
