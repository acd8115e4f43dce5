"""The http kind: one call with the one tuned client session, and what its answer means for the job."""

from __future__ import annotations

import codecs
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Final

import orjson
from aiohttp import (
    BytesPayload,
    ClientConnectorError,
    ClientError,
    ClientHttpProxyError,
    ClientPayloadError,
    ClientProxyConnectionError,
    ClientResponse,
    ClientResponseError,
    ClientSession,
    ClientTimeout,
    DummyCookieJar,
)
from pydantic import ValidationError

from app import __version__
from app.clock import SECOND, format_instant
from app.errors import Fault
from app.handlers.base import AttemptFailed, Stop
from app.handlers.egress import BlockedAddressError, Egress, may_show
from app.handlers.faults import find_faults, invalid
from app.handlers.http_params import HttpParams
from app.handlers.http_secrets import Mask, Secrets
from app.handlers.signing import Signer
from app.outgoing import signing_key

if TYPE_CHECKING:
    from asyncio import Transport

    from aiohttp.connector import Connection
    from yarl import URL

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
        self._egress = Egress(config=config)
        self._secrets = Secrets(config.secrets)
        self._signer = Signer(map(signing_key, config.signing_secrets))
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
            call = HttpParams.model_validate_json(params)
        except ValidationError as error:
            raise invalid("http", find_faults(error, params, _PARAMS_SCHEMA["properties"])) from None
        faults = [Fault("/url", reason) for reason in self._egress.find_faults(call.url)]
        faults += self._secrets.find_faults(call.headers, call.url)
        if faults:
            raise invalid("http", faults)

    async def open(self) -> None:
        self._session = ClientSession(
            connector=self._egress.connector(),
            proxy=self._egress.proxy,
            response_class=_Response,
            cookie_jar=DummyCookieJar(),
            headers=_HEADERS,
            # The worker ends the whole; waiting for a free connection is no failure to connect.
            timeout=ClientTimeout(total=None, sock_connect=self._config.connect_timeout),
            auto_decompress=False,
            trust_env=False,
        )

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
        await self._egress.close()

    async def run(self, params: bytes, attempt: Attempt) -> bytes:
        call = self._read_call(params)
        try:
            headers, mask = self._secrets.fill(call.headers, call.url)
        except LookupError as error:
            raise AttemptFailed("exception", f"a header {error}", retryable=False) from None
        response, answer, is_whole = await self._exchange(call, headers, attempt, mask)
        answer = mask.body(answer, is_whole=is_whole)
        if 200 <= response.status < 300:
            return self._result(response, answer, is_whole, mask)
        raise _failure(response, answer if may_show(response.peer) else b"", mask, self._now)

    async def _exchange(
        self, call: HttpParams, headers: dict[str, str], attempt: Attempt, mask: Mask
    ) -> tuple[_Response, bytes, bool]:
        """Send the call; what came, as much of the body as is read, and whether that is all."""
        if self._session is None:
            raise RuntimeError("the http handler is not open")
        body, content_type = call.content() or (b"", None)
        try:
            response = await self._session.request(
                call.method,
                call.url,
                headers={**_trace_of(attempt, headers), **headers, **self._headers_of(attempt, body)},
                data=None if content_type is None else BytesPayload(body, content_type=content_type),
                allow_redirects=False,
            )
            assert isinstance(response, _Response)
            answer, is_whole = await self._read_body(response)
        # UnicodeError: a host that the resolver cannot encode.
        except (ClientError, OSError, UnicodeError) as error:
            raise _no_answer(call.url, error, mask) from None  # it holds the request, and so the secrets
        return response, answer, is_whole

    def _read_call(self, params: bytes) -> HttpParams:
        """Read what was checked at submit, perhaps by an earlier version or under other settings."""
        try:
            call = HttpParams.model_validate_json(params)
        except ValidationError as error:
            problem = invalid("http", find_faults(error, params, _PARAMS_SCHEMA["properties"]))
            raise AttemptFailed("exception", problem.detail, retryable=False) from None
        if self._egress.proxy is not None:  # which would not be asked what it connects to
            for reason in self._egress.find_faults(call.url):
                raise AttemptFailed("blocked_address", reason, retryable=False)
        return call

    def _headers_of(self, attempt: Attempt, body: bytes) -> dict[str, str]:
        timestamp = str(attempt.started_at // SECOND)
        headers = {
            "webhook-id": attempt.id,
            "webhook-timestamp": timestamp,
            "X-Erelong-Attempt": str(attempt.number),
            "X-Erelong-Due-At": format_instant(attempt.due_at),
        }
        if signature := self._signer.sign(attempt.id, timestamp, body):
            headers["webhook-signature"] = signature
        return headers

    async def _read_body(self, response: ClientResponse) -> tuple[bytes, bool]:
        """Read no more than is worth it for keeping the connection; tell whether that was all."""
        content, left, chunks = response.content, self._config.max_response, []
        if content.is_eof() and content.total_bytes <= left:  # a short one came with its headers
            return content.read_nowait(), True
        try:
            while left > 0 and not content.at_eof():
                chunk = await content.read(left)
                left -= len(chunk)
                chunks.append(chunk)
            return b"".join(chunks), content.at_eof()
        finally:
            if not content.at_eof():
                response.close()

    def _result(self, response: ClientResponse, body: bytes, is_whole: bool, mask: Mask) -> bytes:
        kept = body[: self._config.keep_response]
        is_cut = not is_whole or len(kept) < len(body)
        headers: dict[str, str] = {}
        for name, value in response.headers.items():
            name = name.lower()
            headers[name] = f"{headers[name]}, {value}" if name in headers else value
        if mask:
            headers = {mask.text(name): mask.text(value) for name, value in headers.items()}
        text = codecs.utf_8_decode(kept, "replace", not is_cut)[0]  # without half a character where it is cut
        result = {"status": response.status, "headers": headers, "body": text, "truncated": is_cut}
        try:
            return orjson.dumps(result)
        except TypeError:  # headers that are not UTF-8 come with surrogates for their bytes
            result["headers"] = {_readable(name): _readable(value) for name, value in headers.items()}
            return orjson.dumps(result)


class _Response(ClientResponse):
    """Remembers who answered: its connection is given back before a short body is read."""

    _transport: Transport | None = None

    @property
    def peer(self) -> object:
        """The address that was connected to, as the socket tells it."""
        return self._transport and self._transport.get_extra_info("peername")

    async def start(self, connection: Connection) -> ClientResponse:
        self._transport = connection.transport
        return await super().start(connection)


def _no_answer(url: URL, error: Exception, mask: Mask) -> AttemptFailed:
    match error:
        case ClientConnectorError(os_error=BlockedAddressError() as blocked):
            return AttemptFailed("blocked_address", f"{url.authority} was not called: {blocked}", retryable=False)
        case ClientHttpProxyError():
            reason = f"the proxy answered {error.status} {error.message}"
        case ClientProxyConnectionError():  # its text says where the proxy is
            reason = "the proxy does not answer"
        case ClientResponseError() | ClientPayloadError() if mask:  # their texts have bytes that came, escaped anyhow
            reason = "what it sent is not HTTP"
        case ClientResponseError():  # its text has the whole URL
            reason = f"what it sent is not HTTP: {error.message}"
        case _:
            reason = str(error) or type(error).__name__
    return AttemptFailed("connection", f"no answer from {url.authority}: {mask.text(reason)}")


def _trace_of(attempt: Attempt, given: dict[str, str]) -> dict[str, str]:
    """Lets the receiver go on with the trace of the attempt, unless the job names one itself."""
    if attempt.traceparent is None or any(name.lower() == "traceparent" for name in given):
        return {}
    return {"traceparent": attempt.traceparent}


def _failure(response: ClientResponse, body: bytes, mask: Mask, now: Now) -> AttemptFailed:
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
            about = (
                f" to {mask.text(_readable(response.headers['Location']))[:SHOWN_BODY]}, and redirects are not followed"
            )
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
