"""The http kind: one call with the one tuned client session, and what its answer means for the job."""

from __future__ import annotations

import codecs
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Final

import orjson
from aiohttp import ClientError, ClientResponseError, ClientSession, ClientTimeout, DummyCookieJar, TCPConnector
from pydantic import ValidationError

from app import __version__
from app.clock import SECOND, format_instant
from app.handlers.base import AttemptFailed, Stop
from app.handlers.faults import find_faults, invalid
from app.handlers.http_params import HttpParams

if TYPE_CHECKING:
    from aiohttp import ClientResponse

    from app.clock import Now
    from app.config import HttpSection
    from app.handlers.base import Attempt

MAX_RETRY_AFTER: Final = 86_400.0
SHOWN_BODY: Final = 200

_PARAMS_SCHEMA: Final = HttpParams.model_json_schema()
_HEADERS: Final = {"User-Agent": f"erelong/{__version__}", "Accept-Encoding": "identity"}


class HttpHandler:
    type = "http"
    isolation = None
    stop = Stop.COOPERATIVE
    abandoned = 0

    def __init__(self, *, config: HttpSection, now: Now) -> None:
        self._config = config
        self._now = now
        self._session: ClientSession | None = None

    @property
    def params_schema(self) -> dict[str, Any]:
        return _PARAMS_SCHEMA

    @property
    def result_schema(self) -> dict[str, Any]:
        return {
            "type": "object",
            "properties": {
                "status": {"type": "integer"},
                "headers": {"type": "object", "additionalProperties": {"type": "string"}},
                "body": {"type": "string"},
                "truncated": {"type": "boolean"},
            },
            "required": ["status", "headers", "body", "truncated"],
        }

    def check(self, params: bytes) -> None:
        try:
            HttpParams.model_validate_json(params)
        except ValidationError as error:
            raise invalid("http", find_faults(error, params, _PARAMS_SCHEMA["properties"])) from None

    async def open(self) -> None:
        config = self._config
        self._session = ClientSession(
            connector=TCPConnector(limit=config.max_connections, limit_per_host=config.per_host),
            cookie_jar=DummyCookieJar(),
            headers=_HEADERS,
            # The worker ends the whole; waiting for a free connection is no failure to connect.
            timeout=ClientTimeout(total=None, sock_connect=config.connect_timeout),
            auto_decompress=False,
            trust_env=False,
        )

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def run(self, params: bytes, attempt: Attempt) -> bytes:
        if self._session is None:
            raise RuntimeError("the http handler is not open")
        call = _read_call(params)
        try:
            response = await self._session.request(
                call.method,
                call.url,
                headers={**_trace_of(attempt, call.headers), **call.headers, **_headers_of(attempt)},
                data=call.payload(),
                allow_redirects=False,
            )
            body, is_whole = await self._read_body(response)
        # UnicodeError: a host that the resolver cannot encode.
        except (ClientError, OSError, UnicodeError) as error:
            raise AttemptFailed("connection", f"no answer from {call.url.authority}: {_reason(error)}") from error
        if not 200 <= response.status < 300:
            raise _failure(response, body, self._now)
        return self._result(response, body, is_whole)

    async def _read_body(self, response: ClientResponse) -> tuple[bytes, bool]:
        """Read no more than is worth it for keeping the connection; tell whether that was all."""
        content, left, chunks = response.content, self._config.max_response, []
        try:
            while left > 0 and not content.at_eof():
                chunk = await content.read(left)
                left -= len(chunk)
                chunks.append(chunk)
            return b"".join(chunks), content.at_eof()
        finally:
            if not content.at_eof():
                response.close()

    def _result(self, response: ClientResponse, body: bytes, is_whole: bool) -> bytes:
        kept = body[: self._config.keep_response]
        is_cut = not is_whole or len(kept) < len(body)
        headers: dict[str, str] = {}
        for name, value in response.headers.items():
            name = name.lower()
            headers[name] = f"{headers[name]}, {value}" if name in headers else value
        text = codecs.utf_8_decode(kept, "replace", not is_cut)[0]  # without half a character where it is cut
        result = {"status": response.status, "headers": headers, "body": text, "truncated": is_cut}
        try:
            return orjson.dumps(result)
        except TypeError:  # headers that are not UTF-8 come with surrogates for their bytes
            result["headers"] = {_readable(name): _readable(value) for name, value in headers.items()}
            return orjson.dumps(result)


def _read_call(params: bytes) -> HttpParams:
    try:
        return HttpParams.model_validate_json(params)
    except ValidationError as error:  # accepted by an earlier version
        problem = invalid("http", find_faults(error, params, _PARAMS_SCHEMA["properties"]))
        raise AttemptFailed("exception", problem.detail, retryable=False) from None


def _headers_of(attempt: Attempt) -> dict[str, str]:
    return {
        "webhook-id": attempt.id,
        "webhook-timestamp": str(attempt.started_at // SECOND),
        "X-Erelong-Attempt": str(attempt.number),
        "X-Erelong-Due-At": format_instant(attempt.due_at),
    }


def _trace_of(attempt: Attempt, given: dict[str, str]) -> dict[str, str]:
    """Lets the receiver go on with the trace of the attempt, unless the job names one itself."""
    if attempt.traceparent is None or any(name.lower() == "traceparent" for name in given):
        return {}
    return {"traceparent": attempt.traceparent}


def _reason(error: Exception) -> str:
    if isinstance(error, ClientResponseError):  # its text has the whole URL
        return f"what it sent is not HTTP: {error.message}"
    return str(error) or type(error).__name__


def _failure(response: ClientResponse, body: bytes, now: Now) -> AttemptFailed:
    status, host = response.status, response.url.authority
    text = " ".join(body[: SHOWN_BODY * 4].decode("utf-8", "replace").split())
    about = f": {text[:SHOWN_BODY]}" if text else ""
    match status:
        case 410:
            return AttemptFailed("give_up", f"{host} answered 410 Gone{about}", retryable=False)
        case 429 | 503:
            delay = _seconds_until(response.headers.get("Retry-After", ""), now)
            return AttemptFailed("http_status", f"{host} answered {status}{about}", delay=delay)
        case _ if 300 <= status < 400 and "Location" in response.headers:
            about = f" to {_readable(response.headers['Location'])[:SHOWN_BODY]}, and redirects are not followed"
    return AttemptFailed("http_status", f"{host} answered {status}{about}")


def _seconds_until(retry_after: str, now: Now) -> float:
    """Read a Retry-After header: seconds or a date; 0 if it is neither."""
    if retry_after.isascii() and retry_after.isdigit():
        return min(float(retry_after), MAX_RETRY_AFTER)
    try:
        moment = parsedate_to_datetime(retry_after)
    except (ValueError, OverflowError):
        return 0.0
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    seconds = (moment - datetime.fromtimestamp(now() / SECOND, UTC)).total_seconds()
    return min(max(seconds, 0.0), MAX_RETRY_AFTER)


def _readable(text: str) -> str:
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
