"""The patterns of names and their descriptions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic import TypeAdapter

from erelong.settings.names import in_words
from erelong.settings.sections import Config
from tests.support.served import Served


def patterns(schema: Any) -> Iterator[str]:
    """Yield all patterns of a JSON schema, including those of property names."""
    match schema:
        case dict():
            yield from (value for name, value in schema.items() if name == "pattern")
            yield from schema.get("patternProperties", ())
            for part in schema.values():
                yield from patterns(part)
        case list():
            for part in schema:
                yield from patterns(part)


async def test_every_pattern_of_settings_and_bodies_has_a_description(service: Served) -> None:
    schemas = (await service.get("/openapi.json")).json["components"]["schemas"]
    bodies = {name: schema for name, schema in schemas.items() if name.endswith("In")}
    found = {*patterns(TypeAdapter(Config).json_schema()), *patterns(bodies)}

    assert {"JobIn", "PatchIn", "ScheduleIn"} <= bodies.keys()
    assert len(found) > 3
    assert [pattern for pattern in found if in_words(pattern) is None] == []


def test_unknown_pattern_has_no_description() -> None:
    assert in_words("[a-z]+") is None
