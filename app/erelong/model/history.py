"""The last twenty attempts of a job, each with its outcome, as the JSON text that clients read."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import orjson

from erelong.clock.instants import format_instant
from erelong.model.outcome import MAX_MESSAGE, UNEXPLAINED, Outcome, storable

if TYPE_CHECKING:
    from erelong.clock.instants import Instant

MAX_ATTEMPTS_KEPT = 20
NO_ATTEMPTS = b"[]"
# Written by hand: building a dictionary and serializing it takes twice as long.
_ENTRY = b'{"number":%d,"started_at":"%b","finished_at":"%b","late_by":%b,"outcome":"%b","error":%b%b%b}'
_ONLY_ENTRY = b"[%b]" % _ENTRY


def with_attempt(
    history: bytes,
    number: int,
    started_at: Instant,
    finished_at: Instant,
    late_by: float | None,
    outcome: Outcome,
    worker: str | None = None,
) -> bytes:
    """Return the history with one more attempt, which a pull worker ran that may have a name."""
    error = outcome.error or UNEXPLAINED.get(outcome.end)
    entry = (_ENTRY if history != NO_ATTEMPTS else _ONLY_ENTRY) % (
        number,
        _stamp(-(started_at // -1000)),
        _stamp(-(finished_at // -1000)),
        orjson.dumps(late_by),
        outcome.end.encode(),
        error.to_json() if error else b"null",
        b',"output":%b' % orjson.dumps(storable(outcome.output)) if outcome.output else b"",
        b',"worker":%b' % orjson.dumps(worker) if worker is not None else b"",
    )
    if history == NO_ATTEMPTS:
        return entry
    earlier = orjson.loads(history)[1 - MAX_ATTEMPTS_KEPT :]
    if earlier and "output" in earlier[-1]:  # only the latest attempt keeps its whole output
        earlier[-1]["output"] = earlier[-1]["output"][-MAX_MESSAGE:]
    return orjson.dumps([*earlier, orjson.Fragment(entry)])


@lru_cache(maxsize=1024)
def _stamp(milliseconds: int) -> bytes:
    """Return an instant as text. Cached, since attempts often start or end in the same millisecond."""
    return format_instant(milliseconds * 1000).encode()
