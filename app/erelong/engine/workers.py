"""The bounded pool: runs each attempt under its timeout, stops those that take too long, reports what came of it."""

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
    from erelong.telemetry.metrics import Metrics

TURNS_BEFORE_YIELD = 200
MAX_WAKING = 32  # at once, for the loop's sake
RELEASE_GRACE = 0.4

_KILL = Stop.KILL  # no deadline here, as it is sure to end what it runs by itself

_MAKE_ENDING = partial(tuple.__new__, Ending)

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
    """Runs at most `concurrency` attempts at once; jobs that were started wait in line until a worker takes them.

    `room` is set when an attempt is over.
    """

    def __init__(
        self,
        *,
        lanes: Lanes,
        completer: Completer,
        kinds: Kinds,
        config: WorkersSection,
        max_result: int,
        room: Signal,
        metrics: Metrics,
        now: Now,
    ) -> None:
        self._lanes = lanes
        self._completer = completer
        self._kinds = kinds
        self._config = config
        self._max_result = max_result
        self._room = room
        self._metrics = metrics
        self._now = now
        self._loop = asyncio.get_running_loop()
        self._line: deque[tuple[Job, Slot]] = deque()
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

    # life

    def release_line(self) -> int:
        """Release the jobs that no worker has taken yet; return their number."""
        released = len(self._line)
        while self._line:
            self._refuse(*self._line.popleft(), Reason.DRAIN)
        return released

    async def drain(self, timeout: float) -> int:
        """Give running attempts `timeout` seconds, release the rest; return their number."""
        self._is_stopping = True
        self._settle()
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._is_still.wait()
        released = len(self._busy)
        await self._release_all()
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
        return len(self._lost) + self._kinds.abandoned

    # the crew

    @property
    def free(self) -> int:
        return self._config.concurrency - len(self._busy) - len(self._line)

    def start(self, claimed: Iterable[tuple[Job, Slot]]) -> None:
        """Run these jobs, each as soon as a worker takes it."""
        self._line.extend(claimed)
        self._to_wake = 1  # no-ops that are due together need one worker, attempts that wait one each
        self._wake_some()

    def stop(self, seq: int, reason: Reason) -> None:
        """Stop a running attempt as its kind allows; a job that is still in line never begins."""
        worker = self._busy.get(seq)
        if worker is not None and worker.job is not None:
            kind = self._kinds[worker.job.kind]
            if kind.stop is not Stop.NONE:
                self._stop_attempt(worker, reason)
            return
        for entry in [entry for entry in self._line if entry[0].seq == seq]:
            self._line.remove(entry)
            self._refuse(*entry, reason)

    def _refuse(self, job: Job, slot: Slot, reason: Reason) -> None:
        self._end(job, slot, stopped(reason, job))

    # from the line to a worker

    def _look_on(self) -> None:
        """If there is still something to do, the attempts of those that were woken take their time."""
        self._will_look_on = False
        if self._line:
            self._to_wake = min(2 * self._to_wake, MAX_WAKING)
            self._wake_some()

    def _wake_some(self) -> None:
        line = self._line
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
        line, busy, turns = self._line, self._busy, 0
        self._note_awake(worker)
        while True:
            if not line:
                await self._rest(worker)
                turns = 0
                continue
            job, slot = line.popleft()
            kind = self._kinds[job.kind]
            assert kind.runner is not None  # jobs of pull kinds are leased
            self._begin(worker, job, slot, kind.stop)
            try:
                outcome = succeeded(await kind.runner.run(job), self._max_result)
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
        self._completer.add(*ended)  # before anything that could raise, or their jobs would be running for ever
        slots, self._slots = self._slots, []
        self._lanes.release(*slots)
        for (kind, end), seconds in self._lasted.items():
            self._metrics.ended.values[kind, end] += len(seconds)
            self._metrics.duration.note(kind, *seconds)
        self._lasted.clear()
        self._room.set()
        if self._is_stopping and not (self._busy or self._line):
            self._is_still.set()

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
        kind = self._kinds[worker.job.kind]
        worker.deadline = self._loop.time() + (math.inf if kind.stop is _KILL else self._config.grace)
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
