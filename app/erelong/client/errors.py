"""The errors of the client: no response, a refusal, or a job that ended without success.

ErelongError
├── NoAnswer              no response: no connection, cut off, or too late
├── Refused               the service said no
│   ├── Invalid           400, 413, 415, 422
│   ├── Unauthenticated   401
│   ├── Forbidden         403
│   ├── NotFound          404; Unsupported: the service has no such call
│   ├── Conflict          409: WrongState, KeyTaken, LeaseLost; 412: Changed
│   └── Busy              429, 503, 507, and a gateway without a service behind it
├── JobError              the job ended: JobFailed, JobCancelled, JobExpired
└── ResultTruncated       the job succeeded, and its result was too large to be kept
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from erelong.client.records import JobRecord


class ErelongError(Exception):
    """Every error of the client."""


class NoAnswer(ErelongError):
    """The service did not respond. `maybe_done` says whether a change may have been made."""

    def __init__(self, message: str, *, maybe_done: bool) -> None:
        super().__init__(message)
        self.maybe_done = maybe_done


class Refused(ErelongError):
    """The service refused a request. The text is the `detail` of its problem.

    `maybe_done`: the change may have been made, by this try, which failed halfway, or by one without a response.
    """

    maybe_done = False

    def __init__(self, status: int, problem: Mapping[str, Any], *, retry_after: float | None = None) -> None:
        self.status = status
        self.problem = problem
        self.code: str = problem.get("code", "")
        self.detail: str = problem.get("detail") or f"the service answered {status} without a problem document"
        self.errors: Sequence[Mapping[str, str]] = problem.get("errors", ())
        self.request_id: str | None = problem.get("request_id")
        self.retry_after = retry_after
        faults = [f"{error.get('pointer', '')}: {error.get('detail', '')}" for error in self.errors[:5]]
        super().__init__(": ".join([self.detail, *(["; ".join(new)] if (new := _new_in(faults, self.detail)) else [])]))


def _new_in(faults: Sequence[str], detail: str) -> list[str]:
    """Return the faults that `detail` does not name."""
    return [fault for fault in faults if fault not in detail]


class Invalid(Refused):
    """The request is not valid; `errors` names each bad field."""


class Unauthenticated(Refused):
    """The API key is missing or unknown."""


class Forbidden(Refused):
    """The API key lacks a scope or a queue."""


class NotFound(Refused):
    """There is no such job, queue, schedule, operation or lease."""


class Unsupported(NotFound):
    """The service has no such call, for example because it is older than this client."""


class Conflict(Refused):
    """The request contradicts the present state; `job` is the job in the way, if the service named one."""

    @property
    def job(self) -> Mapping[str, Any] | None:
        return self.problem.get("job")


class WrongState(Conflict):
    """The job is not in a state that permits this."""


class KeyTaken(Conflict):
    """Another live job holds the key."""


class Changed(Conflict):
    """Somebody changed it meanwhile: its version is another one."""


class LeaseLost(Conflict):
    """The lease is over; what its holder reports is rejected."""


class Busy(Refused):
    """The service takes no work now: a full backlog, a rate, a drain, a full disk. `retry_after` is in seconds."""


class JobError(ErelongError):
    """A job ended without success. `job` is the job, and `output` what its last attempt wrote, such as a traceback."""

    def __init__(self, job: JobRecord) -> None:
        error = job.error
        reason = f"{error.get('type')}: {error.get('message')}" if error else "no reason given"
        super().__init__(f"job {job.id} of kind {job.kind} {job.state}: {reason}")
        self.job = job
        attempts = job.raw.get("attempts")
        self.output: str | None = attempts[-1].get("output") if attempts else None
        if self.output:
            self.add_note(f"Output of the attempt:\n{self.output}")


class JobFailed(JobError):
    """Its last attempt failed."""


class JobCancelled(JobError):
    """It was cancelled."""


class JobExpired(JobError):
    """It did not start in time."""


class ResultTruncated(ErelongError):
    """The result of a job was too large to be kept. `job.raw["result"]` has its beginning, as text."""

    def __init__(self, job: JobRecord) -> None:
        remedy = "return less, such as the address of a file"
        super().__init__(f"the result of job {job.id} of kind {job.kind} was too large to be kept: {remedy}")
        self.job = job


_BY_CODE: Final[dict[str, type[Refused]]] = {
    "wrong_state": WrongState,
    "key_taken": KeyTaken,
    "lease_lost": LeaseLost,
    "no_such_route": Unsupported,
    "method_not_allowed": Unsupported,
}
_BY_STATUS: Final[dict[int, type[Refused]]] = {
    **dict.fromkeys((400, 413, 415, 422), Invalid),
    401: Unauthenticated,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    412: Changed,
    **dict.fromkeys((429, 502, 503, 504, 507), Busy),
}
_BY_STATE: Final = {"failed": JobFailed, "cancelled": JobCancelled, "expired": JobExpired}


def refused(status: int, body: bytes, retry_after: float | None = None) -> Refused:
    """Return the error for a response; a body that is no problem document, as of a proxy, is no error of its own."""
    try:
        problem = json.loads(body)
    except ValueError:
        problem = {}
    if not isinstance(problem, dict):
        problem = {}
    return refused_by(status, problem, retry_after)


def refused_by(status: int, problem: Mapping[str, Any], retry_after: float | None = None) -> Refused:
    kind = _BY_CODE.get(problem.get("code", ""), _BY_STATUS.get(status, Refused))
    return kind(status, problem, retry_after=retry_after)


def job_error(job: JobRecord) -> JobError:
    """Return the error for a job that ended in a state other than `succeeded`, also in one of a newer service."""
    return _BY_STATE.get(job.state, JobError)(job)
