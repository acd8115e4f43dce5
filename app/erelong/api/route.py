"""One row of the route table."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from erelong.web import face as web

if TYPE_CHECKING:
    from pydantic import BaseModel

    from erelong.errors import Problem
    from erelong.model.caller import Need
    from erelong.web.face import RouteHandler


class Route(NamedTuple):
    """A method and a path. `gives` names the statuses and the view of the response, `refuses` the possible problems."""

    method: str
    path: str
    scope: Need | None
    handler: RouteHandler
    summary: str
    gives: str
    refuses: tuple[type[Problem], ...] = ()
    body: type | None = None
    query: type[BaseModel] | None = None

    def served(self) -> web.Route:
        """Return the part of the route that the router needs."""
        takes_query = self.query is not None or not self.path.startswith("/v1/")
        return web.Route(self.method, self.path, self.scope, self.handler, takes_query)
