"""Claimed jobs, whose rows stay `scheduled` until an outcome or another change overwrites them."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, TypeVar

import apsw
import orjson

from erelong.model.job import PLACES, State
from erelong.stores.sqlite import statements as sql
from erelong.stores.sqlite.failures import FailureKind, diagnose
from erelong.stores.sqlite.files.claim_log import Claimed
from erelong.stores.sqlite.rows import listed, read_jobs

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from erelong.clock.instants import Instant
    from erelong.model.job import Job
    from erelong.stores.sqlite.files.claim_log import ClaimFile

T = TypeVar("T")

_version_of = itemgetter(PLACES["version"])
_claim_of = itemgetter(*map(PLACES.__getitem__, Claimed._fields))


class ClaimedJobs:
    """Jobs as they were claimed. Their claims exist only here and in the claim log.

    A claim costs a sixth of writing the row, and no commit. A job is removed once a write over its row is committed, so
    any thread must read this table first and the row second: the job is running if it is here and its row has the
    preceding version. Only the writer changes the table.
    """

    def __init__(self, *, file: ClaimFile) -> None:
        self._file = file
        self._jobs: dict[int, Job] = {}
        self._rewind_to = 0
        self._added: dict[int, Job] = {}
        self._overwritten: set[int] = set()

    # reads

    def all(self) -> dict[int, Job]:
        return self._jobs.copy()

    def find(self, seqs: Collection[int]) -> dict[int, Job]:
        """Return those of these jobs that are claimed."""
        jobs = self._jobs
        if jobs.keys().isdisjoint(seqs):  # as for nearly every read
            return {}
        return {seq: job for seq in seqs if (job := jobs.get(seq)) is not None}

    def read(self, connection: apsw.Connection, seqs: Collection[int]) -> dict[int, Job]:
        """Return jobs by number, without unknown ones."""
        running = self.find(seqs)
        jobs = read_jobs(connection, seqs)
        return jobs | {seq: job for seq, job in running.items() if seq in jobs and _is_claimed(job, jobs[seq])}

    # a transaction

    def begin(self) -> None:
        self._rewind_to = self._file.end
        self._added, self._overwritten = {}, set()

    def unchanged(self, seqs: Collection[int]) -> dict[int, Job]:
        """Return those of these jobs that nothing has overwritten, also in this transaction."""
        jobs, overwritten = self.find(seqs), self._overwritten
        return jobs if overwritten.isdisjoint(jobs) else {seq: jobs[seq] for seq in jobs if seq not in overwritten}

    def add(self, jobs: Sequence[Job], now: Instant) -> None:
        """Add jobs that are being claimed."""
        started = {job.seq: job for job in jobs}
        self._file.add(started, map(_version_of, jobs), now)
        self._jobs |= started
        self._added |= started

    def end(self, seqs: Collection[int]) -> Collection[Job]:
        """Note that rows are overwritten or deleted; return the claimed jobs among them."""
        ended = self.unchanged(seqs)
        self._overwritten.update(ended)
        return ended.values()

    @property
    def overwritten(self) -> frozenset[int]:
        """The jobs overwritten so far in this transaction."""
        return frozenset(self._overwritten)

    def roll_back(self, overwritten: frozenset[int]) -> None:
        """Return to an earlier set of overwritten jobs."""
        self._overwritten = {*overwritten}

    def undo(self) -> None:
        """Undo the claims of a failed transaction."""
        for seq in self._added:
            self._jobs.pop(seq, None)
        with suppress(OSError):  # then the next start may report an attempt as lost that never began
            self._file.rewind(self._rewind_to)

    def redo(self) -> None:
        """Apply the transaction after all: it only seemed to fail."""
        self._jobs |= self._added
        self.settle()

    def settle(self) -> None:
        """Remove the overwritten jobs of a committed transaction."""
        for seq in self._overwritten:
            self._jobs.pop(seq, None)

    # the file

    def load(self, connection: apsw.Connection) -> None:
        """Load the jobs that were running when the process ended.

        Jobs on damaged pages are left out; a later read reports the damage. A claim before the due time belongs to
        another job, whose number was assigned again after commits were lost.
        """
        claims = {claim.seq: claim for claim in self._file.read()}
        waiting = _read_sound(partial(_versions_of_waiting, connection), [*claims])
        ran = [seq for seq, version in waiting.items() if version == claims[seq].version - 1]
        jobs = _read_sound(partial(read_jobs, connection), ran)
        begun = [(job, claims[seq].started_at) for seq, job in jobs.items()]
        self._jobs = {job.seq: job.start(at) for job, at in begun if job.due_at is not None and job.due_at <= at}

    def renew(self) -> None:
        """Rewrite the claim log without obsolete claims."""
        self._file.renew(map(_claim_of, self._jobs.values()))

    def tidy(self) -> None:
        if self._file.is_long:
            self.renew()


def waiting_still(connection: apsw.Connection, running: Mapping[int, Job]) -> dict[int, Job]:
    """Return the jobs whose rows, in this snapshot, are the ones that were claimed."""
    waiting = _versions_of_waiting(connection, [*running])
    return {seq: running[seq] for seq, version in waiting.items() if version == running[seq].version - 1}


def unreadable(connection: apsw.Connection, running: Mapping[int, Job]) -> dict[int, Job]:
    """Return the jobs whose rows are on a damaged page."""

    def check(seqs: Sequence[int]) -> dict[int, None]:
        _versions_of_waiting(connection, seqs)
        return dict.fromkeys(seqs)

    sound = _read_sound(check, [*running])
    return {seq: job for seq, job in running.items() if seq not in sound}


def _versions_of_waiting(connection: apsw.Connection, seqs: Sequence[int]) -> dict[int, int]:
    if not seqs:
        return {}
    ((rows,),) = connection.execute(sql.SELECT_WAITING, (listed(seqs),))  # see `listing/snapshot.one_value`
    return dict(orjson.loads(rows))


def _read_sound(read: Callable[[Sequence[int]], dict[int, T]], seqs: Sequence[int]) -> dict[int, T]:
    """Read all jobs that are not on damaged pages."""
    try:
        return read(seqs)
    except apsw.Error as error:
        if diagnose(error) is not FailureKind.DAMAGE:
            raise
    middle = len(seqs) // 2
    return _read_sound(read, seqs[:middle]) | _read_sound(read, seqs[middle:]) if middle else {}


def _is_claimed(job: Job, row: Job) -> bool:
    return row.state is State.SCHEDULED and row.version == job.version - 1
