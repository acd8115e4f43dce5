"""The duty that carries out operations: one at a time, in slices that leave most of the store to others."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from erelong.duties.duty import SetAside
from erelong.duties.signal import Signal
from erelong.engine.operations.search import count_page
from erelong.errors import DocumentChanged, StoreUnavailable
from erelong.model.operations.operation import Operation, Phase
from erelong.telemetry.log import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable

    from erelong.clock.instants import Instant, Now, Tick
    from erelong.duties.lifecycle import Lifecycle
    from erelong.duties.waiters import Waiters
    from erelong.engine.changes import Changes
    from erelong.engine.operations.backfill import Backfill
    from erelong.engine.operations.book import Book
    from erelong.engine.operations.slices import Slices
    from erelong.model.submission import IdempotencyRecord
    from erelong.stores.base import Store
    from erelong.telemetry.metrics import Metrics

SHORTEST_REST: Final = 0.005  # seconds after each slice
REST_FACTOR: Final = 2.0  # times the duration of the slice
SWEEP_INTERVAL: Final = 3_600.0

log = get_logger(__name__)


class Counted(NamedTuple):
    """How far the count of an operation has come. It begins again after a restart."""

    id: str
    below: int
    jobs: int


class Operations:
    """Carries out the oldest operation that is not over. Its document is read again before each slice."""

    name = "operations"

    def __init__(
        self,
        *,
        store: Store,
        book: Book,
        slices: Slices,
        changes: Changes,
        backfill: Backfill,
        waiters: Waiters,
        lifecycle: Lifecycle,
        metrics: Metrics,
        now: Now,
        tick: Tick,
    ) -> None:
        """`tick` paces the slices, in real time."""
        self.book = book
        self.aside: SetAside[str] = SetAside(name=self.name, metrics=metrics)
        self._store = store
        self._slices = slices
        self._changes = changes
        self._backfill = backfill
        self._topic = waiters.operations
        self._lifecycle = lifecycle
        self._metrics = metrics
        self._now = now
        self._tick = tick
        self._wake = Signal()
        self._is_loaded = False
        self._counted: Counted | None = None
        self._rest = 0.0  # seconds before the next lap
        self._editing = asyncio.Lock()

    def next_at(self) -> Instant | None:
        """Return None: operations wait for no instant."""
        return None

    def is_settled(self) -> bool:
        """Return whether every operation is over."""
        return self._is_loaded and self.book.next_live is None

    @property
    def live(self) -> int:
        """How many operations are not over."""
        return sum(not entry.state.is_over for entry in self.book.entries.values())

    # the duty

    async def ready(self) -> None:
        """Rest after a slice; without an operation, wait for one."""
        rest, self._rest = self._rest, 0.0
        if rest:
            await asyncio.sleep(rest)
        while self._lifecycle.is_draining or (self._is_loaded and self.book.next_live is None):
            with suppress(TimeoutError):
                async with asyncio.timeout(SWEEP_INTERVAL):
                    await self._wake.wait()
                    continue
            return

    async def lap(self) -> None:
        """Take the next step of the current operation."""
        await self.load()
        if self._lifecycle.is_draining:
            return
        id = self.book.next_live
        if id is None:
            async with self._editing:
                await self.book.forget_old(self._now())
            return
        began_at = self._tick()
        with suppress(DocumentChanged):  # cancelled meanwhile: read it again
            await self._take_step(id)
        took = self._tick() - began_at
        self._rest = max(self._rest - took, REST_FACTOR * took, SHORTEST_REST)

    async def load(self) -> None:
        """Read the stored operations, once."""
        async with self._editing:
            if not self._is_loaded:
                await self.book.load()
                self._is_loaded = True

    async def _take_step(self, id: str) -> None:
        operation = await self.book.read(id)
        if operation is None or operation.state.is_over:  # damaged, or written by a call that seemed to fail
            async with self._editing:
                await self.book.load()
            self._topic.wake((id,))
            return
        match operation.state:
            case Phase.WAITING:
                await self._write(operation.begin(self._now()))
            case Phase.COUNTING if operation.matches is not None:  # a backfill
                await self._write(operation.counted(operation.matches, self._now()))
            case Phase.COUNTING:
                await self._count(operation)
            case _:
                taker = self._slices if operation.request.range is None else self._backfill
                after = await taker.take(operation)
                self.book.written(after)
                self._rest = (after.done - operation.done) / operation.request.rate
                self._report(operation, after)

    async def _count(self, operation: Operation) -> None:
        """Count one page of the jobs that match; stop at the first beyond `at_most`."""
        conditions, at_most = operation.request.conditions(), operation.request.at_most
        counted = self._counted
        if counted is None or counted.id != operation.id:
            counted = Counted(operation.id, operation.cursor, 0)
        more, below = await count_page(self._store, conditions, counted.below)
        counted = Counted(operation.id, below, counted.jobs + more)
        self._counted = counted
        if not counted.below or (at_most is not None and counted.jobs > at_most):
            self._counted = None
            await self._write(operation.counted(counted.jobs, self._now()))

    async def _write(self, operation: Operation) -> None:
        await self.book.write(operation, self._now())
        self._report(None, operation)

    def _report(self, before: Operation | None, after: Operation) -> None:
        """Log and count what a step has done, and answer requests that wait for the end."""
        action, counts = after.request.action, self._metrics.operation_jobs.values
        if before is not None:
            counts[action, "done"] += after.done - before.done
            counts[action, "failed"] += after.failed - before.failed
        if after.state.is_over:
            counts[action, "skipped"] += after.skipped
            log.info(
                "operation_finished",
                operation=after.id,
                action=action,
                state=after.state,
                matches=after.matches,
                done=after.done,
                skipped=after.skipped,
                failed=after.failed,
                by=after.request.by,
            )
            self._topic.wake((after.id,))
            self._changes.operation_finished(after)

    # edits

    async def add(self, make: Callable[[str], Operation], record: IdempotencyRecord | None) -> Operation | None:
        """Store a new operation; return None if the record is of an earlier request. At most 100 may wait."""
        await self.load()
        async with self._editing:
            now = self._now()
            if record is not None and await self._store.find_replay(record, now=now) is not None:
                return None
            self.book.refuse_many()
            await self.book.forget_old(now)
            operation = make(self.book.make_id(now))
            try:
                if not await self.book.write(operation, now, record):
                    return None
            except StoreUnavailable:
                self._is_loaded = False  # it may be stored nevertheless
                self._wake.set()
                raise
        self._wake.set()
        return operation

    async def cancel(self, id: str) -> tuple[Operation | None, bool]:
        """End an operation before its next slice; return it, and whether this call has ended it."""
        while True:
            operation = await self.book.read(id)
            if operation is None or operation.state.is_over:
                return operation, False
            with suppress(DocumentChanged):  # by a slice
                await self._write(operation.finish(Phase.CANCELLED, self._now()))
                return await self.book.read(id), True
