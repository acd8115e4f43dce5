"""The names in a model or typed dictionary, and the patterns of names with their descriptions."""

from __future__ import annotations

import re
from functools import lru_cache
from types import NoneType
from typing import TYPE_CHECKING, Any, Final, get_args, get_origin, get_type_hints

from pydantic import BaseModel

from erelong.model.times.local_time import LOCAL_PATTERN

if TYPE_CHECKING:
    from collections.abc import Sequence

NAME: Final = r"^[A-Za-z0-9._-]{1,100}$"
KEY: Final = r"^[\x20-\x7e]{1,255}$"
VARIABLE: Final = r"^[A-Za-z_][A-Za-z0-9_]*$"
TEXT: Final = r"^[^\x00]*$"
FUNCTION: Final = r"^[A-Za-z_][A-Za-z0-9_.]*:[A-Za-z_][A-Za-z0-9_.]*$"
CAUSE: Final = r"^[0-9a-f]{12}$"
WORKER: Final = r"^[^\x00-\x1f\x7f]{1,100}$"

NAME_CHARACTERS: Final = "1 to 100 of A-Z a-z 0-9 . _ -"
PATH_NAMES: Final = f"{NAME_CHARACTERS} (but not . or ..)"
# Neither . nor .. : URLs cannot hold them. The regular expressions of pydantic cannot look ahead.
PATH_NAME: Final = (
    r"^(?:[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}|\.[A-Za-z0-9_-][A-Za-z0-9._-]{0,98}|\.\.[A-Za-z0-9._-]{1,98})$"
)

_A_NAME: Final = re.compile(PATH_NAME)
_WORDS: Final = {
    NAME: f"should be {NAME_CHARACTERS}",
    PATH_NAME: f"should be {PATH_NAMES}",
    KEY: "should be 1 to 255 printable ASCII characters",
    VARIABLE: "should be letters, digits and _, without a leading digit",
    TEXT: "should have no NUL character",
    f"^{LOCAL_PATTERN}$": "should be a date and a time without an offset, such as 2027-03-28T09:00:00",
    CAUSE: "should be a cause as GET /v1/jobs/errors shows it: 12 of 0-9 a-f",
    WORKER: "should be 1 to 100 characters without control characters",
    FUNCTION: 'should name a module and a function in it, such as "my_jobs:remind"',
}


def how_to_create(name: str, remedy: str) -> str:
    """Return the end of a message that nothing has this name: `remedy`, or which names there can be."""
    remedy = remedy.format(name) if is_name(name) else f"a name is {PATH_NAMES}"
    return f"; {remedy}"


def is_name(text: str) -> bool:
    """Return whether a text may name a queue, a schedule or a kind. URLs cannot hold `.` and `..`."""
    return _A_NAME.fullmatch(text) is not None


def names_at(model: Any, path: Sequence[str | int]) -> list[str]:
    """Return the names that a path in a model accepts; the path must exist."""
    for part in path:
        model = get_args(model)[1] if get_origin(model) is dict else _without_none(_fields(model)[str(part)])
    return list(_fields(model))


def in_words(pattern: str) -> str | None:
    """Return the description of a pattern; None if it has none."""
    return _WORDS.get(pattern)


@lru_cache(maxsize=100)  # get_type_hints is slow
def _fields(model: Any) -> dict[str, Any]:
    if issubclass(model, BaseModel):
        return {name: field.annotation for name, field in model.model_fields.items()}
    return get_type_hints(model)


def _without_none(annotation: Any) -> Any:
    choices = [choice for choice in get_args(annotation) if choice is not NoneType]
    return choices[0] if NoneType in get_args(annotation) else annotation
