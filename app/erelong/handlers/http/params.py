"""The params of an http job; those that can never be sent are refused at submit."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Annotated, Any, Final, Required

import orjson
import pydantic_core
from pydantic import AfterValidator, ConfigDict, Field, PlainValidator, TypeAdapter, WithJsonSchema, with_config
from typing_extensions import TypedDict
from yarl import URL

from erelong.handlers.param_errors import refusal
from erelong.model.faults import shown
from erelong.model.json_text import trimmed

MAX_URL: Final = 2_048
MAX_KNOWN: Final = 1_000  # params in the cache of a reader
MAX_SHARED: Final = 1_024  # bytes of those that are worth keeping
MAX_HEADERS: Final = 64
MAX_HEADER_BYTES: Final = 8_192  # names and values together; many servers accept no more
METHODS: Final = ("DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT")

# Headers of the message framing, of the connection and of the caller's identity. Accept-Encoding is among them since
# secrets could not be masked in a compressed response.
_FRAMES: Final = {"host", "content-length", "transfer-encoding", "connection", "keep-alive", "te", "trailer", "upgrade"}
_OURS: Final = frozenset({*_FRAMES, "expect", "accept-encoding"})
_OUR_PREFIXES: Final = ("proxy-", "webhook-", "x-erelong-")
_TOKEN: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
CONTROL: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_NO_URL_CHARACTER: Final = re.compile(r"[\x00-\x20\x7f]")
# Longer or empty labels would raise UnicodeError in the resolver.
_HOST: Final = re.compile(r"([a-z0-9_-]{1,63}\.)*[a-z0-9_-]{1,63}\.?|.*:.*")


def _checked_url(value: object) -> URL:
    if not isinstance(value, str):
        raise refusal(f"should be text such as https://app.example/hook, not {shown(value)}")
    return _read_url(value)


@lru_cache(maxsize=1_000)  # most calls share a few URLs and header names
def _read_url(value: str) -> URL:
    if len(value) > MAX_URL:
        raise refusal(f"has {len(value)} characters: send at most {MAX_URL}")
    if _NO_URL_CHARACTER.search(value):
        raise refusal(f"has a space or control character: percent-encode it in {shown(value)}")
    try:
        url = URL(value)
    except ValueError as error:
        raise refusal(f"is not a URL: {error}") from None
    if url.scheme not in ("http", "https") or not url.raw_host:
        raise refusal(f"should start with http:// or https:// and a host, not {shown(value)}")
    if url.raw_user is not None or url.raw_password is not None:
        raise refusal("contains a user name or password: send an Authorization header instead")
    if not _HOST.fullmatch(url.raw_host):
        raise refusal(f"has an invalid host: {shown(url.raw_host)}")
    return url


def _checked_method(value: str) -> str:
    method = value.upper()
    if method not in METHODS:
        raise refusal(f"should be one of {', '.join(METHODS)}, not {shown(value)}")
    return method


@lru_cache(maxsize=1_000)
def _checked_name(name: str) -> str:
    lower = name.lower()
    if lower in _OURS or lower.startswith(_OUR_PREFIXES):
        raise refusal(f"is set by the service: leave {shown(name)} out")
    if not _TOKEN.fullmatch(name):
        raise refusal(f"{shown(name)} is not a header name: send up to 100 letters, digits and - _ .")
    return name


def _checked_value(value: str) -> str:
    if CONTROL.search(value):
        raise refusal(f"has a line break or control character: remove it from {shown(value)}")
    return value


def _checked_headers(headers: dict[str, str]) -> dict[str, str]:
    if len(headers) > MAX_HEADERS:
        raise refusal(f"has {len(headers)} headers: send at most {MAX_HEADERS}")
    size = len("".join([*headers, *headers.values()]).encode())
    if size > MAX_HEADER_BYTES:
        raise refusal(f"has {size} bytes of names and values: send at most {MAX_HEADER_BYTES}")
    return headers


def _decoded(value: object) -> bytes | None:
    if value is None:
        return None
    try:
        if isinstance(value, str):
            return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        pass
    raise refusal(f"should be standard base64 with padding, not {shown(value)}")


_Url = Annotated[
    URL, PlainValidator(_checked_url), WithJsonSchema({"type": "string", "format": "uri", "maxLength": MAX_URL})
]
_Method = Annotated[str, AfterValidator(_checked_method), WithJsonSchema({"type": "string", "enum": list(METHODS)})]
_HeaderName = Annotated[str, AfterValidator(_checked_name)]
_HeaderValue = Annotated[str, AfterValidator(_checked_value)]
_Headers = Annotated[dict[_HeaderName, _HeaderValue], AfterValidator(_checked_headers)]
_Base64 = Annotated[
    bytes | None,
    PlainValidator(_decoded),
    WithJsonSchema({"anyOf": [{"type": "string", "contentEncoding": "base64"}, {"type": "null"}]}),
]


@with_config(ConfigDict(extra="forbid", title="http"))
class HttpParams(TypedDict, total=False):
    """A request to send; at most one of json, body and body_base64."""

    url: Required[Annotated[_Url, Field(description="An http or https URL without user name and password.")]]
    method: Annotated[_Method, Field(json_schema_extra={"default": "POST"})]
    headers: Annotated[
        _Headers,
        Field(
            description=(
                "Not Host, Content-Length, Transfer-Encoding, Connection, Keep-Alive, TE, Trailer, Upgrade, Expect, "
                "Accept-Encoding, Proxy-*, webhook-*, X-Erelong-*. "
                "{secret:name} in a value is replaced when the request is sent."
            )
        ),
    ]
    json: Annotated[Any, Field(description="Any JSON, null included; sent as application/json.")]
    body: Annotated[str | None, Field(description="Text; sent as UTF-8.")]
    body_base64: Annotated[_Base64, Field(description="Bytes in base64; sent decoded.")]


def _with_one_body(params: HttpParams) -> HttpParams:
    if (params.get("body") is not None) + (params.get("body_base64") is not None) + ("json" in params) > 1:
        raise refusal("has more than one of json, body and body_base64: send one")
    return params


_ADAPTER: Final = TypeAdapter(Annotated[HttpParams, AfterValidator(_with_one_body)])
PARAMS_SCHEMA: Final = _ADAPTER.json_schema()

# A dictionary, not a model, since absent fields then cost nothing. hot: drain
read_params: Final[Callable[[bytes], HttpParams]] = _ADAPTER.validator.validate_json


class ParamsReader:
    """Reads params as `read_params` does. Those that equal earlier ones except for `json` are not validated again."""

    def __init__(self) -> None:
        self._known: dict[bytes, HttpParams] = {}  # by their text without `json`

    def read_fast(self, text: bytes) -> HttpParams:  # hot: drain
        """Return the params, or raise pydantic's `ValidationError`."""
        try:
            others = orjson.loads(text)
            content = others.pop("json")
            shared, body = orjson.dumps(others), orjson.dumps(content)
        except (ValueError, KeyError, TypeError, AttributeError):  # without `json`, or not an object
            return read_params(text)
        if body not in text:  # such as an integer beyond 64 bits
            return read_params(text)
        known = self._known.get(shared)
        if known is None:
            known = read_params(text)
            if len(shared) > MAX_SHARED:
                return known
            if len(self._known) >= MAX_KNOWN:
                self._known.clear()
            self._known[trimmed(shared)] = known
            del known["json"]
        return {**known, "json": content}


def content_of(params: HttpParams) -> tuple[bytes, str] | None:
    """Return the body and its default content type, or None; a Content-Type header of the job overrides the type."""
    if "json" in params:
        return _json(params["json"]), "application/json"
    if (text := params.get("body")) is not None:
        return text.encode(), "text/plain; charset=utf-8"
    if (content := params.get("body_base64")) is not None:
        return content, "application/octet-stream"
    return None


def _json(value: object) -> bytes:
    try:
        return orjson.dumps(value)
    except TypeError:  # an integer beyond 64 bits, which pydantic reads and writes exactly
        return pydantic_core.to_json(value)
