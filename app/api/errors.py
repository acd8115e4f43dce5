"""Problems as clients see them: RFC 9457, with pydantic's findings as JSON pointers that say what to send."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson
from aiohttp import web

from app.api.views import job_view
from app.errors import Fault, Internal, Invalid, MethodNotAllowed, NoSuchRoute, Problem, TooLarge
from app.job import Job

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pydantic import ValidationError
    from pydantic_core import ErrorDetails

CONTENT_TYPE = "application/problem+json"
MAX_FAULTS = 100

_REMEDIES = {"extra_forbidden": "no such field", "missing": "this field is needed"}


def problem_body(problem: Problem, request_id: str) -> dict[str, Any]:
    body: dict[str, Any] = {
        "type": f"/problems/{problem.code}",
        "title": problem.title,
        "status": problem.status,
        "detail": problem.detail,
        "code": problem.code,
        "request_id": request_id,
    }
    if problem.faults:
        body["errors"] = [{"pointer": fault.pointer, "detail": fault.detail} for fault in problem.faults[:MAX_FAULTS]]
    if isinstance(problem.job, Job):
        body["job"] = job_view(problem.job, None)
    return body


def problem_response(problem: Problem, request_id: str) -> web.Response:
    return web.Response(
        status=problem.status,
        body=orjson.dumps(problem_body(problem, request_id)),
        content_type=CONTENT_TYPE,
        headers=problem.headers,
    )


def from_http(error: web.HTTPException, request: web.Request) -> Problem:
    """Say what the HTTP library found in the words of the contract."""
    if isinstance(error, web.HTTPMethodNotAllowed):
        allowed = ", ".join(sorted(error.allowed_methods))
        detail = f"{request.method} is not served at {request.path}; use {allowed}"
        return MethodNotAllowed(detail, headers={"Allow": allowed})
    if isinstance(error, web.HTTPNotFound):
        return NoSuchRoute(f"nothing is served at {request.path}; /openapi.json lists what is")
    if isinstance(error, web.HTTPRequestEntityTooLarge):
        return TooLarge("the body is larger than is taken here")
    return Internal(f"unexpected answer {error.status}")


def invalid(error: ValidationError, what: str = "the request cannot be taken") -> Invalid:
    return Invalid(what, faults=faults_of(error.errors(include_url=False)))


def faults_of(details: Sequence[ErrorDetails], prefix: str = "") -> list[Fault]:
    return [Fault(prefix + _pointer(detail), _sentence(detail)) for detail in details]


def _pointer(detail: ErrorDetails) -> str:
    parts = [str(part).replace("~", "~0").replace("/", "~1") for part in detail["loc"] if part != "[key]"]
    return "".join(f"/{part}" for part in parts)


def _sentence(detail: ErrorDetails) -> str:
    remedy = _REMEDIES.get(detail["type"])
    if remedy is not None:
        return remedy
    message = detail["msg"].removeprefix("Input ").removeprefix("Value error, ")
    if detail["type"] in ("instant", "duration", "field"):  # these name the value themselves
        return message
    return f"{_shown(detail['input'])}: {message}"


def _shown(value: object) -> str:
    try:
        text = orjson.dumps(value).decode()
    except TypeError:
        text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
