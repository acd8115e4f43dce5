"""Python values as JSON, and back by an annotation: plain data, dataclasses, pydantic models, enums and times."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from enum import Enum
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints


def dump(value: Any) -> bytes:
    """Return compact JSON. Raise TypeError for what has no JSON form, ValueError for NaN and Infinity."""
    try:
        return json.dumps(value, separators=(",", ":"), allow_nan=False, default=_plain).encode()
    except ValueError:
        if (place := _place_of_nan(value)) is None:
            raise
        raise ValueError(f"{place.lstrip('.') or 'the value'} is not finite: JSON has no NaN and no Infinity") from None


def _place_of_nan(value: Any) -> str | None:
    """Return the path to the first number that is not finite; None if there is none, or a cycle."""
    if isinstance(value, float):
        return None if math.isfinite(value) else ""
    try:
        if isinstance(value, Mapping):
            inner = ((f".{name}", part) for name, part in value.items())
        elif isinstance(value, list | tuple):
            inner = ((f"[{number}]", part) for number, part in enumerate(value))
        else:
            return None if value is None or isinstance(value, str | int) else _place_of_nan(_plain(value))
        found = ((step, _place_of_nan(part)) for step, part in inner)
        return next((step + rest for step, rest in found if rest is not None), None)
    except (RecursionError, TypeError):
        return None


def plain(value: Any) -> Any:
    """Return a value as the service gives it back: only dicts, lists, text, numbers, booleans and None."""
    return json.loads(dump(value))


def _plain(value: Any) -> Any:
    if hasattr(value, "__dataclass_fields__") and not isinstance(value, type):
        return {name: getattr(value, name) for name in value.__dataclass_fields__}
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, set | frozenset):
        return sorted(value)
    if isinstance(value, Mapping):
        return dict(value)
    if _is_uuid(type(value)):
        return str(value)
    raise TypeError(f"{value!r} is not JSON; give plain data, dataclasses, pydantic models, enums or datetimes")


def load(kind: Any, value: Any) -> Any:
    """Return JSON as a value of an annotated type. Leave it as it is where the annotation says nothing about it."""
    if isinstance(kind, type):
        return _load_class(kind, value)
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return load(parts[0], value)
    if origin in (Union, UnionType):
        others = [part for part in parts if part is not NoneType]
        return load(others[0], value) if value is not None and len(others) == 1 else value
    if origin in (list, Sequence) and isinstance(value, list):
        return [load(parts[0], item) for item in value]
    if origin in (set, frozenset) and isinstance(value, list):
        return origin(load(parts[0], item) for item in value)
    if origin is tuple and isinstance(value, list):
        kinds = [parts[0]] * len(value) if parts[-1] is ... else parts
        return tuple(load(part, item) for part, item in zip(kinds, value, strict=False))
    if origin in (dict, Mapping) and isinstance(value, dict):
        return {name: load(parts[1], item) for name, item in value.items()}
    return value


def _load_class(kind: type, value: Any) -> Any:
    if hasattr(kind, "model_validate"):
        return kind.model_validate(value)
    if hasattr(kind, "__dataclass_fields__") and isinstance(value, dict):
        hints = get_type_hints(kind)
        return kind(**{name: load(hints.get(name, Any), item) for name, item in value.items()})
    if isinstance(value, str) and issubclass(kind, datetime | date):
        return kind.fromisoformat(value)
    if (issubclass(kind, Enum) or _is_uuid(kind)) and value is not None:
        return kind(value)
    return value


def _is_uuid(kind: type) -> bool:
    """Return whether a type is UUID, without importing it."""
    return (kind.__module__, kind.__name__) == ("uuid", "UUID")
