"""The models of the queries of jobs and queues. Their names, bounds and texts are the contract, shown in OpenAPI."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field

from erelong.api.schemas import Body, OfQuery
from erelong.api.shapes.job_filters import JobFilters
from erelong.settings.section import Name
from erelong.settings.types import Duration

NEXT: Final = "next"
"""The order in which due jobs start."""


class DryRunIn(Body):
    """Whether a call only checks its request."""

    dry_run: Literal["true", "false"] = Field(
        "false", description="`true`: check the request as for real, and store nothing. New jobs have the id null."
    )

    @property
    def is_dry_run(self) -> bool:
        return self.dry_run == "true"


class NameIn(Body):
    """The queue of a job that is named by its key."""

    queue: Name | None = Field(
        None, description="The queue of a `~key`; `default` if not given. Not allowed with an id."
    )


class PatchQueryIn(DryRunIn, NameIn):
    """The options of changing a job."""


class ReadIn(NameIn):
    """The options of reading a job."""

    wait: Annotated[Duration, OfQuery] | None = Field(
        None, description="Seconds to wait until the job is final; capped."
    )


class ListIn(JobFilters):
    """The filters, the order and the page of a listing."""

    order: Literal["created", "due_at", "started_at", "finished_at", "next"] = Field(
        "created",
        description="`created`: newest first. `due_at`: waiting jobs by time. `started_at`: running jobs, the longest "
        "first. `finished_at`: final jobs, the latest end first. `next`: the due jobs of one queue as they start.",
    )
    reverse: Literal["true", "false"] = Field("false", description="`true`: with `order=next`, the last one first.")
    limit: Annotated[int, Field(ge=1, le=1_000), OfQuery] = Field(100, description="Jobs per page.")
    cursor: Annotated[str, Field(max_length=200)] | None = Field(None, description="`next` of the previous page.")
    view: Literal["brief", "line", "full"] = Field(
        "brief", description="`full`: with params, result and attempts. `line`: with the beginning of params, as text."
    )
    count: Literal["true", "false"] = Field("false", description="`true`: also count the jobs that match.")
