"""The composition root: builds the process of the service from the settings, and runs it until it ends."""

from __future__ import annotations

import asyncio
import gc
import os
from typing import TYPE_CHECKING

from yarl import URL

from erelong.clock.virtual import VirtualClock
from erelong.duties.duty import Duty
from erelong.duties.signal import Signal
from erelong.handlers.registry import make_kinds
from erelong.monitoring.tracing import make_tracing
from erelong.monitoring.watchdog import Watchdog
from erelong.node import Node
from erelong.stores.registry import make_store
from erelong.telemetry.log import get_logger
from erelong.telemetry.metrics import Metrics
from erelong.web.fd_limit import LoopExceptionHandler, fit_to_fd_limit
from erelong.web.listener import listen, refuse_open_listener
from erelong.web.process import handle_signals, led, run_loop, stop_requested
from erelong.web.reload import AuthReload
from erelong.web.server import Server

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from erelong.clock.instants import Instant
    from erelong.errors import Exit
    from erelong.handlers.kinds import Kinds
    from erelong.monitoring.tracing import Tracing
    from erelong.settings.sections import Config

GC_THRESHOLDS = (50_000, 10, 10)  # jobs in flight are young: scanning them at the default thresholds wastes CPU

log = get_logger(__name__)


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
    # The listener comes first: it may fail, and nothing has started yet.
    with listen(config.server.host, config.server.port) as listener:
        async with Watchdog(limit=config.log.watchdog, metrics=metrics) as watchdog:
            node = Node(
                config=config,
                store=make_store(config, metrics.commits, is_virtual=virtual is not None),
                kinds=kinds if tracing is None else tracing.wrap(kinds),
                metrics=metrics,
                virtual=virtual,
                watchdog=watchdog,
                tracing=tracing,
            )
            await node.start()
            work = AuthReload(gate=node.gate, config_factory=config_factory, requested=hangup)
            reload = Duty(work=work, metrics=metrics)
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
        ended = await stop_requested(stopping, node.store) if await led(stopping, node.lead()) else None
        log.info("draining", timeout=0.0 if ended else node.config.server.drain_timeout)
        await node.drain(can_store=ended is None)
        return ended
    finally:
        await server.close()
