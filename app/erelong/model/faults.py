"""Messages for invalid values, worded alike for requests, params and settings."""

from __future__ import annotations

import difflib
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import orjson

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_SHOWN: Final = 60
MAX_HINTS: Final = 2  # per job: comparing names takes far longer than parsing them
REQUIRED: Final = "is required"


def unknown(name: str, known: Iterable[str] | None = None, *, has_hint: bool = True) -> str:
    """Return the message for an unknown name; `known` lists the valid names, if there is such a list."""
    if known is None:
        return "is unknown"
    names = (*known,)
    return f"is unknown; known fields: {', '.join(names) or 'none'}{hint(name, names) if has_hint else ''}"


@lru_cache(maxsize=1_000)  # a client that repeats its mistake must cost little
def hint(name: str, known: tuple[str, ...]) -> str:
    """Return a sentence that names the known name most like this one, or nothing."""
    close = difflib.get_close_matches(name, known, n=1) if len(name) <= MAX_SHOWN else []
    return f". Did you mean {close[0]!r}?" if close else ""


def unfit(value: object, wish: str) -> str:
    """Return the message for an invalid value; `wish` is the validator's sentence about a valid one."""
    wish = wish.removeprefix("Value error, ").removeprefix("Input ").removeprefix("String ")
    return wish if ", not " in wish else f"{wish}, not {shown(value)}"


def too_long(seconds: float, limit: float, setting: str) -> str:
    """Return the message for a duration beyond the limit that a setting gives."""
    return f"{seconds:.12g} s is too long; send at most {limit:.12g} s ({setting})"


def shown(value: object) -> str:
    """Return a value as its sender wrote it, shortened to a bounded length."""
    if isinstance(value, (dict, list)):
        return "an object" if isinstance(value, dict) else "a list"
    try:
        text = orjson.dumps(value[: MAX_SHOWN + 1] if isinstance(value, str) else value).decode()
    except TypeError:
        text = f"a value of type {type(value).__name__}"
    return text if len(text) <= MAX_SHOWN else f"{text[: MAX_SHOWN - 3]}..."
