"""Standard Webhooks signatures, by which a receiver verifies the sender, the content and the time of a request."""

from __future__ import annotations

from binascii import b2a_base64
from hashlib import sha256
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

_BLOCK: Final = 64  # bytes in a block of SHA-256
_INNER: Final = bytes(byte ^ 0x36 for byte in range(256))
_OUTER: Final = bytes(byte ^ 0x5C for byte in range(256))


class Signer:
    """Signs with every key, so that receivers accept requests during a key rotation."""

    def __init__(self, keys: Iterable[bytes]) -> None:
        # HMAC with its first blocks hashed in advance, faster than hmac.new. hot: drain
        self._started = []
        for key in keys:
            block = (sha256(key).digest() if len(key) > _BLOCK else key).ljust(_BLOCK, b"\0")
            self._started.append((sha256(block.translate(_INNER)), sha256(block.translate(_OUTER))))

    def sign(self, id: str, timestamp: str, body: bytes) -> str:
        """Return the value of the webhook-signature header; empty without keys."""
        if not self._started:
            return ""
        signed = f"{id}.{timestamp}.".encode() + body
        signatures = []
        for inner, outer in self._started:
            digest = inner.copy()
            digest.update(signed)
            code = outer.copy()
            code.update(digest.digest())
            signatures.append("v1," + b2a_base64(code.digest(), newline=False).decode())
        return " ".join(signatures)
