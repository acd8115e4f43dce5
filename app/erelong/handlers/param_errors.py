"""Turns pydantic's errors about params into faults: pointer, value and remedy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, get_args

import orjson
from pydantic_core import ErrorDetails, PydanticCustomError
from pydantic_core.core_schema import ErrorType

from erelong.errors import Fault, Invalid
from erelong.model.faults import MAX_HINTS, REQUIRED, unfit, unknown

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pydantic import ValidationError

MAX_FAULTS: Final = 20

# The texts of these do not quote the value that was sent. Texts of validators already do.
_BUILT_IN: Final = frozenset(get_args(ErrorType)) - {"value_error", "assertion_error"}


def refusal(reason: str) -> PydanticCustomError:
    """Make a validator's error whose whole text is `reason`."""
    return PydanticCustomError("refused", "{reason}", {"reason": reason})


def invalid(kind: str, faults: Sequence[Fault]) -> Invalid:
    """Make the error for params with faults."""
    return Invalid(f'the params do not fit kind "{kind}"', faults=faults)


def find_faults(error: ValidationError, params: bytes, known: Iterable[str]) -> list[Fault]:
    """List up to `MAX_FAULTS` faults with JSON pointers into the params; `known` are the accepted names."""
    try:
        sent = orjson.loads(params)
    except orjson.JSONDecodeError as not_json:
        return [Fault("", f"is not JSON: {not_json}")]
    details = error.errors(include_url=False)[:MAX_FAULTS]
    return [_fault(each, sent, known, has_hint=number < MAX_HINTS) for number, each in enumerate(details)]


def _fault(details: ErrorDetails, sent: Any, known: Iterable[str], *, has_hint: bool) -> Fault:
    path = _path(details, sent)
    match details["type"]:
        case "missing":
            return Fault.at(path, REQUIRED)
        case "extra_forbidden":
            *parents, name = details["loc"]
            return Fault.at(path, unknown(str(name), None if parents else known, has_hint=has_hint))
        case "value_error" | "assertion_error":
            return Fault.at(path, str(details["ctx"]["error"]) or details["msg"])
        case built_in if built_in in _BUILT_IN:
            return Fault.at(path, unfit(details["input"], details["msg"]))
        case _:
            return Fault.at(path, details["msg"])


def _path(details: ErrorDetails, sent: Any) -> list[str | int]:
    """Return the part of a location that exists in the params; a union's choice, for example, does not."""
    path: list[str | int] = []
    for part in details["loc"]:
        try:
            sent = sent[part]
        except (IndexError, KeyError, TypeError):
            if details["type"] != "missing" or part != details["loc"][-1]:
                continue
        path.append(part)
    return path
