"""Leases over HTTP: external workers lease jobs and report their outcomes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import orjson
from pydantic import BaseModel, ValidationError

from erelong.api.schemas import EmptyIn
from erelong.api.shapes.lease_bodies import ExtendIn, FailIn, FinishIn, LeaseIn
from erelong.clock.instants import format_instant
from erelong.lanes.pollers import LeaseRequest
from erelong.model.outcome import Error
from erelong.web.auth import caller_of, refuse_foreign
from erelong.web.connection import client_of
from erelong.web.problems import invalid
from erelong.web.response import json_reply
from erelong.web.router import name_in

if TYPE_CHECKING:
    from aiohttp import web

    from erelong.api.jobs import JobRoutes
    from erelong.service.leases import Leased
    from erelong.service.services import Services
    from erelong.settings.sections import Config
    from erelong.web.body import Bodies
    from erelong.web.response import Reply

M = TypeVar("M", bound=BaseModel)


class LeaseRoutes:
    """The handlers of `/v1/leases`."""

    def __init__(self, *, services: Services, bodies: Bodies, jobs: JobRoutes, config: Config) -> None:
        self._services = services
        self._bodies = bodies
        self._limits, self._max_horizon = config.limits, config.jobs.max_horizon
        self._jobs = jobs

    async def acquire(self, request: web.Request) -> Reply:
        body = await self._read(request, LeaseIn)
        caller = caller_of(request)
        refuse_foreign(caller, "/queues", *(body.queues or ()))
        lease_request = LeaseRequest(
            frozenset(body.kinds), frozenset(body.queues or caller.queues), body.max, body.lease, body.worker
        )
        wait = min(body.wait, self._limits.max_wait)
        leased = await self._services.leases.lease(lease_request, wait, client_of(request))
        return json_reply({"leases": [self._view(lease) for lease in leased]})

    async def extend(self, request: web.Request) -> Reply:
        body = await self._read(request, ExtendIn)
        lease = await self._services.leases.extend(name_in(request), body.lease)
        until = format_instant(lease.lease_until)
        return json_reply({"lease_until": until, "cancel_requested": lease.job.cancel_requested})

    async def finish(self, request: web.Request) -> Reply:
        body = await self._read(request, FinishIn, self._limits.max_batch_body)
        result = orjson.dumps(body.result) if body.result is not None else None
        return self._jobs.reply(await self._services.leases.finish(name_in(request), result))

    async def fail(self, request: web.Request) -> Reply:
        body = await self._read(request, FailIn, self._limits.max_batch_body)
        error = Error(body.error.type, body.error.message, body.retryable)
        job = await self._services.leases.fail(name_in(request), error, body.delay, body.output or "")
        return self._jobs.reply(job)

    async def release(self, request: web.Request) -> Reply:
        await self._read(request, EmptyIn)
        return self._jobs.reply(await self._services.leases.release(name_in(request)))

    def _view(self, lease: Leased) -> dict[str, Any]:
        return {
            "token": lease.token,
            "lease_until": format_instant(lease.lease_until),
            "traceparent": lease.traceparent,
            "job": self._jobs.view(lease.job),
        }

    async def _read(self, request: web.Request, model: type[M], max_size: int | None = None) -> M:
        try:
            body = await self._bodies.json_if_any(request, max_size=max_size)
            return model.model_validate(body, context={"max_horizon": self._max_horizon})
        except ValidationError as error:
            raise invalid(error, model) from None
