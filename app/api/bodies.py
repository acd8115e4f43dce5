"""Reading what clients send: bounded in size, depth and time, and strictly JSON."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import orjson
from aiohttp import web
from aiohttp.http_exceptions import BadHttpMessage

from app.errors import BodyTimeout, MalformedJson, TooLarge, UnsupportedMediaType

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from app.config import ServerSection

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
NDJSON = "application/x-ndjson"
UNREADABLE = (BadHttpMessage, web.RequestPayloadError)


class Bodies:
    """Reads bodies within the limits of the settings."""

    def __init__(self, *, limits: ServerSection) -> None:
        self._limits = limits

    async def json(
        self, request: web.Request, *, max_size: int | None = None, types: tuple[str, ...] = (JSON,), wrapped: int = 0
    ) -> Any:
        """The body as JSON; its outer `wrapped` levels do not count as depth."""
        if not request.body_exists:
            raise MalformedJson("there is no body; send a JSON object")
        _check_type(request, types)
        return self.parse(await self._read(request, max_size or self._limits.max_body), wrapped)

    async def json_if_any(self, request: web.Request, *, max_size: int | None = None) -> Any:
        """The body as JSON; none as an empty object."""
        return await self.json(request, max_size=max_size) if request.body_exists else {}

    def parse(self, body: bytes, wrapped: int = 0) -> Any:
        try:
            value = orjson.loads(body)
        except orjson.JSONDecodeError as error:
            raise MalformedJson(f"the body is not JSON: {error}") from None
        limit = self._limits.max_depth + wrapped
        if body.count(b"{") + body.count(b"[") > limit and _is_deeper(value, limit):
            raise MalformedJson(f"the body is nested more than {limit} deep")
        return value

    async def lines(self, request: web.Request) -> AsyncIterator[list[bytes | None]]:
        """The lines of a stream, as many as have come together; None stands for one that is too long."""
        limit = self._limits.max_body
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

    async def _read(self, request: web.Request, limit: int) -> bytes:
        if (request.content_length or 0) > limit:
            raise _too_large(limit)
        content = request.content
        if content.is_eof():  # all of it is here: the usual case needs no timer
            try:
                body = content.read_nowait()
            except UNREADABLE as error:
                raise _unreadable(request, error) from None
            if len(body) > limit:
                raise _too_large(limit)
            return body
        parts = []
        size = 0
        async for chunk in self._chunks(request):
            size += len(chunk)
            if size > limit:
                raise _too_large(limit)
            parts.append(chunk)
        return b"".join(parts)

    async def _chunks(self, request: web.Request) -> AsyncIterator[bytes]:
        while not request.content.at_eof():
            try:
                async with asyncio.timeout(self._limits.body_timeout):
                    chunk = await request.content.readany()
            except TimeoutError:
                limit = self._limits.body_timeout
                raise BodyTimeout(
                    f"no byte of the body came for {limit:g} s", headers={"Connection": "close"}
                ) from None
            except UNREADABLE as error:
                raise _unreadable(request, error) from None
            yield chunk


def _check_type(request: web.Request, types: tuple[str, ...]) -> None:
    if request.content_type not in types and "Content-Type" in request.headers:
        given = request.headers["Content-Type"]
        raise UnsupportedMediaType(f"Content-Type {given!r} is not taken here; send {' or '.join(types)}")


def _too_large(limit: int) -> TooLarge:
    return TooLarge(f"the body is larger than {limit} bytes", headers={"Connection": "close"})


def _unreadable(request: web.Request, error: Exception) -> MalformedJson:
    request.content.feed_eof()  # or the library reads on after the answer, meets the error again and logs it
    detail = f"the body cannot be read: {type(error).__name__}; is its encoding what the headers say?"
    return MalformedJson(detail, headers={"Connection": "close"})


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
