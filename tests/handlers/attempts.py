"""The attempt that a handler is given, and the settings it is made with."""

from __future__ import annotations

from app.config import Config, Kind
from app.handlers import make_handlers
from app.handlers.base import Attempt, Handler
from app.ids import write_id
from tests.support.virtual import EPOCH

FUNCTIONS = "tests.handlers.functions"


ID = write_id(1, "token")


def make_attempt(*, number: int = 1, due_at: int = EPOCH, started_at: int = EPOCH, timeout: float = 60.0) -> Attempt:
    return Attempt(
        seq=1,
        token="token",
        kind="call",
        queue="default",
        number=number,
        due_at=due_at,
        started_at=started_at,
        timeout=timeout,
    )


def make_python(function: str, *, module: str = FUNCTIONS) -> Handler:
    """Declare one kind, named call, and make its handler as the service does."""
    return make_handlers(Config(kinds={"call": Kind(python=f"{module}:{function}")}))["call"]
