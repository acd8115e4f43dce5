"""The models of the queries of overviews."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, create_model

from erelong.api.schemas import Body, InstantIn, Labels, OfQuery, StateWord
from erelong.api.shapes.job_filters import JobFilters
from erelong.settings.section import Name
from erelong.settings.types import Duration


class StatsIn(Body):
    """The span of the series, and the queues to sum up."""

    span: Literal["now", "1h", "24h"] = Field(
        "now", description="`1h`: with points of 10 seconds. `24h`: of five minutes. `now`: without series."
    )
    queue: list[Name] = Field(
        [], max_length=100, description="The sums of these queues, without host, checks and series."
    )
    view: Literal["full", "brief"] = Field(
        "full", description="`brief`: without host, notes and checks that are just `ok`. For frequent polls."
    )


class DueFilters(Body):
    """The bins of a histogram of due times, and the jobs in it."""

    step: Annotated[Duration, OfQuery, Field(ge=1, le=2_678_400)] = Field(60.0, description="Seconds of a bin.")
    bins: Annotated[int, Field(ge=1, le=200), OfQuery] = Field(60, description="How many bins.")
    queue: list[Name] = Field([], max_length=100, description="Any of these queues.")
    kind: list[Name] = Field([], max_length=100, description="Any of these kinds.")
    label: Labels = Field({}, description="`label.<name>=<value>`: jobs with all of these labels.")


DueIn: type[DueFilters] = create_model(
    "DueIn",
    __base__=DueFilters,
    __doc__=DueFilters.__doc__,
    **{  # type: ignore[call-overload]  # a keyword of Python
        "from": (
            Annotated[InstantIn, OfQuery] | None,
            Field(None, description="The beginning of the first bin; by default that of the current step."),
        )
    },
)


class ErrorsIn(JobFilters):
    """The jobs whose errors are grouped."""

    state: list[StateWord] = Field([], max_length=100, description="Any of these states; `failed` if not given.")
    last: Annotated[int, Field(ge=1, le=50_000), OfQuery] = Field(10_000, description="How many jobs, newest first.")
