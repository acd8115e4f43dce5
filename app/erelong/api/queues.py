"""Queues over HTTP: decode the request, call the service, render the response."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from aiohttp import web
from pydantic import ValidationError

from erelong.api.jobs import read_body
from erelong.api.schemas import EmptyIn
from erelong.api.views import queue_view
from erelong.errors import Fault, Invalid
from erelong.settings.names import NAME, NAME_CHARACTERS
from erelong.settings.queues import QueueSettings
from erelong.web.auth import caller_of
from erelong.web.problems import invalid
from erelong.web.response import Reply, json_reply
from erelong.web.router import name_in

if TYPE_CHECKING:
    from erelong.service.services import Services
    from erelong.settings.sections import Config
    from erelong.web.body import Bodies

_NAME = re.compile(NAME)


class QueueRoutes:
    """The handlers of `/v1/queues`."""

    def __init__(self, *, services: Services, bodies: Bodies, config: Config) -> None:
        self._services = services
        self._bodies = bodies
        self._config = config

    async def list(self, request: web.Request) -> Reply:
        return json_reply(
            {"queues": [queue_view(queue) for queue in await self._services.queues.all(caller_of(request))]}
        )

    async def read(self, request: web.Request) -> Reply:
        return json_reply(queue_view(await self._services.queues.get(name_in(request))))

    async def put(self, request: web.Request) -> Reply:
        name = _new_name(request)
        body = await self._bodies.json(request)
        try:
            settings = QueueSettings.model_validate(_without_nulls(body))
        except ValidationError as error:
            raise invalid(error, QueueSettings, "the settings are not valid") from None
        limit = self._config.jobs.max_timeout
        if settings.timeout is not None and settings.timeout > limit:
            fault = Fault("/timeout", f"{settings.timeout:g} s; at most {limit:g} s")
            raise Invalid("the settings are not valid", faults=[fault])
        return json_reply(queue_view(await self._services.queues.put(name, settings)))

    async def drop(self, request: web.Request) -> Reply:
        await self._services.queues.drop(name_in(request))
        return Reply(status=204)

    async def pause(self, request: web.Request) -> Reply:
        return await self._pause(request, is_paused=True)

    async def resume(self, request: web.Request) -> Reply:
        return await self._pause(request, is_paused=False)

    async def purge(self, request: web.Request) -> Reply:
        read_body(EmptyIn, await self._bodies.json_if_any(request))
        return json_reply({"cancelled": await self._services.queues.purge(name_in(request))})

    async def _pause(self, request: web.Request, *, is_paused: bool) -> Reply:
        name = _new_name(request)
        read_body(EmptyIn, await self._bodies.json_if_any(request))
        return json_reply(queue_view(await self._services.queues.pause(name, is_paused)))


def _without_nulls(body: Any) -> Any:
    """Return the body without nulls, which mean "not given", except where null is a value: no rate, no label limit."""
    if not isinstance(body, dict):
        return body
    fields = QueueSettings.model_fields
    return {
        name: {part: inner for part, inner in value.items() if inner is not None} if isinstance(value, dict) else value
        for name, value in body.items()
        if value is not None or name not in fields or fields[name].default is None
    }


def _new_name(request: web.Request) -> str:
    name = name_in(request)
    if not _NAME.fullmatch(name):
        fault = Fault("", f"{name!r} is not a valid queue name; use {NAME_CHARACTERS}")
        raise Invalid("the queue name is not valid", faults=[fault])
    return name
