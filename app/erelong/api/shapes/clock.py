"""The body of a move of the virtual clock, and the views of the clock and of moves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from erelong.api.schemas import Body, DelayIn, InstantIn
from erelong.api.shapes.parts import COUNT, ID, TIME, TIME_OR_NULL, array_of, object_of
from erelong.clock.instants import format_instant
from erelong.settings.types import Duration

if TYPE_CHECKING:
    from erelong.clock.instants import Instant
    from erelong.service.clock import ClockState, Move

MAX_WAIT: Final = 60.0
MOVES: Final = ("set", "advance", "run_until_idle", "frozen")


class ClockIn(Body):
    """Where to move the virtual clock: exactly one of `set`, `advance`, `run_until_idle` and `frozen`."""

    set: InstantIn | None = Field(None, description="The instant to move to.")
    advance: DelayIn | None = Field(None, description="Seconds to move by.")
    run_until_idle: Literal[True] | None = Field(None, description="Move until nothing is due any more.")
    within: Duration | None = Field(None, description="How far `run_until_idle` may move; 30 days if not given.")
    frozen: bool | None = Field(None, description="`false`: the clock flows at real speed. `true`: it stands still.")
    wait: Duration = Field(MAX_WAIT, description="Real seconds to wait until all is done; capped at 60.")

    @model_validator(mode="after")
    def _one_move(self) -> Self:
        given = [name for name in MOVES if getattr(self, name) is not None]
        if len(given) != 1:
            raise _refused(f"give exactly one of {', '.join(MOVES)}, not {' and '.join(given) or 'none'}")
        if self.within is not None and self.run_until_idle is None:
            raise _refused("within needs run_until_idle; give it, or leave within out")
        return self


def _refused(reason: str) -> PydanticCustomError:
    return PydanticCustomError("field", "{reason}", {"reason": reason})


def clock_view(clock: ClockState) -> dict[str, Any]:
    return {
        "now": format_instant(clock.now),
        "frozen": clock.is_frozen,
        "next_at": _next_at(clock.next_at),
        "busy": clock.busy._asdict(),
    }


def move_view(move: Move) -> dict[str, Any]:
    return {
        "now": format_instant(move.now),
        "settled": move.is_settled,
        "reason": move.reason,
        "started": move.started,
        "ended": move.ended,
        "pending": move.pending,
        "next_at": _next_at(move.next_at),
    }


def _next_at(at: Instant | None) -> str | None:
    return None if at is None else format_instant(at)


_NEXT_AT: Final = TIME_OR_NULL | {"description": "The next instant at which anything is due; null if nothing is."}
_BUSY: Final = object_of(dict.fromkeys(("due", "running", "leased", "unsaved", "operations"), COUNT))
_MOVE: Final = object_of(
    {
        "now": TIME,
        "settled": {"type": "boolean", "description": "Whether the move is complete and all that it started is done."},
        "reason": {"enum": ["wait", "limit", None], "description": "Why the move ended early."},
        "started": COUNT | {"description": "Attempts that started."},
        "ended": {"type": "object", "additionalProperties": COUNT, "description": "Jobs that ended, by state."},
        "pending": array_of(ID) | {"maxItems": 20, "description": "Jobs that run."},
        "next_at": _NEXT_AT,
    }
)
CLOCK_SCHEMAS: Final[dict[str, dict[str, Any]]] = {
    "Clock": object_of({"now": TIME, "frozen": {"type": "boolean"}, "next_at": _NEXT_AT, "busy": _BUSY}),
    "Move": _MOVE,
}
