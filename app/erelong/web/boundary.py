"""The boundary around every route: gives a request its id, checks access, and turns any exception into a response."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp import HttpVersion11, hdrs, web

from erelong.errors import Fault, Internal, Invalid, Problem
from erelong.model.faults import unknown
from erelong.telemetry.log import current_request, get_logger
from erelong.web.problems import ALSO, REQUEST_ID, STREAM, request_id_of, stamp
from erelong.web.response import AnyReply, Reply

if TYPE_CHECKING:
    from collections.abc import Mapping

    from erelong.telemetry.metrics import Metrics
    from erelong.web.face import Face, Route, RouteHandler

CLIENT_GONE = 499  # only the metrics show it

log = get_logger(__name__)


def bounded(route: Route, face: Face, metrics: Metrics, also: Mapping[str, str]) -> RouteHandler:
    """Return the handler of a route with the boundary around it. Every response also carries the headers `also`."""
    requests, path = metrics.requests.values, route.path

    async def handle(request: web.Request) -> AnyReply:
        request_id = request[REQUEST_ID] = request_id_of(request)
        token = current_request.set(request_id)
        if also:
            request[ALSO] = also
        try:
            if route.scope is not None:
                await face.gate.admit(request, route)
            if not route.takes_query and request.query_string:
                faults = [Fault.at([name], unknown(name, ())) for name in dict.fromkeys(request.query)]
                raise Invalid("this route takes no query", faults=faults)
            reply = await route.handler(request)
        except Exception as error:  # noqa: BLE001 - sorted, answered and logged there
            reply = await _refuse(request, error, face)
        if isinstance(reply, Reply):  # otherwise a stream has begun
            stamp(reply, request_id)
            if also:
                reply.headers |= also
        requests[request.method, path, str(reply.status)] += 1
        if log.has_debug:
            log.debug("request", request=request_id, method=request.method, path=request.path, status=reply.status)
        current_request.reset(token)
        return reply

    return handle


async def answer_expect(request: web.Request, route: Route, face: Face) -> None:
    """Answer `Expect: 100-continue` unless the caller will be refused and need not send the body."""
    is_expected = request.version == HttpVersion11 and request.headers[hdrs.EXPECT].lower() == "100-continue"
    if is_expected and (route.scope is None or face.gate.admits(request, route)):
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        request.writer.output_size = 0  # otherwise the response would seem to have begun


async def _refuse(request: web.Request, error: Exception, face: Face) -> AnyReply:
    request_id = request[REQUEST_ID]
    match error:
        case Problem():
            problem = error
        case OSError() if request.transport is None or request.transport.is_closing():
            error.__traceback__ = None  # the request's body keeps the error, and its frames would keep the body
            return Reply(status=CLIENT_GONE)
        case _:
            fields = {"request": request_id, "method": request.method, "path": request.path}
            log.error("request_failed", exc_info=error, **fields)
            problem = Internal(f"an internal error occurred; find it in the log under request {request_id}")
    stream: web.StreamResponse | None = request.get(STREAM)
    if stream is None:
        return face.renderer.reply(problem, request_id)
    stream.force_close()
    await stream.write(face.renderer.line(problem, request_id))
    return stream
