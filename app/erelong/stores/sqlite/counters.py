"""Counters of the whole database, kept in memory: jobs by group, running jobs, the last job number, commits."""

from __future__ import annotations

from collections import Counter
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from erelong.model.job import State
from erelong.stores.rows import move
from erelong.stores.sqlite import statements as sql

if TYPE_CHECKING:
    from collections.abc import Mapping

    import apsw

    from erelong.stores.base import Group
    from erelong.stores.sqlite.claims import ClaimedJobs


class Savepoint(NamedTuple):
    """The state of the counters at one point of a transaction."""

    deltas: Counter[Group]
    moves: Counter[Group]
    overwritten: frozenset[int]


class Counters:
    """Counts of jobs, and the changes of the current transaction.

    `deltas` are changes of the counts on disk, which still count `running` jobs as scheduled. `moves` are changes of
    this difference. The loop's thread may read `counts` at any time; everything else belongs to the writer.
    """

    def __init__(self, *, running: ClaimedJobs) -> None:
        self.running = running
        self._counts: dict[Group, int] = {}
        self.waiting: dict[str, int] = {}  # scheduled jobs by queue
        self.deltas: Counter[Group] = Counter()
        self.moves: Counter[Group] = Counter()
        self._is_in_doubt = False
        self._emptied: list[tuple[str, str]] = []
        self.commits = 0
        self.last_seq = self._stored_seq = 0

    @property
    def counts(self) -> Mapping[Group, int]:
        return self._counts

    def load(self, connection: apsw.Connection, *, last_seq: int) -> None:
        """Read the counters. Job numbers continue after the highest one ever assigned, even to a deleted job."""
        entry = sql.read_ledger(connection)
        if self._is_in_doubt and entry.commits > self.commits:
            self.running.redo()
        rows = connection.execute(sql.SELECT_COUNTS)
        counts = Counter({(queue, kind, State(state)): jobs for queue, kind, state, jobs in rows})
        move(counts, self.running.all().values(), State.SCHEDULED, State.RUNNING)
        self._counts = {**counts}
        waiting: Counter[str] = Counter()
        for (queue, _, state), jobs in counts.items():
            if state is State.SCHEDULED:
                waiting[queue] += jobs
        self.waiting = {queue: jobs for queue, jobs in waiting.items() if jobs}
        self.commits, self._stored_seq = entry.commits, entry.last_seq
        self.last_seq = max(last_seq, entry.last_seq, connection.execute(sql.LAST_SEQ).get)

    def take_numbers(self, jobs: int) -> int:
        """Reserve consecutive job numbers; return the first."""
        first = self.last_seq + 1
        self.last_seq += jobs
        return first

    def begin(self) -> None:
        """Begin a transaction."""
        self.deltas.clear()
        self.moves.clear()
        self._emptied = []
        self.running.begin()
        self._is_in_doubt = False

    def savepoint(self) -> Savepoint:
        """Return a savepoint of the transaction."""
        return Savepoint(self.deltas.copy(), self.moves.copy(), self.running.overwritten)

    def roll_back(self, savepoint: Savepoint) -> None:
        """Return to a savepoint after the writes since then have been undone."""
        self.deltas, self.moves = savepoint.deltas, savepoint.moves
        self.running.roll_back(savepoint.overwritten)

    def undo(self) -> None:
        """Undo the transaction after it has failed or seems to have."""
        self.running.undo()
        self._is_in_doubt = True

    def write(self, connection: apsw.Connection) -> None:
        """Write the changed counts, as the last statements of the transaction."""
        deltas: list[tuple[str, str, int, int]] = [(*group, number) for group, number in self.deltas.items() if number]
        deltas.append((*sql.COMMITS, 1))
        if self.last_seq > self._stored_seq:
            deltas.append((*sql.NUMBERS, self.last_seq - self._stored_seq))
        connection.executemany(sql.ADD_COUNT, deltas)
        self._emptied = self._find_emptied()
        if self._emptied:
            connection.executemany(sql.DROP_COUNTS, self._emptied)

    def settle(self, *, has_written: bool) -> None:
        """Apply the changes of a committed transaction."""
        if has_written:
            self.commits += 1
            self._stored_seq = self.last_seq
        self.running.settle()
        counts = self._counts
        if self._emptied or not (counts.keys() >= self.deltas.keys() and counts.keys() >= self.moves.keys()):
            counts = counts.copy()  # its keys must not change while the loop's thread iterates over it
        for (queue, kind, state), number in chain(self.deltas.items(), self.moves.items()):
            group = (queue, kind, State(state))
            counts[group] = counts.get(group, 0) + number
            if state == State.SCHEDULED:
                self._count_waiting(queue, number)
        for queue, kind in self._emptied:
            for state in State:
                counts.pop((queue, kind, state), None)
        self._counts = counts

    def _count_waiting(self, queue: str, number: int) -> None:
        """Count scheduled jobs; drop queues without any, since clients can name any number of queues."""
        jobs = self.waiting.get(queue, 0) + number
        if jobs:
            self.waiting[queue] = jobs
        else:
            self.waiting.pop(queue, None)

    def _find_emptied(self) -> list[tuple[str, str]]:
        """Return the queues and kinds whose last job goes. Their counts are dropped, since names are unbounded."""
        removed: Counter[tuple[str, str]] = Counter()
        for (queue, kind, _), number in self.deltas.items():
            removed[queue, kind] -= number
        return [
            (queue, kind)
            for (queue, kind), number in removed.items()
            if number > 0 and sum(self._counts.get((queue, kind, state), 0) for state in State) == number
        ]
