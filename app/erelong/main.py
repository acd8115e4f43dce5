"""The only place that builds things: settings → parts → start in order → stop in reverse."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import socket
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from yarl import URL

from erelong.api.routes import make_router
from erelong.clock import instants as clock
from erelong.clock.timer import Alarm
from erelong.duties.duty import Duty
from erelong.duties.waiters import Places, Watchers
from erelong.engine.agenda import Agenda
from erelong.engine.completer import FLUSH_TIME, Outcomes
from erelong.engine.maintenance import AgendaTidying, IdempotencyRecords, IdleQueues, Retention
from erelong.engine.reconciler import DoubtedStore, Doubts
from erelong.engine.recovery import Recovery
from erelong.engine.scheduler import Scheduler
from erelong.engine.workers import Workers
from erelong.errors import Exit, StoreFailed, StoreUnavailable
from erelong.handlers.registry import make_handlers
from erelong.lanes.backlog import Backlog
from erelong.lanes.lanes import Lanes
from erelong.lanes.pollers import Askers
from erelong.model.job import Job
from erelong.model.outcome import End, Outcome
from erelong.monitoring.gauges import Readings
from erelong.monitoring.health import Health
from erelong.monitoring.tracing import make_tracing
from erelong.monitoring.watchdog import Watchdog
from erelong.service.factory import Drafts
from erelong.service.jobs import Service
from erelong.service.leases import Leases
from erelong.service.queues import Queues
from erelong.stores.base import Ending
from erelong.stores.registry import make_store
from erelong.telemetry.log import get_logger
from erelong.telemetry.metrics import Metrics
from erelong.web.fd_limit import Complaints, fitted
from erelong.web.listener import listen, refuse_open_door
from erelong.web.server import Connections

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from erelong.handlers.base import Handler
    from erelong.monitoring.tracing import Tracing
    from erelong.settings.sections import Config
    from erelong.stores.base import Store
    from erelong.web.router import Router

GC_THRESHOLDS = (50_000, 10, 10)  # jobs in flight are young: looked at every 700 objects they cost 5 % of the CPU

STRAY_GRACE = 0.1  # what follows drain_timeout adds up to less than a second, most of it the workers' RELEASE_GRACE

log = get_logger(__name__)


class Parts:
    """Everything that makes up a running service, wired together; `start` and `stop` are its life."""

    def __init__(
        self,
        *,
        config: Config,
        store: Store,
        handlers: Mapping[str, Handler],
        metrics: Metrics | None = None,
        now: clock.Now = clock.now,
    ) -> None:
        self.config = config
        self.handlers = handlers
        self.metrics = metrics or Metrics()
        self.doubts = Doubts(
            store=store,
            metrics=self.metrics,
            on_begun=lambda job: self.outcomes.add(Ending(job, Outcome(End.RELEASED), now())),
            on_look=self._look_again,
            on_override=lambda queue: self.queues.read_anew(queue),
        )
        self.store: Store = DoubtedStore(store=store, doubts=self.doubts)
        self._now = now
        self._pull_kinds = frozenset(name for name, handler in handlers.items() if handler.type == "pull")
        self._build_core()
        self._build_engine()
        self._build_doors()
        self._build_duties()
        self._build_views()
        self.router = self._build_router()
        self._open = AsyncExitStack()

    def _build_core(self) -> None:
        """What holds jobs: when and which."""
        self.alarm = Alarm(now=self._now)
        self.agenda = Agenda(on_earlier=self.alarm.ring)
        self.lanes = Lanes(
            config=self.config.queues,
            aging=self.config.jobs.aging,
            tick=asyncio.get_running_loop().time,
            pull_kinds=self._pull_kinds,
        )
        self.askers = Askers(lanes=self.lanes, pull_kinds=self._pull_kinds, tick=asyncio.get_running_loop().time)
        self.places = Places(self.config.server.max_waiters)
        self.watchers = Watchers(places=self.places)
        self.backlog = Backlog(
            store=self.store,
            lanes=self.lanes,
            places=self.places,
            kinds=self.handlers,
            now=self._now,
            on_drop=lambda *change: self.service.changed(*change),
        )

    def _build_engine(self) -> None:
        """What moves jobs: from the agenda to a worker, and what came of it to the disk."""
        self.outcomes = Outcomes(
            store=self.store,
            agenda=self.agenda,
            max_unsaved=self.config.workers.max_unsaved,
            metrics=self.metrics,
            now=self._now,
            on_change=self._on_change,
        )
        self.workers = Workers(
            store=self.store,
            lanes=self.lanes,
            agenda=self.agenda,
            outcomes=self.outcomes,
            handlers=self.handlers,
            config=self.config.workers,
            max_result=self.config.server.max_result,
            metrics=self.metrics,
            now=self._now,
            on_change=self._on_change,
        )
        self.scheduler = Scheduler(
            agenda=self.agenda,
            store=self.store,
            lanes=self.lanes,
            alarm=self.alarm,
            metrics=self.metrics,
            now=self._now,
            on_change=self._on_change,
        )
        self.recovery = Recovery(
            store=self.store,
            agenda=self.agenda,
            lanes=self.lanes,
            metrics=self.metrics,
            now=self._now,
            on_change=self._on_change,
        )

    def _build_doors(self) -> None:
        """What can be asked."""
        self.drafts = Drafts(lanes=self.lanes, handlers=self.handlers, config=self.config)
        self.service = Service(
            store=self.store,
            agenda=self.agenda,
            lanes=self.lanes,
            workers=self.workers,
            backlog=self.backlog,
            watchers=self.watchers,
            drafts=self.drafts,
            metrics=self.metrics,
            now=self._now,
        )
        self.leases = Leases(
            store=self.store,
            lanes=self.lanes,
            agenda=self.agenda,
            outcomes=self.outcomes,
            places=self.places,
            askers=self.askers,
            pull_kinds=self._pull_kinds,
            metrics=self.metrics,
            now=self._now,
            changed=self.service.changed,
            on_change=self._on_change,
        )
        self.queues = Queues(
            store=self.store,
            agenda=self.agenda,
            lanes=self.lanes,
            config=self.config.queues,
            now=self._now,
            on_cancel=self.service.changed,
            on_set=self.backlog.left,
        )

    def _build_duties(self) -> None:
        """What runs by itself."""
        interval = self.config.store.retention_interval
        self.retention = Retention(
            store=self.store, lanes=self.lanes, metrics=self.metrics, now=self._now, interval=interval
        )
        self.records = IdempotencyRecords(store=self.store, now=self._now, interval=interval)
        self.tidying = AgendaTidying(store=self.store, agenda=self.agenda, now=self._now, interval=interval)
        works = (
            *(self.scheduler, self.outcomes, self.doubts, self.leases, self.recovery),
            *(self.retention, self.records, self.tidying, IdleQueues(lanes=self.lanes, interval=interval)),
        )
        self._duties = [Duty(work=work, metrics=self.metrics) for work in works]
        self.duties = {duty.name: duty for duty in (*self._duties, self.workers.duty)}
        self.asides = {
            part.name: part.aside
            for part in (self.scheduler, self.outcomes, self.doubts, self.leases, self.recovery, self.retention)
        } | {self.workers.duty.name: self.workers.aside}

    def _build_views(self) -> None:
        """What operators see of all this."""
        self.health = Health(
            service=self.service,
            scheduler=self.scheduler,
            agenda=self.agenda,
            outcomes=self.outcomes,
            store=self.store,
            duties=self.duties,
            asides=self.asides,
            commits=self.metrics.commits,
            tick=asyncio.get_running_loop().time,
            now=self._now,
        )
        self.readings = Readings(
            metrics=self.metrics,
            store=self.store,
            agenda=self.agenda,
            lanes=self.lanes,
            workers=self.workers,
            leases=self.leases,
            askers=self.askers,
            backlog=self.backlog,
            outcomes=self.outcomes,
            watchers=self.watchers,
            queues=self.queues,
            path=self.config.store.path if self.config.store.kind == "sqlite" else None,
            now=self._now,
        )

    def _build_router(self) -> Router:
        return make_router(
            service=self.service,
            drafts=self.drafts,
            queues=self.queues,
            leases=self.leases,
            handlers=self.handlers,
            config=self.config,
            metrics=self.metrics,
            checks=self.health.checks,
            now=self._now,
            tick=asyncio.get_running_loop().time,
        )

    async def start(self) -> None:
        """Open, load, run; what fails half-way closes what it has opened."""
        async with AsyncExitStack() as opened:
            await self.store.open()
            opened.push_async_callback(self.store.close)
            for handler in self.handlers.values():
                await handler.open()
                opened.push_async_callback(handler.close)
            waiting = await self._load()
            await self.workers.start()
            self._open = opened.pop_all()
        for duty in self._duties:
            duty.start()
        self.health.is_started = True
        log.info("ready", waiting=waiting, kinds=",".join(self.handlers))

    async def _load(self) -> int:
        """Take over what is stored; how many instants wait."""
        try:
            await self.doubts.load()
            await self.queues.load()
            await self.leases.load()
            await self.recovery.load()
            return await self.scheduler.load()
        except StoreUnavailable as problem:
            raise problem.exit or StoreFailed(problem.detail) from problem

    async def stop(self) -> None:
        """Take nothing new, let what runs run on for `drain_timeout`, release the rest, close what was opened."""
        await self.finish()
        await self._open.aclose()

    async def finish(self, *, can_store: bool = True) -> None:
        """The work of `stop` without the closing: until that, what is stored can be read. No store, no waiting."""
        if not self.health.is_started:
            return
        self.health.is_started = False
        self.drain()
        released = await self.workers.stop(self.config.server.drain_timeout if can_store else 0.0)
        unsaved = await self.outcomes.flush(FLUSH_TIME if can_store else 0.0)
        await asyncio.gather(*(duty.stop() for duty in self._duties))
        self.alarm.close()
        log.info("stopped", released=released, unsaved=unsaved)

    def drain(self) -> None:
        self.service.drain()
        self.leases.drain()

    def _on_change(self, *jobs: Job) -> None:
        if self.watchers:
            self.watchers.tell(*[job.seq for job in jobs])
        if self.backlog:
            for queue in {job.queue for job in jobs}:
                self.backlog.left(queue)

    def _look_again(self, queue: str, seq: int, job: Job | None) -> None:
        """A write failed, and this is what the store has of the job: it may have been done all the same."""
        self.lanes.discard(queue, seq)
        if job is not None and (wakes_at := job.wakes_at) is not None:
            self.agenda.add(wakes_at, seq)
        self.leases.look(seq, job)
        self.watchers.tell(seq)
        self.backlog.left(queue)


def serve(config: Config, folders: Sequence[Path]) -> int:
    """Run the service until it is told to stop, or its store ends; what comes back is the exit code."""
    refuse_open_door(config)
    config = fitted(config)
    tracing = make_tracing(os.environ)
    handlers = make_handlers(config, folders=folders)
    with asyncio.Runner(loop_factory=_loop_factory(config.server.loop)) as runner:
        code = runner.run(_serve(config, handlers, tracing))
        strays = runner.run(end_strays(STRAY_GRACE))
        if tracing is not None:
            tracing.close()
        if strays:
            log.warning("left_behind", tasks=strays)
            logging.shutdown()
            os._exit(code)  # what swallows its cancellation would keep the loop, and so the process, for ever
    return code


async def _serve(config: Config, handlers: Mapping[str, Handler], tracing: Tracing | None) -> int:
    stopping = asyncio.Event()
    _heed_signals(stopping)
    asyncio.get_running_loop().set_exception_handler(Complaints())
    with listen(config.server.host, config.server.port) as door:  # before anything is started that this may fail
        metrics = Metrics()
        store = make_store(config.store, metrics.commits)
        traced = handlers if tracing is None else tracing.wrap(handlers)
        parts = Parts(config=config, store=store, handlers=traced, metrics=metrics)
        if tracing is not None:
            parts.router.around = tracing.trace
        async with Watchdog(limit=config.log.watchdog, metrics=metrics) as watchdog:
            parts.health.loop = watchdog.state
            await parts.start()
            try:
                return await _answer(parts, door, stopping)
            finally:
                await parts.stop()


async def _answer(parts: Parts, door: socket.socket, stopping: asyncio.Event) -> int:
    """Answer requests until the end; reads go on while what runs is let run on."""
    connections = Connections(limits=parts.config.server, metrics=parts.metrics)
    await connections.open(parts.router, door)
    try:
        host, port = door.getsockname()[:2]
        log.info("listening", url=str(URL.build(scheme="http", host=host, port=port)), process=os.getpid())
        gc.collect()
        gc.freeze()
        gc.set_threshold(*GC_THRESHOLDS)
        ended = await until_told(stopping, parts.store)
        log.info("draining", timeout=0.0 if ended else parts.config.server.drain_timeout)
        await parts.finish(can_store=ended is None)
        return ended.code if ended else 0
    finally:
        await connections.close()


async def until_told(stopping: asyncio.Event, store: Store) -> Exit | None:
    """Wait for a signal, or for the store to end: why it did."""
    end_of_store = asyncio.ensure_future(store.end())
    end_of_store.add_done_callback(lambda _: stopping.set())
    await stopping.wait()
    return None if end_of_store.cancel() else end_of_store.result()


def _heed_signals(stopping: asyncio.Event) -> None:
    """The first signal drains, the second leaves at once."""

    def heed(number: int) -> None:
        if stopping.is_set():
            os._exit(128 + number)
        stopping.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, heed, number)


def _loop_factory(name: str) -> Callable[[], asyncio.AbstractEventLoop] | None:
    if name != "uvloop":
        return None
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


async def end_strays(grace: float) -> int:
    """Cancel what still runs on this loop, abandoned attempts and what handlers began; how many do not end."""
    strays = asyncio.all_tasks() - {asyncio.current_task()}
    for task in strays:
        task.cancel()
    return len((await asyncio.wait(strays, timeout=grace))[1]) if strays else 0
