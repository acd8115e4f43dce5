"""Finds the route of a request by its path and method."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from aiohttp import hdrs, web

from erelong.errors import MethodNotAllowed, NoSuchRoute, Problem
from erelong.telemetry.log import get_logger
from erelong.web.boundary import answer_expect, bounded
from erelong.web.problems import request_id_of, stamp
from erelong.web.response import AnyReply

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence

    from erelong.telemetry.metrics import Metrics
    from erelong.web.face import Face, Route, RouteHandler

NAME = web.RequestKey("name", str)
NAMES = web.RequestKey("names", dict[str, str])
METHODS = frozenset(hdrs.METH_ALL)
NO_HEADERS: Final[Mapping[str, str]] = MappingProxyType({})
NAME_INDEX = 3  # index of the name in most paths with a name, as in /v1/jobs/{id}/cancel

log = get_logger(__name__)


class Wrapper(Protocol):
    """Wraps the handlers of all routes."""

    async def trace(self, request: web.Request, path: str, handler: RouteHandler) -> AnyReply: ...


class Endpoint(NamedTuple):
    """A route with its face and its bounded handler."""

    route: Route
    face: Face
    handler: RouteHandler


class Pattern(NamedTuple):
    """A path with several names, a verb behind one, or a raw tail."""

    shape: re.Pattern[str]
    is_raw: bool
    endpoints: dict[str, Endpoint]


class Router:
    """Serves the routes of all faces. aiohttp's router would try one path after another, each in a coroutine.

    A dictionary finds paths without a name and paths with one name at `NAME_INDEX`. Other paths are matched one by one.
    """

    def __init__(
        self,
        *,
        faces: Sequence[Face],
        metrics: Metrics,
        wrapper: Wrapper | None = None,
        also: Mapping[str, str] = NO_HEADERS,
    ) -> None:
        """Every response also carries the headers `also`."""
        self._faces = sorted(faces, key=lambda face: -len(face.prefix))
        self._metrics = metrics
        self._wrapper = wrapper
        self.also = also
        self._fixed: dict[str, dict[str, Endpoint]] = {}  # by path and method
        self._named: dict[str, dict[str, Endpoint]] = {}  # by path, with * for the name, and method
        self._patterns: dict[str, Pattern] = {}
        for face in faces:
            for route in face.routes:
                self._add(route, face)

    def routes(self) -> list[str]:
        """Return every route, as "GET /v1/jobs/{id}"."""
        tables = [
            *self._fixed.values(),
            *self._named.values(),
            *(pattern.endpoints for pattern in self._patterns.values()),
        ]
        return [f"{method} {endpoint.route.path}" for endpoints in tables for method, endpoint in endpoints.items()]

    def serve(self, request: web.Request) -> Awaitable[AnyReply]:
        try:
            endpoint = self._find(request)
        except Problem as problem:
            return self._refuse(request, problem)
        return (
            self._answer_expect(request, endpoint)
            if hdrs.EXPECT in request.headers
            else self._answer(request, endpoint)
        )

    def _add(self, route: Route, face: Face) -> None:
        endpoint = Endpoint(route, face, bounded(route, face, self._metrics, self.also))
        methods = ("GET", "HEAD") if route.method == "GET" else (route.method,)
        parts = route.path.split("/")
        if "{" not in route.path:
            endpoints = self._fixed.setdefault(route.path, {})
        elif route.path.count("{") == 1 and len(parts) > NAME_INDEX and re.fullmatch(r"{\w+}", parts[NAME_INDEX]):
            endpoints = self._named.setdefault("/".join([*parts[:NAME_INDEX], "*", *parts[NAME_INDEX + 1 :]]), {})
        else:
            endpoints = self._patterns.setdefault(route.path, _pattern(route.path)).endpoints
        endpoints.update(dict.fromkeys(methods, endpoint))

    def _answer(self, request: web.Request, endpoint: Endpoint) -> Awaitable[AnyReply]:
        return (
            endpoint.handler(request)
            if self._wrapper is None
            else self._wrapper.trace(request, endpoint.route.path, endpoint.handler)
        )

    async def _answer_expect(self, request: web.Request, endpoint: Endpoint) -> AnyReply:
        await answer_expect(request, endpoint.route, endpoint.face)
        return await self._answer(request, endpoint)

    async def _refuse(self, request: web.Request, problem: Problem) -> AnyReply:
        request_id = request_id_of(request)
        note_refused(self._metrics, problem, request_id, request.method)
        face = next(face for face in self._faces if request.path.startswith(face.prefix))
        reply = stamp(face.renderer.reply(problem, request_id), request_id)
        reply.headers |= self.also
        return reply

    def _find(self, request: web.Request) -> Endpoint:
        method, path = request.method, request.rel_url.path_safe
        fixed = self._fixed.get(path, {})
        endpoint = fixed.get(method)
        if endpoint is not None:
            return endpoint
        name, named = self._look_up(path)
        endpoint = named.get(method)
        if endpoint is not None:
            request[NAME] = _decoded(name) if "%" in name else name
            return endpoint
        allowed = {*fixed, *named}
        for pattern in self._patterns.values():
            if (match := pattern.shape.fullmatch(request.raw_path if pattern.is_raw else path)) is None:
                continue
            if (endpoint := pattern.endpoints.get(method)) is not None:
                names = match.groupdict()
                request[NAMES] = names if pattern.is_raw else {key: _decoded(name) for key, name in names.items()}
                return endpoint
            allowed |= pattern.endpoints.keys()
        if not allowed:
            raise NoSuchRoute(f"no route {request.path}; /docs and /openapi.json list the routes")
        known = ", ".join(sorted(allowed))
        detail = f"{request.path} does not support {method}; use {known}"
        if method == "POST" and (put := self._named.get(f"{path}/*", {}).get("PUT")) is not None:
            detail += f"; PUT {put.route.path} creates one"
        raise MethodNotAllowed(detail, headers={"Allow": known})

    def _look_up(self, path: str) -> tuple[str, Mapping[str, Endpoint]]:
        """Return the name in a path, and the methods of its route."""
        parts = path.split("/")
        if len(parts) <= NAME_INDEX or not parts[NAME_INDEX]:
            return "", {}
        name, parts[NAME_INDEX] = parts[NAME_INDEX], "*"
        return name, self._named.get("/".join(parts), {})


def name_in(request: web.Request) -> str:
    """Return the value of the only `{name}` of the route."""
    name: str = request[NAME]
    return name


def names_in(request: web.Request) -> dict[str, str]:
    """Return the values of the `{names}` of the route."""
    names: dict[str, str] = request[NAMES]
    return names


def note_refused(metrics: Metrics, problem: Problem, request_id: str, method: str = "") -> None:
    """Count and log a request that reached no route. Its method may be any word."""
    metrics.requests.values[method if method in METHODS else "other", "none", str(problem.status)] += 1
    log.debug("request_refused", request=request_id, problem=problem.code, detail=problem.detail)


def _pattern(path: str) -> Pattern:
    is_raw = path.endswith("...}")
    shape = ""
    for text, name, dots in re.findall(r"([^{]*)(?:{(\w+)(\.\.\.)?})?", path):
        shape += re.escape(text) + (f"(?P<{name}>{'.+' if dots else '[^/:]+'})" if name else "")
    return Pattern(re.compile(shape, re.DOTALL), is_raw, {})


def _decoded(name: str) -> str:
    return name.replace("%2F", "/").replace("%25", "%")
