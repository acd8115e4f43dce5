"""Which route a request is for, by its path and method."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from aiohttp import hdrs, web

from erelong.errors import MethodNotAllowed, NoSuchRoute, Problem
from erelong.telemetry.log import get_logger
from erelong.web.problems import problem_reply, request_id_of, stamp
from erelong.web.response import AnyReply

if TYPE_CHECKING:
    from erelong.telemetry.metrics import Metrics

Answer = Callable[[web.Request], Awaitable[AnyReply]]
Greet = Callable[[web.Request], Awaitable[None]]
Around = Callable[[web.Request, str, Answer], Awaitable[AnyReply]]

NAMED = web.RequestKey("named", str)
METHODS = frozenset(hdrs.METH_ALL)
PLACE = 3  # of the one part of a path that is a name, as in /v1/jobs/{id}/cancel

log = get_logger(__name__)


class Way(NamedTuple):
    """How a route is served: its path as in the table, what answers, and what meets an `Expect`."""

    path: str
    answer: Answer
    greet: Greet


class Router:
    """Serves the routes that it is given. The library's own tries one path after another, each in a coroutine: 4 µs.

    `around` is put around the answers of all routes.
    """

    def __init__(self, *, metrics: Metrics) -> None:
        self._metrics = metrics
        self._fixed: dict[str, dict[str, Way]] = {}  # by path and method
        self._named: dict[str, dict[str, Way]] = {}  # by path, with a * for the name in it, and method
        self.around: Around | None = None

    def add(self, methods: Iterable[str], way: Way) -> None:
        parts = way.path.split("/")
        ways = self._fixed
        if "{" in way.path:
            assert parts[PLACE].startswith("{"), way.path
            ways, parts[PLACE] = self._named, "*"
        ways.setdefault("/".join(parts), {}).update(dict.fromkeys(methods, way))

    def names(self) -> list[str]:
        """All that is served, as "GET /v1/jobs/{id}"."""
        served = [*self._fixed.values(), *self._named.values()]
        return [f"{method} {way.path}" for ways in served for method, way in ways.items()]

    def serve(self, request: web.Request) -> Awaitable[AnyReply]:
        try:
            way = self._find(request)
        except Problem as problem:
            return self._refuse(request, problem)
        return self._greet(request, way) if hdrs.EXPECT in request.headers else self._answer(request, way)

    def _answer(self, request: web.Request, way: Way) -> Awaitable[AnyReply]:
        return way.answer(request) if self.around is None else self.around(request, way.path, way.answer)

    async def _greet(self, request: web.Request, way: Way) -> AnyReply:
        await way.greet(request)
        return await self._answer(request, way)

    async def _refuse(self, request: web.Request, problem: Problem) -> AnyReply:
        request_id = request_id_of(request)
        note_refused(self._metrics, problem, request_id, request.method)
        return stamp(problem_reply(problem, request_id), request_id)

    def _find(self, request: web.Request) -> Way:
        method, path = request.method, request.rel_url.path_safe
        fixed = self._fixed.get(path, {})
        way = fixed.get(method)
        if way is not None:
            return way
        name, named = self._look_up(path)
        way = named.get(method)
        if way is not None:
            request[NAMED] = name.replace("%2F", "/").replace("%25", "%") if "%" in name else name
            return way
        allowed = ", ".join(sorted({*fixed, *named}))
        if not allowed:
            raise NoSuchRoute(f"nothing is served at {request.path}; /openapi.json lists what is")
        detail = f"{method} is not served at {request.path}; use {allowed}"
        raise MethodNotAllowed(detail, headers={"Allow": allowed})

    def _look_up(self, path: str) -> tuple[str, Mapping[str, Way]]:
        """The name in a path, and what is served with it."""
        parts = path.split("/")
        if len(parts) <= PLACE or not parts[PLACE]:
            return "", {}
        name, parts[PLACE] = parts[PLACE], "*"
        return name, self._named.get("/".join(parts), {})


def name_in(request: web.Request) -> str:
    """What stands in the path where the route has a name in braces."""
    name: str = request[NAMED]
    return name


def note_refused(metrics: Metrics, problem: Problem, request_id: str, method: str = "") -> None:
    """Count and log a request that never came to a route; any word may have been its method."""
    metrics.requests.values[method if method in METHODS else "other", "none", str(problem.status)] += 1
    log.debug("refused", request=request_id, problem=problem.code, detail=problem.detail)
