"""For receivers of webhooks: checks that a request comes from your erelong, is unchanged and is recent."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

TOLERANCE: Final = 300.0
_PREFIX: Final = "whsec_"

Headers = Mapping[str, Any] | Iterable[tuple[str | bytes, str | bytes]]


class InvalidSignature(Exception):
    """The request is not one of erelong, was changed, or is too old. Answer 400 or 401."""


@dataclass(frozen=True, slots=True)
class Webhook:
    """A request whose signature is right. `id` is that of the job, the same on every attempt."""

    id: str
    sent_at: datetime
    attempt: int | None
    due_at: datetime | None
    body: bytes

    def json(self) -> Any:
        """Return the body as JSON."""
        return json.loads(self.body)


def verify(
    headers: Headers,
    body: bytes,
    secrets: str | Iterable[str],
    *,
    tolerance: float = TOLERANCE,
    now: float | None = None,
) -> Webhook:
    """Return the webhook if one of the secrets has signed it within `tolerance` seconds; raise InvalidSignature else.

    `headers` is any mapping, pairs of text or bytes, or a WSGI environment. `body` has the bytes as received.
    """
    given = _plain(headers)
    id, timestamp, signature = (given.get(f"webhook-{name}", "") for name in ("id", "timestamp", "signature"))
    if not (id and timestamp and signature):
        missing = [name for name in ("id", "timestamp", "signature") if not given.get(f"webhook-{name}")]
        raise InvalidSignature(f"the header webhook-{missing[0]} is missing; is [webhooks] signing_secrets empty?")
    signed = f"{id}.{timestamp}.".encode() + body
    keys = [_key(secret) for secret in ([secrets] if isinstance(secrets, str) else secrets)]
    codes = [base64.b64encode(hmac.digest(key, signed, hashlib.sha256)) for key in keys]
    sent = [part.removeprefix("v1,").encode() for part in signature.split() if part.startswith("v1,")]
    if not any([hmac.compare_digest(code, other) for code in codes for other in sent]):  # noqa: C419 - in equal time
        raise InvalidSignature("the signature is wrong: another secret, or the body is not as it was received")
    age = (time.time() if now is None else now) - _seconds(timestamp)
    if abs(age) > tolerance:
        when = f"{age:.0f} s old" if age > 0 else f"{-age:.0f} s in the future"
        raise InvalidSignature(f"the request is {when}; at most {tolerance:g} s are allowed: check the clocks")
    due_at, attempt = given.get("x-erelong-due-at"), given.get("x-erelong-attempt", "")
    return Webhook(
        id=id,
        sent_at=datetime.fromtimestamp(_seconds(timestamp), UTC),
        attempt=int(attempt) if attempt.isdigit() else None,
        due_at=datetime.fromisoformat(due_at) if due_at else None,
        body=body,
    )


def _plain(headers: Headers) -> dict[str, str]:
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    plain = {}
    for name, value in pairs:
        text = name.decode("latin-1") if isinstance(name, bytes) else name
        if isinstance(value, str | bytes):
            words = text.lower().removeprefix("http_").replace("_", "-")
            plain[words] = value.decode("latin-1") if isinstance(value, bytes) else value
    return plain


def _key(secret: str) -> bytes:
    try:
        return base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
    except ValueError:
        raise ValueError("a secret is not base64; give it as in signing_secrets: whsec_…") from None


def _seconds(timestamp: str) -> float:
    try:
        return float(timestamp)
    except ValueError:
        raise InvalidSignature(f"webhook-timestamp {timestamp!r} is not a number of seconds") from None
