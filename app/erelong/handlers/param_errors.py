"""What pydantic found wrong with params, as faults: where, which value, and what to send instead."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, get_args

import orjson
from pydantic_core import ErrorDetails, PydanticCustomError
from pydantic_core.core_schema import ErrorType

from erelong.errors import Fault, Invalid
from erelong.model.faults import REQUIRED, unfit, unknown

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pydantic import ValidationError

MAX_FAULTS: Final = 20

# Texts of these say what would be right but not what was sent; those of validators are left as they are.
_BUILT_IN: Final = frozenset(get_args(ErrorType)) - {"value_error", "assertion_error"}


def refusal(reason: str) -> PydanticCustomError:
    """Make the error of a validator, for whose text `reason` is all that the sender needs to read."""
    return PydanticCustomError("refused", "{reason}", {"reason": reason})


def invalid(kind: str, faults: Sequence[Fault]) -> Invalid:
    """Make the refusal of params."""
    return Invalid(f'the params do not fit kind "{kind}"', faults=faults)


def find_faults(error: ValidationError, params: bytes, known: Iterable[str]) -> list[Fault]:
    """List what is wrong, at most 20 of it, by JSON pointers into the params; `known` are their possible names."""
    try:
        sent = orjson.loads(params)
    except orjson.JSONDecodeError as not_json:
        return [Fault("", f"is not JSON: {not_json}")]
    return [_fault(details, sent, known) for details in error.errors(include_url=False)[:MAX_FAULTS]]


def _fault(details: ErrorDetails, sent: Any, known: Iterable[str]) -> Fault:
    place = _place(details, sent)
    match details["type"]:
        case "missing":
            return Fault.at(place, REQUIRED)
        case "extra_forbidden":
            return Fault.at(place, unknown(known if len(details["loc"]) == 1 else None))
        case "value_error" | "assertion_error":
            return Fault.at(place, str(details["ctx"]["error"]) or details["msg"])
        case built_in if built_in in _BUILT_IN:
            return Fault.at(place, unfit(details["input"], details["msg"]))
        case _:
            return Fault.at(place, details["msg"])


def _place(details: ErrorDetails, sent: Any) -> list[str | int]:
    """Follow a location through what was sent; its parts that are no names there, such as a union's choice, go."""
    place: list[str | int] = []
    for part in details["loc"]:
        try:
            sent = sent[part]
        except (IndexError, KeyError, TypeError):
            if details["type"] != "missing" or part != details["loc"][-1]:
                continue
        place.append(part)
    return place
