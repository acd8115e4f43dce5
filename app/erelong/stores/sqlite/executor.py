"""The threads of the embedded store: groups of calls, a transaction each, and what follows when one fails."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING, TypeVar

import apsw

from erelong.errors import Exit, Problem, StoreFailed, StoreUnavailable
from erelong.stores.group_thread import Call, GroupThread
from erelong.stores.sqlite.checkpoint import Checkpointer
from erelong.stores.sqlite.failures import RESTORE, FailureKind, as_exit, as_problem, described, diagnose
from erelong.telemetry.log import get_logger

if TYPE_CHECKING:
    from collections.abc import Sequence

    from erelong.stores.sqlite.counters import Counters
    from erelong.stores.sqlite.database import DatabaseFile
    from erelong.stores.sqlite.transactions import Writes
    from erelong.telemetry.metrics import GroupTimer

ONE_FAILURE_A = 60.0  # seconds; a second one within them, and the disk is not to be trusted

CHECK_DISK = "check the disk and the kernel's log (dmesg), then start again"

T = TypeVar("T")

log = get_logger(__name__)


class Reading:
    """What the threads that read do; they have nothing to do between groups."""

    def __init__(self, *, threads: SqliteThreads, is_passed: threading.Lock) -> None:
        self._threads = threads
        self._is_passed = is_passed

    def run(self, group: Sequence[Call]) -> None:
        self._threads.read(self._is_passed, group)

    def rest(self) -> None:
        return None


class SqliteThreads:
    """One writer with group commit and two readers beside it.

    A full disk: the reserve is given up, what grows the store is refused, everything else goes on. A disk that fails:
    all is opened anew, in the writer's thread; whether the transaction that met it took effect is read from the
    ledger, so no caller is left with a doubt. A damaged page: whoever needs it is refused, the rest goes on.
    """

    def __init__(
        self, *, file: DatabaseFile, counters: Counters, writes: Writes, timer: GroupTimer | None, timeout: float
    ) -> None:
        self._file = file
        self._counters = counters
        self._writes = writes
        self.checkpointer = Checkpointer(file=file, counters=counters)
        self._quick_pass, self._slow_pass = threading.Lock(), threading.Lock()
        quick, slow = (Reading(threads=self, is_passed=lock) for lock in (self._quick_pass, self._slow_pass))
        self.writer = GroupThread(name="store-writer", work=self, timer=timer, timeout=timeout)
        self.reader = GroupThread(name="store-reader", work=quick, timeout=timeout)
        self.lister = GroupThread(name="store-lister", work=slow, timeout=timeout)
        self._failure: BaseException | None = None
        self._damage: str | None = None
        self._failed_at = -ONE_FAILURE_A
        self._exit: Exit | None = None
        self._is_running = False

    # life

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[Exit] = self._loop.create_future()
        self.checkpointer.attach()
        for thread in (self.writer, self.reader, self.lister):
            thread.start()
        self._is_running = True

    async def stop(self) -> None:
        """Finish what was asked, and leave nothing in the log."""
        for thread in (self.writer, self.reader, self.lister):
            await thread.stop()
        if self._is_running:
            self._is_running = False
            await asyncio.get_running_loop().run_in_executor(None, self._bring_home)

    def _bring_home(self) -> None:
        try:
            if self._exit is None and self._failure is None:
                self.checkpointer.end()
        except (apsw.Error, OSError) as error:
            log.warning("checkpoint_postponed", problem=described(error))

    async def end(self) -> Exit:
        """Wait for what nothing here can mend."""
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
            self._mend(self._failure)
        if self._exit is not None:
            _refuse(group, StoreUnavailable("the store has failed and the service ends", exit=self._exit))
            return
        if self._file.reserve.is_spent:
            group = self._without_growing(group)
            if not group:
                return
        try:
            self._transact(group)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the answer to these calls
            self._meet(error, group)

    def _transact(self, group: Sequence[Call]) -> None:
        """Run a group in one transaction; one that writes nothing, as of claims alone, is no commit."""
        write = self._file.write
        self._counters.begin()
        changes = write.total_changes()
        write.execute("BEGIN IMMEDIATE")
        try:
            for call in group:
                call.run()  # a problem that it raises comes before its first write, and is its answer
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

    def read(self, is_passed: threading.Lock, group: Sequence[Call]) -> None:
        """Answer reads, unless the file is just being reopened."""
        with is_passed:
            for call in group:
                if call.future.done():  # who asked has gone: a disk that hangs must not be asked for ever more
                    continue
                if self._exit is not None or self._failure is not None:
                    call.error = StoreUnavailable("the store is being reopened after the disk failed", exit=self._exit)
                    continue
                try:
                    call.run()
                except Exception as error:  # noqa: BLE001 - whatever it is, it is the answer to this call
                    self._read_failed(error, call)

    def rest(self) -> float | None:
        if self._exit is not None:
            return None
        try:
            if self._failure is not None:
                self._mend(self._failure)
            return self.checkpointer.run()
        except Exception as error:  # noqa: BLE001 - there is no call to answer with it
            return self._rest_failed(error)

    # when it fails

    def _meet(self, error: Exception, group: Sequence[Call]) -> None:
        match diagnose(error):
            case FailureKind.FULL if self._spend_reserve(error):
                self.run(group)
            case FailureKind.DISK:
                self._settle_by_ledger(error, group)
            case FailureKind.DAMAGE | FailureKind.OTHER if len(group) > 1:
                middle = len(group) // 2  # one bad call must not take the others with it: halve until it is alone
                self.run(group[:middle])
                self.run(group[middle:])
            case FailureKind.DAMAGE:
                self._note_damage(error, group[0])
                if not group[0].take_apart(self.run):
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
            if call.function == self._writes.add:
                call.error = as_problem(apsw.FullError())
        return [call for call in group if call.function != self._writes.add]

    def _settle_by_ledger(self, error: BaseException, group: Sequence[Call]) -> None:
        """The disk failed in mid-commit: the group is done if the ledger, read anew, has counted it."""
        counted = self._counters.commits + 1
        self._mend(error)
        if self._exit is not None or self._counters.commits < counted:
            _refuse(group, as_problem(error))

    def _mend(self, error: BaseException) -> None:
        """Close everything and open it anew, once: what fails twice in a minute is not to be trusted."""
        self._failure = error
        log.error("store_io_error", problem=described(error))
        now = time.monotonic()
        with self._quick_pass, self._slow_pass:
            try:
                if now - self._failed_at < ONE_FAILURE_A:
                    raise StoreFailed(f"the disk failed twice in a minute: {described(error)}; {CHECK_DISK}")
                self._file.reopen()
                self._begin_anew()
            except Exception as second:  # noqa: BLE001 - whatever it is, nothing can be stored any more
                self._give_up(as_exit(second, self._file.path))
                return
        self._failed_at = now
        self._failure = None
        log.warning("store_reopened", seconds=round(time.monotonic() - now, 3))

    def _begin_anew(self) -> None:
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

    def _read_failed(self, error: Exception, call: Call) -> None:
        match diagnose(error):
            case FailureKind.DISK:
                if self._failure is None:
                    self._failure = error
                    self.writer.wake()
            case FailureKind.DAMAGE:
                self._note_damage(error, call)
                if call.take_apart(self._read_parts):
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
                self._mend(error)
            case FailureKind.DAMAGE:
                self._note_damage(error, None)
            case _:
                log.error("upkeep_failed", exc_info=error)
        return 1.0

    def note_damage(self, error: BaseException) -> None:
        """Show damage that a read could do without."""
        self._note_damage(error, None, "list")

    def _note_damage(self, error: BaseException, call: Call | None, at: str = "checkpoint") -> None:
        self._damage = described(error)
        jobs: list[int] = []
        if call is not None and call.split is not None:
            jobs = [getattr(thing, "seq", thing) for thing in call.arguments[0]]
        if len(jobs) < 2:  # more: they are looked at one by one
            work = call.function.__name__.strip("_") if call else at
            log.error("store_corrupt", problem=self._damage, file=self._file.path, at=work, jobs=jobs, remedy=RESTORE)


def _refuse(group: Sequence[Call], problem: Problem) -> None:
    for call in group:
        call.error = problem
