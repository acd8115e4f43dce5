"""Secrets in headers: put in when a call is made, sent only where they belong, taken out of what comes back."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, quote_plus

from erelong.errors import Fault

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from yarl import URL

    from erelong.settings.sections import WebhookSecret

_MARK: Final = "{secret:"
_PLACE: Final = re.compile(r"\{secret:(?:([^{}]*)\})?")  # one that is not closed names ""


class Mask:
    """Takes the secrets of one call out of what it brings: as they are, escaped in JSON, and percent-encoded."""

    def __init__(self, values: Mapping[str, str]) -> None:
        faces = {face: name for name, value in values.items() for face in _faces(value)}
        self._faces = sorted(
            ((face, f"{{secret:{name}}}") for face, name in faces.items()), key=lambda pair: -len(pair[0])
        )

    def __bool__(self) -> bool:
        return bool(self._faces)

    def text(self, text: str) -> str:
        for face, place in self._faces:
            text = text.replace(face, place)
        return text

    def body(self, body: bytes, *, is_whole: bool) -> bytes:
        """Mask a body; the beginning of a secret at the end of one that was cut off goes too."""
        for face, place in self._faces:
            body = body.replace(face.encode(), place.encode())
        return body if is_whole else body[: len(body) - self._longest_end(body)]

    def _longest_end(self, body: bytes) -> int:
        """How much of the end is the beginning of a secret."""
        ends = (size for face, _ in self._faces for size in range(1, len(face)) if body.endswith(face[:size].encode()))
        return max(ends, default=0)


NO_MASK: Final = Mask({})


class Secrets:
    """Those that the settings declare, each for the origins it may be sent to."""

    def __init__(self, declared: Mapping[str, WebhookSecret]) -> None:
        self._values = {
            (name, origin): secret.value.get_secret_value()
            for name, secret in declared.items()
            for origin in secret.origins
        }

    def find_faults(self, headers: Mapping[str, str], url: URL) -> Iterator[Fault]:
        """Say which headers name a secret that cannot be sent there, and which can."""
        origin = str(url.origin())
        for header, value in headers.items():
            for name in _PLACE.findall(value):
                if (name, origin) not in self._values:
                    yield Fault.at(["headers", header], self._absence(name, origin))

    def fill(self, headers: dict[str, str], url: URL) -> tuple[dict[str, str], Mask]:
        """Put the secrets in, and make the mask that takes them out again; LookupError if one may not go there."""
        if not headers or not any(_MARK in value for value in headers.values()):
            return headers, NO_MASK
        origin = str(url.origin())
        used: dict[str, str] = {}

        def value_of(place: re.Match[str]) -> str:
            name = place[1] or ""
            if (name, origin) not in self._values:
                raise LookupError(self._absence(name, origin))
            used[name] = self._values[name, origin]
            return used[name]

        filled = {header: _PLACE.sub(value_of, value) for header, value in headers.items()}
        return filled, Mask(used)

    def _absence(self, name: str, origin: str) -> str:
        here = ", ".join(known for known, where in self._values if where == origin)
        remedy = (
            f"those for it: {here}" if here else "an operator can declare one in [webhooks.secrets] with this origin"
        )
        return f"names no secret that may be sent to {origin}: {name[:100]!r}; {remedy}"


def _faces(value: str) -> set[str]:
    in_json = json.dumps(value)[1:-1]
    in_urls = {quote(value, safe=""), quote(value), quote_plus(value)}
    return {value, in_json, in_json.replace("/", "\\/"), *in_urls}
