"""The work of the writer thread: each group of calls becomes one draft, and one statement or transaction."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import TYPE_CHECKING

from erelong.errors import Exit, Problem, StoreUnavailable
from erelong.stores.group_thread import Call
from erelong.stores.postgres import statements as sql
from erelong.stores.postgres.counts import job_deltas
from erelong.stores.postgres.draft import Draft, Needs, Numbers, Stored
from erelong.stores.postgres.failures import GONE, TAKEN_OVER, FailureKind, Unsettled, as_problem, described, diagnose
from erelong.stores.postgres.logs import fold_tallies, turn_claims
from erelong.stores.postgres.operations import Add, Operation
from erelong.stores.postgres.reading import read_counts, read_running, read_stored
from erelong.stores.postgres.writing import Writes
from erelong.telemetry.log import get_logger

if TYPE_CHECKING:
    from collections.abc import Sequence

    from erelong.model.job import Job
    from erelong.stores.postgres.counts import Counts
    from erelong.stores.postgres.session import WriteSession

FOLD_INTERVAL = 10.0
"""Seconds, also between two tries to begin the other half of the claims while somebody holds it."""
MAX_SIZE = 8_000_000
"""Bytes of new jobs beyond which a group is written in parts. One call is never divided."""
LOAD_PATIENCE = 60.0
"""Seconds that a node which takes over gives the database for each answer: without them, no node could lead."""
LONG_LOG = 8_192
"""Claims that a node reads when it takes over."""
RETRY_PAUSE = 0.2

log = get_logger(__name__)


class Writer:
    """Drafts, writes and answers groups of calls.

    A group that the database refuses is halved until the bad call is alone. A group that may or may not be stored is
    kept: before anything else is written, it is found out, and memory then agrees with the database again.
    """

    def __init__(self, *, session: WriteSession, counts: Counts, node: str) -> None:
        self._session = session
        self._counts = counts
        self._node = node
        self._numbers = Numbers()
        self.running: dict[int, Job] = {}
        self._unsettled: tuple[Draft, Writes] | None = None
        self._claims_written = 0
        self._is_full = False
        self._turn_at = self._fold_at = 0.0
        self._folded = 0
        self._exit: Exit | None = None  # why this node no longer writes

    def load(self) -> None:
        """Read the running jobs and the counts."""
        read = partial(self._session.read, patience=LOAD_PATIENCE)
        self.running = read(read_running)
        self._counts.load(read(lambda connection: read_counts(connection, self.running.values())))
        half = f"claims_{self._session.claims_half}"
        ((self._claims_written,),) = read(lambda connection: connection.rows(sql.COUNT_CLAIMS.format(half=half)))
        self._fold_at = time.monotonic() + FOLD_INTERVAL

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[Exit] = self._loop.create_future()

    def close(self) -> None:
        self._session.end(self._numbers)

    async def end(self) -> Exit:
        """Wait until this node no longer writes."""
        return await asyncio.shield(self._ended)

    def status(self) -> str | None:
        if self._exit is not None:
            return f"ended: {self._exit}"
        if self._session.failure is not None:
            return f"PostgreSQL cannot be reached: {self._session.failure}"
        if self._session.lost_commits:
            return "the database has lost commits: it went back to an older copy; restart the service"
        if self._is_full:
            return "ok, but the disk of PostgreSQL is full: submits are refused until there is room"
        return None

    # groups

    def run(self, group: Sequence[Call]) -> None:
        """Write a group, in several parts if it is large."""
        start = 0
        while start < len(group):
            part: Sequence[Call] = group[start:]
            try:
                if self._exit is not None:
                    raise StoreUnavailable(f"this node no longer writes: {self._exit}", exit=self._exit)
                self._settle()
            except Exception as error:  # noqa: BLE001 - any error is the answer to these calls
                self._refuse(part, error)
                return
            try:
                operations, needs = _gather(part)
                part = part[: len(operations)]
                self._write(part, operations, needs)
            except Exception as error:  # noqa: BLE001 - as above
                self._handle_failure(error, part)
            start += len(part)

    def _write(self, group: Sequence[Call], operations: Sequence[Operation], needs: Needs) -> None:
        draft = Draft(running=self.running, stored=self._read(needs), numbers=self._numbers)
        for call, operation in zip(group, operations, strict=True):
            call.error = None
            try:
                call.result = operation.apply(draft)
            except Problem as problem:  # raised before the first change of its call
                call.error = problem
        claims, tallies = f"claims_{self._session.claims_half}", f"tallies_{self._session.tallies_half}"
        receipt = self._session.next_receipt()
        writes = Writes(draft, node=self._node, receipt=receipt, claims=claims, tallies=tallies)
        if not writes.is_empty:
            try:
                self._session.write(writes)
            except Unsettled:
                self._unsettled = draft, writes
                raise
            self._apply(draft)

    def _read(self, needs: Needs) -> Stored:
        self._session.reserve(self._numbers, needs.numbers)
        if needs.is_empty:
            return Stored()
        return self._session.read(lambda connection: read_stored(connection, needs, self.running))

    def _apply(self, draft: Draft) -> None:
        """Apply a stored draft to the counts and the running jobs."""
        self._counts.apply(job_deltas(draft))
        for seq in (*draft.rows, *draft.successes):
            self.running.pop(seq, None)
        self.running |= draft.claims
        self._claims_written += len(draft.claims)
        self._is_full = False

    # failures

    def _settle(self) -> None:
        """Connect again, and find out whether the last group is stored."""
        self._session.restore()
        if self._unsettled is None:
            return
        draft, writes = self._unsettled
        if self._session.is_stored(writes):
            self._apply(draft)
        self._unsettled = None

    def _handle_failure(self, error: Exception, group: Sequence[Call]) -> None:
        match diagnose(error):
            case FailureKind.FULL:
                self._handle_full(error, group)
            case FailureKind.OTHER if len(group) > 1 and not isinstance(error, Problem):
                middle = len(group) // 2  # one bad call must not fail the others: halve the group until it is alone
                self.run(group[:middle])
                self.run(group[middle:])
            case _:
                self._refuse(group, error)

    def _handle_full(self, error: Exception, group: Sequence[Call]) -> None:
        """Refuse submits; other writes may still find room."""
        if not self._is_full:
            log.error("storage_full", problem=described(error), effect="submits are refused until there is room")
        others = [call for call in group if call.function is not Add]
        self._refuse([call for call in group if call.function is Add], error)
        if others and len(others) < len(group):
            self.run(others)
        else:
            self._refuse(others, error)
        self._is_full = True

    def _refuse(self, group: Sequence[Call], error: Exception) -> None:
        self._end_if_lost(diagnose(error))
        problem = as_problem(error)
        for call in group:
            call.error = problem

    def _end_if_lost(self, kind: FailureKind) -> None:
        if self._exit is not None:
            return
        match kind:
            case FailureKind.FENCED:
                self._exit = TAKEN_OVER
                log.error("term_lost", epoch=self._session.epoch)
            case FailureKind.GONE:
                self._exit = GONE
            case _:
                return
        self._loop.call_soon_threadsafe(self._tell_end, self._exit)

    def _tell_end(self, exit: Exit) -> None:
        if not self._ended.done():
            self._ended.set_result(exit)

    # between groups

    def rest(self) -> float | None:
        """Keep the logs short; return the seconds until the next time."""
        if self._exit is not None:
            return None
        try:
            self._settle()
            self._turn_claims()
            if time.monotonic() >= self._fold_at:
                self._fold_at = time.monotonic() + FOLD_INTERVAL
                if self._session.acknowledged > self._folded:
                    fold_tallies(self._session)
                    self._folded = self._session.acknowledged
        except Exception as error:  # noqa: BLE001 - no caller waits for this work
            return self._rest_failed(error)
        return FOLD_INTERVAL

    def _turn_claims(self) -> None:
        if self._claims_written <= max(LONG_LOG, 2 * len(self.running)) or time.monotonic() < self._turn_at:
            return
        self._turn_at = time.monotonic() + FOLD_INTERVAL  # if it fails
        turn_claims(self._session, self._node, self.running)
        self._claims_written, self._turn_at = len(self.running), 0.0

    def _rest_failed(self, error: Exception) -> float:
        match diagnose(error):
            case FailureKind.FENCED | FailureKind.GONE as kind:
                self._end_if_lost(kind)
            case FailureKind.OTHER if not isinstance(error, Problem):
                log.error("upkeep_failed", exc_info=error)
            case FailureKind.WAIT | FailureKind.FULL:
                log.info("upkeep_postponed", problem=described(error))
            case _:
                return RETRY_PAUSE
        return FOLD_INTERVAL


def _gather(calls: Sequence[Call]) -> tuple[list[Operation], Needs]:
    """Return the operations of the first calls, as many as may be written together, and what they need."""
    operations: list[Operation] = []
    needs = Needs()
    for call in calls:
        operation: Operation = call.function(*call.arguments)
        operation.gather(needs)
        operations.append(operation)
        if needs.size > MAX_SIZE:
            break
    return operations, needs
