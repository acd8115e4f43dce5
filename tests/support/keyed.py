"""A service with API keys, and a client for each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from erelong.model.caller import Scope
from erelong.settings.api_keys import fingerprint_of, new_key
from erelong.settings.kinds import KindSettings
from erelong.settings.queues import Rate
from erelong.settings.sections import ApiKey, AuthSection
from tests.support.served import Serve, Served

PULL = {"resize": KindSettings(pull=True)}


class Keys:
    """API keys by name: in clear for clients, and as settings."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self._entries: dict[str, ApiKey] = {}

    def add(self, name: str, *scopes: Scope, queues: Sequence[str] | None = None, rate: Rate | None = None) -> Keys:
        """Make a key, by default with all scopes."""
        text = self.texts[name] = new_key()
        self._entries[name] = ApiKey(
            sha256=fingerprint_of(text),
            scopes=[*(scopes or Scope)],
            queues=None if queues is None else [*queues],
            rate=rate,
        )
        return self

    def settings(self, *, allow_anonymous: bool = False, open_metrics: bool = True) -> AuthSection:
        return AuthSection(allow_anonymous=allow_anonymous, open_metrics=open_metrics, keys=self._entries)


class Keyed:
    """A running service whose clients use API keys."""

    def __init__(self, *, service: Served, keys: Keys) -> None:
        self.service = service
        self.keys = keys

    @contextmanager
    def using(self, name: str | None) -> Iterator[Served]:
        """Call the service with this key, or without one (None)."""
        before, self.service.key = self.service.key, None if name is None else self.keys.texts[name]
        try:
            yield self.service
        finally:
            self.service.key = before


async def serve_keyed(serve: Serve, keys: Keys, *, allow_anonymous: bool = False, open_metrics: bool = True) -> Keyed:
    """Start a service with these keys and a pull kind."""
    settings = keys.settings(allow_anonymous=allow_anonymous, open_metrics=open_metrics)
    return Keyed(service=await serve(auth=settings, declared=PULL), keys=keys)
