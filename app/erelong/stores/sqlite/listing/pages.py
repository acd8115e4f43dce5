"""Pages of jobs: find numbers along an index, check what no index serves, then read the rows."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import apsw
import orjson

from erelong.model.matching.cause import cause_of
from erelong.model.query import Order
from erelong.stores.base import Found, Tally
from erelong.stores.rows import read_job
from erelong.stores.searching import find_matching
from erelong.stores.sqlite import statements as sql
from erelong.stores.sqlite.listing import walks
from erelong.stores.sqlite.listing.ends import walk_ends
from erelong.stores.sqlite.listing.filters import residue_where, where
from erelong.stores.sqlite.listing.snapshot import BREATH, count_groups, view
from erelong.stores.sqlite.listing.starts import walk_starts
from erelong.stores.sqlite.rows import select_sound_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from erelong.model.job import Job
    from erelong.model.query import Query
    from erelong.stores.base import Group
    from erelong.stores.sqlite.claims import ClaimedJobs

T = TypeVar("T")

ENDLESS = 1 << 60
READ_AT_ONCE = 10
"""Rows read at a time: each may stop the loop for some 50 µs (see `snapshot.one_value`)."""
SIFTED_AT_ONCE = 40
"""Errors compared at a time, each in a few microseconds: more pauses would slow the search down under load."""
ERRORS = "jobs.seq, hex(jobs.kind), hex(jobs.error)"  # in hex, since damaged texts may be no JSON
POSITIONS = {Order.DUE: "due_at", Order.STARTED: "started_at", Order.FINISHED: "finished_at"}


def select_jobs(
    connection: apsw.Connection, running: ClaimedJobs, query: Query, note_damage: Callable[[apsw.Error], None]
) -> list[Job]:
    """Return the jobs of a listing. Unreadable rows are reported and left out."""

    def select(claimed: Mapping[int, Job]) -> list[Job]:
        jobs: list[Job] = []
        rest = query
        while True:
            found = _Snapshot(connection, claimed, note_damage).search(rest, ENDLESS)
            jobs += found.jobs
            if len(jobs) >= query.limit or found.after is None:
                return jobs
            rest = replace(query, limit=query.limit - len(jobs), after=found.after)

    return view(connection, running, select)


def search_jobs(
    connection: apsw.Connection,
    running: ClaimedJobs,
    query: Query,
    within: int,
    note_damage: Callable[[apsw.Error], None],
) -> Found:
    return view(connection, running, lambda claimed: _Snapshot(connection, claimed, note_damage).search(query, within))


def tally_jobs(
    connection: apsw.Connection,
    running: ClaimedJobs,
    query: Query,
    within: int,
    note_damage: Callable[[apsw.Error], None],
) -> Tally:
    return view(connection, running, lambda claimed: _Snapshot(connection, claimed, note_damage).tally(query, within))


class _Snapshot(NamedTuple):
    """A view of the store, with the claimed jobs in it."""

    connection: apsw.Connection
    claimed: Mapping[int, Job]
    note_damage: Callable[[apsw.Error], None]

    def search(self, query: Query, within: int) -> Found:
        found, seen, after = find_matching(self, query, within)
        return Found(self._read(query, found), seen, after)

    def tally(self, query: Query, within: int) -> Tally:
        if query.is_counted and (newer := self._newer(query, within)) is not None:
            counted = count_groups(self.connection, self.claimed)
            return Tally(sum(jobs for group, jobs in counted.items() if query.matches_group(*group)) - newer, 0, None)
        seqs, has_more = self.walk(query, within)
        return Tally(len(self.sift(query, seqs)), len(seqs), self.position(query, seqs, has_more))

    def walk(self, query: Query, most: int) -> tuple[list[int], bool]:
        """Return the numbers of the next jobs in order, and whether there are more."""
        counted = count_groups(self.connection, self.claimed)
        groups: list[Group] = [group for group in counted if query.matches_group(*group)]
        jobs = sum(map(counted.__getitem__, groups))
        if query.order is Order.FINISHED:
            seqs = walk_ends(self.connection, query, groups, jobs, most + 1)
        elif query.order is Order.STARTED:
            seqs = walk_starts(self.connection, self.claimed, query, most + 1)
        else:
            seqs = walks.find(self.connection, replace(query, limit=most + 1), groups, counted)
        return seqs[:most], len(seqs) > most

    def sift(self, query: Query, seqs: list[int]) -> list[int]:
        """Return the jobs that match all filters."""
        if not seqs or not query.is_sifted:
            return seqs
        condition, values = residue_where(query.residue)
        if query.order is Order.FINISHED:
            others, more = where(query)
            condition, values = f"{condition} AND {others}", [*values, *more]
        if query.residue.cause is None:
            statement = f"SELECT json_group_array(jobs.seq) {sql.LISTED} WHERE {condition}"
            rows = select_sound_rows(self.connection, statement, seqs, self.note_damage, *values)
            return [seq for (found,) in rows for seq in orjson.loads(found)]
        statement = f"SELECT json_group_array(json_array({ERRORS})) {sql.LISTED} WHERE {condition}"
        rows = select_sound_rows(self.connection, statement, seqs, self.note_damage, *values)
        errors = [error for (found,) in rows for error in orjson.loads(found)]
        return [
            seq
            for part in _in_slices(errors, SIFTED_AT_ONCE)
            for seq, kind, error in part
            if cause_of(bytes.fromhex(kind).decode(errors="replace"), bytes.fromhex(error)) == query.residue.cause
        ]

    def _read(self, query: Query, seqs: Sequence[int]) -> list[Job]:
        columns = sql.SELECT if query.is_full else sql.SELECT_LINE if query.is_line else sql.SELECT_BRIEF
        jobs: list[Job] = []
        for part in _in_slices(seqs, READ_AT_ONCE):
            rows = select_sound_rows(self.connection, columns, part, self.note_damage)
            jobs += [read_job(row[:-1])._replace(params=row[-1]) if query.is_line else read_job(row) for row in rows]
        return [self._as_claimed(job, query) if job.seq in self.claimed else job for job in jobs]

    def _as_claimed(self, row: Job, query: Query) -> Job:
        job = self.claimed[row.seq]
        return job if query.is_full else job._replace(params=row.params, result=row.result, attempts=row.attempts)

    def position(self, query: Query, seqs: list[int], has_more: bool) -> tuple[int, int] | None:
        """Return the position of the last of these jobs, if more follow."""
        if not has_more or not seqs:
            return None
        seq, at = seqs[-1], 0
        if query.order is Order.STARTED and seq in self.claimed:
            at = self.claimed[seq].started_at or 0
        elif query.order is not Order.CREATED:
            statement = f"SELECT {POSITIONS[query.order]} FROM jobs WHERE seq = ?"
            ((at,),) = self.connection.execute(statement, (seq,))
        return at, seq

    def _newer(self, query: Query, within: int) -> int | None:
        """Return how many matching jobs come before the position of a query; None if too many have to be read."""
        if query.after is None:
            return 0
        if query.order is not Order.CREATED:
            return None
        condition, values = where(query)
        rows = f"SELECT {condition} AS matches FROM jobs WHERE seq >= ? LIMIT ?"
        statement = f"SELECT count(*), ifnull(sum(matches), 0) FROM ({rows})"
        ((number, newer),) = self.connection.execute(statement, [*values, query.after[1], within + 1])
        return None if number > within else int(newer)


def _in_slices(items: Sequence[T], number: int) -> Iterator[Sequence[T]]:
    """Yield some items at a time, and let the event loop have the interpreter in between."""
    for start in range(0, len(items), number):
        if start:
            time.sleep(BREATH)
        yield items[start : start + number]
