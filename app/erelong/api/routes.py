"""The whole HTTP surface on one screen, and the one boundary that every request passes."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import orjson
from aiohttp import web

from erelong.api import conditions
from erelong.api.batches import BatchRoutes
from erelong.api.jobs import JobRoutes
from erelong.api.leases import LeaseRoutes
from erelong.api.openapi import document
from erelong.api.ops import OpsRoutes
from erelong.api.queues import QueueRoutes
from erelong.api.route import Route
from erelong.api.schemas import (
    BatchIn,
    CancelIn,
    EmptyIn,
    ExtendIn,
    FailIn,
    FinishIn,
    JobIn,
    LeaseIn,
    ListIn,
    PatchIn,
    ReadIn,
)
from erelong.api.submit_parser import Offers
from erelong.errors import (
    BacklogFull,
    BadCursor,
    BadHeader,
    Draining,
    IdempotencyMismatch,
    Internal,
    JobNotFound,
    KeyTaken,
    LeaseLost,
    LeaseNotFound,
    Problem,
    QueueInUse,
    QueueNotFound,
    StorageFull,
    StoreUnavailable,
    VersionMismatch,
    WrongState,
)
from erelong.model.caller import Scope
from erelong.settings.queues import QueueSettings
from erelong.telemetry.log import current_request, get_logger
from erelong.web.auth import Gate
from erelong.web.body import Bodies
from erelong.web.problems import REQUEST_ID, STREAM, problem_line, problem_reply, request_id_of, stamp
from erelong.web.response import AnyReply, Reply
from erelong.web.router import Answer, Router, Way

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from erelong.clock.instants import Now
    from erelong.handlers.base import Handler
    from erelong.model.job import Job
    from erelong.service.factory import Drafts
    from erelong.service.jobs import Service
    from erelong.service.leases import Leases
    from erelong.service.queues import Queues
    from erelong.settings.sections import Config
    from erelong.telemetry.metrics import Metrics

CLIENT_GONE = 499  # nobody reads it; the metrics show it

log = get_logger(__name__)


READ, SUBMIT, CANCEL, WORK, ADMIN = Scope.READ, Scope.SUBMIT, Scope.CANCEL, Scope.WORK, Scope.ADMIN
OPEN = None

READS = (StoreUnavailable,)
ASKS = (*READS, BadHeader, JobNotFound)
WRITES = (StoreUnavailable, StorageFull)
SUBMITS = (*WRITES, BadHeader, JobNotFound, KeyTaken, IdempotencyMismatch, BacklogFull, Draining)
STEPS = (*WRITES, BadHeader, JobNotFound, WrongState, VersionMismatch)
SETS = (*WRITES, QueueNotFound)
DROPS = (*SETS, QueueInUse)
LENDS = (*WRITES, Draining)
HOLDS = (*WRITES, LeaseNotFound, LeaseLost)
RUNS = (*STEPS, Draining)
REVIVES = (*RUNS, KeyTaken)


def routes(
    *,
    jobs: JobRoutes,
    batches: BatchRoutes,
    queues: QueueRoutes,
    leases: LeaseRoutes,
    ops: OpsRoutes,
    open_metrics: bool,
) -> list[Route]:
    """The table. A scope is what a key needs, None that no key is needed: everything stands here or is a 404."""
    seen = OPEN if open_metrics else READ
    return [
        Route("POST", "/v1/jobs", SUBMIT, jobs.create, "Submit a job", "201 200 Job", SUBMITS, JobIn),
        Route("POST", "/v1/jobs/batch", SUBMIT, batches.create, "Submit many", "201 200 Tickets", SUBMITS, BatchIn),
        Route("GET", "/v1/jobs", READ, jobs.list, "List jobs", "200 Jobs", (*READS, BadCursor), query=ListIn),
        Route("GET", "/v1/jobs/{id}", READ, jobs.read, "Read a job, or wait for it", "200 304 Job", ASKS, query=ReadIn),
        Route("PATCH", "/v1/jobs/{id}", SUBMIT, jobs.patch, "Change a scheduled job", "200 Job", STEPS, PatchIn),
        Route("DELETE", "/v1/jobs/{id}", CANCEL, jobs.delete, "Forget a job that is not running", "204", STEPS),
        Route("POST", "/v1/jobs/{id}/cancel", CANCEL, jobs.cancel, "Cancel or stop it", "200 202 Job", STEPS, CancelIn),
        Route("POST", "/v1/jobs/{id}/run", SUBMIT, jobs.run, "Make a job due now", "200 Job", RUNS, EmptyIn),
        Route("POST", "/v1/jobs/{id}/retry", SUBMIT, jobs.retry, "Revive an ended job", "200 Job", REVIVES, EmptyIn),
        Route("GET", "/v1/queues", READ, queues.list, "List queues", "200 Queues", READS),
        Route("GET", "/v1/queues/{queue}", READ, queues.read, "Read a queue", "200 Queue", (*READS, QueueNotFound)),
        Route("PUT", "/v1/queues/{queue}", ADMIN, queues.put, "Replace settings", "200 Queue", SETS, QueueSettings),
        Route("DELETE", "/v1/queues/{queue}", ADMIN, queues.drop, "Drop settings and pause", "204", DROPS),
        Route("POST", "/v1/queues/{queue}/pause", ADMIN, queues.pause, "Start no more", "200 Queue", SETS, EmptyIn),
        Route("POST", "/v1/queues/{queue}/resume", ADMIN, queues.resume, "Go on", "200 Queue", SETS, EmptyIn),
        Route("POST", "/v1/queues/{queue}/purge", CANCEL, queues.purge, "Drop what waits", "200 Purged", SETS, EmptyIn),
        Route("POST", "/v1/leases", WORK, leases.lend, "Take jobs of pull kinds", "200 Leases", LENDS, LeaseIn),
        Route("POST", "/v1/leases/{token}/extend", WORK, leases.extend, "Keep a job", "200 Extended", HOLDS, ExtendIn),
        Route("POST", "/v1/leases/{token}/finish", WORK, leases.finish, "Say it is done", "200 Job", HOLDS, FinishIn),
        Route("POST", "/v1/leases/{token}/fail", WORK, leases.fail, "Say it failed", "200 Job", HOLDS, FailIn),
        Route("POST", "/v1/leases/{token}/release", WORK, leases.release, "Give back unrun", "200 Job", HOLDS, EmptyIn),
        Route("GET", "/v1/kinds", READ, ops.kinds, "List kinds and their schemas", "200 Kinds"),
        Route("GET", "/livez", OPEN, ops.livez, "Is the process alive?", "200 Live"),
        Route("GET", "/readyz", OPEN, ops.readyz, "Does the service take work?", "200 503 Ready"),
        Route("GET", "/metrics", seen, ops.metrics, "Metrics for Prometheus", "200 Text"),
        Route("GET", "/openapi.json", OPEN, ops.openapi, "This document", "200 Any"),
        Route("GET", "/docs", OPEN, ops.docs, "A page to read it and try it", "200 Page"),
    ]


def make_router(
    *,
    service: Service,
    drafts: Drafts,
    queues: Queues,
    leases: Leases,
    handlers: Mapping[str, Handler],
    config: Config,
    metrics: Metrics,
    checks: Callable[[], dict[str, str]],
    now: Now,
    tick: Callable[[], float],
) -> Router:
    bodies = Bodies(limits=config.server)
    offers = Offers(drafts=drafts, max_horizon=config.jobs.max_horizon)
    jobs = JobRoutes(service=service, offers=offers, bodies=bodies, config=config, now=now)
    batches = BatchRoutes(service=service, offers=offers, bodies=bodies, jobs=jobs, limits=config.server, now=now)
    queue_routes = QueueRoutes(queues=queues, bodies=bodies, config=config)
    text = cache(lambda: orjson.dumps(document(table, handlers)))
    gate = Gate(service=service, queues=queues, leases=leases, config=config, tick=tick)
    ops = OpsRoutes(
        handlers=handlers,
        metrics=metrics,
        checks=checks,
        document=text,
        may_see=lambda request: gate.knows(request, READ),
    )
    lease_routes = LeaseRoutes(leases=leases, bodies=bodies, jobs=jobs, limits=config.server)
    table = routes(
        jobs=jobs,
        batches=batches,
        queues=queue_routes,
        leases=lease_routes,
        ops=ops,
        open_metrics=config.auth.open_metrics,
    )
    return _routed(table, gate, metrics, jobs.view)


def _routed(table: Sequence[Route], gate: Gate, metrics: Metrics, show: Callable[[Job], dict[str, Any]]) -> Router:
    router = Router(metrics=metrics)
    for route in table:
        methods = ("GET", "HEAD") if route.method == "GET" else (route.method,)
        router.add(methods, Way(route.path, _bounded(route, gate, metrics, show), gate.greet(route.scope)))
    return router


def _bounded(route: Route, gate: Gate, metrics: Metrics, show: Callable[[Job], dict[str, Any]]) -> Answer:
    """The boundary that every request passes: an id, leave, and an answer, whatever happens."""
    requests, path = metrics.requests.values, route.path
    takes_query = route.query is not None or not path.startswith("/v1/")

    async def answer(request: web.Request) -> AnyReply:
        request_id = request[REQUEST_ID] = request_id_of(request)
        token = current_request.set(request_id)
        try:
            if route.scope is not None:
                await gate.admit(request, path, route.scope)
            if not takes_query and request.query_string:
                conditions.read_query(request, EmptyIn)
            reply = await route.answer(request)
        except Exception as error:  # noqa: BLE001 - told apart, answered and logged there
            reply = await _refuse(request, error, show)
        if isinstance(reply, Reply):  # a stream has begun
            stamp(reply, request_id)
        requests[request.method, path, str(reply.status)] += 1
        if log.has_debug:
            log.debug("request", request=request_id, method=request.method, path=request.path, status=reply.status)
        current_request.reset(token)
        return reply

    return answer


async def _refuse(request: web.Request, error: Exception, show: Callable[[Job], dict[str, Any]]) -> AnyReply:
    match error:
        case Problem():
            problem = error
        case OSError() if request.transport is None or request.transport.is_closing():
            return Reply(status=CLIENT_GONE)
        case _:
            request_id = request[REQUEST_ID]
            fields = {"request": request_id, "method": request.method, "path": request.path}
            log.error("request_failed", exc_info=error, **fields)
            problem = Internal(f"something failed; the log has it as {request_id}")
    stream: web.StreamResponse | None = request.get(STREAM)
    if stream is None:
        return problem_reply(problem, request[REQUEST_ID], show)
    stream.force_close()
    await stream.write(problem_line(problem, request[REQUEST_ID], show))
    return stream
