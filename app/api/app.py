"""The whole HTTP surface on one screen, and the one boundary that every request passes."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any, NamedTuple

from aiohttp import web

from app.api import headers
from app.api.batches import BatchRoutes
from app.api.bodies import Bodies
from app.api.errors import from_http, problem_response
from app.api.jobs import JobRoutes
from app.api.openapi import document
from app.api.ops import OpsRoutes
from app.api.queues import QueueRoutes
from app.api.schemas import BatchIn, CancelIn, JobIn, ListIn, PatchIn, ReadIn
from app.config import QueueSettings
from app.errors import Internal, Problem
from app.log import get_logger

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from pydantic import BaseModel

    from app.clock import Now
    from app.config import Config
    from app.handlers.base import Handler
    from app.metrics import Metrics
    from app.queues import Queues
    from app.service import Service

log = get_logger(__name__)


class Route(NamedTuple):
    """One thing that can be asked: what it does and what it takes."""

    method: str
    path: str
    answer: Callable[[web.Request], Awaitable[web.StreamResponse]]
    summary: str
    body: type[BaseModel] | None = None
    query: type[BaseModel] | None = None


def routes(jobs: JobRoutes, batches: BatchRoutes, queues: QueueRoutes, ops: OpsRoutes) -> list[Route]:
    return [
        Route("POST", "/v1/jobs", jobs.create, "Submit a job", JobIn),
        Route("POST", "/v1/jobs/batch", batches.create, "Submit many jobs", BatchIn),
        Route("GET", "/v1/jobs", jobs.list, "List jobs", query=ListIn),
        Route("GET", "/v1/jobs/{id}", jobs.read, "Read a job, or wait for its end", query=ReadIn),
        Route("PATCH", "/v1/jobs/{id}", jobs.patch, "Change a scheduled job", PatchIn),
        Route("DELETE", "/v1/jobs/{id}", jobs.delete, "Forget a job that is not running"),
        Route("POST", "/v1/jobs/{id}/cancel", jobs.cancel, "Cancel a waiting job, stop a running one", CancelIn),
        Route("POST", "/v1/jobs/{id}/run", jobs.run, "Make a scheduled job due now"),
        Route("POST", "/v1/jobs/{id}/retry", jobs.retry, "Start a job that ended badly afresh"),
        Route("GET", "/v1/queues", queues.list, "List queues"),
        Route("GET", "/v1/queues/{queue}", queues.read, "Read a queue"),
        Route("PUT", "/v1/queues/{queue}", queues.put, "Replace a queue's settings", QueueSettings),
        Route("DELETE", "/v1/queues/{queue}", queues.drop, "Drop a queue's settings and pause"),
        Route("POST", "/v1/queues/{queue}/pause", queues.pause, "Start nothing more of a queue"),
        Route("POST", "/v1/queues/{queue}/resume", queues.resume, "Go on with a queue"),
        Route("POST", "/v1/queues/{queue}/purge", queues.purge, "Cancel all waiting jobs of a queue"),
        Route("GET", "/v1/kinds", ops.kinds, "List kinds and their schemas"),
        Route("GET", "/livez", ops.livez, "Is the process alive?"),
        Route("GET", "/readyz", ops.readyz, "Does the service take work?"),
        Route("GET", "/metrics", ops.metrics, "Metrics for Prometheus"),
        Route("GET", "/openapi.json", ops.openapi, "This document"),
    ]


def make_app(
    *,
    service: Service,
    queues: Queues,
    handlers: Mapping[str, Handler],
    config: Config,
    metrics: Metrics,
    checks: Callable[[], dict[str, str]],
    now: Now,
) -> web.Application:
    bodies = Bodies(limits=config.server)
    jobs = JobRoutes(service=service, bodies=bodies, config=config, now=now)
    batches = BatchRoutes(service=service, bodies=bodies, jobs=jobs, limits=config.server, now=now)
    queue_routes = QueueRoutes(queues=queues, bodies=bodies, config=config)
    ops = OpsRoutes(handlers=handlers, metrics=metrics, checks=checks, document=lambda: document(table, handlers))
    table = routes(jobs, batches, queue_routes, ops)
    app = web.Application(middlewares=[_boundary(metrics)])
    for route in table:
        if route.method == "GET":
            app.router.add_get(route.path, route.answer)  # and HEAD
        else:
            app.router.add_route(route.method, route.path, route.answer)
    return app


def _boundary(metrics: Metrics) -> Any:
    requests = metrics.requests.values

    @web.middleware
    async def boundary(request: web.Request, handler: Any) -> web.StreamResponse:
        """Give each request an id and an answer, whatever happens."""
        given = request.headers.get("X-Request-Id")
        request_id = given if given and headers.is_request_id(given) else secrets.token_hex(8)
        request["id"] = request_id
        try:
            response: web.StreamResponse = await handler(request)
        except Problem as problem:
            response = problem_response(problem, request_id)
        except web.HTTPException as error:
            response = problem_response(from_http(error, request), request_id)
        except Exception as error:
            log.error("request_failed", exc_info=error, request=request_id, method=request.method, path=request.path)
            response = problem_response(Internal(f"something failed; the log has it as {request_id}"), request_id)
        if not response.prepared:
            response.headers["X-Request-Id"] = request_id
            response.headers["Server"] = "erelong"
        resource = request.match_info.route.resource
        route = resource.canonical if resource is not None else "none"
        requests[request.method, route, str(response.status)] += 1
        log.debug("request", request=request_id, method=request.method, path=request.path, status=response.status)
        return response

    return boundary
