"""Leaves secrets out of texts that people read: what looks like a key, and the tokens of leases."""

from __future__ import annotations

import re
from typing import Final

KEY_PREFIX: Final = "erl_"

_KEY = re.compile(rf"({KEY_PREFIX}[0-9a-f]{{12}}_)[^\s\"']+")
_LEASE = re.compile(r"(/leases/[0-9a-f]{10})[0-9a-f]+")


def redacted(text: str) -> str:
    """The text with the secret part of each key in it left out, and of each token of a lease in a path."""
    if KEY_PREFIX in text:
        text = _KEY.sub(r"\1…", text)
    return _LEASE.sub(r"\1…", text) if "/leases/" in text else text
