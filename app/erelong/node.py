"""One node: builds the parts that serve a store, and starts and stops them in order."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from erelong.api import routes as api
from erelong.clock import instants
from erelong.dashboard import face as dashboard
from erelong.duties.duty import Duty
from erelong.duties.lifecycle import Lifecycle
from erelong.engine.engine import Engine
from erelong.monitoring.gauges import Gauges
from erelong.monitoring.health import Health
from erelong.monitoring.starts import record_start
from erelong.monitoring.statistics.sampling import Sampling
from erelong.monitoring.statistics.stats import Statistics
from erelong.service.services import Services
from erelong.stores.base import SharedStore
from erelong.telemetry.metrics import Metrics
from erelong.web.auth import KeyGate
from erelong.web.router import Router

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from erelong.clock.instants import Now
    from erelong.clock.virtual import VirtualClock
    from erelong.clock.zones import ZoneSource
    from erelong.cluster.leadership import Leadership
    from erelong.handlers.kinds import Kinds
    from erelong.monitoring.tracing import Tracing
    from erelong.monitoring.watchdog import Watchdog
    from erelong.settings.sections import Config
    from erelong.stores.base import Store
    from erelong.web.face import Face

VIRTUAL = {"X-Erelong-Clock": "virtual"}  # on every response


class Node:
    """One running service: what `start` opens and starts, `stop` stops and closes in reverse.

    The only node of a store starts everything at once. One of several answers reads until it leads.
    """

    def __init__(
        self,
        *,
        config: Config,
        store: Store,
        kinds: Kinds,
        metrics: Metrics | None = None,
        now: Now = instants.now,
        virtual: VirtualClock | None = None,
        watchdog: Watchdog | None = None,
        tracing: Tracing | None = None,
        zone_source: ZoneSource | None = None,
    ) -> None:
        shared = store if isinstance(store, SharedStore) else None
        self.config = config
        self.store = store
        self.kinds = kinds
        self.metrics = metrics or Metrics()
        tick = asyncio.get_running_loop().time
        self.engine = Engine(
            store=store,
            kinds=kinds,
            config=config,
            lifecycle=Lifecycle(hands_over=shared is not None),
            metrics=self.metrics,
            now=now,
            tick=tick,
            virtual=virtual,
            remote=None if shared is None else shared.clock,
            zone_source=zone_source,
        )
        self.services = Services(engine=self.engine, virtual=virtual)
        self.leadership = None if shared is None else self._make_leadership(shared)
        self.health = Health(services=self.services, watchdog=watchdog, shared=shared)
        path = config.store.path if config.store.kind == "sqlite" else None
        self.gauges = Gauges(services=self.services, metrics=self.metrics, path=path, shared=shared)
        self.statistics = self._make_statistics(path)
        self.gate = KeyGate(services=self.services, config=config, tick=tick)
        self.router = self._make_router(tracing, also={} if virtual is None else VIRTUAL)
        self._open = AsyncExitStack()

    def _make_router(self, tracing: Tracing | None, also: Mapping[str, str]) -> Router:
        return Router(faces=self._make_faces(), metrics=self.metrics, wrapper=tracing, also=also)

    def _make_statistics(self, path: Path | None) -> Statistics:
        sampling = Sampling(engine=self.engine, path=path)
        self.engine.watch(sampling)
        return Statistics(services=self.services, health=self.health, sampling=sampling)

    def _make_leadership(self, store: SharedStore) -> Leadership:
        from erelong.cluster.leadership import Leadership  # not loaded for a store of one process

        return Leadership(store=store, lifecycle=self.engine.lifecycle, waiters=self.engine.waiters)

    def _make_faces(self) -> list[Face]:
        face = api.make_face(
            services=self.services,
            config=self.config,
            gate=self.gate,
            health=self.health,
            gauges=self.gauges,
            statistics=self.statistics,
            metrics=self.metrics,
            now=self.engine.now,
        )
        page = dashboard.make_face(gate=self.gate, renderer=face.renderer)
        return [face if self.leadership is None else self._on_standby(face, self.leadership), page]

    def _on_standby(self, face: Face, leadership: Leadership) -> Face:
        from erelong.cluster.hold import Hold  # not loaded for a store of one process
        from erelong.web.standby import on_standby

        hold = Hold(leadership=leadership, waiters=self.engine.waiters, seconds=self.config.cluster.hold)
        return on_standby(face, hold, api.ON_STANDBY)

    async def start(self) -> None:
        """Open and start everything, unless another node leads. If a step fails, close everything that is open."""
        async with AsyncExitStack() as opened:
            await self.store.open()
            opened.push_async_callback(self.store.close)
            await self.kinds.open()
            opened.push_async_callback(self.kinds.close)
            if self.leadership is None or not self.leadership.is_standby:
                await self._begin(opened)
            self._open = opened.pop_all()

    async def lead(self) -> None:
        """Wait until this node leads, and start everything else."""
        if self.leadership is not None and self.leadership.is_standby:
            await self.leadership.wait()
            await self._begin(self._open)
            self.leadership.release()

    async def _begin(self, opened: AsyncExitStack) -> None:
        if self.services.clock is not None:
            await self.services.clock.load()
        await self.services.kinds.load()
        await self.engine.start()
        self.engine.notes.seed("started", await record_start(self.store, self.engine.started_at))
        if self.services.clock is not None:
            record = Duty(work=self.services.clock.record, metrics=self.metrics)
            record.start()
            opened.push_async_callback(record.stop)

    async def drain(self, *, can_store: bool) -> None:
        """Stop the engine, and let another node lead. Stored jobs can still be read."""
        await self.engine.stop(can_store=can_store)
        if self.leadership is not None:
            await self.leadership.resign()

    async def stop(self, *, can_store: bool = True) -> None:
        await self.engine.stop(can_store=can_store)
        self.services.recurrences.close()
        await self._open.aclose()
