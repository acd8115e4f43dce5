"""Checks responses and accepted bodies against the OpenAPI document."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import orjson

PROBLEM = "application/problem+json"
NDJSON = "application/x-ndjson"

_REF = "#/"
_SAYS_NOTHING = {"description", "title", "examples", "default"}
_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}
_DATE_TIME = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)")


class Contract:
    """Knows the subset of JSON Schema that the document uses; an unknown keyword is an error."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._document = document
        self._paths = {re.compile(re.sub(r"{\w+}", "[^/]*", path)): path for path in document["paths"]}

    def check_answer(self, method: str, path: str, status: int, headers: Mapping[str, str], body: bytes) -> None:
        assert headers["Server"] == "erelong"
        assert re.fullmatch(r"[A-Za-z0-9._-]{1,64}", headers["X-Request-Id"])
        media = headers.get("Content-Type", "")
        if media == PROBLEM and body:
            self._check_problem(status, headers, orjson.loads(body))
        is_page = path == "/" or path.startswith("/ui/")  # the dashboard is no part of the API
        if status == 405 or is_page or (media == PROBLEM and b'"no_such_route"' in body):
            return
        operation = self.operation(method, path)
        assert operation is not None, f"{method} {path} is not documented and answers {status}"
        answer = operation["responses"].get(str(status))
        assert answer is not None, f"{method} {path} answers {status}, which is not documented: {body[:500]!r}"
        assert "Dry-Run" in answer["headers"] or "Dry-Run" not in headers
        named = ("ETag",) if "Dry-Run" in headers else ("ETag", "Location")  # a new job has no path in a dry run
        missing = [name for name in named if name in answer["headers"] and name not in headers]
        assert not missing, f"{method} {path} {status} is without {missing}"
        if "content" not in answer:
            assert not body
        elif method != "HEAD":
            self._check_body(answer["content"][media]["schema"], media, body)

    def check_request(self, method: str, path: str, media: str, body: bytes) -> None:
        """Check an accepted body against the document, which must not be stricter than the service."""
        operation = self.operation(method, path)
        if operation is not None and body and "requestBody" in operation:
            self._check_body(operation["requestBody"]["content"][media]["schema"], media, body)

    def operation(self, method: str, path: str) -> dict[str, Any] | None:
        name = "get" if method == "HEAD" else method.lower()
        for pattern, template in self._paths.items():
            if pattern.fullmatch(path.partition("?")[0]) and name in self._document["paths"][template]:
                found: dict[str, Any] = self._document["paths"][template][name]
                return found
        return None

    def faults(self, value: object, schema: Mapping[str, Any], at: str = "") -> Iterator[str]:
        """Yield the places where a value does not match a schema."""
        for keyword, wish in schema.items():
            match keyword:
                case "$ref":
                    yield from self.faults(value, self.resolve(wish), at)
                case "allOf" | "anyOf" | "oneOf" | "if":
                    yield from self._combined(keyword, value, schema, at)
                case "type":
                    if not _is_type(value, wish):
                        yield f"{at}: {value!r} is not {wish}"
                case _ if isinstance(value, dict):
                    yield from self._object_faults(keyword, value, schema, at)
                case _ if isinstance(value, list):
                    yield from self._list_faults(keyword, value, wish, at)
                case _ if not _is_met(keyword, wish, value):
                    yield f"{at}: {value!r} does not meet {keyword} {wish!r}"

    def resolve(self, ref: str) -> Mapping[str, Any]:
        found: Any = self._document
        for part in ref.removeprefix(_REF).split("/"):
            found = found[part]
        schema: Mapping[str, Any] = found
        return schema

    def _check_problem(self, status: int, headers: Mapping[str, str], problem: Mapping[str, Any]) -> None:
        schema = self.resolve("#/components/schemas/Problem")
        assert [*self.faults(problem, schema)] == []
        assert problem["status"] == status
        assert problem["type"] == f"/problems/{problem['code']}"
        assert problem["request_id"] == headers["X-Request-Id"]
        assert ("errors" in problem) == (status == 422) or problem["code"] in ("backlog_full", "key_taken", "forbidden")
        assert ("WWW-Authenticate" in headers) == (status == 401)
        assert ("Retry-After" in headers) == (status in (429, 503, 507))

    def _check_body(self, schema: Mapping[str, Any], media: str, body: bytes) -> None:
        if media.startswith("text/"):
            return
        values = [orjson.loads(line) for line in body.splitlines() if line.strip()] if media == NDJSON else None
        for value in [orjson.loads(body)] if values is None else values:
            faults = [*self.faults(value, schema)]
            assert faults == []

    def _combined(self, keyword: str, value: object, schema: Mapping[str, Any], at: str) -> Iterator[str]:
        if keyword == "if":
            if not [*self.faults(value, schema["if"], at)]:
                yield from self.faults(value, schema["then"], at)
            return
        found = [[*self.faults(value, choice, at)] for choice in schema[keyword]]
        fitting = found.count([])
        if keyword == "allOf":
            yield from (fault for faults in found for fault in faults)
        elif fitting == 0 or (keyword == "oneOf" and fitting > 1):
            yield f"{at}: fits {fitting} of {keyword}: {found}"

    def _object_faults(self, keyword: str, value: dict[str, Any], schema: Mapping[str, Any], at: str) -> Iterator[str]:
        wish = schema[keyword]
        match keyword:
            case "required":
                yield from (f"{at}: has no {name}" for name in wish if name not in value)
            case "properties":
                for name in wish.keys() & value.keys():
                    yield from self.faults(value[name], wish[name], f"{at}/{name}")
            case "patternProperties" | "additionalProperties":
                known = schema.get("properties", {})
                for name in value.keys() - known.keys():
                    yield from self._other(keyword, wish, name, value[name], f"{at}/{name}")
            case "then":
                pass
            case _ if not _is_met(keyword, wish, value):
                yield f"{at}: {value!r} does not meet {keyword} {wish!r}"

    def _other(self, keyword: str, wish: Any, name: str, value: object, at: str) -> Iterator[str]:
        if keyword == "patternProperties":
            for pattern, schema in wish.items():
                if re.search(pattern, name):
                    yield from self.faults(value, schema, at)
        elif isinstance(wish, bool):
            yield from () if wish else (f"{at}: is not known",)
        else:
            yield from self.faults(value, wish, at)

    def _list_faults(self, keyword: str, value: list[Any], wish: Any, at: str) -> Iterator[str]:
        if keyword == "items":
            for index, item in enumerate(value):
                yield from self.faults(item, wish, f"{at}/{index}")
        elif not _is_met(keyword, wish, value):
            yield f"{at}: {value!r} does not meet {keyword} {wish!r}"


def _is_type(value: object, wish: str | list[str]) -> bool:
    names = [wish] if isinstance(wish, str) else wish
    if isinstance(value, bool):
        return "boolean" in names
    return any(isinstance(value, _TYPES[name]) for name in names)


def _is_met(keyword: str, wish: Any, value: Any) -> bool:
    """Return whether a value meets a keyword; keywords for other types are met."""
    if keyword in _SAYS_NOTHING or keyword in _FOR_OTHERS:
        return True
    number, text = isinstance(value, (int, float)), isinstance(value, str)
    match keyword:
        case "enum":
            return value in wish
        case "const":
            return bool(value == wish)
        case "minimum":
            return not number or value >= wish
        case "maximum":
            return not number or value <= wish
        case "exclusiveMinimum":
            return not number or value > wish
        case "minLength":
            return not text or len(value) >= wish
        case "maxLength":
            return not text or len(value) <= wish
        case "minItems":
            return not isinstance(value, list) or len(value) >= wish
        case "maxItems":
            return not isinstance(value, list) or len(value) <= wish
        case "pattern":
            return not text or re.search(wish, value) is not None
        case "format":
            return not text or wish != "date-time" or _DATE_TIME.fullmatch(value) is not None
    raise AssertionError(f"the document uses {keyword}, which this judge does not know")


_FOR_OTHERS = {
    "$defs",
    "properties",
    "required",
    "additionalProperties",
    "patternProperties",
    "items",
    "then",
    "contentEncoding",
}
