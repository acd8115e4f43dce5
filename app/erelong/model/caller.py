"""Who makes a request, by the name of the key, and what that key may do."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection


class Scope(StrEnum):
    """What a key may be good for; none includes another."""

    SUBMIT = "submit"
    READ = "read"
    CANCEL = "cancel"
    WORK = "work"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who asks, by the name of the key, and what that may do; `queues` are those it is limited to (none: all)."""

    name: str
    scopes: frozenset[Scope]
    queues: frozenset[str] = frozenset()

    def may_use(self, queue: str) -> bool:
        return not self.queues or queue in self.queues

    def foreign(self, queues: Collection[str]) -> list[str]:
        """Those of these queues that it may not use, in order."""
        return [queue for queue in queues if not self.may_use(queue)]


ANYBODY: Final = Caller(name="", scopes=frozenset(Scope))
"""Who asks without a key where none is needed."""
