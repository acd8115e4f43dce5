"""The stream of events over HTTP, as `EventSource` in a browser reads it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from aiohttp import web

from erelong.api import conditions
from erelong.api.events.frames import EVENT_STREAM, RETRY, Frames, keep_alive, mark, reset
from erelong.api.shapes.event_shapes import EventsIn
from erelong.errors import Problem
from erelong.model.caller import Scope
from erelong.web.auth import caller_of
from erelong.web.connection import client_of
from erelong.web.problems import STREAM, stream_headers
from erelong.web.response import AnyReply, Reply

if TYPE_CHECKING:
    from erelong.model.events.event import Event
    from erelong.service.events import Reader
    from erelong.service.services import Services
    from erelong.web.auth import KeyGate

SILENCE: Final = 15.0  # seconds after which a quiet stream sends its position
LAST_EVENT_ID: Final = "Last-Event-ID"
HEADERS: Final = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}  # the latter for nginx


class EventRoutes:
    """The handler of `/v1/events`."""

    def __init__(self, *, services: Services, gate: KeyGate) -> None:
        self._services = services
        self._gate = gate
        self._frames = Frames(blockers=services.blockers)

    async def read(self, request: web.Request) -> AnyReply:
        fields = conditions.read_query(request, EventsIn)
        if request.method == "HEAD":
            return Reply(headers={"Content-Type": EVENT_STREAM, **HEADERS})
        place = request.headers.get(LAST_EVENT_ID) or fields.since
        opening = self._services.events.open(
            fields.selection(), place=place, caller=caller_of(request), client=client_of(request)
        )
        with opening as reader:
            present = [] if place else await reader.read_present()
            response = web.StreamResponse(headers=stream_headers(request, EVENT_STREAM) | HEADERS)
            response.force_close()
            client_of(request).begin_stream()
            await response.prepare(request)
            request[STREAM] = response
            await self._stream(request, response, reader, present)
            await response.write_eof()
        return response

    async def _stream(
        self, request: web.Request, response: web.StreamResponse, reader: Reader, present: list[Event]
    ) -> None:
        """Send events until the service drains, the client leaves or its key is revoked."""
        clock = asyncio.get_running_loop().time
        await _send(request, response, self._open(reader, present))
        sent_at = clock()
        while not reader.is_over:
            try:
                reader.caller = self._gate.recheck(request, Scope.READ)  # a stream may outlive its key
            except Problem:  # the next request of the client gets it
                return
            text = self._next(reader)
            if not text and clock() >= sent_at + SILENCE:
                text = keep_alive(reader.place)
            if text:
                await _send(request, response, text)
                sent_at = clock()
            await reader.wait(sent_at + SILENCE - clock())

    def _open(self, reader: Reader, present: list[Event]) -> bytes:
        """Return the start of a stream. A client that has not received all present jobs has no position yet."""
        if present:
            shown = b"".join(map(self._frames.present, present))
            return RETRY + b"\n" + shown + self._next(reader) + mark(reader.place)
        reason = reader.take_reset()
        return RETRY + (mark(reader.place) if reason is None else reset(reader.place, reason))

    def _next(self, reader: Reader) -> bytes:
        reason = reader.take_reset()
        if reason is not None:
            return reset(reader.place, reason)
        return b"".join(self._frames.event(place, event) for place, event in reader.take())


async def _send(request: web.Request, response: web.StreamResponse, text: bytes) -> None:
    """Send text, and wait until the kernel has taken all of it."""
    await response.write(text)
    await request.writer.drain()
    await asyncio.sleep(0)
