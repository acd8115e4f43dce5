"""The tables that every database of a store has, and what a source and a target of a copy are."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from erelong.stores.rows import COLUMNS, TEXTS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from erelong.clock.instants import Instant
    from erelong.stores.rows import Row


class Table(NamedTuple):
    """A table with its columns, and the columns of its key, by which all databases order its rows alike."""

    name: str
    columns: tuple[str, ...]
    key: tuple[str, ...]

    @property
    def select(self) -> str:
        """The statement that selects all rows in order."""
        return f"SELECT {', '.join(self.columns)} FROM {self.name} ORDER BY {', '.join(self.key)}"


JOBS = Table("jobs", COLUMNS, ("seq",))
LABELS = Table("labels", ("name", "value", "seq"), ("name", "value", "seq"))
OVERRIDES = Table("overrides", ("queue", "settings", "pause"), ("queue",))
RECORDS = Table("idempotency_records", ("caller", "key", "digest", "ids", "expires_at"), ("caller", "key"))
DOCUMENTS = Table("documents", ("sort", "name", "version", "changed_at", "text"), ("sort", "name"))
TABLES = (JOBS, LABELS, OVERRIDES, RECORDS, DOCUMENTS)

SEQ = COLUMNS.index("seq")
TEXT_COLUMNS = frozenset(TEXTS)
LABEL_SEQ = LABELS.columns.index("seq")


class Claimed(NamedTuple):
    """A job that runs, although its row waits: its number, its version since the claim, and the time of the claim."""

    seq: int
    version: int
    started_at: Instant


class Facts(NamedTuple):
    """What a store holds beside its tables."""

    is_virtual: bool
    last_seq: int
    """The highest job number ever assigned, even to a deleted job."""
    claims: Sequence[Claimed]


class Source(Protocol):
    """A store that is read. `open` raises an `Exit` if it is missing, in use, foreign or damaged."""

    damaged: Sequence[int]
    """The numbers of jobs that `rows` could not read."""

    def open(self) -> Facts: ...

    def close(self) -> None: ...

    def sizes(self) -> Mapping[Table, int]:
        """Return the number of rows in each table."""
        ...

    def rows(self, table: Table) -> Iterator[Row]:
        """Yield all rows in order, without damaged ones."""
        ...


class Target(Protocol):
    """A store that is made. Nothing of it remains if it is closed before `commit`."""

    def open(self, facts: Facts) -> None:
        """Begin; raise an `Exit` if there is anything already."""
        ...

    def close(self) -> None: ...

    def write(self, table: Table, rows: Iterable[Row]) -> None: ...

    def complete(self) -> None:
        """Add everything that follows from the rows, such as counts and indexes."""
        ...

    def rows(self, table: Table) -> Iterator[Row]:
        """Yield all rows as they are stored, in order."""
        ...

    def commit(self) -> None:
        """Make the store appear, durably and at once."""
        ...
