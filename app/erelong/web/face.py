"""A face of the service: a set of routes with its own way to admit callers and to render problems."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

from aiohttp import web

from erelong.web.response import AnyReply, Reply

if TYPE_CHECKING:
    from erelong.errors import Problem
    from erelong.model.caller import Scope

Answer = Callable[[web.Request], Awaitable[AnyReply]]


class Route(NamedTuple):
    """One thing that can be asked. `path` may hold names: `/jobs/{id}/cancel`, `/tasks/{task}:run`, and at its end
    `{rest...}` for a raw tail with the query. `scope` is what a key needs; None: no key is needed.
    """

    method: str
    path: str
    scope: Scope | None
    answer: Answer
    takes_query: bool = True


class Gate(Protocol):
    """Decides who may ask."""

    async def admit(self, request: web.Request, route: Route) -> None:
        """Let the caller in, or raise the problem with which it is refused."""
        ...

    def knows(self, request: web.Request, route: Route) -> bool:
        """Return whether a caller would be let in; nobody is refused or counted."""
        ...


class Renderer(Protocol):
    """Shows problems in the words of the face."""

    def reply(self, problem: Problem, request_id: str) -> Reply: ...

    def line(self, problem: Problem, request_id: str) -> bytes:
        """Show a problem as the last line of a stream that has begun."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Face:
    """What the router serves under a prefix; "" is the face that answers for all paths of no other."""

    prefix: str
    routes: Sequence[Route]
    gate: Gate
    renderer: Renderer
