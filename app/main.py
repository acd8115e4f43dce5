"""The only place that builds things: settings → parts → start in order → stop in reverse."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import socket
from contextlib import AsyncExitStack
from ipaddress import ip_address
from typing import TYPE_CHECKING

from aiohttp import web

from app import clock
from app.agenda import Agenda
from app.alarm import Alarm
from app.api.app import make_app
from app.backlog import Backlog
from app.config import ConfigError
from app.doubts import DoubtedStore, Doubts
from app.errors import Exit, StoreFailed, StoreUnavailable
from app.handlers import make_handlers
from app.job import WORDS, Job
from app.lanes import Lanes
from app.leases import Leases
from app.log import get_logger
from app.metrics import Metrics
from app.outcome import End, Outcome
from app.outcomes import FLUSH_TIME, Outcomes
from app.queues import Queues
from app.scheduler import Scheduler
from app.service import Service
from app.stores import make_store
from app.watchers import Watchers
from app.workers import Workers

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from app.config import Config
    from app.handlers.base import Handler
    from app.stores.base import Store

STRAY_GRACE = 0.25
GC_THRESHOLDS = (10_000, 10, 10)  # jobs in flight are young: looked at every 700 objects they cost 5 % of the CPU

log = get_logger(__name__)


class Parts:
    """Everything that makes up a running service, wired together; `start` and `stop` are its life."""

    def __init__(
        self, *, config: Config, store: Store, handlers: Mapping[str, Handler], now: clock.Now = clock.now
    ) -> None:
        self.config = config
        self.handlers = handlers
        self.metrics = Metrics()
        self.doubts = Doubts(
            store=store,
            metrics=self.metrics,
            on_begun=lambda job: self.outcomes.add(job, Outcome(End.RELEASED), now()),
            on_look=self._look_again,
            on_override=lambda queue, override: self.queues.take_over(queue, override),
        )
        self.store: Store = DoubtedStore(store=store, doubts=self.doubts)
        self._now = now
        self._pull_kinds = frozenset(name for name, handler in handlers.items() if handler.type == "pull")
        self._build_core()
        self._build_engine()
        self._build_doors()
        self.app = self._build_app()
        self._duties: list[asyncio.Task[None]] = []
        self._open = AsyncExitStack()
        self._is_started = False
        self._read_levels()

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
        self.watchers = Watchers(max_watchers=self.config.server.max_waiters)
        self.backlog = Backlog(
            store=self.store,
            lanes=self.lanes,
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

    def _build_doors(self) -> None:
        """What can be asked."""
        self.service = Service(
            store=self.store,
            agenda=self.agenda,
            lanes=self.lanes,
            workers=self.workers,
            backlog=self.backlog,
            watchers=self.watchers,
            handlers=self.handlers,
            config=self.config,
            metrics=self.metrics,
            now=self._now,
        )
        self.leases = Leases(
            store=self.store,
            lanes=self.lanes,
            agenda=self.agenda,
            outcomes=self.outcomes,
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

    def _build_app(self) -> web.Application:
        return make_app(
            service=self.service,
            queues=self.queues,
            leases=self.leases,
            handlers=self.handlers,
            config=self.config,
            metrics=self.metrics,
            checks=self.checks,
            now=self._now,
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
        self._duties = [
            asyncio.create_task(self.outcomes.run()),
            asyncio.create_task(self.doubts.run()),
            asyncio.create_task(self.scheduler.run()),
            asyncio.create_task(self.leases.run()),
            asyncio.create_task(self.scheduler.retain(self.config.store.retention_interval)),
        ]
        self._is_started = True
        log.info("ready", waiting=waiting, kinds=",".join(self.handlers))

    async def _load(self) -> int:
        """Take over what is stored; how many instants wait."""
        try:
            await self.doubts.load()
            await self.queues.load()
            await self.leases.load()
            return await self.scheduler.load()
        except StoreUnavailable as problem:
            raise problem.exit or StoreFailed(problem.detail) from problem

    async def stop(self) -> None:
        """Take nothing new, let what runs run on for `drain_timeout`, release the rest, close what was opened."""
        await self.finish()
        await self._open.aclose()

    async def finish(self, *, can_store: bool = True) -> None:
        """The work of `stop` without the closing: until that, what is stored can be read. No store, no waiting."""
        if not self._is_started:
            return
        self._is_started = False
        self.drain()
        released = await self.workers.stop(self.config.server.drain_timeout if can_store else 0.0)
        unsaved = await self.outcomes.flush(FLUSH_TIME if can_store else 0.0)
        await end(self._duties)
        self.alarm.close()
        log.info("stopped", released=released, unsaved=unsaved)

    def drain(self) -> None:
        self.service.drain()
        self.leases.drain()

    def checks(self) -> dict[str, str]:
        """What `/readyz` shows: each part with "ok" or what ails it."""
        jump = self.scheduler.last_jump
        return {
            "service": "draining" if self.service.is_draining else "ok" if self._is_started else "starting",
            "scheduler": "ok" if all(not duty.done() for duty in self._duties) else "ended",
            "store": self._store_check(),
            "clock": "ok" if jump is None else f"ok, last stepped by {jump:.1f} s",
        }

    def _store_check(self) -> str:
        ailment = self.store.ailment() or "ok"
        is_behind = self.outcomes.is_full and ailment.startswith("ok")
        return f"{len(self.outcomes)} outcomes wait for the disk" if is_behind else ailment

    def _on_change(self, job: Job) -> None:
        self.watchers.tell(job.seq)
        self.backlog.left(job.queue)

    def _look_again(self, queue: str, seq: int, job: Job | None) -> None:
        """A write failed, and this is what the store has of the job: it may have been done all the same."""
        self.lanes.discard(queue, seq)
        if job is not None and (wakes_at := job.wakes_at) is not None:
            self.agenda.add(wakes_at, seq)
        self.leases.look(seq, job)
        self.watchers.tell(seq)
        self.backlog.left(queue)

    def _read_levels(self) -> None:
        self.metrics.pending.read = lambda: {(): len(self.agenda)}
        self.metrics.running.read = lambda: {(): self.workers.running + self.leases.held}
        self.metrics.abandoned.read = lambda: {(): self.workers.abandoned}
        self.metrics.unsaved.read = lambda: {(): len(self.outcomes)}
        self.metrics.due.read = lambda: {(queue,): due for queue, due in self.lanes.all_due().items()}
        self.metrics.jobs.read = self._job_levels

    def _job_levels(self) -> dict[tuple[str, ...], float]:
        levels: dict[tuple[str, ...], float] = {}
        for (queue, _, state), jobs in dict(self.store.counts()).items():
            levels[queue, WORDS[state]] = levels.get((queue, WORDS[state]), 0) + jobs
        return levels


def serve(config: Config, folders: Sequence[Path]) -> int:
    """Run the service until it is told to stop, or its store ends; what comes back is the exit code."""
    refuse_open_door(config)
    handlers = make_handlers(config, folders=folders)
    with asyncio.Runner(loop_factory=_loop_factory(config.server.loop)) as runner:
        code = runner.run(_serve(config, handlers))
        strays = runner.run(end_strays(STRAY_GRACE))
        if strays:
            log.warning("left_behind", tasks=strays)
            logging.shutdown()
            os._exit(code)  # what swallows its cancellation would keep the loop, and so the process, for ever
    return code


async def _serve(config: Config, handlers: Mapping[str, Handler]) -> int:
    stopping = asyncio.Event()
    _heed_signals(stopping)
    with listen(config.server.host, config.server.port) as door:  # before anything is started that this may fail
        parts = Parts(config=config, store=make_store(config.store), handlers=handlers)
        await parts.start()
        try:
            return await _answer(parts, door, stopping)
        finally:
            await parts.stop()


async def _answer(parts: Parts, door: socket.socket, stopping: asyncio.Event) -> int:
    """Answer requests until the end; reads go on while what runs is let run on."""
    runner = web.AppRunner(parts.app, access_log=None, handle_signals=False, shutdown_timeout=1.0)
    await runner.setup()
    try:
        await web.SockSite(runner, door, backlog=1024).start()
        host, port = door.getsockname()[:2]
        log.info("listening", url=f"http://{host}:{port}", process=os.getpid())
        gc.collect()
        gc.freeze()
        gc.set_threshold(*GC_THRESHOLDS)
        ended = await until_told(stopping, parts.store)
        log.info("draining", timeout=0.0 if ended else parts.config.server.drain_timeout)
        await parts.finish(can_store=ended is None)
        return ended.code if ended else 0
    finally:
        await runner.cleanup()


async def until_told(stopping: asyncio.Event, store: Store) -> Exit | None:
    """Wait for a signal, or for the store to end: why it did."""
    end_of_store = asyncio.ensure_future(store.end())
    end_of_store.add_done_callback(lambda _: stopping.set())
    await stopping.wait()
    return None if end_of_store.cancel() else end_of_store.result()


def refuse_open_door(config: Config) -> None:
    """Anybody who reaches the port may do anything, so beyond this machine that must be said out loud."""
    host = config.server.host
    if not is_loopback(host) and not config.auth.allow_anonymous:
        raise ConfigError(
            [
                f"server.host = {host!r} is open to others and there are no keys: listen on 127.0.0.1, or set "
                "[auth] allow_anonymous = true (ERELONG_AUTH__ALLOW_ANONYMOUS=true) if only friends can reach it"
            ]
        )


def is_loopback(host: str) -> bool:
    """A name but localhost is not: it is what the resolver says, and may be another tomorrow."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def listen(host: str, port: int) -> socket.socket:
    """Take the address; nobody is let in before the site is started."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        door = socket.socket(family, kind, protocol)
        try:
            door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            door.bind(address)
        except OSError:
            door.close()
            raise
    except OSError as error:
        raise Exit(f"cannot listen on {host} port {port}: {error.strerror}; name another with --port") from error
    return door


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


async def end(tasks: Sequence[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def end_strays(grace: float) -> int:
    """Cancel what still runs on this loop, abandoned attempts and what handlers began; how many do not end."""
    strays = asyncio.all_tasks() - {asyncio.current_task()}
    for task in strays:
        task.cancel()
    return len((await asyncio.wait(strays, timeout=grace))[1]) if strays else 0
