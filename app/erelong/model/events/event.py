"""One event: a job or a schedule as a stored change left it."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

import orjson

from erelong.model.history import NO_ATTEMPTS
from erelong.model.job import NOTHING, Job, State
from erelong.model.json_text import trimmed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from erelong.clock.instants import Instant
    from erelong.model.caller import Caller


class EventType(StrEnum):
    """What happened. `NOW` is the present state of a job, which only its reader gets."""

    SUBMITTED = "job.submitted"
    CHANGED = "job.changed"
    STARTED = "job.started"
    RETRYING = "job.retrying"
    RELEASED = "job.released"
    SUCCEEDED = "job.succeeded"
    FAILED = "job.failed"
    CANCELLED = "job.cancelled"
    EXPIRED = "job.expired"
    DELETED = "job.deleted"
    MISSED = "schedule.missed"
    FINISHED = "operation.finished"
    NOW = "job.now"


STORED: Final = frozenset(EventType) - {EventType.NOW}
"""The types that the ring keeps, and that readers can select."""

ORDINARY: Final = 1_500
"""About how many bytes an event takes, with its text but without the large parts of its job."""

_ENDS: Final = {
    State.SUCCEEDED: EventType.SUCCEEDED,
    State.FAILED: EventType.FAILED,
    State.CANCELLED: EventType.CANCELLED,
    State.EXPIRED: EventType.EXPIRED,
}


def end_or(job: Job, otherwise: EventType) -> EventType:
    """Return the type of the end of a job, or another type for a job that has not ended."""
    return _ENDS.get(job.state, otherwise)


class Event:
    """An event about `job`, or about something else that `body` has.

    It is for callers that may use its queue or, if it has an `owner`, for this one. `text` is kept for the code that
    renders the event, so that all readers share one text. `size` is about how many bytes it takes.
    """

    __slots__ = ("_labels", "at", "body", "job", "owner", "queue", "size", "text", "type")

    def __init__(
        self,
        type: EventType,
        at: Instant,
        job: Job | None = None,
        *,
        body: Mapping[str, Any] | None = None,
        queue: str = "",
        owner: str | None = None,
        weight: int = 0,
    ) -> None:
        self.type = type
        self.at = at
        self.job = job
        self.body = body
        self.queue = queue if job is None else job.queue
        self.owner = owner
        self.text: bytes | None = None
        self._labels: dict[str, str] | None = None
        self.size = ORDINARY + weight + (0 if job is None else _weight(job))

    def is_for(self, caller: Caller) -> bool:
        """Return whether a caller may know of the event."""
        if self.owner is not None:
            return not caller.queues or caller.name == self.owner
        return caller.may_use(self.queue)

    @property
    def labels(self) -> Mapping[str, str]:
        """Return the labels of the job, with those of the system."""
        if self._labels is None:
            text = None if self.job is None else self.job.labels
            self._labels = orjson.loads(text) if text else {}
        return self._labels


def _weight(job: Job) -> int:
    """Return the bytes that the large parts of a job take, in it and in the text of its event."""
    return 2 * (len(job.extras or b"") + len(job.labels or b"") + len(job.error or b""))


def light(job: Job) -> Job:
    """Return a job without the parts that no event shows, which may be large. The others get no spare memory."""
    labels, extras, error = (text and trimmed(text) for text in (job.labels, job.extras, job.error))
    return job._replace(params=NOTHING, result=None, attempts=NO_ATTEMPTS, labels=labels, extras=extras, error=error)
