"""What the service returns, as objects with typed fields. Fields and words of newer services are kept in `raw`."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, Generic, Self, TypeVar, overload

from erelong.client.times import read_instant

T = TypeVar("T")
FINAL: Final = frozenset({"succeeded", "failed", "cancelled", "expired"})
LIVE: Final = frozenset({"scheduled", "running"})
_REQUIRED: Final = object()


class Field(Generic[T]):
    """A field of a record, read on access."""

    def __init__(self, default: Any = _REQUIRED) -> None:
        self._default = default

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, record: None, owner: type) -> Self: ...

    @overload
    def __get__(self, record: Record, owner: type) -> T: ...

    def __get__(self, record: Record | None, owner: type) -> Self | T:
        if record is None:
            return self
        value = record.raw.get(self._name, self._default)
        if value is _REQUIRED:
            raise AttributeError(f"the service sent no {self._name} here; read one job, or list with view='full'")
        return self._read(value)

    def _read(self, value: Any) -> T:
        result: T = value
        return result


class Time(Field[datetime | None]):
    """An instant, or None."""

    def __init__(self) -> None:
        super().__init__(None)

    def _read(self, value: str | None) -> datetime | None:
        return None if value is None else read_instant(value)


class Record:
    """One object of the service. It never changes; `raw` is the JSON as it came."""

    __slots__ = ("raw",)

    def __init__(self, raw: Mapping[str, Any]) -> None:
        self.raw = raw

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Record) and self.raw == other.raw

    __hash__ = None  # type: ignore[assignment]  # raw is a dict

    def __repr__(self) -> str:
        shown = {name: self.raw[name] for name in ("id", "name", "kind", "queue", "state") if name in self.raw}
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in shown.items())})"


class JobRecord(Record):
    """A job as it was when the service answered."""

    __slots__ = ()

    id = Field[str]()
    state = Field[str]()
    kind = Field[str]()
    queue = Field[str]()
    params = Field[dict[str, Any]]()
    key = Field[str | None](None)
    labels = Field[dict[str, str]]({})
    priority = Field[int](0)
    timeout = Field[float]()
    retry = Field[dict[str, Any]]({})
    execute_at = Time()
    due_at = Time()
    expires_at = Time()
    created_at = Time()
    started_at = Time()
    finished_at = Time()
    late_by = Field[float | None](None)
    waiting_for = Field[str | None](None)
    attempt = Field[int](0)
    attempts = Field[list[dict[str, Any]]]()
    error = Field[dict[str, Any] | None](None)
    cancel_requested = Field[bool](False)
    version = Field[int]()

    @property
    def is_final(self) -> bool:
        """Whether the job is over. A state that this client does not know counts as over if it has an end."""
        return self.state in FINAL or (self.state not in LIVE and self.raw.get("finished_at") is not None)


class QueueRecord(Record):
    """A queue as it was when the service answered."""

    __slots__ = ()

    name = Field[str]()
    paused = Field[bool](False)
    settings = Field[dict[str, Any]]({})
    counts = Field[dict[str, int]]({})
    oldest_due_age = Field[float | None](None)
    late_p99 = Field[float | None](None)


class KindRecord(Record):
    """A kind as it was when the service answered."""

    __slots__ = ()

    name = Field[str]()
    type = Field[str]()
    declared = Field[str]("")
    timeout = Field[float | None](None)
    retry = Field[dict[str, Any] | None](None)
    params_schema = Field[dict[str, Any]]({})
    result_schema = Field[dict[str, Any] | None](None)
    example = Field[dict[str, Any] | None](None)
    counts = Field[dict[str, int]]({})
    polling = Field[int | None](None)
    last_polled_at = Time()


class ScheduleRecord(Record):
    """A schedule as it was when the service answered."""

    __slots__ = ()

    name = Field[str]()
    cron = Field[str | None](None)
    every = Field[float | None](None)
    zone = Field[str | None](None)
    described = Field[str]("")
    paused = Field[bool](False)
    reason = Field[str | None](None)
    next_at = Time()
    live = Field[list[str]]([])
    counts = Field[dict[str, int]]({})
    job = Field[dict[str, Any]]()
    version = Field[int]()


class OperationRecord(Record):
    """An operation on many jobs as it was when the service answered."""

    __slots__ = ()

    id = Field[str]()
    action = Field[str]()
    state = Field[str]()
    matches = Field[int | None](None)
    done = Field[int](0)
    skipped = Field[int](0)
    failed = Field[int](0)
    remaining = Field[int | None](None)
    errors = Field[list[dict[str, Any]]]([])
    created_at = Time()
    finished_at = Time()

    @property
    def is_over(self) -> bool:
        return self.raw.get("finished_at") is not None


class Event(Record):
    """One event: its `type`, when, and the job, schedule or operation that it is about."""

    __slots__ = ("type",)

    time = Time()

    def __init__(self, type: str, raw: Mapping[str, Any]) -> None:
        super().__init__(raw)
        self.type = type

    @property
    def job(self) -> JobRecord:
        """The job without params and result. Raises KeyError for events that are about no job."""
        return JobRecord(self.raw["job"])

    def __repr__(self) -> str:
        return f"Event({self.type!r}, {self.raw!r})"
