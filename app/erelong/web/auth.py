"""API keys: authenticates and authorizes callers before the query and the body are read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp import hdrs, web

from erelong.errors import Fault, Forbidden, RateLimited, Unauthenticated
from erelong.model.caller import ANYBODY, Caller
from erelong.model.rate import Bucket
from erelong.service.jobs import BY_KEY, name_by_key
from erelong.settings.api_keys import Keyring
from erelong.telemetry.log import get_logger
from erelong.web.listener import is_loopback
from erelong.web.origins import refuse_foreign_page, refuse_ownable_host
from erelong.web.problems import REQUEST_ID
from erelong.web.router import name_in

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from erelong.clock.instants import Tick
    from erelong.model.caller import Need
    from erelong.service.services import Services
    from erelong.settings.queues import Rate
    from erelong.settings.sections import AuthSection, Config
    from erelong.web.face import Route

CALLER = web.RequestKey("caller", Caller)
SCHEME = "bearer"
SEND = 'send "Authorization: Bearer <key>"'

log = get_logger(__name__)


class KeyGate:
    """Admits callers by key. Without keys it admits everyone except foreign web pages; with `allow_anonymous` it also
    admits callers without a key. `tick` is the monotonic clock.
    """

    def __init__(self, *, services: Services, config: Config, tick: Tick) -> None:
        self._services = services
        self._is_local = is_loopback(config.server.host)  # only this machine reaches the service
        self._tick = tick
        # Strangers must not fill the log. Keys of 256 bits need no other defence.
        self._log_bucket = Bucket(per_second=10 / 60, burst=10)
        self._unlogged = 0
        self.apply(config.auth)

    def apply(self, settings: AuthSection) -> None:
        """Apply new settings."""
        self.settings = settings
        self._has_keys = bool(settings.keys)
        self._needs_key = self._has_keys and not settings.allow_anonymous
        self._keyring = Keyring(callers={key.sha256: key.caller(name) for name, key in settings.keys.items()})
        self._buckets = {
            name: Bucket(per_second=key.rate.per_second, burst=key.rate.burst)
            for name, key in settings.keys.items()
            if key.rate
        }

    async def admit(self, request: web.Request, route: Route) -> None:
        """Raise a problem unless the key has the scope and may use the queue of the request."""
        assert route.scope is not None
        caller = request[CALLER] = self._admit(request, route.scope)
        if caller.queues:
            await self._refuse_foreign_target(request, route.path, caller)

    def rate_of(self, caller: Caller) -> Rate | None:
        """Return how many requests a second the key of a caller may make; None for any number."""
        key = self.settings.keys.get(caller.name)
        return None if key is None else key.rate

    def admits(self, request: web.Request, route: Route) -> bool:
        """Return whether a request would be admitted, without refusing or counting it."""
        return route.scope is None or self.has_scope(request, route.scope)

    def has_scope(self, request: web.Request, scope: Need) -> bool:
        """Return whether the caller has a scope."""
        try:
            self.recheck(request, scope)
        except (Forbidden, Unauthenticated):
            return False
        return True

    def recheck(self, request: web.Request, scope: Need) -> Caller:
        """Return the caller by the current settings. Refuse a key that is no longer known or lacks the scope."""
        header = self._authorization(request)
        caller = ANYBODY if header is None else self._keyring.find(_key_of(header))
        if caller is None or not caller.has(scope):
            raise Unauthenticated(f"this API key no longer has the scope {in_words(scope)}; {SEND} with one that has")
        return caller

    def _admit(self, request: web.Request, scope: Need) -> Caller:
        try:
            header = self._authorization(request)
        except Unauthenticated:
            self._note_failure(request, "no key")
            raise
        if header is None:
            return ANYBODY
        key = _key_of(header)
        caller = self._keyring.find(key)
        if caller is None:
            known = self._keyring.name_of(key)
            self._note_failure(request, f"not the key {known}" if known else "unknown key")
            raise Unauthenticated(f"unknown API key; {SEND} with a key as `new-key` printed it")
        bucket = self._buckets.get(caller.name)
        wait = bucket.take(self._tick()) if bucket is not None else 0.0
        if wait > 0:
            raise RateLimited(
                f"API key {caller.name!r} is over its request rate; wait as Retry-After says", retry_after=wait
            )
        if not caller.has(scope):
            has = ", ".join(sorted(caller.scopes))
            raise Forbidden(f"this call needs the scope {in_words(scope)}; API key {caller.name!r} has {has}")
        return caller

    def _authorization(self, request: web.Request) -> str | None:
        """Return the header with the key, or None if no key is needed."""
        refuse_foreign_page(request)
        header = request.headers.get(hdrs.AUTHORIZATION) if self._has_keys else None
        if header is None:
            if self._needs_key:
                raise Unauthenticated(f"this call needs an API key; {SEND}")
            refuse_ownable_host(request, is_local=self._is_local)
        return header

    async def _refuse_foreign_target(self, request: web.Request, path: str, caller: Caller) -> None:
        """Refuse jobs, leases and queues outside the key's queues as if they did not exist."""
        services = self._services
        refusals: dict[str, Callable[[str, Caller], Awaitable[object]]] = {
            "{token}": services.leases.get,
            "{schedule}": services.schedules.refuse_foreign,
            "{operation}": services.operations.refuse_foreign,
        }
        if "{id}" in path:
            name = name_in(request)
            is_key = name.startswith(BY_KEY)
            await services.jobs.get(name_by_key(name, request.query.get("queue")) if is_key else name, caller)
        elif "{queue}" in path:
            services.queues.refuse_foreign(name_in(request), caller)
        for part, refuse in refusals.items():
            if part in path:
                await refuse(name_in(request), caller)

    def _note_failure(self, request: web.Request, reason: str) -> None:
        if self._log_bucket.take(self._tick()) > 0:
            self._unlogged += 1
            return
        unlogged, self._unlogged = self._unlogged, 0
        log.warning("auth_failed", reason=reason, peer=request.remote, request=request[REQUEST_ID], unlogged=unlogged)


def caller_of(request: web.Request) -> Caller:
    caller: Caller = request.get(CALLER, ANYBODY)
    return caller


def refuse_foreign(caller: Caller, pointer: str, *queues: str) -> None:
    """Refuse the queues that the caller may not use; `pointer` is where the request names them."""
    foreign = caller.foreign(queues)
    if foreign:
        has = ", ".join(sorted(caller.queues))
        faults = [
            Fault(pointer, f"API key {caller.name!r} may not use queue {queue!r}; its queues: {has}")
            for queue in foreign
        ]
        raise Forbidden(f"{faults[0].detail}; use one of these, or another key", faults=faults)


def in_words(need: Need) -> str:
    return " or ".join(sorted(need)) if isinstance(need, frozenset) else str(need)


def _key_of(header: str) -> str:
    scheme, _, key = header.partition(" ")
    return key.strip() if scheme.lower() == SCHEME else ""
