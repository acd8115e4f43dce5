"""Says what is wrong with a value that somebody sent: the same words for requests, params and settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import orjson

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_SHOWN: Final = 60
REQUIRED: Final = "is required"


def unknown(known: Iterable[str] | None = None) -> str:
    """Refuse a name; `known` are those that are possible there, if that is known."""
    if known is None:
        return "is unknown"
    return f"is unknown; known fields: {', '.join(known) or 'none'}"


def unfit(value: object, wish: str) -> str:
    """Refuse a value; `wish` is the validator's sentence about what it should be."""
    wish = wish.removeprefix("Value error, ").removeprefix("Input ").removeprefix("String ")
    return wish if ", not " in wish else f"{wish}, not {shown(value)}"


def shown(value: object) -> str:
    """Show a value as its sender wrote it, in a bounded length."""
    if isinstance(value, (dict, list)):
        return "an object" if isinstance(value, dict) else "a list"
    try:
        text = orjson.dumps(value).decode()
    except TypeError:
        text = f"a value of type {type(value).__name__}"
    return text if len(text) <= MAX_SHOWN else f"{text[: MAX_SHOWN - 3]}..."
