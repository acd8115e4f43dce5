"""Reads the text of an event stream line by line, and remembers the place in it. Without I/O."""

from __future__ import annotations

import json
from typing import Final

from erelong.client.records import Event
from erelong.client.requests import Request, get

SILENCE: Final = 45.0  # seconds without a byte after which a stream counts as lost; the service sends one each 15 s


class EventReader:
    """Turns lines into events."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._last_id = ""
        self._fields: dict[str, str] = {}
        self.pause = 2.0  # before the next connection, as the service asks

    def request(self) -> Request:
        """Return the request that continues after the last event."""
        request = get(self._path)
        place = {"Last-Event-ID": self._last_id} if self._last_id else {}
        self._fields = {}
        return Request(method="GET", path=request.path, headers={"Accept": "text/event-stream", **place})

    def read(self, line: bytes) -> Event | None:
        """Take one line; return the event that it completes, if any."""
        name, _, value = line.decode(errors="replace").rstrip("\r\n").partition(":")
        if name:
            self._fields[name] = value.removeprefix(" ")
            return None
        fields, self._fields = self._fields, {}
        self._last_id = fields.get("id", self._last_id)
        if fields.get("retry", "").isdigit():
            self.pause = int(fields["retry"]) / 1_000
        if "data" not in fields:
            return None
        return Event(fields.get("event", "message"), json.loads(fields["data"]))
