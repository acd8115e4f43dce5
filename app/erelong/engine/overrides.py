"""Queue settings and pauses made over HTTP: saved in the store, and applied to the lanes over the configuration."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from pydantic import ValidationError

from erelong.settings.queues import QueueSettings
from erelong.stores.base import Override, Pause
from erelong.telemetry.log import get_logger

if TYPE_CHECKING:
    from erelong.clock.instants import Now
    from erelong.engine.agenda import Agenda
    from erelong.engine.changes import Changes
    from erelong.lanes.lanes import Lanes
    from erelong.stores.base import Store

NO_OVERRIDE = Override()
NO_SETTINGS = b"{}"

log = get_logger(__name__)


class Overrides:
    """Settings and pauses of queues; `names` has the queues with either."""

    def __init__(self, *, store: Store, rechecks: Agenda, lanes: Lanes, changes: Changes, now: Now) -> None:
        self._store = store
        self._rechecks = rechecks
        self._lanes = lanes
        self._changes = changes
        self._now = now
        self._overrides: dict[str, Override] = {}
        self._writing = asyncio.Lock()

    @property
    def names(self) -> frozenset[str]:
        return frozenset(self._overrides)

    def pause_of(self, queue: str) -> Pause | None:
        return self._get(queue).pause

    def is_set(self, queue: str) -> bool:
        """Return whether a client has set any setting of a queue."""
        return self._get(queue).settings not in (None, NO_SETTINGS)

    async def load(self) -> None:
        """Load and apply all stored overrides."""
        for queue, override in (await self._store.overrides()).items():
            self._apply(queue, override)

    async def reload(self, queue: str) -> None:
        """Re-read the override of a queue, but not during a change of it, which could return the old one."""
        async with self._writing:
            self._apply(queue, (await self._store.overrides()).get(queue))

    async def set(self, queue: str, settings: QueueSettings) -> None:
        """Replace the settings of a queue; a pause stays."""
        text = settings.model_dump_json(exclude_unset=True).encode()
        async with self._writing:
            await self._write(queue, self._get(queue)._replace(settings=text))
            self._configure(queue, settings)

    async def pause(self, queue: str, by: str | None, reason: str | None) -> None:
        """Stop the jobs of a queue from starting. A second pause says who and why, but not since when."""
        async with self._writing:
            before = self._get(queue)
            at = self._now() if before.pause is None else before.pause.at
            await self._write(queue, before._replace(pause=Pause(at, by, reason)))
            self._lanes.pause(queue, True)

    async def resume(self, queue: str) -> None:
        """Let the jobs of a queue start again."""
        async with self._writing:
            await self._write(queue, self._get(queue)._replace(pause=None))
            self._lanes.pause(queue, False)

    async def drop(self, queue: str) -> None:
        """Forget the settings and the pause of a queue."""
        async with self._writing:
            await self._write(queue, None)
            self._configure(queue, None)
            self._lanes.pause(queue, False)

    def _get(self, queue: str) -> Override:
        return self._overrides.get(queue, NO_OVERRIDE)

    async def _write(self, queue: str, override: Override | None) -> None:
        await self._store.override(queue, None if override == NO_OVERRIDE else override)
        self._remember(queue, override)

    def _apply(self, queue: str, override: Override | None) -> None:
        settings = None
        try:
            if override is not None and override.settings:
                settings = QueueSettings.model_validate_json(override.settings)
        except ValidationError as error:
            log.error("queue_settings_unreadable", queue=queue, problem=str(error))
        self._remember(queue, override)
        self._configure(queue, settings)
        self._lanes.pause(queue, override is not None and override.pause is not None)

    def _remember(self, queue: str, override: Override | None) -> None:
        if override is None or override == NO_OVERRIDE:
            self._overrides.pop(queue, None)
        else:
            self._overrides[queue] = override

    def _configure(self, queue: str, settings: QueueSettings | None) -> None:
        """Apply settings; the scheduler re-reads jobs whose order in the queue has changed."""
        now = self._now()
        self._rechecks.extend([(now, seq) for seq in self._lanes.configure(queue, settings)])
        self._changes.room_changed(queue)
