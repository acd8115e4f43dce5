"""The last starts of the service, kept in the store, so that people can see restarts in a row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import orjson

from erelong.errors import Problem
from erelong.model.document import Document
from erelong.telemetry.log import get_logger

if TYPE_CHECKING:
    from erelong.clock.instants import Instant
    from erelong.stores.base import Store

SORT, NAME = "starts", "service"
MOST: Final = 20

log = get_logger(__name__)


async def record_start(store: Store, now: Instant) -> list[Instant]:
    """Add a start to the stored ones and return the earlier ones, the oldest first. A store that refuses the write
    stops no start.
    """
    try:
        document = await store.document(SORT, NAME)
        earlier, version = ([], 0) if document is None else (_read(document), document.version)
        text = orjson.dumps({"starts": [*earlier, now][-MOST:]})
        await store.add([], now=now, beside=[Document(SORT, NAME, version + 1, now, text)])
    except Problem as problem:
        log.warning("start_unrecorded", problem=problem.detail)
        return []
    return earlier


def _read(document: Document) -> list[Instant]:
    try:
        return [int(start) for start in orjson.loads(document.text or b"{}")["starts"]]
    except (ValueError, KeyError, TypeError):
        return []
