"""Reads request bodies: strict JSON, bounded in size, depth and time."""

from __future__ import annotations

import asyncio
import codecs
from typing import TYPE_CHECKING, Any

import orjson
from aiohttp import hdrs, web
from aiohttp.http_exceptions import BadHttpMessage

from erelong.errors import (
    BodyTimeout,
    Fault,
    Invalid,
    MalformedJson,
    Overloaded,
    Problem,
    TooLarge,
    UnsupportedMediaType,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from erelong.settings.sections import LimitsSection

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
NDJSON = "application/x-ndjson"
ENCODINGS = "unsupported Content-Encoding; send the body uncompressed, or as gzip or deflate"
LEAST_RATE = 16_384  # bytes a second that a slow body must reach
MAX_WHOLE = 16  # incomplete bodies together may take this many times `max_batch_body`
MAX_VALUES = 300_000  # in one body: parsing more would block the loop for too long
MAX_NARROW = 8_192  # bytes: a smaller body has too few names to matter
MAX_NAMES = 100  # of an object with known names: reporting an unknown name costs far more than parsing it
FREE = frozenset({"params", "params_schema", "result"})  # objects that may have any names
MARKS = (codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
CLOSE = {"Connection": "close"}
UNREADABLE = (BadHttpMessage, web.RequestPayloadError)


class Bodies:
    """Reads bodies within the limits of the settings."""

    def __init__(self, *, limits: LimitsSection, timeout: float) -> None:
        self._limits = limits
        self._timeout = timeout
        self._max_body, self._max_depth = limits.max_body, limits.max_depth  # attributes of a model are slow
        self._held = 0  # bytes of incomplete bodies

    async def json(
        self, request: web.Request, *, max_size: int | None = None, types: tuple[str, ...] = (JSON,), wrapped: int = 0
    ) -> Any:
        """Return the body as JSON. Its outer `wrapped` levels do not count as depth."""
        if not request.body_exists:
            raise MalformedJson("the request has no body; send a JSON object")
        _check_type(request, types)
        limit = max_size or self._max_body
        whole = request.content.is_eof()  # the usual case, which needs no timer
        return self.parse(_take(request, limit) if whole else await self._gather(request, limit), wrapped)

    async def json_if_any(self, request: web.Request, *, max_size: int | None = None) -> Any:
        """Return the body as JSON, or an empty object if there is none."""
        return await self.json(request, max_size=max_size) if request.body_exists else {}

    def parse(self, body: bytes, wrapped: int = 0, what: str = "body") -> Any:
        """Return text as JSON; `what` names it in errors."""
        if len(body) > MAX_VALUES and body.count(b",") > MAX_VALUES:
            raise TooLarge(f"the {what} has more than {MAX_VALUES} commas, so too many values; send it in parts")
        try:
            value = orjson.loads(body)
        except orjson.JSONDecodeError as error:
            raise _unparsed(body, what, error) from None
        limit = self._max_depth + wrapped
        if body.count(b"{") + body.count(b"[") > limit and _is_deeper(value, limit):
            raise MalformedJson(f"the {what} is nested more than {limit} levels deep")
        if len(body) > MAX_NARROW:
            refuse_many_names(value)
        return value

    async def lines(self, request: web.Request) -> AsyncIterator[list[bytes | None]]:
        """Yield the lines of a stream in groups as they arrive. None stands for a line that is too long."""
        limit = self._max_body
        rest = b""
        is_skipping = False
        async for chunk in self._chunks(request):
            *lines, rest = (rest + chunk).split(b"\n")
            complete: list[bytes | None] = [line if len(line) <= limit else None for line in lines]
            if is_skipping and complete:
                complete[0] = None
                is_skipping = False
            if len(rest) > limit:
                is_skipping, rest = True, b"x"
            elif is_skipping:
                rest = b"x"
            if complete:
                yield complete
        if rest.strip() or is_skipping:
            yield [None if is_skipping else rest]

    async def _gather(self, request: web.Request, limit: int) -> bytes:
        if (request.content_length or 0) > limit:
            raise _too_large(limit)
        parts = bytearray()
        try:
            async for chunk in self._chunks(request, LEAST_RATE):
                parts += chunk
                self._held += len(chunk)
                if len(parts) > limit:
                    raise _too_large(limit)
                self._refuse_too_much()
            return bytes(parts)
        finally:
            self._held -= len(parts)

    def _refuse_too_much(self) -> None:
        limit = MAX_WHOLE * self._limits.max_batch_body
        if self._held > limit:
            raise Overloaded(
                f"the service is reading {limit} bytes of request bodies; send this request again", headers=CLOSE
            )

    async def _chunks(self, request: web.Request, least_rate: int = 0) -> AsyncIterator[bytes]:
        """Yield chunks as they arrive. Raise `BodyTimeout` after `body_timeout` without a byte or below the rate."""
        timeout, tick = self._timeout, asyncio.get_running_loop().time
        late_at = tick() + timeout
        while not request.content.at_eof():
            try:
                async with asyncio.timeout(min(timeout, late_at - tick()) if least_rate else timeout):
                    chunk = await request.content.readany()
                if least_rate:
                    late_at += len(chunk) / least_rate
            except TimeoutError:
                pace = f", or less than {least_rate} bytes a second" if least_rate else ""
                raise BodyTimeout(f"no byte of the body came for {timeout:g} s{pace}", headers=CLOSE) from None
            except UNREADABLE as error:
                raise _unreadable(request, error) from None
            yield chunk


def refuse_many_names(value: Any) -> None:
    """Refuse an object with very many names before each name is checked."""
    if not isinstance(value, dict):
        return
    parts = {f"/{name}": part for name, part in value.items() if name not in FREE} if len(value) <= MAX_NAMES else {}
    for pointer, part in {"": value, **parts}.items():
        if isinstance(part, dict) and len(part) > MAX_NAMES:
            faults = [Fault(pointer, f"{len(part)} names; an object here has at most {MAX_NAMES}")]
            raise Invalid("invalid request", faults=faults)


def _check_type(request: web.Request, types: tuple[str, ...]) -> None:
    given = request.headers.get(hdrs.CONTENT_TYPE)
    if given is not None and given not in types and request.content_type not in types:
        raise UnsupportedMediaType(f"unsupported Content-Type {given!r}; send {' or '.join(types)}")
    encoding = request.headers.get(hdrs.CONTENT_ENCODING)  # aiohttp passes on unknown ones undecoded
    if encoding is not None and encoding.lower() not in ("gzip", "deflate", "identity"):
        raise UnsupportedMediaType(ENCODINGS)


def _take(request: web.Request, limit: int) -> bytes:
    try:
        body = request.content.read_nowait()
    except UNREADABLE as error:
        raise _unreadable(request, error) from None
    if len(body) > limit:
        raise _too_large(limit)
    return body


def _too_large(limit: int) -> TooLarge:
    return TooLarge(f"the body is larger than {limit} bytes", headers=CLOSE)


def _unreadable(request: web.Request, error: Exception) -> MalformedJson:
    request.content.feed_eof()  # otherwise aiohttp reads on after the response, hits the error again and logs it
    detail = "the body does not match its headers; check Content-Length, Transfer-Encoding and Content-Encoding"
    return MalformedJson(detail, headers=CLOSE)


def _unparsed(body: bytes, what: str, error: orjson.JSONDecodeError) -> Problem:
    """Return the problem of text that is not JSON, in words of the API where the parser's are those of Python."""
    if "infinity" in error.msg:
        fault = Fault("", f"the {what} has a number beyond ±1.8e308 at {_position(error)}; send a smaller one, or text")
        return Invalid("invalid request", faults=[fault])
    if body.startswith(MARKS):
        return MalformedJson(f"the {what} begins with a byte order mark; send UTF-8 without one")
    if "UTF-8" in error.msg:
        return MalformedJson(f"the {what} is not UTF-8; send JSON in UTF-8")
    if not body.strip():
        return MalformedJson(f"the {what} is empty; send JSON")
    return MalformedJson(f"the {what} is not JSON: {error.msg} at {_position(error)}")


def _position(error: orjson.JSONDecodeError) -> str:
    """Return where the parser stopped. One line gets only a column: in a stream its number would be wrong."""
    column = f"column {error.colno}"
    return column if error.lineno == 1 else f"line {error.lineno}, {column}"


def _is_deeper(value: Any, limit: int) -> bool:
    level = [value]
    for _ in range(limit):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return False
    return True
