"""Routes of a node that does not lead: it answers reads of the store, and refuses the rest."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from erelong.duties.lifecycle import Phase
from erelong.errors import NotLeading

if TYPE_CHECKING:
    from collections.abc import Collection

    from aiohttp import web

    from erelong.duties.lifecycle import Lifecycle
    from erelong.stores.base import SharedStore
    from erelong.web.face import Face, RouteHandler
    from erelong.web.response import AnyReply


def on_standby(face: Face, store: SharedStore, lifecycle: Lifecycle, answered: Collection[str]) -> Face:
    """Return the face with routes that refuse requests while this node does not lead, except a GET of these paths.

    Until the engine has loaded the state of the store, its rules for new jobs are not known.
    """
    routes = [
        route
        if route.method == "GET" and route.path in answered
        else route._replace(handler=_for_leader(route.handler, store, lifecycle))
        for route in face.routes
    ]
    return replace(face, routes=routes)


def _for_leader(handler: RouteHandler, store: SharedStore, lifecycle: Lifecycle) -> RouteHandler:
    async def handle(request: web.Request) -> AnyReply:
        reason = store.standby()
        if reason is not None or lifecycle.phase is Phase.STARTING:
            reason = reason or "this node is taking over"
            raise NotLeading(f"{reason}; send the request to the node that is ready, or again")
        return await handler(request)

    return handle
