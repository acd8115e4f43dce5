"""The bounded pool: takes due jobs, runs each attempt under its timeout, reports its outcome."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING

from app.attempts import Reason, attempt_of, raised, stopped, succeeded, unknown_kind
from app.errors import Problem
from app.handlers.base import Stop
from app.job import SECOND
from app.log import current_attempt, get_logger
from app.reports import fields_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from app.agenda import Agenda
    from app.clock import Instant, Now
    from app.config import WorkersSection
    from app.handlers.base import Handler
    from app.job import Job
    from app.lane import Slot
    from app.lanes import Lanes
    from app.metrics import Metrics
    from app.outcome import Outcome
    from app.outcomes import Outcomes
    from app.stores.base import Claim, Store

MAX_CLAIM = 200
TURNS_BEFORE_YIELD = 200
MAX_WAKING = 8
STORE_PAUSE = 0.5
RELEASE_GRACE = 0.4

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

    def begin(self, job: Job, slot: Slot, deadline: float) -> None:
        self.job, self.slot, self.deadline, self.reason = job, slot, deadline, None
        self.began_at = monotonic()  # the loop's own time stands still while a handler keeps the loop


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
        on_change: Callable[[Job], None],
    ) -> None:
        self._store = store
        self._lanes = lanes
        self._agenda = agenda
        self._outcomes = outcomes
        self._handlers = handlers
        self._config = config
        self._max_result = max_result
        self._metrics = metrics
        self._now = now
        self._on_change = on_change
        self._todo: deque[tuple[Job, Slot]] = deque()
        self._idle: list[Worker] = []
        self._busy: dict[int, Worker] = {}
        self._claiming: frozenset[int] = frozenset()
        self._unwanted: set[int] = set()  # of those that are being claimed
        self._lost: set[Worker] = set()
        self._workers: set[Worker] = set()
        self._waking = 0  # workers that were told that there is something to do and have not looked yet (`is_waking`)
        self._ready = asyncio.Event()
        self._is_still = asyncio.Event()
        self._is_stopping = False
        self._look: asyncio.TimerHandle | None = None
        self._thaw: asyncio.TimerHandle | None = None

    # life

    async def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._lanes.on_ready = self._outcomes.on_room = self._ready.set
        self._ready.set()
        self._feeder = self._loop.create_task(self._feed())

    async def stop(self, drain_timeout: float) -> int:
        """Begin nothing more, let what runs run on for a while, release the rest; how many comes back."""
        self._is_stopping = True
        released = len(self._todo)
        while self._todo:
            job, slot = self._todo.popleft()
            self._end(job, slot, stopped(Reason.DRAIN, job))
        self._check_still()
        with suppress(TimeoutError):
            async with asyncio.timeout(drain_timeout):
                await self._is_still.wait()
        released += len(self._busy)
        await self._release_all()
        tasks = [self._feeder, *(worker.task for worker in self._workers)]
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks, timeout=RELEASE_GRACE)
        for timer in (self._look, self._thaw):
            if timer:
                timer.cancel()
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
            handler = self._handlers.get(worker.job.kind)
            if handler is not None and handler.stop is not Stop.NONE:
                self._stop_attempt(worker, Reason.CANCEL)
        elif seq in self._claiming:
            self._unwanted.add(seq)
        else:
            for job, slot in [entry for entry in self._todo if entry[0].seq == seq]:
                self._todo.remove((job, slot))
                self._end(job, slot, stopped(Reason.CANCEL, job))

    # from the lanes to a worker

    async def _feed(self) -> None:
        while True:
            await self._ready.wait()
            self._ready.clear()
            try:
                while not self._is_stopping and (limit := min(self._free(), MAX_CLAIM)) > 0:
                    slots = self._lanes.take(limit)
                    if not slots:
                        break
                    await self._claim(slots)
            except Exception as error:
                self._metrics.laps_failed.values["feed",] += 1
                if isinstance(error, Problem):
                    log.warning("claim_failed", problem=error.code, detail=error.detail)
                else:
                    log.error("feed_failed", exc_info=error)
                await asyncio.sleep(STORE_PAUSE)
                self._ready.set()
            self._arm_thaw()

    async def _claim(self, slots: list[Slot]) -> None:
        now = self._now()
        self._claiming, self._unwanted = frozenset([slot.seq for slot in slots]), set()
        try:
            claim = await self._store.claim([slot.seq for slot in slots], now=now)
        except BaseException:
            self._claiming = frozenset()
            self._put_back(slots, now + round(STORE_PAUSE * SECOND))
            raise
        self._claiming = frozenset()
        self._dispatch(claim, slots)

    def _put_back(self, slots: list[Slot], due_at: Instant) -> None:
        """Let the scheduler look again at what could not be claimed."""
        self._agenda.extend([(due_at, slot.seq) for slot in slots])
        for slot in slots:
            self._lanes.release(slot)
        self._check_still()

    def _dispatch(self, claim: Claim, slots: list[Slot]) -> None:
        taken = {job.seq: job for job in claim.jobs}
        for slot in slots:
            job = taken.pop(slot.seq, None)
            if job is None:
                self._lanes.release(slot)
                continue
            self._note_claim(job)
            if job.seq in self._unwanted:
                self._end(job, slot, stopped(Reason.CANCEL, job))
            elif self._is_stopping:
                self._end(job, slot, stopped(Reason.DRAIN, job))
            else:
                self._todo.append((job, slot))
        if claim.early:
            self._agenda.extend(claim.early)
        for job in claim.spoiled:
            self._metrics.finished.values[job.kind, job.state.word] += 1
            self._on_change(job)
        self._wake_some()
        self._check_still()

    def _note_claim(self, job: Job) -> None:
        self._metrics.started.values[job.kind,] += 1
        late_by = job.late_by or 0.0
        self._metrics.late.note(job.kind, late_by)
        self._lanes.note_start(job.queue, late_by)
        self._on_change(job)

    def _wake_some(self) -> None:
        """Have a few workers on their way; each that finds more to do sees to the next, so no-ops need few."""
        for _ in range(min(MAX_WAKING - self._waking, len(self._todo))):
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

    def _free(self) -> int:
        if self._outcomes.is_full:
            return 0
        return self._config.concurrency - len(self._busy) - len(self._todo) - len(self._claiming)

    def _arm_thaw(self) -> None:
        """Come back when a queue's rate allows its next job; late by a millisecond, since timers may be early."""
        if self._thaw is not None:
            self._thaw.cancel()
            self._thaw = None
        wait = self._lanes.token_in()
        if wait is not None:
            self._thaw = self._loop.call_later(wait + 0.001, self._lanes.wake)

    # a worker's life

    async def _work(self, worker: Worker) -> None:
        turns = 0
        self._note_awake(worker)
        while True:
            if not self._todo:
                worker.wake = self._loop.create_future()
                self._idle.append(worker)
                await worker.wake
                self._note_awake(worker)
                turns = 0
                continue
            job, slot = self._todo.popleft()
            if self._todo and self._waking < MAX_WAKING:
                self._wake_some()
            await self._run(worker, job, slot)
            if worker.is_lost or worker.task.cancelling():
                return
            turns += 1
            if turns % TURNS_BEFORE_YIELD == 0:
                await asyncio.sleep(0)

    def _note_awake(self, worker: Worker) -> None:
        worker.is_waking = False
        self._waking -= 1

    def _retire(self, worker: Worker, _: object) -> None:
        """A worker's task has ended: it was lost, or cancelled, also while idle, by what a handler left behind."""
        self._workers.discard(worker)
        self._idle = [other for other in self._idle if other is not worker]
        self._waking -= worker.is_waking
        self._wake_some()

    async def _run(self, worker: Worker, job: Job, slot: Slot) -> None:
        handler = self._handlers.get(job.kind)
        worker.begin(job, slot, self._deadline(handler, job.timeout))
        self._busy[job.seq] = worker
        if self._look is None or worker.deadline < self._look.when():
            self._arm_look(worker.deadline)
        outcome = await self._attempt(worker, job, handler)
        if worker.reason is not None:
            worker.task.uncancel()
        if not worker.is_lost:
            self._leave(worker)
            self._end(job, slot, outcome, monotonic() - worker.began_at)

    async def _attempt(self, worker: Worker, job: Job, handler: Handler | None) -> Outcome:
        """Run the handler; whatever it does, an outcome comes back."""
        try:
            if handler is None:
                return unknown_kind(job.kind)
            attempt = attempt_of(job)
            current_attempt.set(attempt)
            outcome = succeeded(await handler.run(job.params, attempt), self._max_result)
        except BaseException as error:  # SystemExit in a task would end the loop
            if isinstance(error, GeneratorExit) and asyncio.current_task(self._loop) is not worker.task:
                raise  # nobody raised it: the coroutine is being thrown away
            outcome = raised(error)
        current_attempt.set(None)
        return outcome if worker.reason is None else stopped(worker.reason, job)

    def _leave(self, worker: Worker) -> tuple[Job, Slot]:
        """Take a worker off the attempt that it is at."""
        job, slot = worker.job, worker.slot
        assert job is not None
        assert slot is not None
        del self._busy[job.seq]
        worker.job = worker.slot = None
        return job, slot

    def _end(self, job: Job, slot: Slot, outcome: Outcome, seconds: float = 0.0) -> None:
        """The attempt is over: its slot is free at once, its outcome goes to the disk with others."""
        now = self._now()
        self._metrics.ended.values[job.kind, outcome.end] += 1
        self._metrics.duration.note(job.kind, seconds)
        self._outcomes.add(job, outcome, now)
        self._lanes.release(slot)
        self._ready.set()
        self._check_still()

    # stopping attempts

    def _deadline(self, handler: Handler | None, seconds: float) -> float:
        """When to step in; never for a handler that is sure to end what it runs by itself."""
        return math.inf if handler is not None and handler.stop is Stop.KILL else self._loop.time() + seconds

    def _arm_look(self, at: float) -> None:
        if self._look is not None:
            self._look.cancel()
        self._look = self._loop.call_at(at, self._look_at_deadlines) if at < math.inf else None

    def _look_at_deadlines(self) -> None:
        """One timer for all: stop what is over its time, give up on what does not stop, sleep until the next."""
        self._look = None
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
        worker.deadline = self._deadline(self._handlers.get(worker.job.kind), self._config.grace)
        worker.task.cancel()
        if self._look is None or worker.deadline < self._look.when():
            self._arm_look(worker.deadline)

    def _abandon(self, worker: Worker) -> None:
        """End an attempt whose handler does not: its task runs on, counted, and its place is taken by another."""
        assert worker.reason is not None
        job, slot = self._leave(worker)
        log.warning("attempt_abandoned", **fields_of(job), reason=worker.reason)
        worker.is_lost = True
        self._workers.discard(worker)
        self._lost.add(worker)
        worker.task.add_done_callback(lambda _: self._lost.discard(worker))
        self._end(job, slot, stopped(worker.reason, job), monotonic() - worker.began_at)

    def _check_still(self) -> None:
        if self._is_stopping and not (self._busy or self._todo or self._claiming):
            self._is_still.set()
