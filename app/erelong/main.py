"""The composition root: settings → store → kinds → engine → services → faces → server."""

from __future__ import annotations

import asyncio
import gc
import os
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from yarl import URL

from erelong.api.routes import make_face
from erelong.clock import instants
from erelong.duties.duty import Duty
from erelong.duties.lifecycle import Lifecycle
from erelong.duties.signal import Signal
from erelong.engine.engine import Engine
from erelong.handlers.registry import make_kinds
from erelong.monitoring.gauges import Gauges
from erelong.monitoring.health import Health
from erelong.monitoring.tracing import make_tracing
from erelong.monitoring.watchdog import Watchdog
from erelong.service.services import Services
from erelong.stores.registry import make_store
from erelong.telemetry.log import get_logger
from erelong.telemetry.metrics import Metrics
from erelong.web.auth import KeyGate
from erelong.web.fd_limit import LoopExceptionHandler, fit_to_fd_limit
from erelong.web.listener import listen, refuse_open_listener
from erelong.web.process import handle_signals, run_loop, stop_requested
from erelong.web.reload import AuthReload
from erelong.web.router import Router
from erelong.web.server import Server

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from erelong.clock.instants import Now
    from erelong.errors import Exit
    from erelong.handlers.kinds import Kinds
    from erelong.monitoring.tracing import Tracing
    from erelong.settings.sections import Config
    from erelong.stores.base import Store

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
        watchdog: Watchdog | None = None,
        tracing: Tracing | None = None,
    ) -> None:
        self.config = config
        self.store = store
        self.kinds = kinds
        self.metrics = metrics or Metrics()
        tick = asyncio.get_running_loop().time
        self.engine = Engine(
            store=store, kinds=kinds, config=config, lifecycle=Lifecycle(), metrics=self.metrics, now=now, tick=tick
        )
        self.services = Services(engine=self.engine)
        self.health = Health(services=self.services, watchdog=watchdog)
        path = config.store.path if config.store.kind == "sqlite" else None
        self.gauges = Gauges(services=self.services, metrics=self.metrics, path=path)
        self.gate = KeyGate(services=self.services, config=config, tick=tick)
        face = make_face(
            services=self.services,
            config=config,
            gate=self.gate,
            health=self.health,
            gauges=self.gauges,
            metrics=self.metrics,
            now=now,
        )
        self.router = Router(faces=[face], metrics=self.metrics, wrapper=tracing)
        self._open = AsyncExitStack()

    async def start(self) -> None:
        """Open and start everything. If a step fails, close everything that is open."""
        async with AsyncExitStack() as opened:
            await self.store.open()
            opened.push_async_callback(self.store.close)
            await self.kinds.open()
            opened.push_async_callback(self.kinds.close)
            await self.engine.start()
            self._open = opened.pop_all()

    async def stop(self, *, can_store: bool = True) -> None:
        await self.engine.stop(can_store=can_store)
        await self._open.aclose()


def serve(config: Config, folders: Sequence[Path], config_factory: Callable[[], Config]) -> int:
    """Run the service until a signal stops it, and return 0. Raise the `Exit` of a store that ends first.

    `config_factory` reads the settings again.
    """
    refuse_open_listener(config)
    config = fit_to_fd_limit(config)
    tracing = make_tracing(os.environ)
    kinds = make_kinds(config, folders=folders)
    try:
        reason = run_loop(_serve(config, config_factory, kinds, tracing), config.server.loop)
    finally:
        if tracing is not None:
            tracing.close()
    if reason is not None:
        raise reason
    return 0


async def _serve(
    config: Config, config_factory: Callable[[], Config], kinds: Kinds, tracing: Tracing | None
) -> Exit | None:
    metrics, hangup = Metrics(), Signal()
    stopping = handle_signals(hangup)
    asyncio.get_running_loop().set_exception_handler(LoopExceptionHandler())
    with listen(
        config.server.host, config.server.port
    ) as listener:  # first: this may fail, and nothing has started yet
        async with Watchdog(limit=config.log.watchdog, metrics=metrics) as watchdog:
            node = Node(
                config=config,
                store=make_store(config.store, metrics.commits),
                kinds=kinds if tracing is None else tracing.wrap(kinds),
                metrics=metrics,
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
        ended = await stop_requested(stopping, node.store)
        log.info("draining", timeout=0.0 if ended else node.config.server.drain_timeout)
        await node.engine.stop(can_store=ended is None)
        return ended
    finally:
        await server.close()
