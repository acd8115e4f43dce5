"""Reading what clients send: bounded in size, depth and time, and strictly JSON."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import orjson
from aiohttp import hdrs, web
from aiohttp.http_exceptions import BadHttpMessage

from erelong.errors import BodyTimeout, Fault, Invalid, MalformedJson, Overloaded, TooLarge, UnsupportedMediaType

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from erelong.settings.sections import LimitsSection

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
NDJSON = "application/x-ndjson"
ENCODINGS = "the Content-Encoding is not taken here; send the body plain, or as gzip or deflate"
LEAST_RATE = 16_384  # bytes a second of a body that is slow
MAX_WHOLE = 16  # times `max_batch_body` is what all bodies that are not whole yet may take
MAX_VALUES = 300_000  # in one body: to parse more would keep all others waiting
MAX_NARROW = 8_192  # bytes in which the names are too few to matter
MAX_NAMES = 100  # of an object whose names are known; each that is not costs ten times what it took to parse it
FREE = frozenset({"params", "result"})  # objects that may have any names
CLOSE = {"Connection": "close"}
UNREADABLE = (BadHttpMessage, web.RequestPayloadError)


class Bodies:
    """Reads bodies within the limits of the settings."""

    def __init__(self, *, limits: LimitsSection, timeout: float) -> None:
        self._limits = limits
        self._timeout = timeout
        self._max_body, self._max_depth = limits.max_body, limits.max_depth  # a model is slow to ask
        self._held = 0  # bytes of bodies that are not whole yet

    async def json(
        self, request: web.Request, *, max_size: int | None = None, types: tuple[str, ...] = (JSON,), wrapped: int = 0
    ) -> Any:
        """The body as JSON; its outer `wrapped` levels do not count as depth."""
        if not request.body_exists:
            raise MalformedJson("there is no body; send a JSON object")
        _check_type(request, types)
        limit = max_size or self._max_body
        whole = request.content.is_eof()  # all of it is here: the usual case needs no timer
        return self.parse(_take(request, limit) if whole else await self._gather(request, limit), wrapped)

    async def json_if_any(self, request: web.Request, *, max_size: int | None = None) -> Any:
        """The body as JSON; none as an empty object."""
        return await self.json(request, max_size=max_size) if request.body_exists else {}

    def parse(self, body: bytes, wrapped: int = 0, what: str = "body") -> Any:
        """A body or a `what`, as JSON."""
        if len(body) > MAX_VALUES and body.count(b",") > MAX_VALUES:
            raise TooLarge(f"the {what} has more than {MAX_VALUES} commas, and so values; send it in parts")
        try:
            value = orjson.loads(body)
        except orjson.JSONDecodeError as error:
            raise MalformedJson(f"the {what} is not JSON: {error.msg} at {_place(error)}") from None
        limit = self._max_depth + wrapped
        if body.count(b"{") + body.count(b"[") > limit and _is_deeper(value, limit):
            raise MalformedJson(f"the {what} is nested more than {limit} deep")
        if len(body) > MAX_NARROW:
            refuse_wide(value)
        return value

    async def lines(self, request: web.Request) -> AsyncIterator[list[bytes | None]]:
        """The lines of a stream, as many as have come together; None stands for one that is too long."""
        limit = self._max_body
        rest = b""
        is_skipping = False
        async for chunk in self._chunks(request):
            *lines, rest = (rest + chunk).split(b"\n")
            found: list[bytes | None] = [line if len(line) <= limit else None for line in lines]
            if is_skipping and found:
                found[0] = None
                is_skipping = False
            if len(rest) > limit:
                is_skipping, rest = True, b"x"
            elif is_skipping:
                rest = b"x"
            if found:
                yield found
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
        most = MAX_WHOLE * self._limits.max_batch_body
        if self._held > most:
            raise Overloaded(f"{most} bytes of bodies are being read; send this one again", headers=CLOSE)

    async def _chunks(self, request: web.Request, least_rate: int = 0) -> AsyncIterator[bytes]:
        """What comes, as it comes: never nothing for `body_timeout`, and at `least_rate` after that time."""
        patience, tick = self._timeout, asyncio.get_running_loop().time
        late_at = tick() + patience
        while not request.content.at_eof():
            try:
                async with asyncio.timeout(min(patience, late_at - tick()) if least_rate else patience):
                    chunk = await request.content.readany()
                if least_rate:
                    late_at += len(chunk) / least_rate
            except TimeoutError:
                pace = f", or less than {least_rate} bytes a second" if least_rate else ""
                raise BodyTimeout(f"no byte of the body came for {patience:g} s{pace}", headers=CLOSE) from None
            except UNREADABLE as error:
                raise _unreadable(request, error) from None
            yield chunk


def refuse_wide(value: Any) -> None:
    """Refuse an object of very many names before each of them is looked at."""
    if not isinstance(value, dict):
        return
    parts = {f"/{name}": part for name, part in value.items() if name not in FREE} if len(value) <= MAX_NAMES else {}
    for pointer, part in {"": value, **parts}.items():
        if isinstance(part, dict) and len(part) > MAX_NAMES:
            faults = [Fault(pointer, f"{len(part)} names; none of what is taken here has more than {MAX_NAMES}")]
            raise Invalid("the request cannot be taken", faults=faults)


def _check_type(request: web.Request, types: tuple[str, ...]) -> None:
    given = request.headers.get(hdrs.CONTENT_TYPE)
    if given is not None and given not in types and request.content_type not in types:
        raise UnsupportedMediaType(f"Content-Type {given!r} is not taken here; send {' or '.join(types)}")
    encoding = request.headers.get(hdrs.CONTENT_ENCODING)  # those that the library does not know it leaves as they are
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
    request.content.feed_eof()  # or the library reads on after the answer, meets the error again and logs it
    detail = f"the body cannot be read: {type(error).__name__}; is its encoding what the headers say?"
    return MalformedJson(detail, headers=CLOSE)


def _place(error: orjson.JSONDecodeError) -> str:
    """Where the parser stopped. In one line by its column alone: a line of a stream is not the first of that."""
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
