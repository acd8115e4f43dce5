"""Paths with names, verbs and raw tails, and several faces with their own gates and problem formats."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

import aiohttp
import orjson
import pytest
import pytest_asyncio
from aiohttp import web
from yarl import URL

from erelong.errors import Forbidden, Problem
from erelong.model.caller import Scope
from erelong.settings.sections import LimitsSection, ServerSection
from erelong.telemetry.metrics import Metrics
from erelong.web.face import Face, Route
from erelong.web.listener import listen
from erelong.web.problems import problem_reply
from erelong.web.response import Reply, json_reply
from erelong.web.router import Router, name_in, names_in
from erelong.web.server import Server

Ask = Callable[..., Awaitable[tuple[int, object]]]


class Door:
    """Admits only requests that say please."""

    async def admit(self, request: web.Request, route: Route) -> None:
        if not self.admits(request, route):
            raise Forbidden("say please")

    def admits(self, request: web.Request, _: Route) -> bool:
        return "please" in request.headers


class Plain:
    """Renders a problem as its code."""

    def __init__(self, name: str) -> None:
        self._name = name

    def reply(self, problem: Problem, _: str) -> Reply:
        reply = json_reply([self._name, problem.code], status=problem.status)
        reply.headers |= {name: value for name, value in problem.headers.items() if name == "Allow"}
        return reply

    def line(self, problem: Problem, request_id: str) -> bytes:
        return problem_reply(problem, request_id).body


async def names(request: web.Request) -> Reply:
    return json_reply(names_in(request))


async def name(request: web.Request) -> Reply:
    return json_reply(name_in(request))


async def fail(_: web.Request) -> Reply:
    raise Forbidden("never")


async def fixed(_: web.Request) -> Reply:
    return json_reply("fixed")


TASK = "/v2/projects/{project}/queues/{queue}/tasks/{task}"
FACES = [
    Face(
        prefix="",
        routes=[
            Route("GET", "/v1/jobs", None, fixed, takes_query=False),
            Route("GET", "/v1/jobs/{id}", None, name),
            Route("POST", "/v1/jobs/{id}/cancel", Scope.CANCEL, name),
            Route("GET", "/v1/jobs/{id}/fail", None, fail),
        ],
        gate=Door(),
        renderer=Plain("one"),
    ),
    Face(
        prefix="/v2/",
        routes=[
            Route("GET", TASK, None, names),
            Route("DELETE", TASK, None, names),
            Route("POST", f"{TASK}:run", None, names),
            Route("POST", "/v2/publish/{target...}", None, names),
        ],
        gate=Door(),
        renderer=Plain("two"),
    ),
]


@pytest_asyncio.fixture
async def ask() -> AsyncIterator[Ask]:
    router, listener = Router(faces=FACES, metrics=Metrics()), listen("127.0.0.1", 0)
    port = listener.getsockname()[1]
    server = Server(timeouts=ServerSection(), limits=LimitsSection(), metrics=Metrics())
    await server.open(router, listener)
    async with aiohttp.ClientSession() as session:

        async def ask(method: str, path: str, **headers: str) -> tuple[int, object]:
            url = URL(f"http://127.0.0.1:{port}{path}", encoded=True)
            async with session.request(method, url, headers=headers) as response:
                return response.status, orjson.loads(await response.read() or b"null")

        yield ask
    await server.close()


@pytest.mark.parametrize(
    ("method", "path", "answer"),
    [
        ("GET", "/v1/jobs", "fixed"),
        ("HEAD", "/v1/jobs", None),
        ("GET", "/v1/jobs/a%2Fb%25c%20d", "a/b%c d"),
        ("GET", "/v2/projects/p/queues/q/tasks/t", {"project": "p", "queue": "q", "task": "t"}),
        ("POST", "/v2/projects/p/queues/q/tasks/t:run", {"project": "p", "queue": "q", "task": "t"}),
        ("DELETE", "/v2/projects/a%2Fb/queues/q/tasks/t", {"project": "a/b", "queue": "q", "task": "t"}),
        ("POST", "/v2/publish/http://h/p?a=1&b=%20x//y", {"target": "http://h/p?a=1&b=%20x//y"}),
    ],
)
async def test_route_is_found_with_the_names_in_its_path(ask: Ask, method: str, path: str, answer: object) -> None:
    assert await ask(method, path) == (200, answer)


@pytest.mark.parametrize(
    ("method", "path", "face", "code"),
    [
        ("GET", "/v1/nothing", "one", "no_such_route"),
        ("GET", "/v1/jobs/", "one", "no_such_route"),
        ("PUT", "/v1/jobs/x", "one", "method_not_allowed"),
        ("GET", "/v1/jobs?x=1", "one", "invalid"),
        ("GET", "/v1/jobs/x/fail", "one", "forbidden"),
        ("GET", "/v2/projects/p/queues/q", "two", "no_such_route"),
        ("GET", "/v2/projects//queues/q/tasks/t", "two", "no_such_route"),
        ("GET", "/v2/projects/p/queues/q/tasks/t:stop", "two", "no_such_route"),
        ("PATCH", "/v2/projects/p/queues/q/tasks/t", "two", "method_not_allowed"),
        ("GET", "/v2/projects/p/queues/q/tasks/t:run", "two", "method_not_allowed"),
        ("POST", "/v2/publish/", "two", "no_such_route"),
    ],
)
async def test_face_of_the_path_renders_its_problems(ask: Ask, method: str, path: str, face: str, code: str) -> None:
    status, answer = await ask(method, path)

    assert (status >= 400, answer) == (True, [face, code])


async def test_route_with_a_scope_is_checked_by_the_gate(ask: Ask) -> None:
    assert await ask("POST", "/v1/jobs/x/cancel") == (403, ["one", "forbidden"])
    assert await ask("POST", "/v1/jobs/x/cancel", please="yes") == (200, "x")


def test_every_route_is_listed() -> None:
    served = Router(faces=FACES, metrics=Metrics()).routes()

    listed = [f"{route.method} {route.path}" for face in FACES for route in face.routes]
    assert sorted(name for name in served if not name.startswith("HEAD ")) == sorted(listed)
