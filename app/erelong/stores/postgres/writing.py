"""The statements that write a draft, as one statement if its changes cannot collide, otherwise as one transaction."""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from erelong.model.job import Job, State
from erelong.stores.json_columns import read_labels, write_pause
from erelong.stores.postgres import statements as sql
from erelong.stores.postgres.arrays import PACKERS, Array, bigints, blobs, ints, texts
from erelong.stores.postgres.connection import is_alive
from erelong.stores.postgres.failures import TermLost
from erelong.stores.rows import COLUMNS, as_rows, group_of, move

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from erelong.stores.base import Group
    from erelong.stores.postgres.connection import Connection
    from erelong.stores.postgres.draft import Draft

Part = tuple[str, list[Any]]
"""A statement with a place for its fence, and its values."""

_PACKERS = [PACKERS[sql.TYPES[name]] for name in COLUMNS]


class Writes:
    """The changes of a group, ready to be sent once or again. `receipt` is stored with them."""

    def __init__(self, draft: Draft, *, node: str, receipt: int, claims: str, tallies: str) -> None:
        self.receipt = receipt
        self.deltas = _row_deltas(draft)
        self._hazards = _hazards(draft)
        self._parts = [*self._hazards, *_additions(draft, node=node, claims=claims)]
        if self._parts:
            self._parts.append(_tally(self.deltas, receipt, tallies))

    @property
    def is_empty(self) -> bool:
        return not self._parts

    @property
    def size(self) -> int:
        """The bytes to be sent, without the statements."""
        return sum([len(value) for _, values in self._parts for value in values if isinstance(value, Array)])

    def run(self, connection: Connection, epoch: int) -> None:
        """Write all changes or none; raise `TermLost` if the epoch is over."""
        if self._hazards:
            transact(connection, epoch, self._parts)
        else:
            statement = _joined(tuple(part for part, _ in self._parts))
            values = [value for _, values in self._parts for value in values]
            (fences,) = connection.row(statement, epoch, *values)
            if not fences:
                raise TermLost
        connection.check_doubts()


@lru_cache(maxsize=64)
def _joined(parts: tuple[str, ...]) -> str:
    """Return one statement for parts that change different rows."""
    steps = [f"part_{number} AS ({part.format(fence='fence, ')})" for number, part in enumerate(parts)]
    return f"WITH {', '.join([sql.FENCED, *steps])} SELECT count(*) FROM fence"


def transact(connection: Connection, epoch: int, parts: Sequence[Part]) -> None:
    """Run statements in one transaction, which is sent at once."""
    try:
        with connection.pipeline():
            connection.run("BEGIN", prepare=False)
            connection.run(sql.FENCE, epoch)
            for statement, values in parts:
                connection.run(statement.format(fence=""), *values)
            connection.run("COMMIT", prepare=False)
    except BaseException:
        if is_alive(connection):
            connection.run("ROLLBACK", prepare=False)
        raise


def _hazards(draft: Draft) -> list[Part]:
    """Return the changes that must come in this order, since they may free and take the same key or label."""
    parts: list[Part] = []
    rows = {seq: job for seq, job in draft.rows.items() if seq not in draft.added}
    if dropped := [seq for seq, job in rows.items() if job is None]:
        parts.append((sql.DELETE_JOBS, [bigints(dropped)]))
    parts += _label_changes(draft, rows)
    free: list[Job] = []
    held: list[Job] = []
    for job in rows.values():
        if job is not None:
            (free if job.key is None or job.is_final else held).append(job)
    if _passes_keys_on(draft):
        parts.append(_succeed(draft))
    parts += [_update(draft, jobs) for jobs in (free, held) if jobs]
    return parts + _named_changes(draft)


def _named_changes(draft: Draft) -> list[Part]:
    """Return the changes of what has a name: documents, records and overrides."""
    parts: list[Part] = []
    documents = [document for document in draft.documents.values() if document.text is not None]
    if documents:
        sorts, names, versions, times, contents = zip(*documents, strict=True)
        values = [texts(sorts), texts(names), ints(versions), bigints(times), blobs(contents)]
        parts.append((sql.SET_DOCUMENTS, values))
    if gone := [name for name, document in draft.documents.items() if document.text is None]:
        parts.append((sql.DROP_DOCUMENTS, _names(gone)))
    records = [(*name, *record) for name, record in draft.records.items() if record is not None]
    if records:
        callers, keys, digests, ids, expiries = zip(*records, strict=True)
        parts.append((sql.SET_RECORDS, [texts(callers), texts(keys), blobs(digests), blobs(ids), bigints(expiries)]))
    if gone := [name for name, record in draft.records.items() if record is None]:
        parts.append((sql.DROP_RECORDS, _names(gone)))
    overrides = [(queue, *override) for queue, override in draft.overrides.items() if override is not None]
    if overrides:
        queues, settings, pauses = zip(*overrides, strict=True)
        parts.append((sql.SET_OVERRIDES, [texts(queues), blobs(settings), blobs(map(write_pause, pauses))]))
    if removed := [queue for queue, override in draft.overrides.items() if override is None]:
        parts.append((sql.DROP_OVERRIDES, [texts(removed)]))
    return parts


def _additions(draft: Draft, *, node: str, claims: str) -> list[Part]:
    """Return the changes that touch rows of their own: successes, unless they came before, new jobs and claims."""
    parts: list[Part] = []
    jobs = [job for seq in draft.added if (job := draft.rows[seq]) is not None] if draft.added else []
    if draft.successes and not _passes_keys_on(draft):
        parts.append(_succeed(draft))
    if jobs:
        jobs.sort(key=_seq_of)
        parts.append((sql.INSERT_JOBS, _packed(as_rows(jobs))))
        if labels := [entry for job in jobs if job.labels is not None for entry in _labels_of(job)]:
            parts.append((sql.INSERT_LABELS, _transposed(labels)))
    if draft.claims:
        jobs = [*draft.claims.values()]
        times = bigints([job.started_at for job in jobs])
        values = [node, bigints(draft.claims), ints([job.version for job in jobs]), times]
        parts.append((sql.INSERT_CLAIMS.format(half=claims, fence="{fence}"), values))
    return parts


def _passes_keys_on(draft: Draft) -> bool:
    """Return whether a success frees a key and another change takes one, perhaps the same."""
    takes = any(job is not None and job.key is not None and not job.is_final for job in draft.rows.values())
    return takes and any(ending.job.key is not None for ending in draft.successes.values())


def _label_changes(draft: Draft, rows: dict[int, Job | None]) -> list[Part]:
    gone: list[tuple[str, str, int]] = []
    fresh: list[tuple[str, str, int]] = []
    for seq, job in rows.items():
        before = draft.before(seq)
        if before is None or (job is not None and job.labels == before.labels):
            continue
        gone += _labels_of(before)
        fresh += [] if job is None else _labels_of(job)
    parts: list[Part] = [(sql.DELETE_LABELS, _transposed(gone))] if gone else []
    return [*parts, (sql.INSERT_LABELS, _transposed(fresh))] if fresh else parts


def _labels_of(job: Job) -> list[tuple[str, str, int]]:
    return [(name, value, job.seq) for name, value in read_labels(job.labels).items()]


def _update(draft: Draft, jobs: Sequence[Job]) -> Part:
    was = ints([draft.row_version(job.seq) for job in jobs])
    return sql.UPDATE_JOBS, [*_packed(as_rows(jobs)), was]


def _succeed(draft: Draft) -> Part:
    endings = draft.successes.values()
    jobs = [ending.job for ending in endings]
    return sql.SUCCEED_JOBS, [
        bigints(draft.successes),
        ints([job.version - 1 for job in jobs]),
        bigints([job.started_at for job in jobs]),
        bigints([ending.at for ending in endings]),
        blobs([ending.outcome.result for ending in endings]),
    ]


def _tally(deltas: Counter[Group], receipt: int, half: str) -> Part:
    """Return the change of the counts. Its receipt shows later that the group was written, so it is never empty."""
    entries = [(*group, jobs) for group, jobs in deltas.items() if jobs] or [("", "", State.SCHEDULED, 0)]
    queues, kinds, states, jobs = zip(*entries, strict=True)
    statement = sql.INSERT_TALLIES.format(half=half, fence="{fence}")
    return statement, [receipt, texts(queues), texts(kinds), ints(states), bigints(jobs)]


def _row_deltas(draft: Draft) -> Counter[Group]:
    """Return how the numbers of rows change. A claim changes no row."""
    deltas: Counter[Group] = Counter()
    if len(draft.rows) == len(draft.added):  # hot: submit
        deltas.update(map(group_of, [job for job in draft.rows.values() if job is not None]))
    else:
        for seq, job in draft.rows.items():
            if job is not None:
                deltas[job.group] += 1
            if (group := draft.row_group(seq)) is not None:
                deltas[group] -= 1
    move(deltas, [ending.job for ending in draft.successes.values()], State.SCHEDULED, State.SUCCEEDED)
    return deltas


def _packed(rows: Sequence[tuple[Any, ...]]) -> list[Array]:
    return [pack(column) for pack, column in zip(_PACKERS, zip(*rows, strict=True), strict=True)]


def _transposed(labels: Iterable[tuple[str, str, int]]) -> list[Array]:
    names, values, seqs = zip(*labels, strict=True)
    return [texts(names), texts(values), bigints(seqs)]


def _names(names: Iterable[tuple[str, str]]) -> list[Array]:
    first, second = zip(*names, strict=True)
    return [texts(first), texts(second)]


def _seq_of(job: Job) -> int:
    return job.seq
