"""What is known in memory of the whole database: jobs by group, what runs, the last number of a job, commits."""

from __future__ import annotations

from collections import Counter
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from erelong.model.job import State
from erelong.stores.sqlite import statements as sql
from erelong.stores.sqlite.claims import move

if TYPE_CHECKING:
    from collections.abc import Mapping

    import apsw

    from erelong.stores.base import Group
    from erelong.stores.sqlite.claims import ClaimedJobs


class Watermark(NamedTuple):
    """What a transaction has come to so far."""

    deltas: Counter[Group]
    moves: Counter[Group]
    over: frozenset[int]


class Counters:
    """Counts of jobs, and in `deltas` what the transaction under way will make of those on disk.

    They differ by what is `running`: on disk it waits still, and `moves` are what the transaction changes of that.
    The loop's thread may look at `counts` at any time; the rest is the writer's.
    """

    def __init__(self, *, running: ClaimedJobs) -> None:
        self.running = running
        self._counts: dict[Group, int] = {}
        self.waiting: dict[str, int] = {}  # jobs that are scheduled, by queue
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
        """Read it all; numbers go on from the highest that was ever given, though its job may be gone."""
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
        """The first of as many numbers in a row."""
        first = self.last_seq + 1
        self.last_seq += jobs
        return first

    def begin(self) -> None:
        """A transaction begins."""
        self.deltas.clear()
        self.moves.clear()
        self._emptied = []
        self.running.begin()
        self._is_in_doubt = False

    def mark(self) -> Watermark:
        """A point of the transaction to which it may go back."""
        return Watermark(self.deltas.copy(), self.moves.copy(), self.running.over)

    def go_back(self, mark: Watermark) -> None:
        """What was written since the mark has been undone."""
        self.deltas, self.moves = mark.deltas, mark.moves
        self.running.go_back(mark.over)

    def undo(self) -> None:
        """The transaction has failed, or seems to have."""
        self.running.undo()
        self._is_in_doubt = True

    def write(self, connection: apsw.Connection) -> None:
        """Put it into the transaction, as its last statements."""
        deltas: list[tuple[str, str, int, int]] = [(*group, number) for group, number in self.deltas.items() if number]
        deltas.append((*sql.COMMITS, 1))
        if self.last_seq > self._stored_seq:
            deltas.append((*sql.NUMBERS, self.last_seq - self._stored_seq))
        connection.executemany(sql.ADD_COUNT, deltas)
        self._emptied = self._find_emptied()
        connection.executemany(sql.DROP_COUNTS, self._emptied)

    def settle(self, *, has_written: bool) -> None:
        """The transaction is committed."""
        if has_written:
            self.commits += 1
            self._stored_seq = self.last_seq
        self.running.settle()
        counts = self._counts
        if self._emptied or not (counts.keys() >= self.deltas.keys() and counts.keys() >= self.moves.keys()):
            counts = counts.copy()  # the loop's thread may be going over it: it must not grow or shrink under its feet
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
        """Queues in which nothing waits are forgotten: clients make up names."""
        jobs = self.waiting.get(queue, 0) + number
        if jobs:
            self.waiting[queue] = jobs
        else:
            self.waiting.pop(queue, None)

    def _find_emptied(self) -> list[tuple[str, str]]:
        """The queues and kinds whose last job goes: names have no end, so what is 0 for good must not stay."""
        gone: Counter[tuple[str, str]] = Counter()
        for (queue, kind, _), number in self.deltas.items():
            gone[queue, kind] -= number
        return [
            (queue, kind)
            for (queue, kind), number in gone.items()
            if number > 0 and sum(self._counts.get((queue, kind, state), 0) for state in State) == number
        ]
