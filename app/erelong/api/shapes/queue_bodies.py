"""The models of the bodies and queries of queues."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from erelong.api.schemas import Body, OfQuery

MAX_REASON: Final = 500


class PauseQueueIn(Body):
    """Why a queue is paused."""

    reason: Annotated[str, Field(max_length=MAX_REASON)] | None = None


class ListQueuesIn(Body):
    """The order and the pages of a listing of queues."""

    order: Literal["name", "due", "late", "failed"] = Field(
        "name",
        description="`name`; or first the queue with the most due jobs, the latest starts or the most failed jobs.",
    )
    limit: Annotated[int, Field(ge=1, le=1_000), OfQuery] | None = Field(
        None, description="Queues per page; all queues if not given."
    )
    cursor: Annotated[str, Field(max_length=300)] | None = Field(None, description="`next` of the previous page.")
    view: Literal["brief", "full"] = Field(
        "full", description="`brief`: without `oldest_due_age`, which may need the store for each queue."
    )

    @field_validator("cursor")
    @classmethod
    def _with_limit(cls, cursor: str | None, info: ValidationInfo) -> str | None:
        if cursor is not None and info.data.get("limit") is None:
            raise PydanticCustomError("field", "needs limit; send it with the limit of the previous page")
        return cursor
