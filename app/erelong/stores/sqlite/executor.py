"""The threads of the embedded store: one transaction per group of calls, and recovery from failures."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING, TypeVar

import apsw

from erelong.errors import Exit, Problem, StoreFailed, StoreUnavailable
from erelong.stores.group_thread import Call, GroupThread, in_runs, run_as_one
from erelong.stores.sqlite.checkpoint import Checkpointer
from erelong.stores.sqlite.failures import RESTORE, FailureKind, as_exit, as_problem, described, diagnose
from erelong.telemetry.log import get_logger

if TYPE_CHECKING:
    from collections.abc import Sequence

    from erelong.stores.sqlite.counters import Counters
    from erelong.stores.sqlite.database import DatabaseFile
    from erelong.stores.sqlite.transactions import Writes
    from erelong.telemetry.metrics import GroupTimer

FAILURE_WINDOW = 60.0  # seconds; a second disk failure within them ends the store

CHECK_DISK = "check the disk and the kernel's log (dmesg), then start again"

T = TypeVar("T")

log = get_logger(__name__)


class Reading:
    """The work of a reader thread, which has none between groups."""

    def __init__(self, *, threads: SqliteThreads, lock: threading.Lock) -> None:
        self._threads = threads
        self._lock = lock

    def run(self, group: Sequence[Call]) -> None:
        self._threads.read(self._lock, group)

    def rest(self) -> None:
        return None


class SqliteThreads:
    """One writer with group commit, and two readers.

    On a full disk the reserve is spent and submits are refused; other calls still work. After a disk failure the writer
    reopens the database and reads from the ledger whether the failed transaction took effect, so every caller gets a
    definite answer. On a damaged page only the calls that need it fail.
    """

    def __init__(
        self, *, file: DatabaseFile, counters: Counters, writes: Writes, timer: GroupTimer | None, timeout: float
    ) -> None:
        self._file = file
        self._counters = counters
        self._writes = writes
        self.checkpointer = Checkpointer(file=file, counters=counters)
        self._quick_lock, self._slow_lock = threading.Lock(), threading.Lock()
        quick, slow = (Reading(threads=self, lock=lock) for lock in (self._quick_lock, self._slow_lock))
        self.writer = GroupThread(name="store-writer", work=self, timer=timer, timeout=timeout)
        self.reader = GroupThread(name="store-reader", work=quick, timeout=timeout)
        self.lister = GroupThread(name="store-lister", work=slow, timeout=timeout)
        self._failure: BaseException | None = None
        self._damage: str | None = None
        self._failed_at = -FAILURE_WINDOW
        self._exit: Exit | None = None
        self._is_running = False

    # lifecycle

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[Exit] = self._loop.create_future()
        self.checkpointer.attach()
        for thread in (self.writer, self.reader, self.lister):
            thread.start()
        self._is_running = True

    async def stop(self) -> None:
        """Finish the pending calls and checkpoint the write-ahead log."""
        for thread in (self.writer, self.reader, self.lister):
            await thread.stop()
        if self._is_running:
            self._is_running = False
            await asyncio.get_running_loop().run_in_executor(None, self._checkpoint)

    def _checkpoint(self) -> None:
        try:
            if self._exit is None and self._failure is None:
                self.checkpointer.end()
        except (apsw.Error, OSError) as error:
            log.warning("checkpoint_postponed", problem=described(error))

    async def end(self) -> Exit:
        """Wait for a failure that the store cannot recover from."""
        return await asyncio.shield(self._ended)

    def status(self) -> str | None:
        if self._exit is not None:
            return f"ended: {self._exit}"
        for thread in (self.writer, self.reader, self.lister):
            if (problem := thread.status()) is not None:
                return problem
        if self._failure is not None:
            return f"failed: {described(self._failure)}; it is being reopened"
        if self._damage is not None:
            return f"damaged: {self._damage}; stop the service and {RESTORE}"
        if self._file.reserve.is_spent:
            return "ok, but the disk is full: submits are refused until there is room"
        return None

    # groups

    def run(self, group: Sequence[Call]) -> None:
        if self._failure is not None and self._exit is None:
            self._recover(self._failure)
        if self._exit is not None:
            _refuse(group, StoreUnavailable("the store has failed and the service is stopping", exit=self._exit))
            return
        if self._file.reserve.is_spent:
            group = self._without_growing(group)
            if not group:
                return
        try:
            self._transact(group)
        except Exception as error:  # noqa: BLE001 - any error is the answer to these calls
            self._handle_failure(error, group)

    def _transact(self, group: Sequence[Call]) -> None:
        """Run a group in one transaction. A group that writes nothing, such as claims alone, is not a commit."""
        write = self._file.write
        self._counters.begin()
        changes = write.total_changes()
        write.execute("BEGIN IMMEDIATE")
        try:
            if len(group) == 1:
                group[0].run()  # a `Problem` is raised before the first write of its call
            else:
                for calls in in_runs(group):
                    run_as_one(calls)
            has_written = write.total_changes() > changes
            if has_written:
                self._counters.write(write)
            write.execute("COMMIT")
        except BaseException:
            self._counters.undo()
            if write.in_transaction:
                write.execute("ROLLBACK")
            raise
        self._counters.settle(has_written=has_written)
        if has_written:
            self.checkpointer.committed()

    def read(self, lock: threading.Lock, group: Sequence[Call]) -> None:
        """Run the reads of a group; fail them while the database is being reopened."""
        with lock:
            if len(group) == 1 and not group[0].future.done():
                runs = [group]
            else:  # for the other calls nobody waits: on a disk that hangs, reads would pile up
                runs = in_runs([call for call in group if not call.future.done()])
            for calls in runs:
                if self._exit is not None or self._failure is not None:
                    problem = StoreUnavailable("the store is being reopened after the disk failed", exit=self._exit)
                    _refuse(calls, problem)
                    continue
                try:
                    if len(calls) == 1:
                        calls[0].run()
                    else:
                        run_as_one(calls)
                except Exception as error:  # noqa: BLE001 - any error is the answer to these calls
                    self._read_each(error, calls)

    def rest(self) -> float | None:
        if self._exit is not None:
            return None
        try:
            if self._failure is not None:
                self._recover(self._failure)
            return self.checkpointer.run()
        except Exception as error:  # noqa: BLE001 - no caller waits for this work
            return self._rest_failed(error)

    # failures

    def _handle_failure(self, error: Exception, group: Sequence[Call]) -> None:
        match diagnose(error):
            case FailureKind.FULL if self._spend_reserve(error):
                self.run(group)
            case FailureKind.DISK:
                self._settle_by_ledger(error, group)
            case FailureKind.DAMAGE | FailureKind.OTHER if len(group) > 1:
                middle = len(group) // 2  # one bad call must not fail the others: halve the group until it is alone
                self.run(group[:middle])
                self.run(group[middle:])
            case FailureKind.DAMAGE:
                self._note_damage(error, group[0])
                if not group[0].run_halves(self.run):
                    _refuse(group, as_problem(error))
            case _:
                _refuse(group, as_problem(error))

    def _spend_reserve(self, error: BaseException) -> bool:
        if not self._file.reserve.spend():
            return False
        log.error("storage_full", problem=described(error), effect="submits are refused until there is room")
        return True

    def _without_growing(self, group: Sequence[Call]) -> Sequence[Call]:
        for call in group:
            if call.function in self._writes.growing:
                call.error = as_problem(apsw.FullError())
        return [call for call in group if call.function not in self._writes.growing]

    def _settle_by_ledger(self, error: BaseException, group: Sequence[Call]) -> None:
        """Reopen after a disk failure in a commit. The group is done if the ledger has counted its commit."""
        expected = self._counters.commits + 1
        self._recover(error)
        if self._exit is not None or self._counters.commits < expected:
            _refuse(group, as_problem(error))

    def _recover(self, error: BaseException) -> None:
        """Close and reopen the database; give up on a second failure within a minute."""
        self._failure = error
        log.error("store_io_error", problem=described(error))
        now = time.monotonic()
        with self._quick_lock, self._slow_lock:
            try:
                if now - self._failed_at < FAILURE_WINDOW:
                    raise StoreFailed(f"the disk failed twice in a minute: {described(error)}; {CHECK_DISK}")
                self._file.reopen()
                self._reload()
            except Exception as second:  # noqa: BLE001 - after any error nothing can be stored
                self._give_up(as_exit(second, self._file.path))
                return
        self._failed_at = now
        self._failure = None
        log.warning("store_reopened", seconds=round(time.monotonic() - now, 3))

    def _reload(self) -> None:
        self._counters.load(self._file.write, last_seq=self._counters.last_seq)
        self._counters.running.renew()
        self.checkpointer.begin()
        self.checkpointer.attach()

    def _give_up(self, exit: Exit) -> None:
        self._exit = exit
        log.error("store_ended", problem=str(exit), code=exit.code)
        self._loop.call_soon_threadsafe(self._tell_end, exit)

    def _tell_end(self, exit: Exit) -> None:
        if not self._ended.done():
            self._ended.set_result(exit)

    def _read_each(self, error: Exception, calls: Sequence[Call]) -> None:
        """Handle the failure of a read, after reads that ran as one are repeated one by one."""
        if len(calls) > 1:
            self._read_parts(calls)
        else:
            self._read_failed(error, calls[0])

    def _read_failed(self, error: Exception, call: Call) -> None:
        match diagnose(error):
            case FailureKind.DISK:
                if self._failure is None:
                    self._failure = error
                    self.writer.wake()
            case FailureKind.DAMAGE:
                self._note_damage(error, call)
                if call.run_halves(self._read_parts):
                    return
        call.error = as_problem(error)

    def _read_parts(self, calls: Sequence[Call]) -> None:
        for call in calls:
            try:
                call.run()
            except Exception as error:  # noqa: BLE001 - as above
                self._read_failed(error, call)

    def _rest_failed(self, error: Exception) -> float | None:
        match diagnose(error):
            case FailureKind.FULL:
                if not self._spend_reserve(error):
                    log.warning("upkeep_postponed", problem=described(error))
            case FailureKind.DISK:
                self._recover(error)
            case FailureKind.DAMAGE:
                self._note_damage(error, None)
            case _:
                log.error("upkeep_failed", exc_info=error)
        return 1.0

    def note_damage(self, error: BaseException) -> None:
        """Report damage that a listing could skip."""
        self._note_damage(error, None, "list")

    def _note_damage(self, error: BaseException, call: Call | None, at: str = "checkpoint") -> None:
        self._damage = described(error)
        jobs: list[int] = []
        if call is not None and call.split is not None:
            jobs = [getattr(item, "seq", item) for item in call.arguments[0]]
        if len(jobs) < 2:  # a larger call is split, and reported for each job
            work = call.function.__name__.strip("_") if call else at
            log.error("store_corrupt", problem=self._damage, file=self._file.path, at=work, jobs=jobs, remedy=RESTORE)


def _refuse(group: Sequence[Call], problem: Problem) -> None:
    for call in group:
        call.error = problem
