"""Renders problems as RFC 9457, with pydantic's errors as JSON pointers and sentences that say what to send."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import orjson
from aiohttp import web
from multidict import istr

from erelong.errors import Fault, Invalid, Problem
from erelong.model.faults import MAX_HINTS, REQUIRED, shown, unfit, unknown
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
ALSO = web.RequestKey("also", Mapping[str, str])  # further headers that every response carries
STREAM = web.RequestKey("stream", web.StreamResponse)  # the streamed response, once it has begun
UNKNOWN = "extra_forbidden"
MAX_FAULTS = 20  # per job: one body can hold thousands of unknown names

_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_EXPECTATIONS = {
    "model_type": "should be an object",
    "dict_type": "should be an object",
    "list_type": "should be a list",
    "bool_type": "should be true or false",
}


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


def stream_headers(request: web.Request, media_type: str) -> dict[str, str]:
    """Return the headers of a streamed response, with those that every response carries."""
    common = {"X-Request-Id": request[REQUEST_ID], "Server": "erelong", **request.get(ALSO, {})}
    return {"Content-Type": media_type, **common}


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
        body["errors"] = [_fault_view(fault) for fault in problem.faults]
    if isinstance(problem.job, Job) and show is not None:
        body["job"] = show(problem.job)
    return body


def _fault_view(fault: Fault) -> dict[str, str]:
    view = {"pointer": fault.pointer, "detail": fault.detail}
    return view if fault.job is None else {**view, "job": fault.job}


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
    details = details[:MAX_FAULTS]
    hinted = [place for place, detail in enumerate(details) if detail["type"] == UNKNOWN][:MAX_HINTS]
    return [
        Fault.at([part for part in detail["loc"] if part != "[key]"], _sentence(detail, shape, place in hinted))
        for place, detail in enumerate(details)
    ]


def _sentence(detail: ErrorDetails, shape: type, has_hint: bool) -> str:
    match detail["type"]:
        case "missing":
            return REQUIRED
        case type if type == UNKNOWN:
            *path, name = detail["loc"]
            return unknown(str(name), names_at(shape, path), has_hint=has_hint)
        case "instant" | "duration" | "field":  # these name the value themselves
            return detail["msg"]
    wish = _expectation(detail)
    return wish if ", such as " in wish else unfit(detail["input"], wish)


def _expectation(detail: ErrorDetails) -> str:
    """Return the wish for another value, in words of the API where pydantic's are those of Python."""
    match detail["type"]:
        case "string_pattern_mismatch" if words := in_words(detail["ctx"]["pattern"]):
            return words
        case "too_short":
            return _number(detail, "least", "min_length")
        case "too_long":
            return _number(detail, "most", "max_length")
        case "list_type" if isinstance(detail["input"], str):
            return f"should be a list, such as [{shown(detail['input'])}]"
        case "literal_error" if detail["ctx"]["expected"] == "True":
            return "should be true"
        case type:
            return _EXPECTATIONS.get(type) or detail["msg"]


def _number(detail: ErrorDetails, bound: str, name: str) -> str:
    limit, actual = detail["ctx"][name], detail["ctx"]["actual_length"]
    unit = "character" if isinstance(detail["input"], str) else "item"
    return f"should have at {bound} {limit} {unit}{'' if limit == 1 else 's'}, not {actual}"
