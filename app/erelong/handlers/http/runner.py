"""The http kind: sends a job's request and turns the response into a result or a failure."""

from __future__ import annotations

import codecs
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Final

import orjson
from aiohttp import ClientConnectorError, ClientError
from aiohttp.http import HttpProcessingError
from pydantic import ValidationError

from erelong.clock.instants import SECOND, format_exactly, format_instant
from erelong.errors import Fault
from erelong.handlers.base import AttemptFailed, Stop, current_traceparent
from erelong.handlers.http.client import Answer, Call, HttpClient
from erelong.handlers.http.egress import BlockedAddressError, Egress, may_show
from erelong.handlers.http.failures import reason_of
from erelong.handlers.http.params import PARAMS_SCHEMA, HttpParams, ParamsReader, content_of, read_params
from erelong.handlers.http.secrets import Mask, Secrets
from erelong.handlers.http.signing import Signer
from erelong.handlers.kinds import Kind, Origin
from erelong.handlers.param_errors import find_faults, invalid
from erelong.model.extras import read_extras
from erelong.settings.types import signing_key

if TYPE_CHECKING:
    from yarl import URL

    from erelong.clock.instants import Now
    from erelong.model.extras import Extras
    from erelong.model.job import Job
    from erelong.settings.sections import WebhooksSection

MAX_RETRY_AFTER: Final = 86_400.0
SHOWN_BODY: Final = 200


RESULT_SCHEMA: Final = {
    "type": "object",
    "properties": {
        "status": {"type": "integer"},
        "headers": {"type": "object", "additionalProperties": {"type": "string"}},
        "body": {"type": "string"},
        "truncated": {"type": "boolean"},
    },
    "required": ["status", "headers", "body", "truncated"],
}


def make_http(*, config: WebhooksSection, now: Now, is_virtual: bool = False) -> Kind:
    """Make the kind. `now` is real time even if the jobs live by a virtual clock."""
    webhooks = Webhooks(config=config, now=now, is_virtual=is_virtual)
    return Kind(
        name="http",
        type="http",
        stop=Stop.COOPERATIVE,
        params_schema=PARAMS_SCHEMA,
        result_schema=RESULT_SCHEMA,
        params=webhooks,
        any_param="json",
        runner=webhooks,
        declared=Origin.BUILT_IN,
        example={"url": "https://app.example/remind", "json": {"order": 7}},
    )


class Webhooks:
    """Sends the requests of http jobs."""

    abandoned = 0

    def __init__(self, *, config: WebhooksSection, now: Now, is_virtual: bool = False) -> None:
        self._config = config
        self._now = now
        self._is_virtual = is_virtual
        self._egress = Egress(config=config)
        self._secrets = Secrets(config.secrets)
        self._signer = Signer(map(signing_key, config.signing_secrets))
        self._client: HttpClient | None = None
        self._reader = ParamsReader()

    def check(self, params: bytes) -> None:
        try:
            call = read_params(params)
        except ValidationError as error:
            raise invalid("http", find_faults(error, params, PARAMS_SCHEMA["properties"])) from None
        reason = self._egress.find_fault(call["url"])
        faults = [Fault("/url", reason)] if reason else []
        faults += self._secrets.find_faults(call.get("headers", {}), call["url"])
        if faults:
            raise invalid("http", faults)

    async def open(self) -> None:
        self._client = HttpClient(
            connector=self._egress.connector(),
            proxy=self._egress.proxy,
            connect_timeout=self._config.connect_timeout,
            max_response=self._config.max_response,
        )

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()
        await self._egress.close()

    async def run(self, job: Job) -> bytes:
        call = self._read_call(job.params)
        url = call["url"]
        try:
            headers, mask = self._secrets.fill(call.get("headers", {}), url)
        except LookupError as error:
            raise AttemptFailed("exception", f"a header {error}", retryable=False) from None
        content = content_of(call)
        lines = self._header_lines(job, headers, content[0] if content else b"")
        answer = await self._send(Call(call.get("method", "POST"), url, headers, lines, content), mask)
        body = mask.body(answer.body, is_whole=answer.is_whole)
        if 200 <= answer.status < 300:
            return self._result(answer, body, mask)
        raise _failure(url, answer, body if may_show(answer.peer) else b"", mask, self._now)

    async def _send(self, call: Call, mask: Mask) -> Answer:
        if self._client is None:
            raise RuntimeError("the http handler is not open: call open() first")
        try:
            return await self._client.send(call)
        # UnicodeError: a host that the resolver cannot encode.
        except (ClientError, HttpProcessingError, OSError, UnicodeError) as error:
            raise _no_answer(call.url, error, mask) from None  # `error` holds the request with its secrets

    def _read_call(self, params: bytes) -> HttpParams:
        """Read the params again: an earlier version or other settings may have checked them at submit."""
        try:
            call = self._reader.read_fast(params)
        except ValidationError as error:
            problem = invalid("http", find_faults(error, params, PARAMS_SCHEMA["properties"]))
            raise AttemptFailed("exception", problem.detail, retryable=False) from None
        if self._egress.proxy is not None:  # the connector checks only the address of the proxy
            reason = self._egress.find_fault(call["url"])
            if reason is not None:
                raise AttemptFailed("blocked_address", reason, retryable=False)
        return call

    def _header_lines(self, job: Job, headers: dict[str, str], body: bytes) -> str:
        """Return the lines of the headers that only the service may set."""
        id, due_at, started_at, traceparent = job.id, job.due_at or 0, job.started_at or 0, current_traceparent.get()
        if self._is_virtual:
            started_at = self._now()  # receivers reject old timestamps
        timestamp = str(started_at // SECOND)
        lines = (
            f"webhook-id: {id}\r\nwebhook-timestamp: {timestamp}\r\n"
            f"X-Erelong-Attempt: {job.attempt}\r\nX-Erelong-Due-At: {format_exactly(due_at)}\r\n"
        )
        if job.extras is not None:
            lines += _schedule_lines(read_extras(job.extras))
        if signature := self._signer.sign(id, timestamp, body):
            lines += f"webhook-signature: {signature}\r\n"
        # The receiver may continue the trace of the attempt, unless the job names a trace itself.
        if traceparent is not None and not any(name.lower() == "traceparent" for name in headers):
            lines += f"traceparent: {traceparent}\r\n"
        return lines

    def _result(self, answer: Answer, body: bytes, mask: Mask) -> bytes:
        kept = body[: self._config.keep_response]
        is_truncated = not answer.is_whole or len(kept) < len(body)
        headers: dict[str, str] = {}
        for name, value in answer.headers.items():
            name = name.lower()
            headers[name] = f"{headers[name]}, {value}" if name in headers else value
        if mask:
            headers = {mask.text(name): mask.text(value) for name, value in headers.items()}
        text = codecs.utf_8_decode(kept, "replace", not is_truncated)[0]  # drops a partial last character
        result = {"status": answer.status, "headers": headers, "body": text, "truncated": is_truncated}
        try:
            return orjson.dumps(result)
        except TypeError:  # bytes of headers that are not UTF-8 become surrogates
            result["headers"] = {_readable(name): _readable(value) for name, value in headers.items()}
            return orjson.dumps(result)


def _schedule_lines(extras: Extras) -> str:
    """Return the headers of a job of a schedule."""
    if "schedule" not in extras:
        return ""
    occurrence = format_instant(extras["occurrence"])
    return f"X-Erelong-Schedule: {extras['schedule']}\r\nX-Erelong-Occurrence: {occurrence}\r\n"


def _no_answer(url: URL, error: Exception, mask: Mask) -> AttemptFailed:
    if isinstance(error, ClientConnectorError) and isinstance(error.os_error, BlockedAddressError):
        return AttemptFailed("blocked_address", f"{url.authority} was not called: {error.os_error}", retryable=False)
    return AttemptFailed("connection", f"no answer from {url.authority}: {mask.text(reason_of(error))}")


def _failure(url: URL, answer: Answer, body: bytes, mask: Mask, now: Now) -> AttemptFailed:
    status, host = answer.status, url.authority
    text = " ".join(body[: SHOWN_BODY * 4].decode("utf-8", "replace").split())
    suffix = f": {text[:SHOWN_BODY]}" if text else ""
    match status:
        case 410:
            return AttemptFailed("give_up", f"{host} answered 410 Gone{suffix}", retryable=False)
        case 429 | 503:
            delay = _seconds_until(answer.headers.get("Retry-After", ""), now)
            return AttemptFailed("http_status", f"{host} answered {status}{suffix}", delay=delay)
        case _ if 300 <= status < 400 and "Location" in answer.headers:
            suffix = (
                f" to {mask.text(_readable(answer.headers['Location']))[:SHOWN_BODY]}, and redirects are not followed"
            )
    return AttemptFailed("http_status", f"{host} answered {status}{suffix}")


def _seconds_until(retry_after: str, now: Now) -> float:
    """Return the seconds that a Retry-After header asks for, as a number or a date; 0 if it is neither."""
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
