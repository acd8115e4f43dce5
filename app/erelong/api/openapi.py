"""The OpenAPI 3.1 document, generated from the routes and models in use."""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Literal

import orjson
from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema

from erelong.api.docs_page import CONTENT_TYPE as PAGE
from erelong.api.examples import EXAMPLES, LINES
from erelong.api.schemas import BatchIn, CancelIn, EmptyIn, PatchIn
from erelong.api.views import SCHEMAS
from erelong.errors import (
    BadHeader,
    BadRequest,
    BodyTimeout,
    Forbidden,
    HeaderTimeout,
    IdempotencyMismatch,
    Internal,
    Invalid,
    MalformedJson,
    MethodNotAllowed,
    NoSuchRoute,
    Overloaded,
    RateLimited,
    TooLarge,
    TooManyConnections,
    Unauthenticated,
    UnsupportedMediaType,
    VersionMismatch,
)
from erelong.model.caller import Scope
from erelong.settings.queues import Retry
from erelong.telemetry.metrics import CONTENT_TYPE as METRICS
from erelong.version import VERSION
from erelong.web.body import JSON, MERGE_PATCH, NDJSON
from erelong.web.problems import CONTENT_TYPE as PROBLEM

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from erelong.api.route import Route
    from erelong.errors import Problem
    from erelong.handlers.kinds import Kind, Kinds

Schema = dict[str, Any]

SCHEMA = "#/components/schemas/"
ABOUT = (
    "A delayed-task service: POST a job with a time; it runs then, and you can always read its outcome. "
    "Responses give instants as RFC 3339 in UTC and durations as seconds. A 2xx to a write means that it is on disk."
)
_CONNECTION = (Internal, BadRequest, BadHeader, HeaderTimeout, UnsupportedMediaType)  # possible on every route
_TAKES_BODY = (MalformedJson, BodyTimeout, TooLarge, Overloaded)
_ASKS_FOR_KEY = (Unauthenticated, Forbidden, RateLimited)
_KEY = {
    "type": "http",
    "scheme": "bearer",
    "description": "A key from `erelong new-key`; roles are its scopes. A service without keys needs none.",
}
_TAGS = {
    "Job": "Submit, read and change single jobs.",
    "Batch": "Submit many jobs at once.",
    "Queue": "The settings and counts of queues.",
    "Lease": "Jobs of pull kinds, for external workers.",
    "Ops": "Kinds, health, metrics and documentation.",
}
_PATHS = {"id": "An id, or `~` and a percent-encoded key: the live job that holds it, as in `~order-7?queue=mail`."}
_REQUEST_HEADERS = {
    "X-Request-Id": ("Echoed and logged; generated if not given.", "^[A-Za-z0-9._-]{1,64}$"),
    "If-Match": ('The version to change, from an `ETag`: `"3"`, a list, or `*`. Not with `~`.', None),
    "If-None-Match": ("The known version: wait until the job has another; 304 if it has not.", None),
    "Prefer": ("`wait=30`: like the query parameter `wait`.", None),
    "Idempotency-Key": (
        "A repeat with the same body within a day returns the jobs of the first request.",
        "^[ -~]{1,255}$",
    ),
}
_RESPONSE_HEADERS = {
    "X-Request-Id": "The id of the request in the log.",
    "ETag": "The version of the job, in quotes.",
    "Location": "The path of the job.",
    "Link": "The next page, if there is one.",
    "Preference-Applied": "The upper bound of the wait, in seconds.",
    "Idempotency-Replayed": "`true` if an earlier request made the jobs.",
    "Retry-After": "Seconds after which to try again.",
    "WWW-Authenticate": "`Bearer`: how to send a key.",
}


class Document:
    """The OpenAPI document of the routes and kinds, generated again when the kinds change."""

    def __init__(self, *, kinds: Kinds) -> None:
        self._kinds = kinds
        self._text = b""
        self._of: tuple[Kind, ...] = ()
        self.routes: Sequence[Route] = ()

    def text(self) -> bytes:
        kinds = tuple(self._kinds.values())
        if kinds != self._of:
            self._text, self._of = orjson.dumps(describe(self.routes, self._kinds)), kinds
        return self._text


def describe(routes: Sequence[Route], kinds: Kinds) -> dict[str, Any]:
    """Return the document as an object."""
    paths: dict[str, Schema] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {"title": "erelong", "version": VERSION, "description": ABOUT},
        "servers": [{"url": "/"}],
        "tags": [{"name": name, "description": about} for name, about in _TAGS.items()],
        "paths": paths,
        "components": {
            "securitySchemes": {"key": _KEY},
            "schemas": _schemas(routes, kinds),
            "parameters": {name: _header_parameter(name) for name in _REQUEST_HEADERS},
            "headers": {
                name: {"description": about, "schema": {"type": "string"}} for name, about in _RESPONSE_HEADERS.items()
            },
        },
    }


# operations


def _operation(route: Route) -> Schema:
    tag, _, name = route.handler.__qualname__.partition("Routes.")
    operation: Schema = {
        "operationId": f"{tag.lower()}_{name}",
        "tags": [tag],
        "summary": route.summary,
        "security": _security(route),
        "parameters": [*_path_parameters(route), *_query_parameters(route), *_headers(route)],
        "responses": {str(status): answer for status, answer in sorted((_answers(route) | _problems(route)).items())},
    }
    if route.body is not None and route.body is not EmptyIn:
        operation["requestBody"] = _request_body(route.body)
    return operation


def _security(route: Route) -> list[Schema]:
    if route.scope is not None:
        return [{"key": [route.scope]}]
    return [{}, {"key": [Scope.READ]}] if route.gives.endswith("Ready") else []


def _path_parameters(route: Route) -> list[Schema]:
    names = re.findall(r"\{(\w+)\}", route.path)
    return [_path_parameter(name) for name in names]


def _path_parameter(name: str) -> Schema:
    parameter: Schema = {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
    return parameter | {"description": _PATHS[name]} if name in _PATHS else parameter


def _query_parameters(route: Route) -> list[Schema]:
    if route.query is None:
        return []
    properties = route.query.model_json_schema(schema_generator=_Generator)["properties"]
    return [_query_parameter(name, _without_null(schema)) for name, schema in properties.items()]


def _query_parameter(name: str, schema: Schema) -> Schema:
    about = schema.pop("description", "")
    if schema.get("type") == "object":  # each property is a parameter of its own
        schema = schema | {"propertyNames": {"pattern": f"^{name}\\."}}
        schema["additionalProperties"] = schema.pop("patternProperties").popitem()[1]
    return {"name": name, "in": "query", "description": about, "style": "form", "explode": True, "schema": schema}


def _without_null(schema: Schema) -> Schema:
    """Return a schema without null, which a query cannot express."""
    if "anyOf" not in schema:
        return schema
    choices: list[Schema] = [choice for choice in schema["anyOf"] if choice != {"type": "null"}]
    if len(choices) > 1:
        return schema | {"anyOf": choices}
    return choices[0] | {name: value for name, value in schema.items() if name != "anyOf"}


def _headers(route: Route) -> list[Schema]:
    names = ["X-Request-Id"]
    if VersionMismatch in route.refuses:
        names.append("If-Match")
    if IdempotencyMismatch in route.refuses:
        names.append("Idempotency-Key")
    if "304" in route.gives:
        names += ["If-None-Match", "Prefer"]
    return [{"$ref": f"#/components/parameters/{name}"} for name in names]


def _header_parameter(name: str) -> Schema:
    about, pattern = _REQUEST_HEADERS[name]
    schema = {"type": "string"} if pattern is None else {"type": "string", "pattern": pattern}
    return {"name": name, "in": "header", "description": about, "schema": schema}


def _request_body(body: type) -> Schema:
    content: Schema = {JSON: {"schema": {"$ref": SCHEMA + body.__name__}, "example": EXAMPLES[body.__name__]}}
    if body is PatchIn:
        content[MERGE_PATCH] = content[JSON]
    if body is BatchIn:
        content[NDJSON] = {"schema": {"$ref": SCHEMA + "JobIn"}, "example": LINES}
    return {"required": body is not CancelIn, "content": content}


# answers


def _answers(route: Route) -> dict[int, Schema]:
    *statuses, view = route.gives.split() if " " in route.gives else (route.gives, "")
    return {int(status): _answer(route, int(status), view) for status in statuses}


def _answer(route: Route, status: int, view: str) -> Schema:
    answer: Schema = {"description": HTTPStatus(status).phrase, "headers": _response_headers(route, status, view)}
    if view and status != HTTPStatus.NOT_MODIFIED:
        media = {"Text": METRICS, "Page": PAGE}.get(view, JSON)
        answer["content"] = {media: {"schema": {"$ref": SCHEMA + view}}}
        if route.body is BatchIn and status == HTTPStatus.OK:
            answer["content"][NDJSON] = {"schema": {"$ref": SCHEMA + "Line"}}
    return answer


def _response_headers(route: Route, status: int, view: str) -> Schema:
    is_submit = IdempotencyMismatch in route.refuses
    names = {
        "X-Request-Id": True,
        "ETag": view == "Job",
        "Location": view == "Job" and is_submit,
        "Idempotency-Replayed": is_submit and status == HTTPStatus.OK,
        "Link": view == "Jobs",
        "Preference-Applied": "304" in route.gives,
    }
    return _header_refs(name for name, is_there in names.items() if is_there)


def _header_refs(names: Iterable[str]) -> Schema:
    return {name: {"$ref": f"#/components/headers/{name}"} for name in names}


def _problems(route: Route) -> dict[int, Schema]:
    by_status: dict[int, list[type[Problem]]] = {}
    for problem in _refusals(route):
        by_status.setdefault(problem.status, []).append(problem)
    return {status: _problem_answer(problems) for status, problems in by_status.items()}


def _refusals(route: Route) -> list[type[Problem]]:
    refusals = [*route.refuses, *_CONNECTION]
    if route.scope is not None:
        refusals += _ASKS_FOR_KEY
    if route.body is not None:
        refusals += _TAKES_BODY
    if route.path.startswith("/v1/"):  # unknown query names are refused there
        refusals += (Invalid, TooManyConnections)
    return list(dict.fromkeys(refusals))


def _problem_answer(problems: Sequence[type[Problem]]) -> Schema:
    lines = [f"`{problem.code}`: {problem.__doc__ or problem.title}" for problem in problems]
    codes = {"type": "object", "properties": {"code": {"enum": [problem.code for problem in problems]}}}
    headers = ["X-Request-Id"]
    if any(problem.pause for problem in problems):
        headers.append("Retry-After")
    if Unauthenticated in problems:
        headers.append("WWW-Authenticate")
    return {
        "description": "\n\n".join(lines),
        "headers": _header_refs(headers),
        "content": {PROBLEM: {"schema": {"allOf": [{"$ref": SCHEMA + "Problem"}, codes]}}},
    }


# schemas


class _Generator(GenerateJsonSchema):
    """Leaves out titles derived from names, and null defaults, which mean that there is no default."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def default_schema(self, schema: Any) -> Schema:
        made = super().default_schema(schema)
        return made if made.get("default") is not None else {k: v for k, v in made.items() if k != "default"}


def _schemas(routes: Sequence[Route], kinds: Kinds) -> dict[str, Schema]:
    bodies = [route.body for route in routes if route.body is not None and route.body is not EmptyIn]
    shapes: list[tuple[str, Literal["validation"], TypeAdapter[Any]]] = [
        (shape.__name__, "validation", TypeAdapter(shape)) for shape in dict.fromkeys([*bodies, Retry])
    ]
    _, made = TypeAdapter.json_schemas(shapes, ref_template=f"{SCHEMA}{{model}}", schema_generator=_Generator)
    schemas: dict[str, Schema] = made["$defs"]
    schemas["BatchIn"]["properties"]["jobs"]["items"] = {"$ref": f"{SCHEMA}JobIn"}
    schemas["JobIn"]["properties"]["kind"] |= {"enum": list(kinds)}
    schemas["JobIn"]["allOf"] = [_params_of(kind) for kind in kinds]
    problems = {problem for route in routes for problem in _refusals(route)} | {NoSuchRoute, MethodNotAllowed}
    return {
        **SCHEMAS,
        **schemas,
        **{_params_name(name): _moved(kind.params_schema, name) for name, kind in kinds.items()},
        "Problem": _problem_schema(sorted(problem.code for problem in problems)),
    }


def _params_name(kind: str) -> str:
    return f"params.{kind}"


def _params_of(kind: str) -> Schema:
    params = {"anyOf": [{"$ref": SCHEMA + _params_name(kind)}, {"type": "null"}]}
    is_it = {"properties": {"kind": {"const": kind}}, "required": ["kind"]}
    return {"if": is_it, "then": {"properties": {"params": params}}}


def _moved(schema: Any, kind: str) -> Any:
    """Return a kind's schema with its internal references moved to the document's root."""
    if isinstance(schema, list):
        return [_moved(part, kind) for part in schema]
    if not isinstance(schema, dict):
        return schema
    moved = {name: _moved(part, kind) for name, part in schema.items()}
    target = moved.get("$ref")
    if isinstance(target, str) and target.startswith("#"):
        moved["$ref"] = f"{SCHEMA}{_params_name(kind)}{target[1:]}"
    return moved


def _problem_schema(codes: list[str]) -> Schema:
    text = {"type": "string"}
    fault = {"type": "object", "properties": {"pointer": text, "detail": text}, "required": ["pointer", "detail"]}
    properties = {
        "type": {"type": "string", "format": "uri-reference"},
        "title": text,
        "status": {"type": "integer"},
        "detail": {"type": "string", "description": "What happened, with the value, and what to do."},
        "code": {"type": "string", "enum": codes},
        "request_id": text,
        "errors": {"type": "array", "items": fault, "description": "Each invalid field, by JSON pointer."},
        "job": {"$ref": SCHEMA + "Job", "description": "The conflicting job in its current state."},
    }
    required = [name for name in properties if name not in ("errors", "job")]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
