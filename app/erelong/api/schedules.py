"""Schedules over HTTP: decode the request, call the service, render the response."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import orjson
from aiohttp import web
from pydantic import ValidationError

from erelong.api import conditions
from erelong.api.dry_runs import as_dry_run, is_dry_run
from erelong.api.jobs import read_body
from erelong.api.schemas import EmptyIn
from erelong.api.shapes.operation_views import count_view, operation_reply
from erelong.api.shapes.schedule_bodies import (
    BackfillIn,
    ListSchedulesIn,
    PauseScheduleIn,
    PreviewIn,
    ScheduleIn,
    SchedulePatchIn,
    TriggerIn,
    apply_patch,
    read_definition,
    read_patch,
    refusal,
)
from erelong.api.shapes.schedule_views import preview_view, schedule_view
from erelong.model.schedules.schedule import Definition, Overlap
from erelong.service.factory import callback_queue_of
from erelong.service.schedules import AT_ONCE, Expected, Filters
from erelong.web.auth import caller_of, refuse_foreign
from erelong.web.body import JSON, MERGE_PATCH
from erelong.web.problems import invalid
from erelong.web.response import Reply, json_reply
from erelong.web.router import name_in

if TYPE_CHECKING:
    from erelong.api.jobs import JobRoutes
    from erelong.clock.instants import Now
    from erelong.model.caller import Caller
    from erelong.service.schedules import Shown
    from erelong.service.services import Services
    from erelong.settings.sections import Config
    from erelong.web.body import Bodies


class ScheduleRoutes:
    """The handlers of `/v1/schedules`."""

    def __init__(self, *, services: Services, bodies: Bodies, jobs: JobRoutes, config: Config, now: Now) -> None:
        self._services = services
        self._bodies = bodies
        self._jobs = jobs
        self._max_horizon = config.jobs.max_horizon
        self._now = now

    async def put(self, request: web.Request) -> Reply:
        name, caller = conditions.new_name(request, "schedule"), caller_of(request)
        is_dry = is_dry_run(request)
        try:
            definition = read_definition(await self._bodies.json(request), self._now(), self._max_horizon)
        except ValidationError as error:
            raise refusal(error, ScheduleIn, "the schedule is not valid") from None
        _refuse_foreign_queues(caller, definition)
        shown, is_new = await self._services.schedules.put(name, definition, _expected(request), caller, is_dry=is_dry)
        if is_dry:
            return as_dry_run(_reply(shown))
        reply = _reply(shown, status=201 if is_new else 200)
        if is_new:
            reply.headers["Location"] = f"/v1/schedules/{name}"
        return reply

    async def patch(self, request: web.Request) -> Reply:
        caller = caller_of(request)
        body = await self._bodies.json(request, types=(JSON, MERGE_PATCH))
        try:
            given = read_patch(body, self._now(), self._max_horizon)
        except ValidationError as error:
            raise refusal(error, SchedulePatchIn, "the change is not valid") from None

        def change(definition: Definition) -> Definition:
            after = apply_patch(definition, given)
            _refuse_foreign_queues(caller, after)
            return after

        return _reply(await self._services.schedules.patch(name_in(request), change, _expected(request), caller))

    async def read(self, request: web.Request) -> Reply:
        shown = await self._services.schedules.get(name_in(request), caller_of(request))
        if conditions.is_known(request, shown.schedule.version):
            return Reply(status=304, headers=_tag(shown))
        return _reply(shown)

    async def list(self, request: web.Request) -> Reply:
        fields = conditions.read_query(request, ListSchedulesIn)
        bound = fields.model_dump(exclude={"limit", "cursor"})
        is_paused = None if fields.paused is None else fields.paused == "true"
        filters = Filters(frozenset(fields.queue), frozenset(fields.kind), is_paused)
        after = conditions.read_name_cursor(fields.cursor, bound) if fields.cursor else ""
        schedules = self._services.schedules
        page, last = await schedules.list(filters, after, fields.limit, caller_of(request))
        cursor = None if last is None else conditions.write_name_cursor(bound, last)
        views: list[dict[str, Any]] = []
        for start in range(0, len(page), AT_ONCE):
            views += [schedule_view(shown, is_full=False) for shown in page[start : start + AT_ONCE]]
            await asyncio.sleep(0)
        response = json_reply({"schedules": views, "next": cursor})
        if cursor:
            response.headers["Link"] = f'<{request.rel_url.update_query(cursor=cursor)}>; rel="next"'
        return response

    async def delete(self, request: web.Request) -> Reply:
        await self._services.schedules.delete(name_in(request), _expected(request), caller_of(request))
        return Reply(status=204)

    async def pause(self, request: web.Request) -> Reply:
        body = read_body(PauseScheduleIn, await self._bodies.json_if_any(request))
        caller, expected = caller_of(request), _expected(request)
        return _reply(await self._services.schedules.pause(name_in(request), body.reason, expected, caller))

    async def resume(self, request: web.Request) -> Reply:
        read_body(EmptyIn, await self._bodies.json_if_any(request))
        return _reply(await self._services.schedules.resume(name_in(request), _expected(request), caller_of(request)))

    async def trigger(self, request: web.Request) -> Reply:
        body = await self._bodies.json_if_any(request)
        fields, caller = read_body(TriggerIn, body), caller_of(request)
        record = conditions.idempotency_record(request, body, replace(caller, name=f"trigger:{caller.name}"))
        overlap = None if fields.overlap is None else Overlap(fields.overlap)
        job, is_replay = await self._services.schedules.trigger(name_in(request), overlap, record, caller)
        response = self._jobs.reply(job, status=200 if is_replay else 201)
        response.headers["Location"] = f"/v1/jobs/{job.id}"
        if is_replay:
            response.headers["Idempotency-Replayed"] = "true"
        return response

    async def backfill(self, request: web.Request) -> Reply:
        name, caller, is_dry = name_in(request), caller_of(request), is_dry_run(request)
        body, context = await self._bodies.json(request), {"now": self._now(), "max_horizon": self._max_horizon}
        try:
            given = BackfillIn.model_validate(body, context=context)
        except ValidationError as error:
            raise invalid(error, BackfillIn, "the backfill cannot be made") from None
        first, end = getattr(given, "from"), given.to  # type: ignore[attr-defined]  # mypy does not see the fields
        if is_dry:
            return as_dry_run(json_reply(count_view(await self._services.backfills.rehearse(name, first, end, caller))))
        record = conditions.idempotency_record(request, body, replace(caller, name=f"operation:{caller.name}"))
        operation, is_replay = await self._services.backfills.start(name, first, end, caller, record)
        return operation_reply(operation, is_replay=is_replay)

    async def preview(self, request: web.Request) -> Reply:
        fields: Any = conditions.read_query(
            request, PreviewIn, context={"now": self._now(), "max_horizon": self._max_horizon}
        )
        previews, offset = await self._services.schedules.preview(
            name_in(request), getattr(fields, "from"), fields.count, caller_of(request)
        )
        return json_reply(preview_view(previews, offset, self._services.schedules.tzdb))


def _reply(shown: Shown, *, status: int = 200) -> Reply:
    headers = {"Content-Type": JSON, **_tag(shown)}
    return Reply(status=status, body=orjson.dumps(schedule_view(shown)), headers=headers)


def _tag(shown: Shown) -> dict[str, str]:
    return {"ETag": f'"{shown.schedule.version}"'}


def _refuse_foreign_queues(caller: Caller, definition: Definition) -> None:
    """Refuse queues of the jobs and of their callbacks that the caller may not use."""
    refuse_foreign(caller, "/job/queue", definition.queue)
    on_finish = orjson.loads(definition.job).get("on_finish") if caller.queues else None
    if on_finish is not None:
        refuse_foreign(caller, "/job/on_finish/queue", callback_queue_of(on_finish))


def _expected(request: web.Request) -> Expected:
    """Return the conditions of a request on the version."""
    is_new = ",".join(request.headers.getall("If-None-Match", ())).strip() == "*"
    return Expected(
        conditions.expected_versions(request),
        None if is_new else conditions.known_versions(request),
        is_new,
        must_exist="If-Match" in request.headers,
    )
