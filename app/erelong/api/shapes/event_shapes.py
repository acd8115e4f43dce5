"""The query of the stream of events, and the schema of an event."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import Field

from erelong.api.schemas import Body, JobId, Key, Labels, StateWord
from erelong.api.shapes.parts import COUNT, TEXT_OR_NULL, TIME, object_of, ref
from erelong.model.events.event import STORED, EventType
from erelong.model.events.selection import Selection
from erelong.model.extras import label_of
from erelong.model.ids import parse_id
from erelong.model.job import STATES
from erelong.settings.section import Name

MAX_IDS: Final = 100


EventWord = Literal[
    "job.submitted",
    "job.changed",
    "job.started",
    "job.retrying",
    "job.released",
    "job.succeeded",
    "job.failed",
    "job.cancelled",
    "job.expired",
    "job.deleted",
    "schedule.missed",
    "operation.finished",
]


class EventsIn(Body):
    """The filters of a stream of events."""

    state: list[StateWord] = Field([], max_length=100, description="Jobs in any of these states.")
    queue: list[Name] = Field([], max_length=100, description="Jobs of any of these queues.")
    kind: list[Name] = Field([], max_length=100, description="Jobs of any of these kinds.")
    key: Key | None = Field(None, description="Jobs with this key.")
    schedule: Name | None = Field(None, description="Jobs of this schedule.")
    label: Labels = Field({}, description="`label.<name>=<value>`: jobs with all of these labels.")
    job: list[Annotated[JobId, Field(max_length=100)]] = Field(
        [], max_length=MAX_IDS, description="These jobs; first comes the present state of each."
    )
    type: list[EventWord] = Field([], max_length=100, description="Events of any of these types.")
    since: Annotated[str, Field(max_length=100)] | None = Field(
        None, description="The id of the last event received. The header `Last-Event-ID` precedes it."
    )

    def selection(self) -> Selection:
        ids = tuple(dict.fromkeys(self.job))
        return Selection(
            types=frozenset(map(EventType, self.type)) or STORED,
            ids=ids,
            seqs=frozenset(parts[0] for id in ids if (parts := parse_id(id)) is not None),
            states=frozenset(STATES[word] for word in self.state),
            queues=frozenset(self.queue),
            kinds=frozenset(self.kind),
            key=self.key,
            labels=self.label
            if self.schedule is None
            else dict([*self.label.items(), label_of("schedule", self.schedule)]),
        )


assert set(EventWord.__args__) == set(STORED)  # type: ignore[attr-defined]  # mypy does not know a Literal's __args__

_MISSED = object_of({"name": {"type": "string"}, "occurrence": TIME, "reason": TEXT_OR_NULL, "count": COUNT})
_ONLY_ID = object_of({"id": {"type": "string"}})
EVENT_SCHEMAS: Final[dict[str, dict[str, Any]]] = {
    "Events": {
        "type": "string",
        "description": "A stream of events as browsers read it with `EventSource`. The `data` of each is an `Event`; "
        'that of `reset` is `{"reason": "restarted"}`, `too_old` or `too_slow`.',
    },
    "Event": object_of(
        {
            "type": {"type": "string", "enum": list(EventType)},
            "time": TIME,
            "job": {"anyOf": [ref("ListedJob"), _ONLY_ID]},
            "schedule": _MISSED,
            "operation": ref("ListedOperation"),
            "cut": {"const": True, "description": "The event is larger than 8 KiB, and some of its fields are cut."},
        },
        optional=("job", "schedule", "operation", "cut"),
    ),
}
