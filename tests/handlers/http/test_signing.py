"""Signatures: the package of Standard Webhooks and the code of the guide verify them."""

from __future__ import annotations

import hashlib
import hmac
import re
import time
from base64 import b64encode
from collections.abc import Callable
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from erelong.clock import instants as clock
from erelong.handlers.http.runner import Webhooks
from erelong.handlers.http.signing import Signer
from erelong.settings.sections import WebhooksSection
from tests.docs.pages import blocks_of
from tests.handlers.attempts import ID, make_attempt
from tests.handlers.receiver import LOOPBACK, Receiver

OLD, NEW, OTHER = (f"whsec_{b64encode(bytes([n]) * 32).decode()}" for n in (1, 2, 3))

Call = Callable[..., Any]


async def call(receiver: Receiver, *secrets: str, **params: Any) -> tuple[bytes, dict[str, str]]:
    """Send a request signed at the current time; return the received body and headers."""
    config = WebhooksSection(allow_networks=list(LOOPBACK), signing_secrets=[SecretStr(secret) for secret in secrets])
    http = Webhooks(config=config, now=clock.now)
    await http.open()
    attempt = make_attempt(started_at=time.time_ns() // 1_000)
    await http.run(attempt._replace(params=orjson.dumps({"url": receiver.url, **params})))
    await http.close()
    return receiver.seen[-1].body, receiver.seen[-1].headers


def is_verified(secret: str, body: bytes, headers: dict[str, str]) -> bool:
    try:
        Webhook(secret).verify(body, headers, json_parse=False)
    except WebhookVerificationError:
        return False
    return True


@pytest.mark.parametrize(
    "params",
    [
        {"json": {"order": 7, "name": "ä"}},
        {"body": "plain ä"},
        {"body_base64": "AAE="},
        {"body": ""},
        {"method": "GET"},
    ],
)
async def test_call_is_verified_by_the_package_of_the_standard(receiver: Receiver, params: dict[str, Any]) -> None:
    body, headers = await call(receiver, NEW, **params)

    assert is_verified(NEW, body, headers)
    assert not is_verified(OTHER, body, headers)
    assert not is_verified(NEW, body + b" ", headers)
    assert not is_verified(NEW, body, headers | {"webhook-id": "job_2"})
    assert not is_verified(NEW, body, headers | {"webhook-timestamp": str(int(time.time()) - 10)})


async def test_both_secrets_verify_during_a_rotation(receiver: Receiver) -> None:
    body, headers = await call(receiver, NEW, OLD, json=1)

    assert re.fullmatch(r"v1,\S{44} v1,\S{44}", headers["webhook-signature"])
    assert is_verified(NEW, body, headers)
    assert is_verified(OLD, body, headers)
    assert not is_verified(OTHER, body, headers)


async def test_without_a_secret_nothing_is_signed(receiver: Receiver) -> None:
    _, headers = await call(receiver, json=1)

    assert "webhook-signature" not in headers
    assert headers["webhook-id"] == ID


@given(st.binary(min_size=24, max_size=200), st.binary())
def test_signature_is_the_hmac(key: bytes, body: bytes) -> None:
    code = hmac.digest(key, b"job_1.1700000000." + body, hashlib.sha256)

    assert Signer([key]).sign("job_1", "1700000000", body) == f"v1,{b64encode(code).decode()}"


async def test_code_of_the_guide_verifies_requests(receiver: Receiver) -> None:
    (code,) = blocks_of("docs/webhooks.md", "python")
    names: dict[str, Any] = {}
    exec(code.text, names)
    is_from_erelong: Call = names["is_from_erelong"]

    body, headers = await call(receiver, NEW, names["SECRET"], json={"order": 7})

    assert is_from_erelong(headers, body)
    assert not is_from_erelong(headers, body + b" ")
    assert not is_from_erelong(headers | {"webhook-timestamp": str(int(time.time()) - 600)}, body)
    assert not is_from_erelong(headers | {"webhook-signature": "v1,AAAA"}, body)
    assert not is_from_erelong({}, body)
