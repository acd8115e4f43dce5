"""A search along an index for jobs that match conditions which no index serves."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from erelong.model.query import Query


class Walker(Protocol):
    """A snapshot of a store; jobs are named by their numbers."""

    def walk(self, query: Query, most: int) -> tuple[list[int], bool]:
        """Return the next jobs in order, and whether there are more."""

    def sift(self, query: Query, seqs: list[int]) -> list[int]:
        """Return those of the jobs that match all conditions."""

    def position(self, query: Query, seqs: list[int], has_more: bool) -> tuple[int, int] | None:
        """Return the position of the last of these jobs, if more follow."""


def find_matching(walker: Walker, query: Query, within: int) -> tuple[list[int], int, tuple[int, int] | None]:
    """Return up to `query.limit` matching jobs, how many of `within` were read, and where the search goes on.

    As many jobs as are wanted are read first, then twice as many each time: mostly, nearly all of them match.
    """
    found: list[int] = []
    seen, after, has_more = 0, query.after, True
    while has_more and len(found) < query.limit and seen < within:
        seqs, has_more = walker.walk(replace(query, after=after), min(max(query.limit, seen), within - seen))
        matching = walker.sift(query, seqs)
        if len(matching) > (wanted := query.limit - len(found)):
            matching = matching[:wanted]
            seqs, has_more = seqs[: seqs.index(matching[-1]) + 1], True
        found += matching
        seen += len(seqs)
        after = walker.position(query, seqs, has_more)
    return found, seen, after
