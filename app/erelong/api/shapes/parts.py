"""Schemas that the views of all routes share."""

from __future__ import annotations

from typing import Any, Final

TIME: Final = {"type": "string", "format": "date-time", "description": "RFC 3339, UTC, milliseconds, rounded up."}
TIME_OR_NULL: Final = {"type": ["string", "null"], "format": "date-time"}
TEXT_OR_NULL: Final = {"type": ["string", "null"]}
ID: Final = {"type": "string", "pattern": "^[A-Za-z0-9_-]{1,40}$", "description": "Opaque; sorts by creation."}
SECONDS_OR_NULL: Final = {"type": ["number", "null"], "minimum": 0}
COUNT: Final = {"type": "integer", "minimum": 0}
COUNT_OR_NULL: Final = {"type": ["integer", "null"], "minimum": 0}


def ref(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}"}


def array_of(of: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": of}


def object_of(properties: dict[str, Any], optional: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the schema of an object with exactly these properties."""
    required = [name for name in properties if name not in optional]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
