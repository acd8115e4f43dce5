"""Builds the parts that move jobs, starts them in order and stops them in reverse."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any

from erelong.clock.system import Clock, SystemClock
from erelong.clock.zones import ZoneSource
from erelong.duties.duty import Duty, SetAside
from erelong.duties.lifecycle import Lifecycle, Phase
from erelong.duties.signal import Signal
from erelong.duties.waiters import Waiters
from erelong.engine.agenda import Agenda
from erelong.engine.callbacks import Callbacks
from erelong.engine.changes import Changes
from erelong.engine.claimer import Claimer
from erelong.engine.completer import FLUSH_TIME, Completer
from erelong.engine.dispatcher import Dispatcher
from erelong.engine.events.ring import EventRing
from erelong.engine.leases import HeldLeases
from erelong.engine.maintenance import AgendaTidying, IdempotencyRecords, IdleQueues, Retention
from erelong.engine.overrides import Overrides
from erelong.engine.reconciler import Reconciler
from erelong.engine.recovery import Recovery
from erelong.engine.scheduler import Scheduler
from erelong.engine.unknown_writes import EngineStore, UnknownWrites
from erelong.engine.window.handover import Handover
from erelong.engine.window.overdue import Overdue
from erelong.engine.window.refill import Refill
from erelong.engine.workers import Workers
from erelong.engine.zone_changes import ZoneChanges
from erelong.errors import StoreFailed, StoreUnavailable
from erelong.lanes.backlog import Backlog
from erelong.lanes.lanes import Lanes
from erelong.lanes.pollers import Pollers
from erelong.model.job import State
from erelong.settings.defaults import Defaults
from erelong.telemetry.log import get_logger
from erelong.telemetry.notes import Notes

if TYPE_CHECKING:
    from erelong.clock.instants import Now, Tick
    from erelong.clock.remote import RemoteClock
    from erelong.clock.virtual import VirtualClock
    from erelong.duties.duty import Settling, TimedWork, TimeSource, Work
    from erelong.handlers.kinds import Kinds
    from erelong.settings.sections import Config
    from erelong.stores.base import Store
    from erelong.telemetry.metrics import Metrics

BOUNDLESS = 10_000 * 365 * 86_400.0  # seconds: a virtual clock leaps to the next job, however far it is
MISSING_KIND = "its jobs wait: declare the kind in [kinds] and restart, or cancel them"

log = get_logger(__name__)


class Engine:
    """All parts below the services. The store and the kinds are opened before it and closed after it."""

    def __init__(
        self,
        *,
        store: Store,
        kinds: Kinds,
        config: Config,
        lifecycle: Lifecycle,
        metrics: Metrics,
        now: Now,
        tick: Tick,
        virtual: VirtualClock | None = None,
        remote: RemoteClock | None = None,
        zone_source: ZoneSource | None = None,
    ) -> None:
        """Run on the clock of the machine, given as `now` and `tick`, on a remote wall clock, or on a virtual one.

        Timeouts and pauses after a failure take `tick` in any case.
        """
        self.config = config
        self.zone_source = zone_source or ZoneSource()
        self.kinds = kinds
        self.metrics = metrics
        self.lifecycle = lifecycle
        self.clock: Clock = virtual or SystemClock(now=now, tick=tick, remote=remote)
        self.now, self.tick = self.clock.now, tick
        self.is_virtual = virtual is not None
        self.started_at = self.now()
        self.notes = Notes(now=self.now)
        self._build_lanes()
        self._build_store(store)
        self._build_movers(store)
        self._build_window()
        self._build_settlers()
        self._build_zones()
        self._build_duties()

    def _build_lanes(self) -> None:
        """Build the parts that hold due times, due jobs and waiting requests."""
        self.timer = self.clock.make_timer()
        self._refill, self._overdue = Signal(), Signal()
        self.agenda = Agenda(earlier=self.timer, low=self._refill, limit=self.config.jobs.window_jobs)
        self.rechecks = Agenda(earlier=self.timer)
        self.waiters = Waiters(limit=self.config.limits.max_waiters, lifecycle=self.lifecycle)
        self.pollers = Pollers(waiters=self.waiters, tick=self.tick)
        self.events = EventRing(max_events=self.config.limits.max_events, now=self.now)
        self._ready = Signal()
        self.lanes = Lanes(
            config=self.config.queues,
            aging=self.config.jobs.aging,
            kinds=self.kinds,
            pollers=self.pollers,
            ready=self._ready,
            low=self._overdue,
            tick=self.clock.tick,
        )
        self.changes = Changes(
            agenda=self.agenda,
            rechecks=self.rechecks,
            lanes=self.lanes,
            waiters=self.waiters,
            events=self.events,
            metrics=self.metrics,
            now=self.now,
        )

    def _build_store(self, store: Store) -> None:
        """Build the store through which everything is read and written."""
        self._unknown_writes = UnknownWrites()
        callbacks = Callbacks(lanes=self.lanes, defaults=Defaults(config=self.config, kinds=self.kinds), now=self.now)
        self.store = EngineStore(
            store=store, unknown_writes=self._unknown_writes, callbacks=callbacks, changes=self.changes
        )
        self.backlog = Backlog(store=self.store, lanes=self.lanes)

    def _build_movers(self, store: Store) -> None:
        """Build the parts that run jobs and save their outcomes."""  # hot: `self.store` would add a call per attempt
        self.completer = Completer(
            store=self.store,
            changes=self.changes,
            max_unsaved=self.config.workers.max_unsaved,
            room=self._ready,
            metrics=self.metrics,
            now=self.now,
        )
        self.workers = Workers(
            store=store,
            lanes=self.lanes,
            completer=self.completer,
            kinds=self.kinds,
            config=self.config.workers,
            max_result=self.config.limits.max_result,
            room=self._ready,
            metrics=self.metrics,
            now=self.now,
        )
        self._build_claims()

    def _build_claims(self) -> None:
        """Build the parts that claim jobs for internal and for pull workers."""
        self.claimer = Claimer(
            store=self.store,
            rechecks=self.rechecks,
            lanes=self.lanes,
            changes=self.changes,
            metrics=self.metrics,
            now=self.now,
        )
        self.dispatcher = Dispatcher(
            lanes=self.lanes,
            claimer=self.claimer,
            crew=self.workers,
            completer=self.completer,
            changes=self.changes,
            ready=self._ready,
            lifecycle=self.lifecycle,
            clock=self.clock,
        )
        self.leases = HeldLeases(
            store=self.store,
            lanes=self.lanes,
            changes=self.changes,
            kinds=self.kinds,
            metrics=self.metrics,
            clock=self.clock,
        )

    def _build_window(self) -> None:
        """Build the parts that bring jobs from the store to their lanes on time."""
        store, agenda, rechecks, jobs = self.store, self.agenda, self.rechecks, self.config.jobs
        handover = Handover(
            store=store,
            lanes=self.lanes,
            agenda=agenda,
            rechecks=rechecks,
            changes=self.changes,
            metrics=self.metrics,
            now=self.now,
        )
        self.scheduler = Scheduler(
            agenda=agenda,
            rechecks=rechecks,
            handover=handover,
            timer=self.timer,
            refill=self._refill,
            metrics=self.metrics,
            notes=self.notes,
            now=self.now,
        )
        self.overdue = Overdue(
            store=store, agenda=agenda, lanes=self.lanes, handover=handover, wanted=self._overdue, now=self.now
        )
        self.refill = Refill(
            store=store,
            agenda=agenda,
            overdue=self.overdue,
            wanted=self._refill,
            window=BOUNDLESS if self.is_virtual else jobs.window,
            max_entries=jobs.window_jobs,
            now=self.now,
        )

    def _build_settlers(self) -> None:
        """Build the parts that settle jobs after a stop or a failed write."""
        store, changes, metrics, now = self.store, self.changes, self.metrics, self.now
        self.overrides = Overrides(store=store, rechecks=self.rechecks, lanes=self.lanes, changes=changes, now=now)
        self.recovery = Recovery(store=store, changes=changes, kinds=self.kinds, metrics=metrics, now=now)
        self.reconciler = Reconciler(
            store=store,
            unknown_writes=self._unknown_writes,
            completer=self.completer,
            changes=changes,
            leases=self.leases,
            overrides=self.overrides,
            metrics=metrics,
            now=now,
        )

    def _build_zones(self) -> None:
        """Build the part that moves jobs when time-zone rules change."""
        self.zone_changes = ZoneChanges(
            source=self.zone_source, store=self.store, changes=self.changes, metrics=self.metrics, now=self.now
        )

    def _build_duties(self) -> None:
        """Build the background duties."""
        store, metrics, now = self.store, self.metrics, self.now
        interval = self.config.store.retention_interval
        self.retention = Retention(
            store=store, lanes=self.lanes, changes=self.changes, metrics=metrics, now=now, interval=interval
        )
        self.records = IdempotencyRecords(store=store, now=now, interval=interval)
        self.tidying = AgendaTidying(
            store=store,
            agenda=self.agenda,
            rechecks=self.rechecks,
            max_entries=self.config.jobs.window_jobs,
            now=now,
            interval=interval,
        )
        idle_queues = IdleQueues(lanes=self.lanes, interval=interval)
        works = (
            *(self.scheduler, self.refill, self.overdue, self.dispatcher, self.completer, self.leases),
            *(self.recovery, self.reconciler, self.retention, self.records, self.tidying, idle_queues),
            self.zone_changes,
        )
        self.rested = Signal() if self.is_virtual else None
        self.duties = {work.name: Duty(work=work, metrics=metrics, rested=self.rested) for work in works}
        self.scheduler.is_hurried = self.completer.is_hurried = self.is_virtual
        self.sources: tuple[TimeSource, ...] = (self.leases,)
        self.settling: tuple[Settling, ...] = (
            *(self.scheduler, self.refill, self.overdue, self.dispatcher, self.claimer, self.workers),
            *(self.completer, self.recovery, self.reconciler, self.zone_changes, *self.sources),
        )
        with_asides = (self.scheduler, self.completer, self.leases, self.recovery, self.reconciler, self.retention)
        self.asides: dict[str, SetAside[Any]] = {work.name: work.aside for work in with_asides}
        self.asides[self.zone_changes.name] = self.zone_changes.aside
        self.asides["dispatcher"] = self.claimer.aside

    def enlist(self, work: TimedWork, aside: SetAside[Any]) -> None:
        """Run another duty, which needs parts above the engine."""
        self.duties[work.name] = Duty(work=work, metrics=self.metrics, rested=self.rested)
        self.asides[work.name] = aside
        self.sources += (work,)
        self.settling += (work,)

    def watch(self, work: Work) -> None:
        """Run a duty that only reads, in real time also under a virtual clock."""
        self.duties[work.name] = Duty(work=work, metrics=self.metrics)

    async def start(self) -> None:
        """Load the stored state, then start all duties."""
        try:
            await self.store.load()
            await self.overrides.load()
            await self.leases.load()
            await self.recovery.load()
            await self.refill.load()
        except StoreUnavailable as problem:
            raise problem.exit or StoreFailed(problem.detail) from problem
        for duty in self.duties.values():
            duty.start()
        self.lifecycle.started()
        self.started_at = self.now()
        self.notes.add("started")
        self._report_missing_kinds()
        waiting = sum(jobs for (_, _, state), jobs in self.store.counts().items() if state is State.SCHEDULED)
        log.info("ready", waiting=waiting, kinds=",".join(self.kinds))

    def _report_missing_kinds(self) -> None:
        live: Counter[str] = Counter()
        for (_, kind, state), jobs in dict(self.store.counts()).items():
            if jobs and not state.is_final and kind not in self.kinds:
                live[kind] += jobs
        for kind, jobs in live.items():
            log.warning("kind_missing", kind=kind, jobs=jobs, remedy=MISSING_KIND)

    def drain(self) -> None:
        """Refuse new work, start no more attempts, and answer waiting requests."""
        self.lifecycle.drain()
        self.waiters.release_all()
        self.events.bell.wake_all()

    async def stop(self, *, can_store: bool = True) -> None:
        """Drain, give running attempts `drain_timeout` seconds and release the rest; without a store, do not wait.

        The store can still be read afterwards.
        """
        if self.lifecycle.phase is Phase.STOPPED:
            return
        is_started = self.lifecycle.phase is not Phase.STARTING
        self.drain()
        if not is_started:
            self.lifecycle.stopped()
            return
        timeout = self.config.server.drain_timeout if can_store else 0.0
        until = self.tick() + timeout
        released = self.workers.release_pending()
        await self.dispatcher.idle(timeout)
        released += await self.workers.drain(max(0.0, until - self.tick()))
        unsaved = await self.completer.flush(FLUSH_TIME if can_store else 0.0)
        await asyncio.gather(*(duty.stop() for duty in self.duties.values()))
        self.dispatcher.close()
        self.timer.close()
        self.lifecycle.stopped()
        log.info("stopped", released=released, unsaved=unsaved)
