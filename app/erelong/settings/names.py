"""What a shape knows, be it a model or a typed dictionary: the names at its places, and its patterns in words."""

from __future__ import annotations

from functools import lru_cache
from types import NoneType
from typing import TYPE_CHECKING, Any, Final, get_args, get_origin, get_type_hints

from pydantic import BaseModel

if TYPE_CHECKING:
    from collections.abc import Sequence

NAME: Final = r"^[A-Za-z0-9._-]{1,100}$"
KEY: Final = r"^[\x20-\x7e]{1,255}$"
VARIABLE: Final = r"^[A-Za-z_][A-Za-z0-9_]*$"
TEXT: Final = r"^[^\x00]*$"
FUNCTION: Final = r"^[A-Za-z_][A-Za-z0-9_.]*:[A-Za-z_][A-Za-z0-9_.]*$"

NAME_CHARACTERS: Final = "1 to 100 of A-Z a-z 0-9 . _ -"

_WORDS: Final = {
    NAME: f"should be {NAME_CHARACTERS}",
    KEY: "should be 1 to 255 printable ASCII characters",
    VARIABLE: "should be letters, digits and _, and no digit first",
    TEXT: "should have no NUL in it",
    FUNCTION: 'should name a module and a function of it, as in "my_jobs:remind"',
}


def names_at(shape: Any, place: Sequence[str | int]) -> list[str]:
    """The names that may stand at a place, which has to lead through what the shape knows."""
    for part in place:
        shape = get_args(shape)[1] if get_origin(shape) is dict else _without_none(_parts(shape)[str(part)])
    return list(_parts(shape))


def in_words(pattern: str) -> str | None:
    """What a text of this pattern is made of; None for a pattern that is nowhere said in words."""
    return _WORDS.get(pattern)


@lru_cache(maxsize=100)  # there are few; to read the annotations of a dictionary takes 100 µs
def _parts(shape: Any) -> dict[str, Any]:
    if issubclass(shape, BaseModel):
        return {name: field.annotation for name, field in shape.model_fields.items()}
    return get_type_hints(shape)


def _without_none(annotation: Any) -> Any:
    choices = [choice for choice in get_args(annotation) if choice is not NoneType]
    return choices[0] if NoneType in get_args(annotation) else annotation
