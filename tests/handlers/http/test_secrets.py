"""Secrets in headers: sent to their origins only, and masked in every response."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote, quote_plus

import orjson
import pytest
import pytest_asyncio
from aiohttp import web
from pydantic import SecretStr

from erelong.errors import Invalid
from erelong.handlers.base import AttemptFailed
from erelong.handlers.http.runner import Webhooks
from erelong.settings.sections import WebhookSecret, WebhooksSection
from tests.handlers.attempts import make_attempt
from tests.handlers.receiver import LOOPBACK, Receiver, raw_server
from tests.support.virtual import VirtualClock

VALUE = 'canary/"7x \\ +&0123456789'


@pytest_asyncio.fixture
async def http(clock: VirtualClock, receiver: Receiver) -> AsyncIterator[Webhooks]:
    origin = receiver.url.removesuffix("/")
    declared = {
        "crm": WebhookSecret(value=SecretStr(VALUE), origins=["https://crm.example", origin]),
        "mail": WebhookSecret(value=SecretStr("mail-password"), origins=["https://mail.example", origin]),
        "a.b": WebhookSecret(value=SecretStr("canary/canary"), origins=["https://crm.example:8443"]),
    }
    handler = Webhooks(config=WebhooksSection(allow_networks=list(LOOPBACK), secrets=declared), now=clock.now)
    await handler.open()
    yield handler
    await handler.close()


async def run(http: Webhooks, url: str, header: str = "Bearer {secret:crm}") -> str:
    text = orjson.dumps({"url": url, "headers": {"Authorization": header}})
    return (await http.run(make_attempt(text))).decode()


async def failure_of(http: Webhooks, url: str, header: str = "Bearer {secret:crm}") -> AttemptFailed:
    with pytest.raises(AttemptFailed) as failure:
        await run(http, url, header)
    return failure.value


def answering(*, status: int = 200, body: bytes = b"", **headers: str) -> Any:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(
            status=status, body=body, headers={name.replace("_", "-"): v for name, v in headers.items()}
        )

    return answer


@pytest.mark.parametrize(
    ("header", "sent"),
    [
        ("{secret:crm}", VALUE),
        ("Bearer {secret:crm}", f"Bearer {VALUE}"),
        ("{secret:mail}:{secret:crm}:{secret:mail}", f"mail-password:{VALUE}:mail-password"),
        ("{secret}, {other:crm} {}", "{secret}, {other:crm} {}"),
    ],
)
async def test_secret_is_filled_in_when_the_request_is_sent(
    http: Webhooks, receiver: Receiver, header: str, sent: str
) -> None:
    http.check(orjson.dumps({"url": receiver.url, "headers": {"X-A": header}}))

    await run(http, receiver.url, header)

    assert receiver.seen[0].headers["authorization"] == sent


async def test_only_headers_are_filled_with_secrets(http: Webhooks, receiver: Receiver) -> None:
    params = {"url": f"{receiver.url}{{secret:crm}}", "json": "{secret:crm}"}

    await http.run(make_attempt(orjson.dumps(params)))

    assert receiver.seen[0].body == b'"{secret:crm}"'
    assert VALUE not in receiver.seen[0].target


@pytest.mark.parametrize(
    ("url", "header", "reason"),
    [
        ("https://crm.example/", "{secret:crn}", "names no secret that may be sent to https://crm.example: 'crn'; sec"),
        ("https://crm.example/", "{secret:}", "names no secret that may be sent to https://crm.example: ''; secrets"),
        ("https://crm.example/", "{secret:crm", "names no secret that may be sent to https://crm.example: ''; secrets"),
        (
            "https://evil.example/",
            "{secret:crm}",
            "names no secret that may be sent to https://evil.example: 'crm'; an",
        ),
        ("http://crm.example/", "{secret:crm}", "names no secret that may be sent to http://crm.example: "),
        ("https://crm.example:8443/", "{secret:crm}", "names no secret that may be sent to https://crm.example:8443: "),
        (
            "https://crm.example.evil.example/",
            "{secret:crm}",
            "names no secret that may be sent to https://crm.example.",
        ),
        ("https://x.crm.example/", "{secret:crm}", "names no secret that may be sent to https://x.crm.example: "),
    ],
)
async def test_secret_for_another_origin_is_refused_at_submit_and_at_the_attempt(
    http: Webhooks, url: str, header: str, reason: str
) -> None:
    with pytest.raises(Invalid) as refusal:
        http.check(orjson.dumps({"url": url, "headers": {"X-A": "ok", "Authorization": header}}))
    failure = await failure_of(http, url, header)

    (fault,) = refusal.value.faults
    assert fault.pointer == "/headers/Authorization"
    assert fault.detail.startswith(reason)
    assert (failure.type, failure.retryable) == ("exception", False)
    assert fault.detail in failure.message
    assert VALUE not in str(refusal.value.detail)


async def test_refusal_names_the_secrets_for_that_origin_only(http: Webhooks) -> None:
    with pytest.raises(Invalid, match=r"secrets for it: crm$"):
        http.check(b'{"url": "https://crm.example/", "headers": {"A": "{secret:x}"}}')
    with pytest.raises(Invalid, match=r"an operator can declare one in \[webhooks.secrets\] with this origin$"):
        http.check(b'{"url": "https://other.example/", "headers": {"A": "{secret:x}"}}')


@pytest.mark.parametrize(
    "echo",
    [
        VALUE,
        orjson.dumps(VALUE)[1:-1].decode(),
        orjson.dumps(VALUE)[1:-1].decode().replace("/", "\\/"),
        quote(VALUE, safe=""),
        quote(VALUE),
        quote_plus(VALUE),
    ],
)
@pytest.mark.parametrize("size", [0, 4_090, 65_530])
async def test_secret_repeated_by_a_response_is_masked(
    http: Webhooks, receiver: Receiver, echo: str, size: int
) -> None:
    receiver.answer = answering(body=b"." * size + echo.encode() + b"!", X_Echo=f"<{echo}>")

    result = orjson.loads(await run(http, receiver.url))

    assert result["headers"]["x-echo"] == "<{secret:crm}>"
    assert echo[:6] not in result["body"]
    if size == 0:
        assert result["body"] == "{secret:crm}!"


async def test_beginning_of_a_secret_at_the_end_of_a_truncated_body_is_dropped(
    clock: VirtualClock, receiver: Receiver
) -> None:
    declared = {"crm": WebhookSecret(value=SecretStr(VALUE), origins=[receiver.url.removesuffix("/")])}
    config = WebhooksSection(allow_networks=list(LOOPBACK), secrets=declared, max_response=100, keep_response=100)
    receiver.answer = answering(body=b"." * 90 + VALUE.encode())
    http = Webhooks(config=config, now=clock.now)
    await http.open()

    result = orjson.loads(await run(http, receiver.url))
    await http.close()

    assert result["body"] == "." * 90


@pytest.mark.parametrize("status", [302, 400, 410, 500, 503])
async def test_failure_does_not_reveal_the_secret(
    http: Webhooks, receiver: Receiver, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("erelong.handlers.http.runner.may_show", lambda peer: True)
    receiver.answer = answering(status=status, body=b"no: " + VALUE.encode(), Location="http://h/" + "x" * 190 + VALUE)

    failure = await failure_of(http, receiver.url)

    assert "canary" not in failure.message
    assert "canary" not in repr(failure)


async def test_response_that_is_not_http_does_not_reveal_the_secret(clock: VirtualClock) -> None:
    async with raw_server(f"HTTP/9 {VALUE}\r\n\r\n".encode()) as url:
        declared = {"crm": WebhookSecret(value=SecretStr(VALUE), origins=[url.removesuffix("/")])}
        http = Webhooks(config=WebhooksSection(allow_networks=list(LOOPBACK), secrets=declared), now=clock.now)
        await http.open()
        failure = await failure_of(http, url)
        await http.close()

    assert failure.type == "connection"
    assert "canary" not in failure.message


async def test_base64_secret_is_masked_verbatim(http: Webhooks) -> None:
    from erelong.handlers.http.secrets import Mask

    basic = base64.b64encode(b"user:password").decode()

    assert Mask({"basic": basic}).text(f"Basic {basic}") == "Basic {secret:basic}"
