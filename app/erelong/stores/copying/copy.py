"""Copies a store and compares every row of the copy."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from erelong.errors import BadCopy
from erelong.stores.copying.tables import JOBS, LABEL_SEQ, LABELS, TABLES, Source, Table, Target

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from erelong.stores.rows import Row

STEP = 1_000  # rows between two reports of progress
MAX_NAMED = 20


class Progress(Protocol):
    """Learns how far a copy has come."""

    def begin(self, phase: str, total: int) -> None: ...

    def advance(self, rows: int) -> None: ...


class Copied(NamedTuple):
    """The number of rows in each table of a copy, and how many jobs of the source are missing in it."""

    rows: Mapping[Table, int]
    missing: int


class Tally:
    """Counts rows that pass, and sums them up, so that two passes can be compared."""

    def __init__(self, *, progress: Progress) -> None:
        self._progress = progress
        self.rows = 0
        self.digest = 0

    def of(self, rows: Iterable[Row]) -> Iterator[Row]:
        """Yield the rows."""
        number, digest = 0, 0
        for row in rows:
            digest = hash((digest, row))
            number += 1
            if not number % STEP:
                self._progress.advance(STEP)
            yield row
        self._progress.advance(number % STEP)
        self.rows, self.digest = number, digest

    def take(self, rows: Iterable[Row]) -> None:
        for _ in self.of(rows):
            pass

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tally) and (self.rows, self.digest) == (other.rows, other.digest)

    __hash__ = None  # type: ignore[assignment]  # it changes


def copy_store(source: Source, target: Target, progress: Progress, *, skips_damaged: bool = False) -> Copied:
    """Copy everything and compare it. After an exception, the target holds nothing.

    Raise `BadCopy` if jobs cannot be read, unless these are to be left out.
    """
    try:
        target.open(source.open())
        sizes = source.sizes()
        progress.begin("copying", sum(sizes.values()))
        tallies = {table: _copy(table, source, target, progress) for table in TABLES}
        _judge(source, sizes[JOBS] - tallies[JOBS].rows, skips_damaged=skips_damaged)
        progress.begin("indexing", 0)
        target.complete()
        progress.begin("comparing", sum(tally.rows for tally in tallies.values()))
        for table, tally in tallies.items():
            _compare(table, tally, target, progress)
        target.commit()
        return Copied({table: tally.rows for table, tally in tallies.items()}, sizes[JOBS] - tallies[JOBS].rows)
    finally:
        target.close()
        source.close()


def _copy(table: Table, source: Source, target: Target, progress: Progress) -> Tally:
    tally = Tally(progress=progress)
    rows = source.rows(table)
    if table is LABELS and source.damaged:
        left_out = frozenset(source.damaged)
        rows = (row for row in rows if row[LABEL_SEQ] not in left_out)
    target.write(table, tally.of(rows))
    return tally


def _judge(source: Source, missing: int, *, skips_damaged: bool) -> None:
    """Raise `BadCopy` if jobs of the source are missing, by its own count."""
    if skips_damaged or not (missing or source.damaged):
        return
    where = f", among the numbers {_named(source.damaged)}" if source.damaged else ""
    raise BadCopy(
        f"{missing} jobs of {source} cannot be read{where}; nothing was copied. Restore a backup, or copy the others "
        "with --skip-damaged"
    )


def _compare(table: Table, written: Tally, target: Target, progress: Progress) -> None:
    read = Tally(progress=progress)
    read.take(target.rows(table))
    if read != written:
        raise BadCopy(
            f"the copy differs from its source in {table.name}: {written.rows} rows were written and {read.rows} read, "
            "or their contents differ; nothing was copied. Check the disk of the target, then copy again"
        )


def _named(numbers: Sequence[int]) -> str:
    more = f" and {len(numbers) - MAX_NAMED} more" if len(numbers) > MAX_NAMED else ""
    return ", ".join(map(str, numbers[:MAX_NAMED])) + more
