"""Kinds over HTTP: decode the request, call the service, render the response."""

from __future__ import annotations

from typing import TYPE_CHECKING

from erelong.api import conditions
from erelong.api.jobs import read_body
from erelong.api.shapes.kind_shapes import KindIn, kind_view
from erelong.errors import Forbidden
from erelong.settings.kinds import KindSettings
from erelong.web.auth import caller_of
from erelong.web.response import json_reply
from erelong.web.router import name_in

if TYPE_CHECKING:
    from aiohttp import web

    from erelong.model.caller import Caller
    from erelong.service.services import Services
    from erelong.web.body import Bodies
    from erelong.web.response import Reply

WRAPPING = 1  # level of the body around the schema


class KindRoutes:
    """The handlers of `/v1/kinds`."""

    def __init__(self, *, services: Services, bodies: Bodies) -> None:
        self._services = services
        self._bodies = bodies

    async def list(self, request: web.Request) -> Reply:
        states = await self._services.kinds.all(caller_of(request))
        return json_reply({"kinds": [kind_view(state) for state in states]})

    async def read(self, request: web.Request) -> Reply:
        return json_reply(kind_view(await self._services.kinds.get(name_in(request), caller_of(request))))

    async def put(self, request: web.Request) -> Reply:
        caller = caller_of(request)
        _refuse_limited(caller)
        name = conditions.new_name(request, "kind")
        body = read_body(KindIn, await self._bodies.json(request, wrapped=WRAPPING))
        settings = KindSettings(pull=True, params_schema=body.params_schema, timeout=body.timeout, retry=body.retry)
        state, is_new = await self._services.kinds.put(name, settings, caller)
        reply = json_reply(kind_view(state), status=201 if is_new else 200)
        if is_new:
            reply.headers["Location"] = f"/v1/kinds/{name}"
        return reply

    async def drop(self, request: web.Request) -> Reply:
        caller = caller_of(request)
        _refuse_limited(caller)
        return json_reply({"waiting": await self._services.kinds.drop(name_in(request), caller)})


def _refuse_limited(caller: Caller) -> None:
    if caller.queues:
        raise Forbidden(
            f"a kind serves all queues, and API key {caller.name!r} is limited to some; use one without queues"
        )
