"""The filters of jobs in a query: those of listings and overviews."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from erelong.api.schemas import Body, InstantIn, Key, Labels, OfQuery, StateWord
from erelong.model.extras import label_of
from erelong.model.job import STATES
from erelong.model.matching.residue import Residue
from erelong.model.query import Query
from erelong.settings.names import CAUSE
from erelong.settings.section import Name

if TYPE_CHECKING:
    from collections.abc import Iterable

_READ = ("created_after", "created_before", "finished_after", "finished_before")
"""The bounds that no index serves."""


class JobFilters(Body):
    """The filters of jobs, all of which must match."""

    state: list[StateWord] = Field([], max_length=100, description="Any of these states.")
    queue: list[Name] = Field([], max_length=100, description="Any of these queues.")
    kind: list[Name] = Field([], max_length=100, description="Any of these kinds.")
    key: Key | None = Field(None, description="Jobs with this key. A superseded job has none.")
    due_after: Annotated[InstantIn, OfQuery] | None = Field(None, description="due_at at or after this time.")
    due_before: Annotated[InstantIn, OfQuery] | None = Field(None, description="due_at before this time.")
    created_after: Annotated[InstantIn, OfQuery] | None = Field(None, description="created_at at or after this time.")
    created_before: Annotated[InstantIn, OfQuery] | None = Field(None, description="created_at before this time.")
    finished_after: Annotated[InstantIn, OfQuery] | None = Field(None, description="finished_at at or after this time.")
    finished_before: Annotated[InstantIn, OfQuery] | None = Field(None, description="finished_at before this time.")
    error: list[Name] = Field([], max_length=100, description="Any of these types of errors.")
    cause: Annotated[str, Field(pattern=CAUSE)] | None = Field(
        None, description="Jobs whose error has this cause, from `GET /v1/jobs/errors`."
    )
    attempt_min: Annotated[int, Field(ge=1), OfQuery] | None = Field(
        None, description="Jobs whose `attempt` is at least this number."
    )
    schedule: Name | None = Field(None, description="Jobs of this schedule.")
    occurrence: Annotated[InstantIn, OfQuery] | None = Field(None, description="Jobs of this nominal time.")
    label: Labels = Field({}, description="`label.<name>=<value>`: jobs with all of these labels.")

    def to_query(self, queues: Iterable[str]) -> Query:
        """Return the query for these filters in these queues, of those that the caller may use."""
        return Query(
            states=frozenset(STATES[word] for word in self.state),
            queues=frozenset(queues),
            kinds=frozenset(self.kind),
            key=self.key,
            labels=self._labels(),
            due_after=self.due_after,
            due_before=self.due_before,
            residue=Residue(
                bounds={name: bound for name in _READ if (bound := getattr(self, name)) is not None},
                errors=frozenset(self.error),
                cause=self.cause,
                attempt_min=self.attempt_min or 0,
            ),
        )

    def _labels(self) -> dict[str, str]:
        """Return the labels to list by, those of the system first: they are rarer than those of clients."""
        system: dict[str, str] = {}
        if self.occurrence is not None:
            system |= dict([label_of("occurrence", self.occurrence)])
        if self.schedule is not None:
            system |= dict([label_of("schedule", self.schedule)])
        return system | self.label
