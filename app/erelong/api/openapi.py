"""The OpenAPI 3.1 document, generated from the routes and models in use."""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Literal

import orjson
from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema

from erelong.api.docs_page import CONTENT_TYPE as PAGE
from erelong.api.events.frames import EVENT_STREAM
from erelong.api.schemas import BatchIn, CancelIn, EmptyIn, PatchIn, RetryIn, WaitIn
from erelong.api.shapes.examples import EXAMPLES, LINES
from erelong.api.shapes.kind_params import SCHEMA, KindParams
from erelong.api.shapes.queries import DryRunIn
from erelong.api.shapes.queue_bodies import PauseQueueIn
from erelong.api.shapes.schedule_bodies import PauseScheduleIn, SchedulePatchIn, TriggerIn
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
    TooMany,
    TooManyConnections,
    Unauthenticated,
    UnsupportedMediaType,
    VersionMismatch,
)
from erelong.model.caller import ANY_KEY, Scope
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
    from erelong.web import face

Schema = dict[str, Any]

ABOUT = (
    "A delayed-task service: submit a job over HTTP, and it runs at its due time. Its state and outcome can be read "
    "at any time. Instants in responses are RFC 3339 in UTC, durations are seconds. A write is on disk before its 2xx."
)
_CONNECTION = (Internal, BadRequest, BadHeader, HeaderTimeout, UnsupportedMediaType)  # possible on every route
_TAKES_BODY = (MalformedJson, BodyTimeout, TooLarge, Overloaded)
_ASKS_FOR_KEY = (Unauthenticated, Forbidden, RateLimited)
_KEY = {
    "type": "http",
    "scheme": "bearer",
    "description": "An API key from `erelong new-key`; roles are its scopes. A service without keys needs none.",
}
LINES_OF: dict[type | None, str] = {BatchIn: "Line", WaitIn: "WaitLine"}
"""The view of each line of a streamed response."""
_TAGS = {
    "Job": "Submit, read and change single jobs.",
    "Listing": "Find jobs by filters, in an order.",
    "Batch": "Submit many jobs at once.",
    "Wait": "Wait for many jobs at once.",
    "Queue": "The settings and counts of queues.",
    "Schedule": "Jobs that recur.",
    "Operation": "Cancel, run, retry, delete or change many jobs.",
    "Event": "Streams of what happens to jobs.",
    "Lease": "Jobs of pull kinds, for external workers.",
    "Kind": "Kinds of work, and declarations of pull kinds.",
    "Overview": "What happens now, and what this API key may do.",
    "Clock": "The virtual clock, for tests of applications.",
    "Ops": "Health, metrics and documentation.",
}
_OPTIONAL_BODIES = (CancelIn, RetryIn, PauseQueueIn, PauseScheduleIn, TriggerIn)
_PATHS = {"id": "An id, or `~` and a percent-encoded job key: the live job that holds it, as in `~order-7?queue=mail`."}
_REQUEST_HEADERS = {
    "X-Request-Id": ("Echoed and logged; generated if not given.", "^[A-Za-z0-9._-]{1,64}$"),
    "If-Match": ('The version to change, from an `ETag`: `"3"`, a list, or `*`. Not with `~`.', None),
    "If-None-Match": ("The known version: 304, or a wait, until there is another. In a PUT, `*` only creates.", None),
    "Prefer": ("`wait=30`: like the query parameter `wait`.", None),
    "Last-Event-ID": ("The id of the last event received: the stream continues after it.", None),
    "Idempotency-Key": ("A repeat with the same body within a day returns what the first made.", "^[ -~]{1,255}$"),
}
_RESPONSE_HEADERS = {
    "X-Request-Id": "The id of the request in the log.",
    "ETag": "The version of the job or schedule, in quotes.",
    "Location": "The path of the job, schedule, operation or kind.",
    "Dry-Run": "`true` if the call stored nothing.",
    "Link": "The next page, if there is one.",
    "Preference-Applied": "The upper bound of the wait, in seconds.",
    "Idempotency-Replayed": "`true` if an earlier request made it.",
    "Retry-After": "Seconds after which to try again.",
    "WWW-Authenticate": "`Bearer`: how to send an API key.",
}


class Document:
    """The OpenAPI document of the routes and kinds, generated again when the kinds change."""

    def __init__(self, *, kinds: Kinds) -> None:
        self._kinds = kinds
        self._params = KindParams()
        self._base: Schema = {}
        self._text = b""
        self._of: tuple[Kind, ...] = ()
        self.routes: Sequence[Route] = ()

    def served(self) -> list[face.Route]:
        """Return the routes as the router needs them."""
        return [route.served() for route in self.routes]

    def text(self) -> bytes:
        kinds = tuple(self._kinds.values())
        if kinds != self._of:
            self._base = self._base or describe(self.routes)
            self._text, self._of = orjson.dumps(self._params.add(self._base, self._kinds)), kinds
        return self._text


def describe(routes: Sequence[Route]) -> Schema:
    """Return the document without the kinds."""
    paths: dict[str, Schema] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    tags = {operation["tags"][0] for item in paths.values() for operation in item.values()}
    return {
        "openapi": "3.1.0",
        "info": {"title": "erelong", "version": VERSION, "description": ABOUT},
        "servers": [{"url": "/"}],
        "tags": [{"name": name, "description": about} for name, about in _TAGS.items() if name in tags],
        "paths": paths,
        "components": {
            "securitySchemes": {"key": _KEY},
            "schemas": _schemas(routes),
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
        needs = route.scope if isinstance(route.scope, frozenset) else {route.scope}
        return [{"key": [] if need is ANY_KEY else [need]} for need in sorted(needs, key=str)]
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
    if "304" in route.gives or {TooMany, VersionMismatch} <= {*route.refuses}:
        names.append("If-None-Match")
    if route.gives == "200 Events":
        names.append("Last-Event-ID")
    if route.gives == "200 304 Job":
        names.append("Prefer")
    return [{"$ref": f"#/components/parameters/{name}"} for name in names]


def _header_parameter(name: str) -> Schema:
    about, pattern = _REQUEST_HEADERS[name]
    schema = {"type": "string"} if pattern is None else {"type": "string", "pattern": pattern}
    return {"name": name, "in": "header", "description": about, "schema": schema}


def _request_body(body: type) -> Schema:
    content: Schema = {JSON: {"schema": {"$ref": SCHEMA + body.__name__}, "example": EXAMPLES[body.__name__]}}
    if body in (PatchIn, SchedulePatchIn):
        content[MERGE_PATCH] = content[JSON]
    if body is BatchIn:
        content[NDJSON] = {"schema": {"$ref": SCHEMA + "JobIn"}, "example": LINES}
    return {"required": body not in _OPTIONAL_BODIES, "content": content}


# answers


def _answers(route: Route) -> dict[int, Schema]:
    *statuses, view = route.gives.split() if " " in route.gives else (route.gives, "")
    return {int(status): _answer(route, int(status), view) for status in statuses}


def _answer(route: Route, status: int, view: str) -> Schema:
    answer: Schema = {"description": HTTPStatus(status).phrase, "headers": _response_headers(route, status, view)}
    if view and status != HTTPStatus.NOT_MODIFIED:
        media = {"Text": METRICS, "Page": PAGE, "Events": EVENT_STREAM}.get(view, JSON)
        answer["content"] = {
            media: {"schema": _schema_of(view, is_dry=_has_dry_run(route) and status == HTTPStatus.OK)}
        }
        if status == HTTPStatus.OK and (line := LINES_OF.get(route.body)) is not None:
            answer["content"][NDJSON] = {"schema": {"$ref": SCHEMA + line}}
    return answer


def _schema_of(view: str, *, is_dry: bool) -> Schema:
    """Return the schema of a view; a dry run may have another one."""
    if is_dry and (dry := f"Dry{view}") in SCHEMAS:
        return {"anyOf": [{"$ref": SCHEMA + view}, {"$ref": SCHEMA + dry}]}
    return {"$ref": SCHEMA + view}


def _has_dry_run(route: Route) -> bool:
    return route.query is not None and issubclass(route.query, DryRunIn)


def _response_headers(route: Route, status: int, view: str) -> Schema:
    is_submit = IdempotencyMismatch in route.refuses
    names = {
        "X-Request-Id": True,
        "ETag": view in ("Job", "Schedule", "Stats"),
        "Location": (view in ("Job", "Operation") and is_submit)
        or (view in ("Schedule", "Kind") and status == HTTPStatus.CREATED),
        "Dry-Run": _has_dry_run(route) and status == HTTPStatus.OK,
        "Idempotency-Replayed": is_submit and status == HTTPStatus.OK,
        "Link": view in ("Jobs", "Schedules", "Operations", "Queues"),
        "Preference-Applied": route.gives == "200 304 Job",
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
    """Leaves out titles derived from names, and null defaults, which mean that there is no default.

    Any other default can be asked for with null.
    """

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def default_schema(self, schema: Any) -> Schema:
        made = super().default_schema(schema)
        default = made.pop("default", None)
        return made if default is None else {"anyOf": [made, {"type": "null"}], "default": default}


def _schemas(routes: Sequence[Route]) -> dict[str, Schema]:
    bodies = [route.body for route in routes if route.body is not None and route.body is not EmptyIn]
    shapes: list[tuple[str, Literal["validation"], TypeAdapter[Any]]] = [
        (shape.__name__, "validation", TypeAdapter(shape)) for shape in dict.fromkeys([*bodies, Retry])
    ]
    _, made = TypeAdapter.json_schemas(shapes, ref_template=f"{SCHEMA}{{model}}", schema_generator=_Generator)
    schemas: dict[str, Schema] = made["$defs"]
    schemas["BatchIn"]["properties"]["jobs"]["items"] = {"$ref": f"{SCHEMA}JobIn"}
    problems = {problem for route in routes for problem in _refusals(route)} | {NoSuchRoute, MethodNotAllowed}
    return {**SCHEMAS, **schemas, "Problem": _problem_schema(sorted(problem.code for problem in problems))}


def _problem_schema(codes: list[str]) -> Schema:
    text = {"type": "string"}
    parts = {"pointer": text, "detail": text, "job": text | {"description": "The id of the job in the way."}}
    fault = {"type": "object", "properties": parts, "required": ["pointer", "detail"], "additionalProperties": False}
    properties = {
        "type": {"type": "string", "format": "uri-reference"},
        "title": text,
        "status": {"type": "integer"},
        "detail": {"type": "string", "description": "What is wrong, with the value, and the remedy."},
        "code": {"type": "string", "enum": codes},
        "request_id": text,
        "errors": {"type": "array", "items": fault, "description": "Each invalid field, by JSON pointer."},
        "job": {"$ref": SCHEMA + "Job", "description": "The conflicting job in its current state."},
    }
    required = [name for name in properties if name not in ("errors", "job")]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
