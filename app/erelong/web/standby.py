"""Routes of a node that may not lead: without the lead it answers reads of the store, and holds or refuses the rest."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from erelong.web.connection import client_of

if TYPE_CHECKING:
    from collections.abc import Collection

    from aiohttp import web

    from erelong.cluster.hold import Hold
    from erelong.web.face import Face, Route, RouteHandler
    from erelong.web.response import AnyReply

UNKNOWN_SIZE = 1 << 62


def on_standby(face: Face, hold: Hold, answered: Collection[str]) -> Face:
    """Return the face with routes that are served only while this node leads, except a GET of these paths.

    Until the engine has loaded the state of the store, its rules for new jobs are not known.
    """
    routes = [
        route if route.method == "GET" and route.path in answered else route._replace(handler=_for_leader(route, hold))
        for route in face.routes
    ]
    return replace(face, routes=routes)


def _for_leader(route: Route, hold: Hold) -> RouteHandler:
    handler, is_held = route.handler, route.method != "GET"

    async def handle(request: web.Request) -> AnyReply:
        size = UNKNOWN_SIZE if request.content_length is None and request.body_exists else request.content_length or 0
        await hold.admit(client_of(request), size=size, is_held=is_held)
        return await handler(request)

    return handle
