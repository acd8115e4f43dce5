"""Queues over HTTP: decode the request, call the service, render the response."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aiohttp import web
from pydantic import ValidationError

from erelong.api import conditions
from erelong.api.dry_runs import as_dry_run, is_dry_run
from erelong.api.jobs import read_body
from erelong.api.schemas import EmptyIn
from erelong.api.shapes.queue_bodies import ListQueuesIn, PauseQueueIn
from erelong.api.shapes.queue_views import queue_view
from erelong.errors import Invalid
from erelong.service.queues import Place, QueueOrder
from erelong.settings.bounds import time_faults
from erelong.settings.queues import QueueSettings
from erelong.web.auth import caller_of
from erelong.web.problems import invalid
from erelong.web.response import Reply, json_reply
from erelong.web.router import name_in

if TYPE_CHECKING:
    from erelong.monitoring.statistics.stats import Statistics
    from erelong.service.queues import Queue
    from erelong.service.services import Services
    from erelong.settings.sections import Config
    from erelong.web.body import Bodies


class QueueRoutes:
    """The handlers of `/v1/queues`."""

    def __init__(self, *, services: Services, bodies: Bodies, statistics: Statistics, config: Config) -> None:
        self._services = services
        self._bodies = bodies
        self._statistics = statistics
        self._config = config

    async def list(self, request: web.Request) -> Reply:
        fields = conditions.read_query(request, ListQueuesIn)
        bound = {"order": fields.order}
        after = Place(*conditions.read_rank_cursor(fields.cursor, bound)) if fields.cursor else None
        order, is_brief = QueueOrder(fields.order), fields.view == "brief"
        queues, last = await self._services.queues.page(
            caller_of(request), order=order, after=after, limit=fields.limit, is_brief=is_brief
        )
        cursor = None if last is None else conditions.write_rank_cursor(bound, *last)
        response = json_reply({"queues": [self._view(queue) for queue in queues], "next": cursor})
        if cursor:
            response.headers["Link"] = f'<{request.rel_url.update_query(cursor=cursor)}>; rel="next"'
        return response

    async def read(self, request: web.Request) -> Reply:
        return json_reply(self._view(await self._services.queues.get(name_in(request))))

    async def put(self, request: web.Request) -> Reply:
        name, is_dry = conditions.new_name(request, "queue"), is_dry_run(request)
        body = await self._bodies.json(request)
        try:
            settings = QueueSettings.model_validate(_without_nulls(body))
        except ValidationError as error:
            raise invalid(error, QueueSettings, "the settings are not valid") from None
        if faults := time_faults(self._config.jobs, settings.timeout, settings.retry):
            raise Invalid("the settings are not valid", faults=faults)
        if is_dry:
            return as_dry_run(json_reply(self._view(await self._services.queues.rehearse_put(name, settings))))
        return json_reply(self._view(await self._services.queues.put(name, settings, caller_of(request))))

    async def drop(self, request: web.Request) -> Reply:
        await self._services.queues.drop(name_in(request), caller_of(request))
        return Reply(status=204)

    async def pause(self, request: web.Request) -> Reply:
        name, body = (
            conditions.new_name(request, "queue"),
            read_body(PauseQueueIn, await self._bodies.json_if_any(request)),
        )
        return json_reply(self._view(await self._services.queues.pause(name, body.reason, caller_of(request))))

    async def resume(self, request: web.Request) -> Reply:
        name = conditions.new_name(request, "queue")
        read_body(EmptyIn, await self._bodies.json_if_any(request))
        return json_reply(self._view(await self._services.queues.resume(name, caller_of(request))))

    async def purge(self, request: web.Request) -> Reply:
        read_body(EmptyIn, await self._bodies.json_if_any(request))
        return json_reply({"cancelled": await self._services.queues.purge(name_in(request), caller_of(request))})

    def _view(self, queue: Queue) -> dict[str, Any]:
        return queue_view(queue, self._statistics.rates_of(queue))


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
