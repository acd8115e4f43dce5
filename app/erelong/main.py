"""Builds all parts of the service from the settings, and starts and stops them in order."""

from __future__ import annotations

import asyncio
import gc
import os
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from yarl import URL

from erelong.api import routes as api
from erelong.clock import instants
from erelong.clock.virtual import VirtualClock
from erelong.dashboard import face as dashboard
from erelong.duties.duty import Duty
from erelong.duties.lifecycle import Lifecycle
from erelong.duties.signal import Signal
from erelong.engine.engine import Engine
from erelong.handlers.registry import make_kinds
from erelong.monitoring.gauges import Gauges
from erelong.monitoring.health import Health
from erelong.monitoring.starts import record_start
from erelong.monitoring.statistics.sampling import Sampling
from erelong.monitoring.statistics.stats import Statistics
from erelong.monitoring.tracing import make_tracing
from erelong.monitoring.watchdog import Watchdog
from erelong.service.services import Services
from erelong.stores.base import SharedStore
from erelong.stores.registry import make_store
from erelong.telemetry.log import get_logger
from erelong.telemetry.metrics import Metrics
from erelong.web.auth import KeyGate
from erelong.web.fd_limit import LoopExceptionHandler, fit_to_fd_limit
from erelong.web.listener import listen, refuse_open_listener
from erelong.web.process import handle_signals, led, run_loop, stop_requested
from erelong.web.reload import AuthReload
from erelong.web.router import Router
from erelong.web.server import Server
from erelong.web.standby import on_standby

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from erelong.clock.instants import Instant, Now
    from erelong.clock.zones import ZoneSource
    from erelong.errors import Exit
    from erelong.handlers.kinds import Kinds
    from erelong.monitoring.tracing import Tracing
    from erelong.settings.sections import Config
    from erelong.stores.base import Store
    from erelong.web.face import Face

VIRTUAL = {"X-Erelong-Clock": "virtual"}  # on every response
GC_THRESHOLDS = (50_000, 10, 10)  # jobs in flight are young: scanning them at the default thresholds wastes CPU

log = get_logger(__name__)


class Node:
    """One running service: what `start` opens and starts, `stop` stops and closes in reverse."""

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
        self.config = config
        self.store = store
        self.shared = store if isinstance(store, SharedStore) else None
        self.kinds = kinds
        self.metrics = metrics or Metrics()
        tick = asyncio.get_running_loop().time
        self.engine = Engine(
            store=store,
            kinds=kinds,
            config=config,
            lifecycle=Lifecycle(hands_over=self.shared is not None),
            metrics=self.metrics,
            now=now,
            tick=tick,
            virtual=virtual,
            remote=None if self.shared is None else self.shared.clock,
            zone_source=zone_source,
        )
        self.services = Services(engine=self.engine, virtual=virtual)
        self.health = Health(services=self.services, watchdog=watchdog, shared=self.shared)
        path = config.store.path if config.store.kind == "sqlite" else None
        self.gauges = Gauges(services=self.services, metrics=self.metrics, path=path)
        self.statistics = self._make_statistics(path)
        self.gate = KeyGate(services=self.services, config=config, tick=tick)
        also = {} if virtual is None else VIRTUAL
        self.router = Router(faces=self._make_faces(), metrics=self.metrics, wrapper=tracing, also=also)
        self._open = AsyncExitStack()

    def _make_statistics(self, path: Path | None) -> Statistics:
        sampling = Sampling(engine=self.engine, path=path)
        self.engine.watch(sampling)
        return Statistics(services=self.services, health=self.health, sampling=sampling)

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
        faces = [face, dashboard.make_face(gate=self.gate, renderer=face.renderer)]
        if self.shared is None:
            return faces
        return [on_standby(face, self.shared, self.engine.lifecycle, api.ON_STANDBY), *faces[1:]]

    async def start(self) -> None:
        """Open and start everything, unless another node leads. If a step fails, close everything that is open."""
        async with AsyncExitStack() as opened:
            await self.store.open()
            opened.push_async_callback(self.store.close)
            await self.kinds.open()
            opened.push_async_callback(self.kinds.close)
            if self.shared is None or self.shared.standby() is None:
                await self._begin(opened)
            self._open = opened.pop_all()

    async def take_over(self) -> None:
        """Wait until this node leads, and start everything else."""
        if self.shared is not None and self.shared.standby() is not None:
            await self.shared.lead()
            await self._begin(self._open)

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
        if self.shared is not None:
            await self.shared.resign()

    async def stop(self, *, can_store: bool = True) -> None:
        await self.engine.stop(can_store=can_store)
        self.services.recurrences.close()
        await self._open.aclose()


def serve(
    config: Config, folders: Sequence[Path], config_factory: Callable[[], Config], virtual_from: Instant | None = None
) -> int:
    """Run the service until a signal stops it, and return 0. Raise the `Exit` of a store that ends first.

    `config_factory` reads the settings again. `virtual_from` starts a virtual clock at an instant (0: now, or where the
    store left it).
    """
    refuse_open_listener(config)
    config = fit_to_fd_limit(config)
    tracing = make_tracing(os.environ)
    kinds = make_kinds(config, folders=folders, is_virtual=virtual_from is not None)
    try:
        reason = run_loop(_serve(config, config_factory, kinds, tracing, virtual_from), config.server.loop)
    finally:
        if tracing is not None:
            tracing.close()
    if reason is not None:
        raise reason
    return 0


async def _serve(
    config: Config,
    config_factory: Callable[[], Config],
    kinds: Kinds,
    tracing: Tracing | None,
    virtual_from: Instant | None,
) -> Exit | None:
    metrics, hangup = Metrics(), Signal()
    tick = asyncio.get_running_loop().time
    virtual = None if virtual_from is None else VirtualClock(at=virtual_from, tick=tick)
    stopping = handle_signals(hangup)
    asyncio.get_running_loop().set_exception_handler(LoopExceptionHandler())
    with listen(
        config.server.host, config.server.port
    ) as listener:  # first: this may fail, and nothing has started yet
        async with Watchdog(limit=config.log.watchdog, metrics=metrics) as watchdog:
            node = Node(
                config=config,
                store=make_store(config.store, metrics.commits, is_virtual=virtual is not None),
                kinds=kinds if tracing is None else tracing.wrap(kinds),
                metrics=metrics,
                virtual=virtual,
                watchdog=watchdog,
                tracing=tracing,
            )
            await node.start()
            reload = Duty(
                work=AuthReload(gate=node.gate, config_factory=config_factory, requested=hangup), metrics=metrics
            )
            reload.start()
            try:
                return await _serve_requests(node, listener, stopping)
            finally:
                await reload.stop()
                await node.stop()


async def _serve_requests(node: Node, listener: socket.socket, stopping: asyncio.Event) -> Exit | None:
    """Serve requests until a stop is requested. Reads continue while the engine drains."""
    server = Server(timeouts=node.config.server, limits=node.config.limits, metrics=node.metrics)
    await server.open(node.router, listener)
    try:
        host, port = listener.getsockname()[:2]
        log.info("listening", url=str(URL.build(scheme="http", host=host, port=port)), process=os.getpid())
        gc.collect()
        gc.freeze()
        gc.set_threshold(*GC_THRESHOLDS)
        if not await led(stopping, node.take_over()):
            return None
        ended = await stop_requested(stopping, node.store)
        log.info("draining", timeout=0.0 if ended else node.config.server.drain_timeout)
        await node.drain(can_store=ended is None)
        return ended
    finally:
        await server.close()
