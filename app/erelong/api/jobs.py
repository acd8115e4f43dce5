"""Jobs over HTTP: decode the request, call the service, render the response."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import orjson
from aiohttp import hdrs, web
from pydantic import BaseModel, ValidationError

from erelong.api import conditions
from erelong.api.dry_runs import as_dry_run, is_dry_run, without_id
from erelong.api.schemas import CancelIn, EmptyIn, PatchIn, RetryIn, read_change, read_retry
from erelong.api.shapes.queries import NameIn, PatchQueryIn, ReadIn
from erelong.api.views import explanation_view
from erelong.errors import Fault, Invalid, JobNotFound, KeyTaken
from erelong.model.job import State
from erelong.model.reports.job_view import job_view
from erelong.model.submission import ADDED, CONFLICT
from erelong.service.factory import callback_queue_of
from erelong.service.jobs import BY_KEY, name_by_key
from erelong.service.rehearsal import is_rehearsed
from erelong.web.auth import caller_of, refuse_foreign
from erelong.web.body import JSON, MERGE_PATCH
from erelong.web.connection import client_of
from erelong.web.problems import invalid
from erelong.web.response import Reply, json_reply
from erelong.web.router import name_in

if TYPE_CHECKING:
    from erelong.api.submit_parser import SubmitParser
    from erelong.clock.instants import Now
    from erelong.model.job import Job
    from erelong.service.jobs import JobName
    from erelong.service.services import Services
    from erelong.settings.sections import Config
    from erelong.web.body import Bodies


B = TypeVar("B", bound=BaseModel)
_BY_ID = ReadIn()


class JobRoutes:
    """The handlers of `/v1/jobs`."""

    def __init__(self, *, services: Services, parser: SubmitParser, bodies: Bodies, config: Config, now: Now) -> None:
        self._services = services
        self._parser = parser
        self._bodies = bodies
        self._max_wait, self._max_horizon = config.limits.max_wait, config.jobs.max_horizon
        self._now = now

    async def create(self, request: web.Request) -> Reply:
        self._services.lifecycle.refuse_work()
        is_dry = bool(request.query_string) and is_dry_run(request)
        body = await self._bodies.json(request)
        now, caller = self._now(), caller_of(request)
        record = conditions.idempotency_record(request, body, caller)
        new_job = self._parser.read(body, now, caller)
        jobs = self._services.jobs.rehearsal() if is_dry else self._services.jobs
        receipt = await jobs.add([new_job], now=now, record=record, client=client_of(request))
        (entry,) = receipt.entries
        if entry is None:
            raise JobNotFound(
                "the job that this Idempotency-Key made has been deleted; send a new one to submit another"
            )
        if entry.status is CONFLICT:
            raise key_taken(entry.job)
        if is_dry and is_rehearsed(entry.job):
            return self._dry_reply(entry.job)
        response = self.reply(entry.job, status=201 if entry.status is ADDED else 200)
        response.headers["Location"] = f"/v1/jobs/{entry.job.id}"
        if is_dry:
            return as_dry_run(response)
        if receipt.replayed:
            response.headers["Idempotency-Replayed"] = "true"
        return response

    async def read(self, request: web.Request) -> Reply:
        id = name_in(request)
        preferred = conditions.preferred_wait(request)
        query = conditions.read_query(request, ReadIn) if request.query_string else _BY_ID
        name = id if query is _BY_ID and not id.startswith(BY_KEY) else _named(request, query.queue)
        requested = query.wait
        seconds = min(preferred or 0.0 if requested is None else requested, self._max_wait)
        if seconds:
            is_known = partial(conditions.is_known, request) if hdrs.IF_NONE_MATCH in request.headers else None
            job = await self._services.jobs.wait(name, seconds, is_known, client_of(request))
        else:
            job = await self._services.jobs.get(name)
        # Two holders of a key may have equal versions, so a key never gives a 304.
        is_same = isinstance(name, str) and conditions.is_known(request, job.version)
        response = Reply(status=304, headers=_tag(job)) if is_same else self.reply(job)
        if preferred is not None and requested in (None, preferred):
            response.headers["Preference-Applied"] = f"wait={int(seconds)}"
        return response

    async def explain(self, request: web.Request) -> Reply:
        queue = conditions.read_query(request, NameIn).queue if request.query_string else None
        explanation = await self._services.explain.explain(_named(request, queue))
        waiting_for = self._services.blockers.waiting_for(explanation.job, explanation.at)
        return json_reply(explanation_view(explanation, waiting_for))

    async def patch(self, request: web.Request) -> Reply:
        query = conditions.read_query(request, PatchQueryIn) if request.query_string else PatchQueryIn()
        name, expect, caller = _named(request, query.queue), conditions.expected_versions(request), caller_of(request)
        body = await self._bodies.json(request, types=(JSON, MERGE_PATCH))
        try:
            change = read_change(body, self._now(), self._max_horizon)
        except ValidationError as error:
            raise invalid(error, PatchIn, "the change is not valid") from None
        if caller.queues and (on_finish := change.extras.get("on_finish")) is not None:
            refuse_foreign(caller, "/on_finish/queue", callback_queue_of(on_finish))
        if query.is_dry_run:
            return self._dry_reply(await self._services.jobs.rehearse_patch(name, change, expect))
        return self.reply(await self._services.jobs.patch(name, change, expect))

    async def cancel(self, request: web.Request) -> Reply:
        name, expect = _step_in(request)
        body = read_body(CancelIn, await self._bodies.json_if_any(request))
        job = await self._services.jobs.cancel(name, body.reason, expect)
        return self.reply(job, status=200 if job.state is State.CANCELLED else 202)

    async def run(self, request: web.Request) -> Reply:
        name, expect = _step_in(request)
        read_body(EmptyIn, await self._bodies.json_if_any(request))
        return self.reply(await self._services.jobs.run(name, expect))

    async def retry(self, request: web.Request) -> Reply:
        name, expect = _step_in(request)
        body = await self._bodies.json_if_any(request)
        try:
            change = read_retry(body, self._now(), self._max_horizon)
        except ValidationError as error:
            raise invalid(error, RetryIn, "the job cannot be retried") from None
        return self.reply(await self._services.jobs.retry(name, expect, change))

    async def delete(self, request: web.Request) -> Reply:
        await self._services.jobs.delete(*_step_in(request))
        return Reply(status=204)

    def view(self, job: Job) -> dict[str, Any]:
        return job_view(job, self._services.blockers.waiting_for(job, self._now()))

    def reply(self, job: Job, *, status: int = 200) -> Reply:
        headers = {"Content-Type": JSON, **_tag(job)}
        return Reply(status=status, body=orjson.dumps(self.view(job)), headers=headers)

    def _dry_reply(self, job: Job) -> Reply:
        reply = json_reply(without_id(self.view(job), job))
        reply.headers |= _tag(job)
        return as_dry_run(reply)


def read_body(model: type[B], body: Any) -> B:
    try:
        return model.model_validate(body)
    except ValidationError as error:
        raise invalid(error, model) from None


def _step_in(request: web.Request) -> tuple[JobName, frozenset[int] | None]:
    """Return the job that a request changes, and the versions that `If-Match` allows."""
    queue = conditions.read_query(request, NameIn).queue if request.query_string else None
    return _named(request, queue), conditions.expected_versions(request)


def _named(request: web.Request, queue: str | None) -> JobName:
    """Return the id or the key in the path. `If-Match` needs an id."""
    text = name_in(request)
    if text.startswith(BY_KEY):
        if "If-Match" in request.headers:
            detail = "needs an id: two successive holders of a job key can have the same version"
            raise Invalid("the job name is not valid", faults=[Fault("/If-Match", detail)])
        return name_by_key(text, queue)
    if queue is not None:
        detail = "is for ~ and a job key in place of the id; remove it, since an id needs no queue"
        raise Invalid("the job name is not valid", faults=[Fault("/queue", detail)])
    return text


def key_taken(job: Job) -> KeyTaken:
    remedy = "send on_conflict keep, replace or reschedule, or another key"
    if is_rehearsed(job):
        return KeyTaken(f"job key {job.key!r} is held by the job of an earlier line; {remedy}")
    return KeyTaken(f"job key {job.key!r} is held by job {job.id} of queue {job.queue!r}; {remedy}", job=job)


def _tag(job: Job) -> dict[str, str]:
    return {"ETag": f'"{job.version}"'}
