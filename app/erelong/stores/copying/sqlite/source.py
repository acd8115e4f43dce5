"""Reads an embedded store for a copy, also around damaged rows."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import apsw

from erelong.errors import BadCopy, Exit, StoreFailed
from erelong.model.job import State
from erelong.stores.copying.tables import JOBS, SEQ, TABLES, TEXT_COLUMNS, Claimed, Facts, Source, Table
from erelong.stores.rows import COLUMNS
from erelong.stores.sqlite import statements as sql
from erelong.stores.sqlite.claims import ClaimedJobs
from erelong.stores.sqlite.database import DatabaseFile, open_connection
from erelong.stores.sqlite.failures import RESTORE, FailureKind, described, diagnose

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from erelong.stores.rows import Row

MAX_DAMAGED = 10_000
SPAN = 1_024
"""Job numbers that are searched for readable rows at once, where a page is damaged."""
MAX_INT = 2**31
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"

_BYTES = ", ".join([f"CAST({name} AS BLOB)" if index in TEXT_COLUMNS else name for index, name in enumerate(COLUMNS)])
_JOBS_AFTER = f"SELECT {', '.join(COLUMNS)} FROM jobs WHERE seq > ? ORDER BY seq"
_JOBS_BETWEEN = f"SELECT {_BYTES} FROM jobs WHERE seq BETWEEN ? AND ? ORDER BY seq"
_NEXT_JOB = f"SELECT {_BYTES} FROM jobs WHERE seq > ? ORDER BY seq LIMIT 1"
_VERSION, _ATTEMPT, _STATE = map(COLUMNS.index, ("version", "attempt", "state"))


class SqliteSource(Source):
    """A database file, opened and locked as by a service. That migrates an older schema."""

    def __init__(self, *, path: Path) -> None:
        self._path = path
        self._file: DatabaseFile | None = None
        self.damaged: list[int] = []

    def __str__(self) -> str:
        return str(self._path)

    def open(self) -> Facts:
        if not self._path.exists() and not self._path.with_name(f"{self._path.name}.mark").exists():
            raise Exit(f"there is no store at {self._path}; name its folder with --data, or its settings with --config")
        is_virtual = self._is_virtual()
        self._file = DatabaseFile(path=self._path, durability="full", reserve=0, is_virtual=is_virtual)
        self._file.open()
        running = ClaimedJobs(file=self._file.claims)
        with self._exits("cannot be copied"):
            running.load(self._connection)
            last_seq = max(self._file.floor, sql.read_ledger(self._connection).last_seq)
        claims = [Claimed(job.seq, job.version, job.started_at or 0) for job in running.all().values()]
        return Facts(is_virtual, last_seq, sorted(claims))

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def sizes(self) -> dict[Table, int]:
        with self._exits("cannot be copied"):
            sizes = {table: self._connection.execute(f"SELECT count(*) FROM {table.name}").get for table in TABLES[1:]}
            jobs = sum(jobs for *_, jobs in self._connection.execute(sql.SELECT_COUNTS))
        return {JOBS: jobs, **sizes}

    def rows(self, table: Table) -> Iterator[Row]:
        with self._exits(f"cannot be copied: its {table.name} cannot be read"):
            yield from self._jobs() if table is JOBS else self._connection.execute(table.select)

    @property
    def _connection(self) -> apsw.Connection:
        assert self._file is not None
        return self._file.slow

    def _is_virtual(self) -> bool:
        """Return whether the file says so. What else it says is judged when it is opened."""
        with suppress(apsw.Error):
            connection = open_connection(self._path, apsw.SQLITE_OPEN_READONLY)
            try:
                return bool(connection.pragma("application_id") == sql.VIRTUAL_ID)
            finally:
                connection.close()
        return False

    # jobs

    def _jobs(self) -> Iterator[Row]:
        last = 0
        while True:
            try:
                for row in self._connection.execute(_JOBS_AFTER, (last,)):
                    last = self._follow(row, last)
                    if self._is_sound(row):
                        yield row
                return
            except UnicodeDecodeError:
                (row,) = map(_decoded, self._connection.execute(_NEXT_JOB, (last,)))
                last = self._follow(row, last)
                if self._is_sound(row):
                    yield row
            except apsw.Error as error:
                if diagnose(error) is not FailureKind.DAMAGE:
                    raise
                yield from self._readable(last + 1, last + SPAN)
                last += SPAN

    def _follow(self, row: Row, last: int) -> int:
        """Return the number of a row. Pages that were swapped are intact, but their rows are not in order."""
        seq: int = row[SEQ]
        if seq <= last:
            raise BadCopy(f"{self} is damaged: job number {seq} is stored after number {last}; {RESTORE}")
        return seq

    def _readable(self, first: int, last: int) -> Iterator[Row]:
        """Yield the rows between two numbers that are not on damaged pages."""
        try:
            rows = [*map(_decoded, self._connection.execute(_JOBS_BETWEEN, (first, last)))]
        except apsw.Error as error:
            if diagnose(error) is not FailureKind.DAMAGE:
                raise
            if first == last:
                self._note_damaged(first)
                return
        else:
            yield from filter(self._is_sound, rows)
            return
        middle = (first + last) // 2
        yield from self._readable(first, middle)
        yield from self._readable(middle + 1, last)

    def _is_sound(self, row: Row) -> bool:
        """Return whether every store can hold a row; note it otherwise."""
        is_sound: bool = 0 <= row[_STATE] < len(State) and 0 <= row[_VERSION] < MAX_INT and 0 <= row[_ATTEMPT] < MAX_INT
        if not is_sound:
            self._note_damaged(row[SEQ])
        return is_sound

    def _note_damaged(self, seq: int) -> None:
        if len(self.damaged) >= MAX_DAMAGED:
            raise BadCopy(f"{self} is damaged: more than {MAX_DAMAGED} jobs cannot be read; {RESTORE}")
        self.damaged.append(seq)

    @contextmanager
    def _exits(self, problem: str) -> Iterator[None]:
        """Turn failures of the database into an `Exit` that begins with the problem."""
        try:
            yield
        except (apsw.Error, OSError, UnicodeDecodeError) as error:
            if diagnose(error) is FailureKind.DAMAGE:
                raise BadCopy(f"{self} {problem}: it is damaged: {described(error)}; {RESTORE}") from error
            raise StoreFailed(f"{self} {problem}: {described(error)}; check the disk") from error


def _decoded(row: Row) -> Row:
    """Return a row with texts that were selected as bytes; what no text can hold is replaced."""
    return tuple(
        value.decode(errors="replace").replace("\0", REPLACEMENT) if index in TEXT_COLUMNS and value else value
        for index, value in enumerate(row)
    )
