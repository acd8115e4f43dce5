"""Events as the text of an event stream."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import orjson

from erelong.api.shapes.operation_views import operation_view
from erelong.clock.instants import format_instant
from erelong.model.job import Job
from erelong.model.operations.operation import Operation
from erelong.model.reports.job_view import job_view

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from erelong.engine.events.ring import Place
    from erelong.model.events.event import Event
    from erelong.service.blockers import Blockers
    from erelong.service.events import Reset

EVENT_STREAM: Final = "text/event-stream"
MAX_DATA: Final = 8_192  # bytes of one event
SHORTER: Final = (500, 50)  # characters of an error message that is cut

_LARGE: Final = {"filter", "set"}

RETRY = b"retry: 2000\n"


class Frames:
    """Renders events. The text of an event is made once for all its readers."""

    def __init__(self, *, blockers: Blockers) -> None:
        self._blockers = blockers

    def event(self, place: Place, event: Event) -> bytes:
        if event.text is None:
            event.text = b"id: %b\n%b" % (str(place).encode(), self.present(event))
        return event.text

    def present(self, event: Event) -> bytes:
        """Return an event without a position, after which no reader can continue."""
        return _frame(event.type, self._data(event))

    def _data(self, event: Event) -> bytes:
        head = {"type": event.type, "time": format_instant(event.at)}
        if event.job is None:
            return _other(head, event.body or {})
        view = job_view(event.job, self._blockers.waiting_for(event.job, event.at), is_full=False)
        data = orjson.dumps({**head, "job": view})
        if len(data) > MAX_DATA:
            data = next(
                shorter
                for cut in _cuts(event.job)
                if len(shorter := orjson.dumps({**head, "job": view | cut, "cut": True})) <= MAX_DATA
            )
        return data


def reset(place: Place, reason: Reset) -> bytes:
    return b"id: %b\n%b" % (str(place).encode(), _frame("reset", orjson.dumps({"reason": reason})))


def mark(place: Place) -> bytes:
    """Return a position without an event."""
    return b"id: %b\n\n" % str(place).encode()


def keep_alive(place: Place) -> bytes:
    return b": still here\n" + mark(place)


def _frame(name: str, data: bytes) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name.encode(), data)


def _other(head: Mapping[str, Any], body: Mapping[str, Any]) -> bytes:
    """Render an event that is about no job."""
    operation = body.get("operation")
    if not isinstance(operation, Operation):
        return orjson.dumps({**head, **body})
    view = operation_view(operation, is_full=False)
    data = orjson.dumps({**head, "operation": view})
    if len(data) > MAX_DATA:
        for name in _LARGE & view.keys():
            view[name] = {}
        data = orjson.dumps({**head, "operation": view, "cut": True})
    return data


def _cuts(job: Job) -> Iterator[dict[str, Any]]:
    """Yield ever smaller replacements of the fields that can be large: the error message, labels, the callback."""
    cut: dict[str, Any] = {}
    if job.error is not None:
        error = orjson.loads(job.error)
        for length in SHORTER:
            cut = {"error": error | {"message": error["message"][:length]}}
            yield cut
    cut |= {"labels": {}}
    yield cut
    yield cut | {"on_finish": {}}
