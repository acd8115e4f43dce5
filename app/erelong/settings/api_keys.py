"""API keys: their format, their fingerprints, and the callers that they authenticate."""

from __future__ import annotations

import re
import secrets
from hashlib import sha256
from hmac import compare_digest
from typing import TYPE_CHECKING

from erelong.telemetry.redact import KEY_PREFIX

if TYPE_CHECKING:
    from collections.abc import Mapping

    from erelong.model.caller import Caller

_ID = slice(len(KEY_PREFIX), len(KEY_PREFIX) + 12)
_SECRET_BYTES = 32
_LENGTH = len(KEY_PREFIX) + 12 + 1 + 43
_FINGERPRINT = re.compile(r"[0-9a-f]{12}:[0-9a-f]{64}")
_NO_DIGEST = bytes(32)


class Keyring:
    """The known keys by fingerprint; it compares a key in constant time."""

    def __init__(self, *, callers: Mapping[str, Caller]) -> None:
        parts = {fingerprint.partition(":")[::2]: caller for fingerprint, caller in callers.items()}
        self._known = {id: (bytes.fromhex(digest), caller) for (id, digest), caller in parts.items()}

    def __len__(self) -> int:
        return len(self._known)

    def find(self, key: str) -> Caller | None:
        """Return the caller of a key; None for any text that is not a known key."""
        if len(key) != _LENGTH:
            return None
        digest, caller = self._known.get(key[_ID], (_NO_DIGEST, None))
        is_known = compare_digest(sha256(key.encode(errors="surrogatepass")).digest(), digest)
        return caller if is_known else None

    def name_of(self, key: str) -> str | None:
        """Return the name of the known key with the same id, even if the rest of `key` is wrong."""
        _, caller = self._known.get(key[_ID], (_NO_DIGEST, None))
        return caller.name if caller is not None else None


def new_key() -> str:
    """Return a new key: `erl_`, an id, and 256 random bits."""
    return f"{KEY_PREFIX}{secrets.token_hex(6)}_{secrets.token_urlsafe(_SECRET_BYTES)}"


def fingerprint_of(key: str) -> str:
    """Return the stored form of a key: its id and its SHA-256."""
    return f"{key[_ID]}:{sha256(key.encode()).hexdigest()}"


def is_fingerprint(text: str) -> bool:
    return _FINGERPRINT.fullmatch(text) is not None
