"""Messages for invalid values, worded alike for requests, params and settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import orjson

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_SHOWN: Final = 60
REQUIRED: Final = "is required"


def unknown(known: Iterable[str] | None = None) -> str:
    """Return the message for an unknown name; `known` lists the valid names, if there is such a list."""
    if known is None:
        return "is unknown"
    return f"is unknown; known fields: {', '.join(known) or 'none'}"


def unfit(value: object, wish: str) -> str:
    """Return the message for an invalid value; `wish` is the validator's sentence about a valid one."""
    wish = wish.removeprefix("Value error, ").removeprefix("Input ").removeprefix("String ")
    return wish if ", not " in wish else f"{wish}, not {shown(value)}"


def shown(value: object) -> str:
    """Return a value as its sender wrote it, shortened to a bounded length."""
    if isinstance(value, (dict, list)):
        return "an object" if isinstance(value, dict) else "a list"
    try:
        text = orjson.dumps(value).decode()
    except TypeError:
        text = f"a value of type {type(value).__name__}"
    return text if len(text) <= MAX_SHOWN else f"{text[: MAX_SHOWN - 3]}..."
