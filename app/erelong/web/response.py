"""A complete response: status, headers, body."""

from __future__ import annotations

import time
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, TypeAlias

import orjson
from aiohttp import HttpVersion10, hdrs, web

from erelong.web.body import JSON

if TYPE_CHECKING:
    from aiohttp.abc import AbstractStreamWriter
    from aiohttp.web_request import BaseRequest

LINES = {status.value: f"{status.value} {status.phrase}" for status in HTTPStatus}
BODILESS = (204, 304)


class Reply:
    """A response with only the methods that aiohttp needs; aiohttp's own class is slower.

    The reply owns `headers` and writes their names as given.
    """

    __slots__ = ("_writer", "body", "headers", "keep_alive", "status")

    def __init__(self, *, status: int = 200, body: bytes = b"", headers: dict[str, str] | None = None) -> None:
        self.status = status
        self.body = body
        self.headers = {} if headers is None else headers
        self.keep_alive: bool | None = None  # None: as the client asks

    def force_close(self) -> None:
        """Close the connection after this response."""
        self.keep_alive = False

    async def prepare(self, request: BaseRequest) -> AbstractStreamWriter:
        """Write the head; aiohttp holds it until the body follows."""
        if self.keep_alive is None:
            self.keep_alive = request.keep_alive
        is_head, is_old, headers = request.method == hdrs.METH_HEAD, request.version == HttpVersion10, self.headers
        if self.body or not (is_head or self.status in BODILESS):
            headers["Content-Length"] = str(len(self.body))
        headers["Date"] = _date(int(time.time()))
        if self.keep_alive is is_old:  # not the default of the version
            headers["Connection"] = "keep-alive" if is_old else "close"
        if is_head:
            self.body = b""
        line = LINES.get(self.status) or f"{self.status} "
        self._writer = request.writer
        await self._writer.write_headers(f"HTTP/1.{request.version.minor} {line}", headers)  # type: ignore[arg-type]  # aiohttp only iterates over the items
        return self._writer

    async def write_eof(self) -> None:
        await self._writer.write_eof(self.body)


AnyReply: TypeAlias = Reply | web.StreamResponse  # the latter for streams


def json_reply(value: Any, *, status: int = 200) -> Reply:
    return Reply(status=status, body=orjson.dumps(value), headers={"Content-Type": JSON})


@lru_cache(maxsize=1)
def _date(second: int) -> str:
    return formatdate(second, usegmt=True)
