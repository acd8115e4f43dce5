"""Redaction of secrets in logged texts: API keys and lease tokens."""

from __future__ import annotations

import re
from typing import Final

KEY_PREFIX: Final = "erl_"

_KEY = re.compile(rf"({KEY_PREFIX}[0-9a-f]{{12}}_)[^\s\"']+")
_LEASE = re.compile(r"(/leases/[0-9a-f]{10})[0-9a-f]+")


def redacted(text: str) -> str:
    """Return the text without the secret part of API keys and of lease tokens in paths."""
    if KEY_PREFIX in text:
        text = _KEY.sub(r"\1…", text)
    return _LEASE.sub(r"\1…", text) if "/leases/" in text else text
