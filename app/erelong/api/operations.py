"""Operations on many jobs over HTTP: decode the request, call the service, render the response."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from erelong.api import conditions
from erelong.api.dry_runs import as_dry_run, is_dry_run
from erelong.api.jobs import read_body
from erelong.api.schemas import EmptyIn
from erelong.api.shapes.operation_bodies import MAX_BODY, ListOperationsIn, ReadOperationIn, read_request
from erelong.api.shapes.operation_views import count_view, operation_reply, operation_view
from erelong.service.factory import callback_queue_of
from erelong.web.auth import caller_of, refuse_foreign
from erelong.web.connection import client_of
from erelong.web.response import Reply, json_reply
from erelong.web.router import name_in

if TYPE_CHECKING:
    from aiohttp import web

    from erelong.clock.instants import Now
    from erelong.model.caller import Caller
    from erelong.model.operations.operation import Operation, Request
    from erelong.service.services import Services
    from erelong.settings.sections import Config
    from erelong.web.body import Bodies


class OperationRoutes:
    """The handlers of `/v1/operations`."""

    def __init__(self, *, services: Services, bodies: Bodies, config: Config, now: Now) -> None:
        self._services = services
        self._bodies = bodies
        self._max_body = max(MAX_BODY, config.limits.max_body)
        self._max_wait, self._bounds = config.limits.max_wait, config.jobs
        self._now = now

    async def create(self, request: web.Request) -> Reply:
        self._services.lifecycle.refuse_work()
        is_dry, caller = is_dry_run(request), caller_of(request)
        body = await self._bodies.json(request, max_size=self._max_body)
        asked = read_request(body, self._now(), self._bounds, is_dry=is_dry)
        _refuse_foreign_queues(caller, asked)
        if is_dry:
            return as_dry_run(json_reply(count_view(await self._services.operations.rehearse(asked, caller))))
        record = conditions.idempotency_record(request, body, replace(caller, name=f"operation:{caller.name}"))
        operation, is_replay = await self._services.operations.start(asked, caller, record)
        return operation_reply(operation, is_replay=is_replay)

    async def read(self, request: web.Request) -> Reply:
        id = name_in(request)
        wait = conditions.read_query(request, ReadOperationIn).wait if request.query_string else None
        if not wait:
            return _reply(await self._services.operations.get(id))
        return _reply(await self._services.operations.wait(id, min(wait, self._max_wait), client_of(request)))

    async def list(self, request: web.Request) -> Reply:
        fields = conditions.read_query(request, ListOperationsIn)
        bound = fields.model_dump(exclude={"limit", "cursor"})
        before = conditions.read_name_cursor(fields.cursor, bound) if fields.cursor else None
        page, last = await self._services.operations.list(
            frozenset(fields.state), frozenset(fields.action), before, fields.limit, caller_of(request)
        )
        cursor = None if last is None else conditions.write_name_cursor(bound, last)
        views = [operation_view(operation, is_full=False) for operation in page]
        reply = json_reply({"operations": views, "next": cursor})
        if cursor:
            reply.headers["Link"] = f'<{request.rel_url.update_query(cursor=cursor)}>; rel="next"'
        return reply

    async def cancel(self, request: web.Request) -> Reply:
        read_body(EmptyIn, await self._bodies.json_if_any(request))
        return _reply(await self._services.operations.cancel(name_in(request), caller_of(request)))


def _reply(operation: Operation) -> Reply:
    return json_reply(operation_view(operation))


def _refuse_foreign_queues(caller: Caller, request: Request) -> None:
    """Refuse the queues that a key may not use, of jobs and of their callbacks."""
    refuse_foreign(caller, "/filter/queue", *request.filter.get("queue", ()))
    on_finish = ((request.change or {}).get("extras") or {}).get("on_finish")
    if caller.queues and on_finish is not None:
        refuse_foreign(caller, "/set/on_finish/queue", callback_queue_of(on_finish))
