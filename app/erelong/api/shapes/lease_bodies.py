"""The models of the bodies of leases."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, Field

from erelong.api.schemas import Body, DelayIn
from erelong.model.extras import USUAL_LEASE
from erelong.model.outcome import MAX_MESSAGE
from erelong.settings.names import WORKER
from erelong.settings.section import Name
from erelong.settings.types import Duration

LeaseTime = Annotated[
    Duration, Field(ge=1, le=43_200, description="Seconds until the lease runs out unless it is extended.")
]


class LeaseIn(Body):
    """The jobs that an external worker accepts."""

    kinds: list[Name] = Field(min_length=1, max_length=100, description="Pull kinds.")
    queues: Annotated[list[Name], Field(min_length=1, max_length=100)] | None = Field(
        None, description="Only these queues; all if not given."
    )
    max: Annotated[int, Field(ge=1, le=1_000)] = 1
    wait: Duration = Field(0.0, description="Seconds to wait for a job; capped.")
    lease: LeaseTime = USUAL_LEASE
    worker: Annotated[str, Field(pattern=WORKER)] | None = Field(
        None, description="The name of the worker, shown with its attempts.", examples=["host-1/4711"]
    )


class ExtendIn(Body):
    """The new length of a lease, from now."""

    lease: LeaseTime | None = Field(None, description="As it was last taken or extended for, if not given.")


class FinishIn(Body):
    """The result of a leased job."""

    result: Any = Field(None, description="Any JSON; kept up to 64 KiB.")


class ErrorIn(Body):
    """The error of a leased job."""

    type: Name = "exception"
    message: Annotated[str, AfterValidator(lambda text: text[:MAX_MESSAGE])] = Field(
        "", description=f"The first {MAX_MESSAGE:,} characters are kept."
    )


class FailIn(Body):
    """The error of a leased job, and whether and when to retry it."""

    error: ErrorIn = ErrorIn()
    retryable: bool = True
    delay: DelayIn | None = Field(None, description="Seconds until the next attempt; by the retry policy if not given.")
    output: str | None = Field(None, description="Such as a traceback. The last 64 KiB are kept.")
