"""The bounded pool: runs each attempt under its timeout, stops those that take too long, reports what came of it."""

from __future__ import annotations

import asyncio
import math
from collections import defaultdict
from contextlib import suppress
from contextvars import Context
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING

from erelong.duties.duty import Duty
from erelong.engine.dispatcher import Claims
from erelong.engine.job_log import fields_of
from erelong.engine.verdicts import UNKNOWN_KIND, Reason, raised, stopped, succeeded
from erelong.handlers.base import Stop
from erelong.stores.base import Ending
from erelong.telemetry.log import current_job, get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from erelong.clock.instants import Now
    from erelong.engine.agenda import Agenda
    from erelong.engine.completer import Outcomes
    from erelong.handlers.base import Handler
    from erelong.lanes.lane import Slot
    from erelong.lanes.lanes import Lanes
    from erelong.model.job import Job
    from erelong.model.outcome import End, Outcome
    from erelong.settings.sections import WorkersSection
    from erelong.stores.base import Store
    from erelong.telemetry.metrics import Metrics

TURNS_BEFORE_YIELD = 200
MAX_WAKING = 32  # at once, for the loop's sake
RELEASE_GRACE = 0.4

_KILL = Stop.KILL  # no deadline here, as it is sure to end what it runs by itself; by its class it costs 0.05 µs

_MAKE_ENDING = partial(tuple.__new__, Ending)  # a named tuple's own way is a call of Python

log = get_logger(__name__)


class Worker:
    """One permit of the pool: a task that runs attempts one after another."""

    __slots__ = ("began_at", "deadline", "is_lost", "is_waking", "job", "reason", "slot", "task", "wake")

    def __init__(self) -> None:
        self.task: asyncio.Task[None]
        self.wake: asyncio.Future[None] | None = None
        self.is_waking = True
        self.job: Job | None = None
        self.slot: Slot | None = None
        self.began_at = self.deadline = 0.0
        self.reason: Reason | None = None
        self.is_lost = False


class Workers:
    """Runs at most `concurrency` attempts at once. `on_change` hears of every job that was stored differently."""

    def __init__(
        self,
        *,
        store: Store,
        lanes: Lanes,
        agenda: Agenda,
        outcomes: Outcomes,
        handlers: Mapping[str, Handler],
        config: WorkersSection,
        max_result: int,
        metrics: Metrics,
        now: Now,
        on_change: Callable[[*tuple[Job, ...]], None],
    ) -> None:
        self._lanes = lanes
        self._outcomes = outcomes
        self._handlers = handlers
        self._config = config
        self._max_result = max_result
        self._metrics = metrics
        self._now = now
        self._claims = self._make_claims(store, agenda, on_change)
        self.duty = Duty(work=self._claims, metrics=metrics)
        self.aside = self._claims.aside
        self._idle: list[Worker] = []
        self._busy: dict[int, Worker] = {}
        self._lost: set[Worker] = set()
        self._workers: set[Worker] = set()
        self._waking = 0  # workers that were told that there is something to do and have not looked yet (`is_waking`)
        self._to_wake = 1
        self._will_look_on = False  # whether the line is looked at once more when those that were woken have looked
        # of the attempts that are over, until this turn of the loop is
        self._ended: list[Ending] = []
        self._slots: list[Slot] = []
        self._lasted: defaultdict[tuple[str, End], list[float]] = defaultdict(list)
        self._is_still = asyncio.Event()
        self._is_stopping = False
        self._look: asyncio.TimerHandle | None = None
        self._next_look = math.inf

    def _make_claims(self, store: Store, agenda: Agenda, on_change: Callable[[*tuple[Job, ...]], None]) -> Claims:
        return Claims(
            store=store,
            lanes=self._lanes,
            agenda=agenda,
            metrics=self._metrics,
            now=self._now,
            room=self._free,
            on_line=self._on_line,
            on_unwanted=lambda job, slot, reason: self._end(job, slot, stopped(reason, job)),
            on_change=on_change,
        )

    # life

    async def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._outcomes.on_room = self._claims.look
        self.duty.start()

    async def stop(self, drain_timeout: float) -> int:
        """Begin nothing more, let what runs run on for a while, release the rest; how many comes back."""
        self._is_stopping = True
        released = len(self._claims.line)
        self._claims.end()
        self._settle()
        with suppress(TimeoutError):
            async with asyncio.timeout(drain_timeout):
                await self._is_still.wait()
        released += len(self._busy)
        await self._release_all()
        await self.duty.stop()
        tasks = [worker.task for worker in self._workers]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=RELEASE_GRACE)
        self._arm_look(math.inf)
        return released

    async def _release_all(self) -> None:
        for worker in list(self._busy.values()):
            self._stop_attempt(worker, Reason.DRAIN)
        with suppress(TimeoutError):
            async with asyncio.timeout(RELEASE_GRACE):
                await self._is_still.wait()
        for worker in list(self._busy.values()):
            self._abandon(worker)

    # questions

    @property
    def running(self) -> int:
        return len(self._busy)

    @property
    def abandoned(self) -> int:
        return len(self._lost) + sum(handler.abandoned for handler in self._handlers.values())

    @property
    def is_full(self) -> bool:
        return self._free() <= 0

    def cancel(self, seq: int) -> None:
        """Stop a running attempt as its kind allows; one that is claimed but not begun never begins."""
        worker = self._busy.get(seq)
        if worker is not None and worker.job is not None:
            handler = self._handlers.get(worker.job.kind, UNKNOWN_KIND)
            if handler.stop is not Stop.NONE:
                self._stop_attempt(worker, Reason.CANCEL)
        else:
            self._claims.withdraw(seq)

    # from the line to a worker

    def _free(self) -> int:
        if self._outcomes.is_full:
            return 0
        return self._config.concurrency - len(self._busy) - len(self._claims)

    def _on_line(self) -> None:
        self._to_wake = 1  # no-ops that are due together need one worker, attempts that wait one each
        self._wake_some()
        self._check_still()

    def _look_on(self) -> None:
        """If there is still something to do, the attempts of those that were woken take their time."""
        self._will_look_on = False
        if self._claims.line:
            self._to_wake = min(2 * self._to_wake, MAX_WAKING)
            self._wake_some()

    def _wake_some(self) -> None:
        line = self._claims.line
        for _ in range(min(self._to_wake - self._waking, len(line))):
            if self._idle:
                worker = self._idle.pop()
                if worker.wake is not None and not worker.wake.done():
                    worker.wake.set_result(None)
                    worker.is_waking = True
                    self._waking += 1
            elif len(self._workers) < self._config.concurrency:
                worker = Worker()
                self._workers.add(worker)
                worker.task = self._loop.create_task(self._work(worker))
                worker.task.add_done_callback(partial(self._retire, worker))
                self._waking += 1
        if len(line) > self._waking and not self._will_look_on:
            self._will_look_on = True
            self._loop.call_soon(self._look_on)  # behind those that were woken

    # a worker's life

    async def _work(self, worker: Worker) -> None:
        """Run one attempt after another; whatever a handler does, an outcome comes of it."""
        line, busy, turns = self._claims.line, self._busy, 0
        self._note_awake(worker)
        while True:
            if not line:
                await self._rest(worker)
                turns = 0
                continue
            job, slot = line.popleft()
            handler = self._handlers.get(job.kind, UNKNOWN_KIND)
            self._begin(worker, job, slot, handler.stop)
            try:
                outcome = succeeded(await handler.run(job), self._max_result)
            except BaseException as error:  # SystemExit in a task would end the loop
                if isinstance(error, GeneratorExit) and asyncio.current_task(self._loop) is not worker.task:
                    raise  # nobody raised it: the coroutine is being thrown away
                outcome = raised(error)
            if worker.reason is not None:
                outcome = stopped(worker.reason, job)
                worker.task.uncancel()
            if not worker.is_lost:
                del busy[job.seq]
                self._end(job, slot, outcome, monotonic() - worker.began_at)
            del job, slot, outcome  # or an idle worker would keep the params and the result of its last job
            if worker.is_lost or worker.task.cancelling():
                return
            turns += 1
            if turns % TURNS_BEFORE_YIELD == 0:
                await asyncio.sleep(0)

    async def _rest(self, worker: Worker) -> None:
        worker.job = worker.slot = None
        current_job.set(None)
        worker.wake = self._loop.create_future()
        self._idle.append(worker)
        await worker.wake
        self._note_awake(worker)

    def _note_awake(self, worker: Worker) -> None:
        worker.is_waking = False
        self._waking -= 1

    def _retire(self, worker: Worker, _: object) -> None:
        """A worker's task has ended: it was lost, or cancelled, also while idle, by what a handler left behind."""
        self._workers.discard(worker)
        self._idle = [other for other in self._idle if other is not worker]
        self._waking -= worker.is_waking
        self._wake_some()

    def _begin(self, worker: Worker, job: Job, slot: Slot, stop: Stop) -> None:
        worker.job, worker.slot, worker.reason = job, slot, None
        worker.began_at = monotonic()  # the loop's own time stands still while a handler keeps the loop
        worker.deadline = self._loop.time() + (math.inf if stop is _KILL else job.timeout)
        self._busy[job.seq] = worker
        if worker.deadline < self._next_look:
            self._arm_look(worker.deadline)
        current_job.set(job)

    def _end(self, job: Job, slot: Slot, outcome: Outcome, seconds: float = 0.0) -> None:
        """See to an attempt that is over, with all the others that this turn of the loop has ended."""
        if not self._ended:
            self._loop.call_soon(self._settle, context=Context())  # of no job
        self._ended.append(_MAKE_ENDING((job, outcome, self._now(), 0.0)))
        self._slots.append(slot)
        self._lasted[job.kind, outcome.end].append(seconds)

    def _settle(self) -> None:
        """Give back the slots of the attempts that are over, and send their outcomes to the disk."""
        ended, self._ended = self._ended, []
        self._outcomes.add(*ended)  # before anything that could raise, or their jobs would be running for ever
        slots, self._slots = self._slots, []
        self._lanes.release(*slots)
        for (kind, end), seconds in self._lasted.items():
            self._metrics.ended.values[kind, end] += len(seconds)
            self._metrics.duration.note(kind, *seconds)
        self._lasted.clear()
        self._claims.look()
        self._check_still()

    # stopping attempts

    def _arm_look(self, at: float) -> None:
        if self._look is not None:
            self._look.cancel()
        self._next_look = at
        context = Context()  # of no job
        self._look = self._loop.call_at(at, self._look_at_deadlines, context=context) if at < math.inf else None

    def _look_at_deadlines(self) -> None:
        """One timer for all: stop what is over its time, give up on what does not stop, sleep until the next."""
        self._look, self._next_look = None, math.inf
        tick = self._loop.time()
        for worker in list(self._busy.values()):
            if worker.deadline > tick + 0.0005:  # uvloop's timers come up to half a millisecond early
                continue
            if worker.reason is None:
                self._stop_attempt(worker, Reason.TIMEOUT)
            else:
                self._abandon(worker)
        if self._busy:
            self._arm_look(min(worker.deadline for worker in self._busy.values()))

    def _stop_attempt(self, worker: Worker, reason: Reason) -> None:
        if worker.reason is not None or worker.job is None:
            return
        worker.reason = reason
        handler = self._handlers.get(worker.job.kind, UNKNOWN_KIND)
        worker.deadline = self._loop.time() + (math.inf if handler.stop is _KILL else self._config.grace)
        worker.task.cancel()
        if worker.deadline < self._next_look:
            self._arm_look(worker.deadline)

    def _abandon(self, worker: Worker) -> None:
        """End an attempt whose handler does not: its task runs on, counted, and its place is taken by another."""
        job, slot, reason = worker.job, worker.slot, worker.reason
        assert job is not None
        assert slot is not None
        assert reason is not None
        log.warning("attempt_abandoned", **fields_of(job), reason=reason)
        worker.is_lost = True
        self._workers.discard(worker)
        self._lost.add(worker)
        worker.task.add_done_callback(lambda _: self._lost.discard(worker))
        del self._busy[job.seq]
        self._end(job, slot, stopped(reason, job), monotonic() - worker.began_at)

    def _check_still(self) -> None:
        if self._is_stopping and not (self._busy or self._claims):
            self._is_still.set()
