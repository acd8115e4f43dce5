"""The whole HTTP surface on one screen, and the one boundary that every request passes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson
from aiohttp import web
from aiohttp.hdrs import METH_ALL

from app.access import Scope
from app.api import headers
from app.api.auth import Gate
from app.api.batches import BatchRoutes
from app.api.bodies import Bodies
from app.api.errors import REQUEST_ID, STREAM, from_http, make_request_id, problem_line, problem_response, stamp
from app.api.jobs import JobRoutes
from app.api.leases import LeaseRoutes
from app.api.openapi import document
from app.api.ops import OpsRoutes
from app.api.queues import QueueRoutes
from app.api.schemas import (
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
from app.config import QueueSettings
from app.door import is_loopback
from app.errors import (
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
from app.log import current_request, get_logger

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic import BaseModel

    from app.clock import Now
    from app.config import Config
    from app.handlers.base import Handler
    from app.job import Job
    from app.leases import Leases
    from app.metrics import Metrics
    from app.queues import Queues
    from app.service import Service

CLIENT_GONE = 499  # nobody reads it; the metrics show it

log = get_logger(__name__)


Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]

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


class Route(NamedTuple):
    """One thing that can be asked: how, by which keys, what answers, with which statuses and view, what it refuses and
    takes.
    """

    method: str
    path: str
    scope: Scope | None
    answer: Answer
    summary: str
    gives: str
    refuses: tuple[type[Problem], ...] = ()
    body: type[BaseModel] | None = None
    query: type[BaseModel] | None = None


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


def make_app(
    *,
    service: Service,
    queues: Queues,
    leases: Leases,
    handlers: Mapping[str, Handler],
    config: Config,
    metrics: Metrics,
    checks: Callable[[], dict[str, str]],
    now: Now,
    tick: Callable[[], float],
) -> web.Application:
    bodies = Bodies(limits=config.server)
    jobs = JobRoutes(service=service, bodies=bodies, config=config, now=now)
    batches = BatchRoutes(service=service, bodies=bodies, jobs=jobs, limits=config.server, now=now)
    queue_routes = QueueRoutes(queues=queues, bodies=bodies, config=config)
    text = cache(lambda: orjson.dumps(document(table, handlers)))
    gate = Gate(
        service=service,
        queues=queues,
        leases=leases,
        settings=config.auth,
        is_local=is_loopback(config.server.host),
        tick=tick,
    )
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
    app = web.Application(middlewares=[_boundary(metrics, jobs.view)])
    for route in table:
        takes_query = route.query is not None or not route.path.startswith("/v1/")
        answer = gate.guard(route.scope, route.answer if takes_query else _without_query(route.answer))
        if route.method == "GET":
            app.router.add_get(route.path, answer, expect_handler=gate.greet(route.scope))  # and HEAD
        else:
            app.router.add_route(route.method, route.path, answer, expect_handler=gate.greet(route.scope))
    return app


def _without_query(answer: Answer) -> Answer:
    async def checked(request: web.Request) -> web.StreamResponse:
        if request.query_string:
            headers.read_query(request, EmptyIn)
        return await answer(request)

    return checked


def _boundary(metrics: Metrics, show: Callable[[Job], dict[str, Any]]) -> Any:
    requests = metrics.requests.values

    async def refuse(request: web.Request, problem: Problem) -> web.StreamResponse:
        stream: web.StreamResponse | None = request.get(STREAM)
        if stream is None:
            return problem_response(problem, request[REQUEST_ID], show)
        stream.force_close()
        await stream.write(problem_line(problem, request[REQUEST_ID], show))
        return stream

    @web.middleware
    async def boundary(request: web.Request, handler: Any) -> web.StreamResponse:
        """Give each request an id and an answer, whatever happens."""
        given = request.headers.get("X-Request-Id")
        request_id = given if given and headers.is_request_id(given) else make_request_id()
        request[REQUEST_ID] = request_id
        token = current_request.set(request_id)
        try:
            response: web.StreamResponse = await handler(request)
        except Problem as problem:
            response = await refuse(request, problem)
        except web.HTTPException as error:
            response = await refuse(request, from_http(error, request))
        except Exception as error:
            if isinstance(error, OSError) and (request.transport is None or request.transport.is_closing()):
                response = web.Response(status=CLIENT_GONE)
            else:
                fields = {"request": request_id, "method": request.method, "path": request.path}
                log.error("request_failed", exc_info=error, **fields)
                response = await refuse(request, Internal(f"something failed; the log has it as {request_id}"))
        if not response.prepared:
            stamp(response, request_id)
        resource = request.match_info.route.resource
        route = resource.canonical if resource is not None else "none"
        method = request.method if request.method in METH_ALL else "other"  # any word is taken as a method
        requests[method, route, str(response.status)] += 1
        log.debug("request", request=request_id, method=request.method, path=request.path, status=response.status)
        current_request.reset(token)
        return response

    return boundary
