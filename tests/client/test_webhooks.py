"""Signatures of webhooks, as the service makes them and as others forge them."""

from __future__ import annotations

from base64 import b64decode, b64encode
from typing import Any

import pytest

from erelong.handlers.http.signing import Signer
from erelong.webhooks import InvalidSignature, verify

SECRET, OTHER = (f"whsec_{b64encode(bytes([n]) * 32).decode()}" for n in (1, 2))
BODY = b'{"order": 7}'
NOW = 1_767_225_600


def signed(*secrets: str, body: bytes = BODY, at: int = NOW) -> dict[str, str]:
    signer = Signer([b64decode(secret.removeprefix("whsec_")) for secret in secrets])
    return {
        "webhook-id": "j1",
        "webhook-timestamp": str(at),
        "webhook-signature": signer.sign("j1", str(at), body),
        "X-Erelong-Attempt": "2",
        "X-Erelong-Due-At": "2026-01-01T00:00:00.000250Z",
    }


@pytest.mark.parametrize(
    "shape",
    [
        lambda headers: headers,
        lambda headers: {name.upper(): value for name, value in headers.items()},
        lambda headers: [*headers.items()],
        lambda headers: [(name.lower().encode(), value.encode()) for name, value in headers.items()],
        lambda headers: (
            {"HTTP_" + name.upper().replace("-", "_"): value for name, value in headers.items()}
            | {"wsgi.input": object()}
        ),
    ],
    ids=["mapping", "upper case", "pairs", "bytes", "wsgi"],
)
def test_signed_request_is_accepted(shape: Any) -> None:
    webhook = verify(shape(signed(SECRET)), BODY, SECRET, now=NOW + 10)

    assert (webhook.id, webhook.attempt, webhook.json()) == ("j1", 2, {"order": 7})
    assert webhook.sent_at.timestamp() == NOW
    assert webhook.due_at is not None
    assert webhook.due_at.microsecond == 250


def test_either_secret_is_accepted_during_a_rotation() -> None:
    assert verify(signed(OTHER, SECRET), BODY, SECRET, now=NOW).id == "j1"
    assert verify(signed(OTHER), BODY, [SECRET, OTHER], now=NOW).id == "j1"


@pytest.mark.parametrize(
    ("headers", "body", "message"),
    [
        ({}, BODY, "webhook-id is missing"),
        (signed(), BODY, "webhook-signature is missing"),
        (signed(OTHER), BODY, "the signature is wrong"),
        (signed(SECRET), BODY + b" ", "the signature is wrong"),
        (signed(SECRET) | {"webhook-id": "j2"}, BODY, "the signature is wrong"),
        (signed(SECRET, at=NOW - 400), BODY, "400 s old"),
        (signed(SECRET, at=NOW + 400), BODY, "400 s in the future"),
    ],
)
def test_other_request_is_refused_with_the_reason(headers: dict[str, str], body: bytes, message: str) -> None:
    with pytest.raises(InvalidSignature, match=message):
        verify(headers, body, SECRET, now=NOW)


def test_bad_secret_is_a_fault_of_the_receiver() -> None:
    with pytest.raises(ValueError, match="whsec_"):
        verify(signed(SECRET), BODY, "not base64!", now=NOW)
