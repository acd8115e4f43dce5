"""Secrets in headers: filled in when a request is sent, to declared origins only, and masked in responses."""

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
_PLACEHOLDER: Final = re.compile(r"\{secret:(?:([^{}]*)\})?")  # an unclosed one names ""


class Mask:
    """Replaces the secrets of one call in its response: plain, escaped in JSON, and percent-encoded."""

    def __init__(self, values: Mapping[str, str]) -> None:
        forms = {form: name for name, value in values.items() for form in _forms(value)}
        self._forms = sorted(
            ((form, f"{{secret:{name}}}") for form, name in forms.items()), key=lambda pair: -len(pair[0])
        )

    def __bool__(self) -> bool:
        return bool(self._forms)

    def text(self, text: str) -> str:
        for form, placeholder in self._forms:
            text = text.replace(form, placeholder)
        return text

    def body(self, body: bytes, *, is_whole: bool) -> bytes:
        """Mask a body. If it is truncated, drop the beginning of a secret at its end too."""
        for form, placeholder in self._forms:
            body = body.replace(form.encode(), placeholder.encode())
        return body if is_whole else body[: len(body) - self._partial_size(body)]

    def _partial_size(self, body: bytes) -> int:
        """Return how many of the last bytes are the beginning of a secret."""
        sizes = (size for form, _ in self._forms for size in range(1, len(form)) if body.endswith(form[:size].encode()))
        return max(sizes, default=0)


NO_MASK: Final = Mask({})


class Secrets:
    """The declared secrets, each with the origins it may be sent to."""

    def __init__(self, declared: Mapping[str, WebhookSecret]) -> None:
        self._values = {
            (name, origin): secret.value.get_secret_value()
            for name, secret in declared.items()
            for origin in secret.origins
        }

    def find_faults(self, headers: Mapping[str, str], url: URL) -> Iterator[Fault]:
        """Yield the headers that name a secret this URL may not receive, with those that it may."""
        if not _names_secret(headers):
            return
        origin = str(url.origin())
        for header, value in headers.items():
            for name in _PLACEHOLDER.findall(value):
                if (name, origin) not in self._values:
                    yield Fault.at(["headers", header], self._refusal(name, origin))

    def fill(self, headers: dict[str, str], url: URL) -> tuple[dict[str, str], Mask]:
        """Return the headers with their secrets, and the mask for the response.

        Raise LookupError for a secret that this URL may not receive.
        """
        if not _names_secret(headers):
            return headers, NO_MASK
        origin = str(url.origin())
        used: dict[str, str] = {}

        def value_of(placeholder: re.Match[str]) -> str:
            name = placeholder[1] or ""
            if (name, origin) not in self._values:
                raise LookupError(self._refusal(name, origin))
            used[name] = self._values[name, origin]
            return used[name]

        filled = {header: _PLACEHOLDER.sub(value_of, value) for header, value in headers.items()}
        return filled, Mask(used)

    def _refusal(self, name: str, origin: str) -> str:
        names = ", ".join(known for known, where in self._values if where == origin)
        remedy = (
            f"secrets for it: {names}"
            if names
            else "an operator can declare one in [webhooks.secrets] with this origin"
        )
        return f"names no secret that may be sent to {origin}: {name[:100]!r}; {remedy}"


def _names_secret(headers: Mapping[str, str]) -> bool:
    return bool(headers) and _MARK in "\n".join(headers.values())  # a value has no line break


def _forms(value: str) -> set[str]:
    in_json = json.dumps(value)[1:-1]
    in_urls = {quote(value, safe=""), quote(value), quote_plus(value)}
    return {value, in_json, in_json.replace("/", "\\/"), *in_urls}
