"""A job that can be waited for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from erelong.client.calls.jobs import WAIT
from erelong.client.records import JobRecord
from erelong.client.results import result_of
from erelong.client.times import seconds_of, shown

if TYPE_CHECKING:
    from collections.abc import Mapping

    from erelong.client.sync.client import Client
    from erelong.client.times import Duration

R_co = TypeVar("R_co", covariant=True)


class Job(JobRecord, Generic[R_co]):
    """A job as it was when the service answered, and the client to ask again."""

    __slots__ = ("_client", "returns")

    def __init__(self, raw: Mapping[str, Any], client: Client, returns: Any = Any) -> None:
        super().__init__(raw)
        self._client = client
        self.returns = returns

    def wait(self, timeout: Duration | None = None) -> Job[R_co]:
        """Return the job when it has ended; raise TimeoutError if it has not after `timeout`."""
        job = self
        deadline = None if timeout is None else self._client.tick() + seconds_of(timeout)
        while not job.is_final or "result" not in job.raw:
            left = WAIT if deadline is None else deadline - self._client.tick()
            found = self._client.get(self, wait=max(min(left, WAIT), 0.0))
            job = Job(found.raw, self._client, self.returns)
            if left <= 0 and not job.is_final:
                raise TimeoutError(f"job {self.id} is still {job.state} after {shown(timeout)}")
        return job

    def result(self, timeout: Duration | None = None) -> R_co:
        """Return the result of the job when it has ended; raise JobFailed, JobCancelled, JobExpired or TimeoutError."""
        result: R_co = result_of(self.wait(timeout), self.returns)
        return result


class Waited(NamedTuple):
    """The jobs that have ended, the ids of those that have not, and of those that do not exist."""

    done: list[Job[Any]]
    pending: list[str]
    missing: list[str]
