"""Reads `[auth]` again while the service runs, so that a key can be replaced without a restart."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from erelong.settings.section import ConfigError
from erelong.telemetry.log import get_logger
from erelong.web.listener import refuse_open_listener

if TYPE_CHECKING:
    from erelong.duties.signal import Signal
    from erelong.settings.sections import AuthSection, Config
    from erelong.web.auth import KeyGate

NO_KEYS = "auth.keys is empty, which would admit every client: restart the service to serve without keys"

log = get_logger(__name__)


class AuthReload:
    """Reloads the gate's settings whenever `requested` is set. Invalid settings change nothing."""

    name = "auth_reload"

    def __init__(self, *, gate: KeyGate, config_factory: Callable[[], Config], requested: Signal) -> None:
        self._gate = gate
        self._make_config = config_factory
        self.ready = requested.wait

    async def lap(self) -> None:
        try:
            after = await asyncio.to_thread(self._read)
        except ConfigError as error:
            log.error("auth_reload_failed", reason="; ".join(error.problems), effect="the previous keys stay in use")
            return
        before = self._gate.settings
        self._gate.apply(after.model_copy(update={"open_metrics": before.open_metrics}))
        pending = {"restart_for": "open_metrics"} if after.open_metrics != before.open_metrics else {}
        log.info("auth_reloaded", keys=len(after.keys), **pending)

    def _read(self) -> AuthSection:
        config = self._make_config()
        refuse_open_listener(config)
        if self._gate.settings.keys and not (config.auth.keys or config.auth.allow_anonymous):
            raise ConfigError([NO_KEYS])
        return config.auth
