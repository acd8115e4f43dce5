"""The bounded worker pool: runs each attempt under its timeout, stops late ones, passes outcomes on."""

from __future__ import annotations

import asyncio
import math
from collections import defaultdict, deque
from contextlib import suppress
from contextvars import Context
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING

from erelong.engine.job_log import fields_of
from erelong.engine.verdicts import raised, stopped, succeeded
from erelong.errors import StoreUnavailable
from erelong.handlers.base import Stop
from erelong.lanes.crew import Reason
from erelong.stores.base import Ending
from erelong.telemetry.log import current_job, get_logger

if TYPE_CHECKING:
    from collections.abc import Iterable

    from erelong.clock.instants import Now
    from erelong.duties.signal import Signal
    from erelong.engine.completer import Completer
    from erelong.handlers.kinds import Kinds
    from erelong.lanes.lane import Slot
    from erelong.lanes.lanes import Lanes
    from erelong.model.job import Job
    from erelong.model.outcome import End, Outcome
    from erelong.settings.sections import WorkersSection
    from erelong.stores.base import Store
    from erelong.telemetry.metrics import Metrics

TURNS_BEFORE_YIELD = 200
MAX_WAKING = 32  # at once, to keep the loop responsive
RELEASE_GRACE = 0.4

_KILL = Stop.KILL  # no deadline here: its runner enforces the timeout

_MAKE_ENDING = partial(tuple.__new__, Ending)

log = get_logger(__name__)


class Worker:
    """One permit of the pool: a task that runs attempts one after another."""

    __slots__ = ("began_at", "deadline", "is_abandoned", "is_waking", "job", "reason", "slot", "task", "wake")

    def __init__(self) -> None:
        self.task: asyncio.Task[None]
        self.wake: asyncio.Future[None] | None = None
        self.is_waking = True
        self.job: Job | None = None
        self.slot: Slot | None = None
        self.began_at = self.deadline = 0.0
        self.reason: Reason | None = None
        self.is_abandoned = False


class Workers:
    """Runs at most `concurrency` attempts at once. Claimed jobs are pending until a worker takes them.

    `room` is set when an attempt is over.
    """

    def __init__(
        self,
        *,
        store: Store,
        lanes: Lanes,
        completer: Completer,
        kinds: Kinds,
        config: WorkersSection,
        max_result: int,
        room: Signal,
        metrics: Metrics,
        now: Now,
    ) -> None:
        self._store = store
        self._lanes = lanes
        self._completer = completer
        self._kinds = kinds
        self._config = config
        self._max_result = max_result
        self._room = room
        self._metrics = metrics
        self._now = now
        self._loop = asyncio.get_running_loop()
        self._pending: deque[tuple[Job, Slot]] = deque()
        self._idle: list[Worker] = []
        self._busy: dict[int, Worker] = {}
        self._abandoned: set[Worker] = set()
        self._workers: set[Worker] = set()
        self._waking = 0  # woken workers that have not run yet (`is_waking`)
        self._wake_limit = 1
        self._will_wake_more = False  # whether `_wake_more` is scheduled
        # attempts that ended in this turn of the loop
        self._ended: list[Ending] = []
        self._slots: list[Slot] = []
        self._durations: defaultdict[tuple[str, End], list[float]] = defaultdict(list)
        self._is_idle = asyncio.Event()
        self._is_stopping = False
        self._timer: asyncio.TimerHandle | None = None
        self._next_deadline = math.inf

    # life

    def release_pending(self) -> int:
        """Release the pending jobs; return their number."""
        released = len(self._pending)
        while self._pending:
            self._refuse(*self._pending.popleft(), Reason.DRAIN)
        return released

    async def drain(self, timeout: float) -> int:
        """Let attempts run for up to `timeout` seconds; release the others, and return how many these were."""
        self._is_stopping = True
        self._settle()
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._is_idle.wait()
        released = len(self._busy)
        await self._release_all()
        tasks = [worker.task for worker in self._workers]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=RELEASE_GRACE)
        self._arm_timer(math.inf)
        return released

    async def _release_all(self) -> None:
        for worker in list(self._busy.values()):
            self._stop_attempt(worker, Reason.DRAIN)
        with suppress(TimeoutError):
            async with asyncio.timeout(RELEASE_GRACE):
                await self._is_idle.wait()
        for worker in list(self._busy.values()):
            self._abandon(worker)

    # queries

    def is_settled(self) -> bool:
        return not (self._busy or self._pending or self._ended)

    def running_jobs(self) -> list[Job]:
        """Return the jobs whose attempts run or are about to."""
        return [worker.job for worker in self._busy.values() if worker.job] + [job for job, _ in self._pending]

    @property
    def running(self) -> int:
        return len(self._busy)

    @property
    def abandoned(self) -> int:
        return len(self._abandoned) + self._kinds.abandoned

    def has(self, seq: int) -> bool:
        """Return whether a claimed job runs, or waits for its worker."""
        return seq in self._busy or any(job.seq == seq for job, _ in self._pending)

    # the crew

    @property
    def free(self) -> int:
        return self._config.concurrency - len(self._busy) - len(self._pending)

    def start(self, claimed: Iterable[tuple[Job, Slot]]) -> None:
        """Run these jobs, each as soon as a worker takes it."""
        self._pending.extend(claimed)
        self._wake_limit = 1  # one worker suffices for no-ops due together; attempts that wait need one each
        self._wake_some()

    def stop(self, seq: int, reason: Reason) -> None:
        """Stop a running attempt as its kind allows; a pending job never starts."""
        worker = self._busy.get(seq)
        if worker is not None and worker.job is not None:
            kind = self._kinds[worker.job.kind]
            if kind.stop is not Stop.NONE:
                self._stop_attempt(worker, reason)
            return
        for entry in [entry for entry in self._pending if entry[0].seq == seq]:
            self._pending.remove(entry)
            self._refuse(*entry, reason)

    def _refuse(self, job: Job, slot: Slot, reason: Reason) -> None:
        self._end(job, slot, stopped(reason, job))

    # from pending to a worker

    def _wake_more(self) -> None:
        """Wake twice as many workers if jobs are still pending: the attempts of the woken ones are slow."""
        self._will_wake_more = False
        if self._pending and self._store.is_trusted:
            self._wake_limit = min(2 * self._wake_limit, MAX_WAKING)
            self._wake_some()

    def _wake_some(self) -> None:
        pending = self._pending
        for _ in range(min(self._wake_limit - self._waking, len(pending))):
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
        if len(pending) > self._waking and not self._will_wake_more:
            self._will_wake_more = True
            self._loop.call_soon(self._wake_more)  # after the woken workers

    # a worker's life

    async def _work(self, worker: Worker) -> None:
        """Run one attempt after another. Every attempt gets an outcome, whatever its handler does."""
        pending, busy, store, turns = self._pending, self._busy, self._store, 0
        self._note_awake(worker)
        while True:
            if not pending:
                await self._rest(worker)
                turns = 0
                continue
            if not store.is_trusted:
                await self._trust()
                continue
            job, slot = pending.popleft()
            kind = self._kinds[job.kind]
            assert kind.runner is not None  # jobs of pull kinds are leased
            self._begin(worker, job, slot, kind.stop)
            try:
                outcome = succeeded(await kind.runner.run(job), self._max_result)
            except BaseException as error:  # SystemExit in a task would end the loop
                if isinstance(error, GeneratorExit) and asyncio.current_task(self._loop) is not worker.task:
                    raise  # not from the handler: the coroutine is being closed
                outcome = raised(error)
            if worker.reason is not None:
                outcome = stopped(worker.reason, job)
                worker.task.uncancel()
            if not worker.is_abandoned:
                del busy[job.seq]
                self._end(job, slot, outcome, monotonic() - worker.began_at)
            del job, slot, outcome  # an idle worker must not keep the params and the result of its last job
            if worker.is_abandoned or worker.task.cancelling():
                return
            turns += 1
            if turns % TURNS_BEFORE_YIELD == 0:
                await asyncio.sleep(0)

    async def _trust(self) -> None:
        """Wait until the store is trusted again. Release the pending jobs if another node may have taken over."""
        try:
            await self._store.trust()
        except StoreUnavailable:
            self.release_pending()
        else:
            self._wake_some()

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
        """Remove a worker whose task has ended: abandoned, or cancelled by code that a handler left running."""
        self._workers.discard(worker)
        self._idle = [other for other in self._idle if other is not worker]
        self._waking -= worker.is_waking
        self._wake_some()

    def _begin(self, worker: Worker, job: Job, slot: Slot, stop: Stop) -> None:
        worker.job, worker.slot, worker.reason = job, slot, None
        worker.began_at = monotonic()  # the loop time does not advance while a handler blocks the loop
        worker.deadline = self._loop.time() + (math.inf if stop is _KILL else job.timeout)
        self._busy[job.seq] = worker
        if worker.deadline < self._next_deadline:
            self._arm_timer(worker.deadline)
        current_job.set(job)

    def _end(self, job: Job, slot: Slot, outcome: Outcome, seconds: float = 0.0) -> None:
        """Record the end of an attempt; all that end in one turn of the loop are settled together."""
        if not self._ended:
            self._loop.call_soon(self._settle, context=Context())  # without a current job
        self._ended.append(_MAKE_ENDING((job, outcome, self._now(), 0.0)))
        self._slots.append(slot)
        self._durations[job.kind, outcome.end].append(seconds)

    def _settle(self) -> None:
        """Pass on the outcomes of ended attempts and release their slots."""
        ended, self._ended = self._ended, []
        self._completer.add(*ended)  # first: an exception before it would leave their jobs running
        slots, self._slots = self._slots, []
        self._lanes.release(*slots)
        for (kind, end), seconds in self._durations.items():
            self._metrics.ended.values[kind, end] += len(seconds)
            self._metrics.duration.note(kind, *seconds)
        self._durations.clear()
        self._room.set()
        if self._is_stopping and not (self._busy or self._pending):
            self._is_idle.set()

    # stopping attempts

    def _arm_timer(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._next_deadline = at
        context = Context()  # without a current job
        self._timer = self._loop.call_at(at, self._check_deadlines, context=context) if at < math.inf else None

    def _check_deadlines(self) -> None:
        """Stop attempts past their deadline, abandon those that did not stop, and set the timer for the next."""
        self._timer, self._next_deadline = None, math.inf
        tick = self._loop.time()
        for worker in list(self._busy.values()):
            if worker.deadline > tick + 0.0005:  # uvloop timers fire up to half a millisecond early
                continue
            if worker.reason is None:
                self._stop_attempt(worker, Reason.TIMEOUT)
            else:
                self._abandon(worker)
        if self._busy:
            self._arm_timer(min(worker.deadline for worker in self._busy.values()))

    def _stop_attempt(self, worker: Worker, reason: Reason) -> None:
        if worker.reason is not None or worker.job is None:
            return
        worker.reason = reason
        kind = self._kinds[worker.job.kind]
        worker.deadline = self._loop.time() + (math.inf if kind.stop is _KILL else self._config.grace)
        worker.task.cancel()
        if worker.deadline < self._next_deadline:
            self._arm_timer(worker.deadline)

    def _abandon(self, worker: Worker) -> None:
        """End an attempt whose handler does not stop. Its task runs on and is counted; another worker replaces it."""
        job, slot, reason = worker.job, worker.slot, worker.reason
        assert job is not None
        assert slot is not None
        assert reason is not None
        log.warning("attempt_abandoned", **fields_of(job), reason=reason)
        worker.is_abandoned = True
        self._workers.discard(worker)
        self._abandoned.add(worker)
        worker.task.add_done_callback(lambda _: self._abandoned.discard(worker))
        del self._busy[job.seq]
        self._end(job, slot, stopped(reason, job), monotonic() - worker.began_at)
