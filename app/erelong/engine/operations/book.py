"""Reads and writes stored operations, and remembers the state of each."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Final, NamedTuple

from erelong.clock.instants import SECOND
from erelong.errors import OperationNotFound, TooMany
from erelong.model.operations.operation import SORT, Operation, Phase, as_document, read_operation
from erelong.telemetry.log import get_logger

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from erelong.clock.instants import Instant
    from erelong.model.document import Document
    from erelong.model.operations.operation import Action
    from erelong.model.submission import IdempotencyRecord
    from erelong.stores.base import Store

MAX_WAITING: Final = 100
MAX_KEPT: Final = 1_000
KEPT_FOR: Final = 7 * 24 * 3600 * SECOND
DIGITS: Final = 13  # of the instant in an id
PAGE: Final = 20  # the documents may be large, since they list ids

log = get_logger(__name__)


class Entry(NamedTuple):
    """What is remembered of an operation."""

    state: Phase
    action: Action
    by: str
    key: str | None
    finished_at: Instant | None


class Book:
    """The stored operations. An id begins with the instant of its creation, in microseconds, so ids sort by it."""

    def __init__(self, *, store: Store) -> None:
        self._store = store
        self._entries: dict[str, Entry] = {}  # in the order of the ids
        self._last = 0

    @property
    def entries(self) -> Mapping[str, Entry]:
        return self._entries

    @property
    def next_live(self) -> str | None:
        """The oldest operation that is not over."""
        return next((id for id, entry in self._entries.items() if not entry.state.is_over), None)

    async def load(self) -> None:
        """Read all operations. A damaged one is left alone."""
        after, entries = "", dict[str, Entry]()
        while documents := await self._store.documents(SORT, after=after, limit=PAGE):
            found = [operation for document in documents if (operation := _read(document)) is not None]
            entries |= {operation.id: _entry_of(operation) for operation in found}
            after = documents[-1].name
        if after:
            self._last = max(self._last, int(after[:DIGITS], 16))
        self._entries = entries

    def make_id(self, now: Instant) -> str:
        """Return the id of a new operation, which is above those of all stored ones even if the clock was set back."""
        self._last = max(now, self._last + 1)
        return f"{self._last:0{DIGITS}x}{os.urandom(7).hex()[:13]}"

    def refuse_many(self) -> None:
        waiting = sum(entry.state is Phase.WAITING for entry in self._entries.values())
        if waiting >= MAX_WAITING:
            raise TooMany(f"{waiting} operations wait; wait until some are over, or cancel them")

    def find_key(self, key: str) -> str:
        """Return the id of the latest operation that a request with an `Idempotency-Key` has made."""
        for id, entry in reversed(self._entries.items()):  # a key may be used again after a day
            if entry.key == key:
                return id
        raise OperationNotFound("the operation that this Idempotency-Key made is no longer kept; send a new one")

    async def read(self, id: str) -> Operation | None:
        document = await self._store.document(SORT, id) if id in self._entries else None
        return None if document is None else _read(document)

    async def read_all(self, ids: Sequence[str]) -> list[Operation]:
        """Return these operations, in this order, with numbers in place of the ids that their filters list."""
        found = []
        for start in range(0, len(ids), PAGE):
            part = ids[start : start + PAGE]
            documents = {document.name: document for document in await self._store.named(SORT, part)}
            for document in [documents[id] for id in part if id in documents]:
                if (operation := _read(document)) is not None:
                    found.append(operation.without_ids())
                await asyncio.sleep(0)
        return found

    async def write(self, operation: Operation, now: Instant, record: IdempotencyRecord | None = None) -> bool:
        """Store the next version of an operation; return False if the record is of an earlier request.

        Raise `DocumentChanged` if another write came first.
        """
        receipt = await self._store.add([], now=now, record=record, beside=[as_document(operation, now)])
        if receipt.replayed:
            return False
        self.written(operation)
        return True

    def written(self, operation: Operation) -> None:
        """Note an operation that has been stored."""
        self._entries[operation.id] = _entry_of(operation)

    async def forget_old(self, now: Instant) -> None:
        """Delete operations that have been over for a week, and all but the latest thousand."""
        over = [id for id, entry in self._entries.items() if entry.state.is_over]
        surplus = {*over[: max(0, len(over) - MAX_KEPT)]}
        old = [id for id in over if id in surplus or (self._entries[id].finished_at or 0) < now - KEPT_FOR]
        for operation in await self.read_all(old):
            await self._store.add([], now=now, beside=[as_document(operation, now)._replace(text=None)])
        for id in old:
            self._entries.pop(id, None)


def _entry_of(operation: Operation) -> Entry:
    request = operation.request
    return Entry(operation.state, request.action, request.by, operation.key, operation.finished_at)


def _read(document: Document) -> Operation | None:
    try:
        return read_operation(document)
    except (ValueError, KeyError, TypeError) as error:
        log.error("operation_unreadable", operation=document.name, problem=str(error))
        return None
