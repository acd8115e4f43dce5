"""The cause of an error: failures of one kind whose messages differ only in details have the same."""

from __future__ import annotations

import re
from hashlib import sha256
from typing import Any, Final

import orjson

_QUOTED: Final = re.compile(r"'[^'\n]*'|\"[^\"\n]*\"|`[^`\n]*`|«[^«»\n]*»")
_RUN: Final = re.compile(r"[0-9a-zA-Z_-]{8,}")  # an id if it has a digit; one pattern for both would be quadratic
_DIGIT: Final = re.compile(r"[0-9]")
_NUMBER: Final = re.compile(r"\d+(?:[.,:]\d+)*")
_LENGTH: Final = 12


def cause_of(kind: str, error: bytes | None) -> str | None:
    """Return the cause of the error of a job, as 12 hex digits; None without an error that can be read."""
    if error is None:
        return None
    try:
        stored: dict[str, Any] = orjson.loads(error)
    except ValueError:
        return None
    text = f"{kind}\n{stored.get('type', '')}\n{outline(str(stored.get('message', '')))}"
    return sha256(text.encode(errors="replace")).hexdigest()[:_LENGTH]


def outline(message: str) -> str:
    """Return the first line of a message without quoted text, ids and numbers."""
    line = message.strip().partition("\n")[0]
    line = _RUN.sub(_without_id, _QUOTED.sub("_", line))
    return " ".join(_NUMBER.sub("_", line).split())


def _without_id(run: re.Match[str]) -> str:
    return "_" if _DIGIT.search(run[0]) else run[0]
