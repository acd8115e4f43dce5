"""What keeps a waiting job from starting, and when it starts: values, and the estimate. No I/O, no clock."""

from __future__ import annotations

import math
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from erelong.clock.instants import SECOND

if TYPE_CHECKING:
    from collections.abc import Sequence

    from erelong.clock.instants import Instant

MAX_AHEAD: Final = 10_000
TOLERANCE: Final = 0.2  # a start that may come later by more than this share of its wait is not estimated


class Hold(StrEnum):
    """What keeps a job from starting, in the order in which clients read it."""

    TIME = "time"
    RETRY = "retry"
    PAUSE = "pause"
    WORKER = "worker"
    DISK = "disk"
    RATE = "rate"
    LABEL = "label"
    SLOT = "slot"
    WORKERS = "workers"
    AHEAD = "ahead"


ORDER: Final = {hold: place for place, hold in enumerate(Hold)}
WORDS: Final[dict[Hold, str]] = {
    **{hold: hold.value for hold in Hold if hold not in (Hold.DISK, Hold.AHEAD)},
    Hold.RETRY: "time",
    Hold.WORKERS: "slot",
}
"""The words of `waiting_for`. The others have none."""
FULL: Final = frozenset({Hold.LABEL, Hold.SLOT, Hold.WORKERS})
"""The next start comes with the end of a job, whenever that is."""


class Remover(StrEnum):
    """Who has to act so that a blocker ends."""

    RESUME = "resume"
    WORKER = "worker"
    DECLARATION = "declaration"
    OPERATOR = "operator"
    RESTART = "restart"


class Blocker(NamedTuple):
    """One thing that keeps a job from starting: in a few words, and in a sentence with the remedy.

    `value` and `limit` depend on the type. Without `clears_at`, `clears_by` has to act, or a running job has to end.
    """

    type: Hold
    phrase: str
    detail: str
    value: object = None
    limit: object = None
    clears_at: Instant | None = None
    clears_by: Remover | None = None


class Ahead(NamedTuple):
    """The due jobs that start before a job, counted up to `MAX_AHEAD`, and whether there may be more."""

    number: int
    is_more: bool


class Flow(NamedTuple):
    """How fast jobs of a queue start: `starts` were seen while jobs waited (None: too few).

    It is shared if jobs of other pull kinds, or those that run here, take a part of it. `soon` jobs are not due yet.
    """

    rate: float | None = None
    tokens: float = math.inf
    starts: float | None = None
    is_shared: bool = False
    soon: int = 0


class Basis(StrEnum):
    """What the likely start was computed from."""

    RATE = "rate"
    STARTS = "starts"


class Start(NamedTuple):
    """When a job can start at the earliest, and when it is likely to; None if that is unknown."""

    earliest: Instant | None = None
    likely: Instant | None = None
    basis: Basis | None = None
    per_second: float | None = None


UNKNOWN_START: Final = Start()


def estimate(blockers: Sequence[Blocker], ahead: Ahead, flow: Flow, now: Instant) -> Start:
    """Estimate the start of a waiting job with these blockers, except `ahead`.

    The jobs before it start from now on, also while it is not due. The likely start stays unknown rather than guessed.
    """
    is_full = any(blocker.type in FULL for blocker in blockers)
    basis, per_second = _pace(flow, is_full=is_full)
    if any(blocker.clears_by is not None for blocker in blockers):
        return UNKNOWN_START._replace(per_second=per_second)
    earliest = max([now, *(blocker.clears_at for blocker in blockers if blocker.clears_at is not None)])
    if per_second is None:
        is_next = not (ahead.number or ahead.is_more or is_full)
        return Start(earliest, earliest if is_next else None)
    if ahead.is_more or flow.is_shared:
        return Start(earliest, None, None, per_second)
    at_once = 0.0 if is_full else flow.tokens if basis is Basis.RATE else 1.0
    wait = max(0.0, ahead.number + 1 - at_once) / per_second
    likely = max(earliest, now + math.ceil(wait * SECOND))
    is_due = not any(blocker.type in (Hold.TIME, Hold.RETRY) for blocker in blockers)
    if not is_due and flow.soon / per_second > TOLERANCE * (likely - now) / SECOND:
        return Start(earliest, None, None, per_second)
    return Start(earliest, likely, basis, per_second)


def _pace(flow: Flow, *, is_full: bool) -> tuple[Basis | None, float | None]:
    """Return the rate, or the starts seen: where jobs wait for the end of others, the rate alone says too little."""
    if flow.rate is not None and not is_full:
        return Basis.RATE, flow.rate
    if flow.starts is None:
        return None, None
    if flow.rate is not None and flow.rate < flow.starts:
        return Basis.RATE, flow.rate
    return Basis.STARTS, flow.starts
