"""The client behind a request: the name of its API key and what that key may do."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection


class Scope(StrEnum):
    """What an API key allows. Scopes do not imply one another."""

    SUBMIT = "submit"
    READ = "read"
    CANCEL = "cancel"
    WORK = "work"
    ADMIN = "admin"


class AnyKey(Enum):
    """The need of a route that any key may call, whatever its scopes."""

    ANY_KEY = "any key"


ANY_KEY: Final = AnyKey.ANY_KEY
Need = Scope | AnyKey | frozenset[Scope]
"""What a route needs from its caller: a scope, any key, or any one of several scopes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """A client, named after its API key. `queues` are the ones the key is limited to (empty: all)."""

    name: str
    scopes: frozenset[Scope]
    queues: frozenset[str] = frozenset()

    def has(self, need: Need) -> bool:
        if isinstance(need, AnyKey):
            return True
        return not self.scopes.isdisjoint(need) if isinstance(need, frozenset) else need in self.scopes

    def may_use(self, queue: str) -> bool:
        return not self.queues or queue in self.queues

    def foreign(self, queues: Collection[str]) -> list[str]:
        """Return the queues that this caller may not use, in order."""
        return [queue for queue in queues if not self.may_use(queue)]


ANYBODY: Final = Caller(name="", scopes=frozenset(Scope))
"""A client without an API key, where none is needed."""
