"""What can go wrong on purpose: one tree of errors, each naming its HTTP status, its code and what to do."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


class Fault:
    """One thing wrong with one place of a request: a JSON pointer and a sentence."""

    __slots__ = ("detail", "pointer")

    def __init__(self, pointer: str, detail: str) -> None:
        self.pointer = pointer
        self.detail = detail

    @classmethod
    def at(cls, place: Iterable[object], detail: str) -> Fault:
        """Make a fault at a place given by its names and indices."""
        return cls("".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in place), detail)

    def under(self, prefix: str) -> Fault:
        return Fault(prefix + self.pointer, self.detail)

    def __repr__(self) -> str:
        return f"{self.pointer}: {self.detail}"


class Problem(Exception):
    """A request that cannot be met; becomes an `application/problem+json` answer.

    `pause` is the seconds after which it may be worth another try, for those problems that pass.
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
    """The body is not JSON, or not JSON that this service takes."""

    status, code, title = 400, "malformed_json", "Malformed JSON"


class BadCursor(Problem):
    """The cursor was not made by this listing, or belongs to other filters."""

    status, code, title = 400, "bad_cursor", "Bad cursor"


class BadRequest(Problem):
    """What came cannot be read as HTTP/1.1."""

    status, code, title = 400, "bad_request", "Bad request"


class BadHeader(Problem):
    """A header is there and cannot be understood."""

    status, code, title = 400, "bad_header", "Bad header"


class Unauthenticated(Problem):
    """No key came with the request, or none that is known."""

    status, code, title = 401, "unauthenticated", "Unauthenticated"

    def __init__(self, detail: str) -> None:
        super().__init__(detail, headers={"WWW-Authenticate": "Bearer"})


class Forbidden(Problem):
    """The key lacks the scope, or is limited to other queues; or a web page of elsewhere asks."""

    status, code, title = 403, "forbidden", "Forbidden"


class JobNotFound(Problem):
    """No job has this id."""

    status, code, title = 404, "job_not_found", "Job not found"


class QueueNotFound(Problem):
    """No job, setting or pause has named this queue."""

    status, code, title = 404, "queue_not_found", "Queue not found"


class NoSuchRoute(Problem):
    """Nothing is served at this path."""

    status, code, title = 404, "no_such_route", "No such route"


class MethodNotAllowed(Problem):
    """The path is served, but not with this method; `Allow` lists those that are."""

    status, code, title = 405, "method_not_allowed", "Method not allowed"


class HeaderTimeout(Problem):
    """The headers of a request did not come in time."""

    status, code, title = 408, "header_timeout", "Header timeout"


class BodyTimeout(Problem):
    """No byte of the body came for too long, or they came too slowly."""

    status, code, title = 408, "body_timeout", "Body timeout"


class LeaseNotFound(Problem):
    """No lease has this token."""

    status, code, title = 404, "lease_not_found", "Lease not found"


class LeaseLost(Problem):
    """The lease is over: its time ran out, or it was answered for."""

    status, code, title = 409, "lease_lost", "Lease lost"


class WrongState(Problem):
    """The job is in a state in which this cannot be done to it; the text names what can."""

    status, code, title = 409, "wrong_state", "Wrong state"

    _AFRESH = "retry starts it afresh, DELETE forgets it"
    _FITTING: ClassVar[Mapping[str, str]] = {
        "scheduled": "PATCH changes it, run makes it due now, cancel ends it, DELETE forgets it",
        "running": "cancel it, or wait until it has ended",
        "succeeded": "to have it done again submit another; DELETE forgets it",
        "failed": _AFRESH,
        "cancelled": _AFRESH,
        "expired": _AFRESH,
    }

    def __init__(self, what: str, *, state: str, job: object) -> None:
        super().__init__(f"{what}: it is {state}; {self._FITTING[state]}", job=job)


class KeyTaken(Problem):
    """Another live job of the queue holds this key."""

    status, code, title = 409, "key_taken", "Key taken"


class IdempotencyMismatch(Problem):
    """This Idempotency-Key was used for another body."""

    status, code, title = 409, "idempotency_mismatch", "Idempotency key reused"


class QueueInUse(Problem):
    """Jobs wait or run in the queue, so its settings stay."""

    status, code, title = 409, "queue_in_use", "Queue in use"


class VersionMismatch(Problem):
    """`If-Match` names another version than the job has now."""

    status, code, title = 412, "version_mismatch", "Version mismatch"


class DocumentChanged(VersionMismatch):
    """A document was to follow on another version than the one that is stored."""


class TooLarge(Problem):
    """The body is larger than this route takes."""

    status, code, title = 413, "too_large", "Too large"


class UnsupportedMediaType(Problem):
    """The body comes in a format or encoding that this route does not take."""

    status, code, title = 415, "unsupported_media_type", "Unsupported media type"


class Invalid(Problem):
    """The request is understood and cannot be accepted; `errors` names each field, `detail` the first of them."""

    status, code, title = 422, "invalid", "Invalid request"

    def __init__(self, what: str, *, faults: Sequence[Fault]) -> None:
        first = f"{faults[0].pointer}: {faults[0].detail}" if faults[0].pointer else faults[0].detail
        more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
        super().__init__(f"{what}: {first}{more}", faults=faults)
        self.what = what


class BacklogFull(Problem):
    """As many jobs wait in the queue as `max_backlog` allows."""

    status, code, title, pause = 429, "backlog_full", "Backlog full", 5.0

    def __init__(self, detail: str, *, queue: str, faults: Sequence[Fault] = ()) -> None:
        super().__init__(detail, faults=faults)
        self.queue = queue


class RateLimited(Problem):
    """The key asks more often than its `rate` allows."""

    status, code, title, pause = 429, "rate_limited", "Rate limited", 1.0


class Internal(Problem):
    """Something failed that should not have; the log has the rest under the request id."""


class Draining(Problem):
    """The service is stopping and takes no new work."""

    status, code, title, pause = 503, "draining", "Draining", 10.0


class TooManyConnections(Problem):
    """All connections that are allowed are busy."""

    status, code, title, pause = 503, "too_many_connections", "Too many connections", 5.0


class Overloaded(Problem):
    """More bodies are being read at once than there is memory set aside for."""

    status, code, title, pause = 503, "overloaded", "Overloaded", 1.0


class StoreUnavailable(Problem):
    """The store does not answer as it should. `exit`: what ends a service that meets this while it starts."""

    status, code, title, pause = 503, "store_unavailable", "Store unavailable", 5.0

    def __init__(self, detail: str, *, exit: Exit | None = None) -> None:
        super().__init__(detail)
        self.exit = exit


class StoreRefused(StoreUnavailable):
    """The store cannot do this for these jobs, though it works for others: a row is damaged, or a value is refused."""


class StorageFull(Problem):
    """The disk is full: what is stored stays, nothing new is taken."""

    status, code, title, pause = 507, "storage_full", "Storage full", 5.0


class Exit(Exception):
    """The process cannot go on; `code` is what it exits with, the text says why and what to do."""

    code: ClassVar[int] = 1

    @property
    def line(self) -> str:
        """The last line that the process writes."""
        return f"erelong: {self}"


class StoreCorrupt(Exit):
    """The store is damaged or is not one of ours."""

    code = 65


class BadCopy(Exit):
    """A file cannot be, or become, a copy of the store."""

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
