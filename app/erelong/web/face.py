"""A face of the service: a set of routes with its own way to admit callers and to render problems."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

from aiohttp import web

from erelong.web.response import AnyReply, Reply

if TYPE_CHECKING:
    from erelong.errors import Problem
    from erelong.model.caller import Need

RouteHandler = Callable[[web.Request], Awaitable[AnyReply]]


class Route(NamedTuple):
    """A method and a path. The path may hold names: `/jobs/{id}/cancel`, `/tasks/{task}:run`, and at its end
    `{rest...}` for a raw tail with the query. `scope` is what a key needs; None means no key is needed.
    """

    method: str
    path: str
    scope: Need | None
    handler: RouteHandler
    takes_query: bool = True


class Gate(Protocol):
    """Decides which callers are admitted."""

    async def admit(self, request: web.Request, route: Route) -> None:
        """Admit the caller, or raise the problem that refuses it."""
        ...

    def admits(self, request: web.Request, route: Route) -> bool:
        """Return whether a caller would be admitted, without refusing or counting it."""
        ...


class Renderer(Protocol):
    """Renders problems in the format of the face."""

    def reply(self, problem: Problem, request_id: str) -> Reply: ...

    def line(self, problem: Problem, request_id: str) -> bytes:
        """Render a problem as the last line of a stream that has begun."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Face:
    """The routes that are served under a prefix. The face with the prefix "" answers all other paths."""

    prefix: str
    routes: Sequence[Route]
    gate: Gate
    renderer: Renderer
