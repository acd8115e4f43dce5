"""The result of a job as a value, or the error that stands for its end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from erelong.client.errors import ResultTruncated, job_error
from erelong.client.values import load

if TYPE_CHECKING:
    from erelong.client.records import JobRecord


def result_of(job: JobRecord, returns: Any) -> Any:
    """Return the result of a final job as a value of the type `returns`; raise the error of another end."""
    if job.state != "succeeded":
        raise job_error(job)
    if job.raw.get("result_truncated"):
        raise ResultTruncated(job)
    return load(returns, job.raw.get("result"))
