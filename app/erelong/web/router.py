"""Which route a request is for, by its path and method."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple, Protocol

from aiohttp import hdrs, web

from erelong.errors import MethodNotAllowed, NoSuchRoute, Problem
from erelong.telemetry.log import get_logger
from erelong.web.boundary import bounded, meet_expectation
from erelong.web.problems import request_id_of, stamp
from erelong.web.response import AnyReply

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping, Sequence

    from erelong.telemetry.metrics import Metrics
    from erelong.web.face import Answer, Face, Route

NAME = web.RequestKey("name", str)
NAMES = web.RequestKey("names", dict[str, str])
METHODS = frozenset(hdrs.METH_ALL)
PLACE = 3  # of the name in most paths that have one, as in /v1/jobs/{id}/cancel

log = get_logger(__name__)


class Around(Protocol):
    """What is put around the answers of all routes."""

    async def trace(self, request: web.Request, path: str, answer: Answer) -> AnyReply: ...


class Way(NamedTuple):
    """How a route is served."""

    route: Route
    face: Face
    answer: Answer


class Pattern(NamedTuple):
    """A path with several names, a verb behind one, or a raw tail."""

    shape: re.Pattern[str]
    is_raw: bool
    ways: dict[str, Way]


class Router:
    """Serves the routes of all faces. The library's own tries one path after another, each in a coroutine.

    Paths without a name, and those with one name at `PLACE`, are looked up; others are matched one after another.
    """

    def __init__(self, *, faces: Sequence[Face], metrics: Metrics, around: Around | None = None) -> None:
        self._faces = sorted(faces, key=lambda face: -len(face.prefix))
        self._metrics = metrics
        self._around = around
        self._fixed: dict[str, dict[str, Way]] = {}  # by path and method
        self._named: dict[str, dict[str, Way]] = {}  # by path, with a * for the name in it, and method
        self._patterns: dict[str, Pattern] = {}
        for face in faces:
            for route in face.routes:
                self._add(route, face)

    def routes(self) -> list[str]:
        """Return all that is served, as "GET /v1/jobs/{id}"."""
        tables = [*self._fixed.values(), *self._named.values(), *(pattern.ways for pattern in self._patterns.values())]
        return [f"{method} {way.route.path}" for ways in tables for method, way in ways.items()]

    def serve(self, request: web.Request) -> Awaitable[AnyReply]:
        try:
            way = self._find(request)
        except Problem as problem:
            return self._refuse(request, problem)
        return self._expected(request, way) if hdrs.EXPECT in request.headers else self._answer(request, way)

    def _add(self, route: Route, face: Face) -> None:
        way = Way(route, face, bounded(route, face, self._metrics))
        methods = ("GET", "HEAD") if route.method == "GET" else (route.method,)
        parts = route.path.split("/")
        if "{" not in route.path:
            ways = self._fixed.setdefault(route.path, {})
        elif route.path.count("{") == 1 and len(parts) > PLACE and re.fullmatch(r"{\w+}", parts[PLACE]):
            ways = self._named.setdefault("/".join([*parts[:PLACE], "*", *parts[PLACE + 1 :]]), {})
        else:
            ways = self._patterns.setdefault(route.path, _pattern(route.path)).ways
        ways.update(dict.fromkeys(methods, way))

    def _answer(self, request: web.Request, way: Way) -> Awaitable[AnyReply]:
        return way.answer(request) if self._around is None else self._around.trace(request, way.route.path, way.answer)

    async def _expected(self, request: web.Request, way: Way) -> AnyReply:
        await meet_expectation(request, way.route, way.face)
        return await self._answer(request, way)

    async def _refuse(self, request: web.Request, problem: Problem) -> AnyReply:
        request_id = request_id_of(request)
        note_refused(self._metrics, problem, request_id, request.method)
        face = next(face for face in self._faces if request.path.startswith(face.prefix))
        return stamp(face.renderer.reply(problem, request_id), request_id)

    def _find(self, request: web.Request) -> Way:
        method, path = request.method, request.rel_url.path_safe
        fixed = self._fixed.get(path, {})
        way = fixed.get(method)
        if way is not None:
            return way
        name, named = self._look_up(path)
        way = named.get(method)
        if way is not None:
            request[NAME] = _decoded(name) if "%" in name else name
            return way
        allowed = {*fixed, *named}
        for pattern in self._patterns.values():
            if (match := pattern.shape.fullmatch(request.raw_path if pattern.is_raw else path)) is None:
                continue
            if (way := pattern.ways.get(method)) is not None:
                names = match.groupdict()
                request[NAMES] = names if pattern.is_raw else {key: _decoded(name) for key, name in names.items()}
                return way
            allowed |= pattern.ways.keys()
        if not allowed:
            raise NoSuchRoute(f"nothing is served at {request.path}; /docs shows what is, /openapi.json lists it")
        known = ", ".join(sorted(allowed))
        detail = f"{method} is not served at {request.path}; use {known}"
        raise MethodNotAllowed(detail, headers={"Allow": known})

    def _look_up(self, path: str) -> tuple[str, Mapping[str, Way]]:
        """Return the name in a path, and what is served with it."""
        parts = path.split("/")
        if len(parts) <= PLACE or not parts[PLACE]:
            return "", {}
        name, parts[PLACE] = parts[PLACE], "*"
        return name, self._named.get("/".join(parts), {})


def name_in(request: web.Request) -> str:
    """Return what stands in the path where the route has its one name in braces."""
    name: str = request[NAME]
    return name


def names_in(request: web.Request) -> dict[str, str]:
    """Return what stands in the path where the route has names in braces."""
    names: dict[str, str] = request[NAMES]
    return names


def note_refused(metrics: Metrics, problem: Problem, request_id: str, method: str = "") -> None:
    """Count and log a request that never came to a route; any word may have been its method."""
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
