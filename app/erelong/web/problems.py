"""Renders problems as RFC 9457, with pydantic's errors as JSON pointers and sentences that say what to send."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import orjson
from aiohttp import web
from multidict import istr

from erelong.errors import Fault, Invalid, Problem
from erelong.model.faults import REQUIRED, unfit, unknown
from erelong.model.job import Job
from erelong.settings.names import in_words, names_at
from erelong.web.response import Reply

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aiohttp.web_request import BaseRequest
    from pydantic import ValidationError
    from pydantic_core import ErrorDetails

CONTENT_TYPE = "application/problem+json"
X_REQUEST_ID = istr("X-Request-Id")
REQUEST_ID = web.RequestKey("request_id", str)
STREAM = web.RequestKey("stream", web.StreamResponse)  # the streamed response, once it has begun
MAX_FAULTS = 20  # per job: one body can hold thousands of unknown names

_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_EXPECTATIONS = {"model_type": "should be an object", "dict_type": "should be an object"}


Show = Callable[[Job], dict[str, Any]]


def make_request_id() -> str:
    return f"{random.getrandbits(64):016x}"


def request_id_of(request: BaseRequest) -> str:
    """Return the id that the client sent, or a new one."""
    given = request.headers.get(X_REQUEST_ID)
    return given if given and _REQUEST_ID.fullmatch(given) else make_request_id()


def stamp(reply: Reply, request_id: str) -> Reply:
    """Add the headers that every response carries."""
    reply.headers["X-Request-Id"] = request_id
    reply.headers["Server"] = "erelong"
    return reply


def problem_body(problem: Problem, request_id: str, show: Show | None = None) -> dict[str, Any]:
    """Return a problem as an object; `show` renders the job that belongs to it."""
    body: dict[str, Any] = {
        "type": f"/problems/{problem.code}",
        "title": problem.title,
        "status": problem.status,
        "detail": problem.detail,
        "code": problem.code,
        "request_id": request_id,
    }
    if problem.faults:
        body["errors"] = [{"pointer": fault.pointer, "detail": fault.detail} for fault in problem.faults]
    if isinstance(problem.job, Job) and show is not None:
        body["job"] = show(problem.job)
    return body


def problem_reply(problem: Problem, request_id: str, show: Show | None = None) -> Reply:
    body = orjson.dumps(problem_body(problem, request_id, show))
    reply = Reply(status=problem.status, body=body, headers={"Content-Type": CONTENT_TYPE, **problem.headers})
    if problem.headers.get("Connection") == "close":
        reply.force_close()
    return reply


def problem_line(problem: Problem, request_id: str, show: Show) -> bytes:
    """Return a problem as one line of a stream."""
    return orjson.dumps({"problem": problem_body(problem, request_id, show)}, option=orjson.OPT_APPEND_NEWLINE)


class JobViews(Protocol):
    """Renders a job in the format of a face."""

    def view(self, job: Job) -> dict[str, Any]: ...


class ProblemRenderer:
    """Renders problems as RFC 9457, with the conflicting job."""

    def __init__(self, *, jobs: JobViews) -> None:
        self._jobs = jobs

    def reply(self, problem: Problem, request_id: str) -> Reply:
        return problem_reply(problem, request_id, self._jobs.view)

    def line(self, problem: Problem, request_id: str) -> bytes:
        return problem_line(problem, request_id, self._jobs.view)


def invalid(error: ValidationError, shape: type, what: str = "invalid request") -> Invalid:
    return Invalid(what, faults=faults_of(error.errors(include_url=False), shape))


def faults_of(details: Sequence[ErrorDetails], shape: type) -> list[Fault]:
    """Return pydantic's errors about a value of this shape as faults."""
    return [
        Fault.at([part for part in detail["loc"] if part != "[key]"], _sentence(detail, shape))
        for detail in details[:MAX_FAULTS]
    ]


def _sentence(detail: ErrorDetails, shape: type) -> str:
    match detail["type"]:
        case "missing":
            return REQUIRED
        case "extra_forbidden":
            return unknown(names_at(shape, detail["loc"][:-1]))
        case "instant" | "duration" | "field":  # these name the value themselves
            return detail["msg"]
    return unfit(detail["input"], _expectation(detail))


def _expectation(detail: ErrorDetails) -> str:
    if detail["type"] == "string_pattern_mismatch" and (words := in_words(detail["ctx"]["pattern"])):
        return words
    return _EXPECTATIONS.get(detail["type"]) or detail["msg"]
