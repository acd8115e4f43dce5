"""Pages of jobs: find numbers along an index, check what no index serves, then read the rows."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from erelong.model.job import Job, State
from erelong.model.matching.cause import cause_of
from erelong.model.query import Order
from erelong.stores.base import Found, Tally
from erelong.stores.postgres import statements as sql
from erelong.stores.postgres.arrays import bigints
from erelong.stores.postgres.listing.filters import COUNT_CLAIMED, find, may_match, residue_where, where, with_counts
from erelong.stores.postgres.listing.orders import walk_ends, walk_starts
from erelong.stores.postgres.listing.walks import choose
from erelong.stores.postgres.reading import read_current
from erelong.stores.searching import find_matching

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from erelong.model.query import Query
    from erelong.stores.base import Group
    from erelong.stores.postgres.connection import Connection

ENDLESS = 1 << 60


def select_jobs(connection: Connection, query: Query) -> list[Job]:
    return search_jobs(connection, query, ENDLESS).jobs


def search_jobs(connection: Connection, query: Query, within: int) -> Found:
    return with_counts(connection, lambda counts: _Snapshot(connection, counts).search(query, within))


def tally_jobs(connection: Connection, query: Query, within: int) -> Tally:
    return with_counts(connection, lambda counts: _Snapshot(connection, counts).tally(query, within))


class _Snapshot(NamedTuple):
    """A view of the store, and the numbers of its rows; those of claimed jobs count as waiting."""

    connection: Connection
    counts: Mapping[Group, int]

    def search(self, query: Query, within: int) -> Found:
        found, seen, after = find_matching(self, query, within)
        return Found(self._read(query, found), seen, after)

    def tally(self, query: Query, within: int) -> Tally:
        if query.is_counted and (newer := self._newer(query, within)) is not None:
            counted = dict(self.counts)
            for queue, kind, jobs in find(self.connection, COUNT_CLAIMED, []):
                counted[queue, kind, State.SCHEDULED] -= jobs
                counted[queue, kind, State.RUNNING] = counted.get((queue, kind, State.RUNNING), 0) + jobs
            return Tally(sum(jobs for group, jobs in counted.items() if query.matches_group(*group)) - newer, 0, None)
        seqs, has_more = self.walk(query, within)
        return Tally(len(self.sift(query, seqs)), len(seqs), self.position(query, seqs, has_more))

    def walk(self, query: Query, most: int) -> tuple[list[int], bool]:
        """Return the numbers of the next jobs in order, and whether there are more."""
        groups: list[Group] = [group for group in self.counts if may_match(group, query)]
        if query.order is Order.FINISHED:
            seqs = walk_ends(self.connection, query, groups, most + 1)
        elif query.order is Order.STARTED:
            seqs = walk_starts(self.connection, query, most + 1)
        else:
            waiting = sum(jobs for (_, _, state), jobs in self.counts.items() if state is State.SCHEDULED)
            jobs = sum(map(self.counts.__getitem__, groups))
            statement, values = choose(replace(query, limit=most + 1), groups, jobs, waiting)
            seqs = [seq for (seq,) in find(self.connection, statement, values)]
        return seqs[:most], len(seqs) > most

    def sift(self, query: Query, seqs: list[int]) -> list[int]:
        """Return the jobs that match all filters."""
        if not seqs or not query.is_sifted:
            return seqs
        condition, values = residue_where(query.residue)
        if query.order is Order.FINISHED:
            others, more = where(query)
            condition, values = f"{condition} AND {others}", [*values, *more]
        columns = "jobs.seq" if query.residue.cause is None else "jobs.seq, jobs.kind, jobs.error"
        rows = find(self.connection, f"SELECT {columns} {sql.LISTED} WHERE {condition}", [bigints(seqs), *values])
        if query.residue.cause is not None:
            rows = [row for row in rows if cause_of(row[1], row[2]) == query.residue.cause]
        matching = {row[0] for row in rows}
        return [seq for seq in seqs if seq in matching]

    def _read(self, query: Query, seqs: Sequence[int]) -> list[Job]:
        statement = sql.SELECT if query.is_full else sql.SELECT_LINE if query.is_line else sql.SELECT_BRIEF
        rows = self.connection.rows(statement, bigints(seqs))
        if query.is_line:
            jobs = {row[0]: read_current(row[:-1])._replace(params=row[-1]) for row in rows}
        else:
            jobs = {row[0]: read_current(row) for row in rows}
        return [jobs[seq] for seq in seqs]

    def position(self, query: Query, seqs: list[int], has_more: bool) -> tuple[int, int] | None:
        """Return the position of the last of these jobs, if more follow."""
        if not has_more or not seqs:
            return None
        (job,) = self._read(replace(query, is_full=False, is_line=False), seqs[-1:])
        return query.position(job)

    def _newer(self, query: Query, within: int) -> int | None:
        """Return how many matching jobs come before the position of a query; None if too many have to be read."""
        if query.after is None:
            return 0
        if query.order is not Order.CREATED:
            return None
        condition, values = where(query)
        rows = f"SELECT ({condition}) AS is_match FROM jobs WHERE seq >= %s ORDER BY seq LIMIT %s"
        statement = f"SELECT count(*), count(*) FILTER (WHERE is_match) FROM ({rows}) AS newer"
        ((number, newer),) = find(self.connection, statement, [*values, query.after[1], within + 1])
        return None if number > within else int(newer)
