"""References within one schema: `#` and a JSON pointer."""

from __future__ import annotations

import re
from typing import Any, Final
from urllib.parse import unquote

_INDEX: Final = re.compile(r"0|[1-9][0-9]{0,5}")


def find_part(root: Any, ref: str) -> Any:
    """Return the part of a schema that a reference names; raise ValueError if there is none."""
    pointer = unquote(ref.removeprefix("#"))
    if not ref.startswith("#") or (pointer and not pointer.startswith("/")):
        raise ValueError('should begin with "#/": nothing outside of the schema is read')
    part = root
    for text in pointer.split("/")[1:]:
        name = text.replace("~1", "/").replace("~0", "~")
        if isinstance(part, dict) and name in part:
            part = part[name]
        elif isinstance(part, list) and _INDEX.fullmatch(name) and int(name) < len(part):
            part = part[int(name)]
        else:
            raise ValueError("names no part of the schema")
    if not isinstance(part, (dict, bool)):
        raise ValueError("should name a schema, which is an object, true or false")
    return part
