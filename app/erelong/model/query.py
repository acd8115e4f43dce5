"""A listing's filters and order."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from erelong.model.job import State

if TYPE_CHECKING:
    from collections.abc import Mapping

    from erelong.clock.instants import Instant


class Order(StrEnum):
    """How a listing is sorted: newest first, or waiting jobs by due time."""

    CREATED = "created"
    DUE = "due_at"


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """The filters of a listing. An empty filter matches all jobs; `after` is the position of the last job seen."""

    states: frozenset[State] = frozenset()
    queues: frozenset[str] = frozenset()
    kinds: frozenset[str] = frozenset()
    key: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    due_after: Instant | None = None
    due_before: Instant | None = None
    order: Order = Order.CREATED
    after: tuple[Instant, int] | None = None
    limit: int = 100
    is_full: bool = False
