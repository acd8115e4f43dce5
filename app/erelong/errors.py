"""The tree of expected errors. Each names its HTTP status, its code and the remedy."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


class Fault:
    """One invalid part of a request: a JSON pointer and a sentence, and the id of the job in its way, if one is."""

    __slots__ = ("detail", "job", "pointer")

    def __init__(self, pointer: str, detail: str, job: str | None = None) -> None:
        self.pointer = pointer
        self.detail = detail
        self.job = job

    @classmethod
    def at(cls, path: Iterable[object], detail: str) -> Fault:
        """Make a fault at a path of names and indices."""
        return cls("".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in path), detail)

    def under(self, prefix: str) -> Fault:
        return Fault(prefix + self.pointer, self.detail, self.job)

    def __repr__(self) -> str:
        return f"{self.pointer}: {self.detail}"


class Problem(Exception):
    """A refused request, sent as an `application/problem+json` response.

    `pause` is the default `Retry-After` in seconds, for problems that pass.
    """

    status: ClassVar[int] = 500
    code: ClassVar[str] = "internal"
    title: ClassVar[str] = "Internal error"
    pause: ClassVar[float | None] = None

    def __init__(
        self,
        detail: str,
        *,
        faults: Sequence[Fault] = (),
        headers: Mapping[str, str] | None = None,
        retry_after: float | None = None,
        job: object = None,
    ) -> None:
        super().__init__(detail)
        self.detail = detail
        self.faults = tuple(faults)
        self.headers = dict(headers or {})
        self.job = job
        wait = self.pause if retry_after is None else retry_after
        if wait is not None:
            self.headers["Retry-After"] = str(max(1, math.ceil(wait)))


class MalformedJson(Problem):
    """The body is not valid JSON, or a required body is missing."""

    status, code, title = 400, "malformed_json", "Malformed JSON"


class BadCursor(Problem):
    """The cursor belongs to another listing or to other filters."""

    status, code, title = 400, "bad_cursor", "Bad cursor"


class BadRequest(Problem):
    """The request is not valid HTTP/1.1."""

    status, code, title = 400, "bad_request", "Bad request"


class BadHeader(Problem):
    """A header has an invalid value."""

    status, code, title = 400, "bad_header", "Bad header"


class Unauthenticated(Problem):
    """The API key is missing or unknown."""

    status, code, title = 401, "unauthenticated", "Unauthenticated"

    def __init__(self, detail: str) -> None:
        super().__init__(detail, headers={"WWW-Authenticate": "Bearer"})


class Forbidden(Problem):
    """The key lacks the scope or the queue, or the request came from a web page of another origin."""

    status, code, title = 403, "forbidden", "Forbidden"


class JobNotFound(Problem):
    """No job has this id."""

    status, code, title = 404, "job_not_found", "Job not found"


class QueueNotFound(Problem):
    """No job, setting or pause has named this queue."""

    status, code, title = 404, "queue_not_found", "Queue not found"


class KindNotFound(Problem):
    """No kind has this name."""

    status, code, title = 404, "kind_not_found", "Kind not found"


class ScheduleNotFound(Problem):
    """No schedule has this name."""

    status, code, title = 404, "schedule_not_found", "Schedule not found"


class NoSuchRoute(Problem):
    """The path does not exist."""

    status, code, title = 404, "no_such_route", "No such route"


class MethodNotAllowed(Problem):
    """The path does not support this method. `Allow` lists the methods it supports."""

    status, code, title = 405, "method_not_allowed", "Method not allowed"


class HeaderTimeout(Problem):
    """The headers of the request did not arrive in time."""

    status, code, title = 408, "header_timeout", "Header timeout"


class BodyTimeout(Problem):
    """The body stalled or arrived too slowly."""

    status, code, title = 408, "body_timeout", "Body timeout"


class OperationNotFound(Problem):
    """No operation has this id: it never existed, is no longer kept, or was started by another key."""

    status, code, title = 404, "operation_not_found", "Operation not found"


class LeaseNotFound(Problem):
    """No lease has had this token."""

    status, code, title = 404, "lease_not_found", "Lease not found"


class LeaseLost(Problem):
    """The lease has ended: it ran out, or another call ended it."""

    status, code, title = 409, "lease_lost", "Lease lost"


class WrongState(Problem):
    """The state of the job does not allow this call. The detail names the calls that it allows."""

    status, code, title = 409, "wrong_state", "Wrong state"

    _RETRYABLE = "retry starts it again, DELETE removes it"
    _ALLOWED: ClassVar[Mapping[str, str]] = {
        "scheduled": "PATCH changes it, run makes it due now, cancel ends it, DELETE removes it",
        "running": "cancel it, or wait until it has ended",
        "succeeded": "submit a new job in its place; DELETE removes this one",
        "failed": _RETRYABLE,
        "cancelled": _RETRYABLE,
        "expired": _RETRYABLE,
    }

    def __init__(self, what: str, *, state: str, job: object) -> None:
        super().__init__(f"{what}: it is {state}; {self._ALLOWED[state]}", job=job)


class KeyTaken(Problem):
    """Another live job of the queue holds this key."""

    status, code, title = 409, "key_taken", "Key taken"


class IdempotencyMismatch(Problem):
    """The Idempotency-Key was already used for another request."""

    status, code, title = 409, "idempotency_mismatch", "Idempotency key reused"


class QueueInUse(Problem):
    """Jobs are waiting or running in the queue, so its override cannot be removed."""

    status, code, title = 409, "queue_in_use", "Queue in use"


class KindFixed(Problem):
    """The kind is built in or declared in config.toml, so no request can change it."""

    status, code, title = 409, "kind_fixed", "Kind cannot be changed"


class ClockBusy(Problem):
    """Another request is moving the virtual clock."""

    status, code, title = 409, "clock_busy", "Clock busy"


class ClockBackwards(Problem):
    """The virtual clock stands at a later instant already."""

    status, code, title = 409, "clock_backwards", "Clock cannot go back"


class Overlaps(Problem):
    """A job of the schedule is live, and its overlap policy allows no second one."""

    status, code, title = 409, "overlap", "Overlap"


class VersionMismatch(Problem):
    """The version in `If-Match` is not the current version of the job or schedule."""

    status, code, title = 412, "version_mismatch", "Version mismatch"


class DocumentChanged(VersionMismatch):
    """The stored version of a document is not the one that a write expects."""


class TooLarge(Problem):
    """The body is larger than this route accepts."""

    status, code, title = 413, "too_large", "Too large"


class UnsupportedMediaType(Problem):
    """The route does not support the format or encoding of the body."""

    status, code, title = 415, "unsupported_media_type", "Unsupported media type"


class Invalid(Problem):
    """The request contains an invalid value. `errors` names each invalid field, `detail` the first of them."""

    status, code, title = 422, "invalid", "Invalid request"

    def __init__(self, what: str, *, faults: Sequence[Fault]) -> None:
        first = f"{faults[0].pointer}: {faults[0].detail}" if faults[0].pointer else faults[0].detail
        more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
        super().__init__(f"{what}: {first}{more}", faults=faults)
        self.what = what


class BacklogFull(Problem):
    """The queue holds `max_backlog` waiting jobs."""

    status, code, title, pause = 429, "backlog_full", "Backlog full", 5.0

    def __init__(self, detail: str, *, queue: str, faults: Sequence[Fault] = ()) -> None:
        super().__init__(detail, faults=faults)
        self.queue = queue


class TooMany(Problem):
    """As many schedules, kinds, waiting operations or streams exist as may."""

    status, code, title, pause = 429, "too_many", "Too many", 60.0


class RateLimited(Problem):
    """The key has exceeded its `rate`."""

    status, code, title, pause = 429, "rate_limited", "Rate limited", 1.0


class Internal(Problem):
    """An unexpected error occurred. The log has the details under the request id."""


class Draining(Problem):
    """The service is stopping and accepts no new work."""

    status, code, title, pause = 503, "draining", "Draining", 10.0


class TooManyConnections(Problem):
    """All `max_connections` connections are busy."""

    status, code, title, pause = 503, "too_many_connections", "Too many connections", 5.0


class Overloaded(Problem):
    """The request bodies being read fill the memory reserved for them."""

    status, code, title, pause = 503, "overloaded", "Overloaded", 1.0


class StoreUnavailable(Problem):
    """The store failed. `exit` is the reason with which the service ends if this happens during its start."""

    status, code, title, pause = 503, "store_unavailable", "Store unavailable", 5.0

    def __init__(self, detail: str, *, exit: Exit | None = None) -> None:
        super().__init__(detail)
        self.exit = exit


class NotLeading(Problem):
    """Another node leads, or none does at the moment. The leader takes the request; readiness probes find it."""

    status, code, title, pause = 503, "not_leading", "Not leading", 1.0


class StoreRefused(StoreUnavailable):
    """The store rejects these jobs though it works for others: a row is damaged, or a value is refused."""


class StorageFull(Problem):
    """The disk is full. Stored jobs are kept, and no new ones are accepted."""

    status, code, title, pause = 507, "storage_full", "Storage full", 5.0


class Exit(Exception):
    """The process cannot go on. `code` is its exit code; the text gives the reason and the remedy."""

    code: ClassVar[int] = 1

    @property
    def line(self) -> str:
        """The last line that the process writes."""
        return f"erelong: {self}"


class StoreCorrupt(Exit):
    """The store is damaged, or the file is not a store of erelong."""

    code = 65


class WrongClock(Exit):
    """The store was made under a virtual clock and the service runs on real time, or the other way round."""

    code = 65


class BadCopy(Exit):
    """A backup cannot be used, or a store cannot be copied as a whole."""

    code = 65


class StoreFailed(Exit):
    """Reading or writing the store failed."""

    code = 74


class StoreInUse(Exit):
    """Another process owns the store."""

    code = 75


class PlaceRefused(Exit):
    """The store cannot be kept where the settings say."""

    code = 78
