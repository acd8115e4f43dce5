"""The running job that a handler is given, and the settings it is made with."""

from __future__ import annotations

from erelong.handlers.base import Handler
from erelong.handlers.registry import make_handlers
from erelong.model.ids import write_id
from erelong.model.job import SECOND, Job, State
from erelong.settings.kinds import Kind
from erelong.settings.sections import Config
from tests.support.builders import make_job
from tests.support.virtual import EPOCH

FUNCTIONS = "tests.handlers.functions"


ID = write_id(1, "token")


def make_attempt(
    params: bytes = b"{}", *, number: int = 1, due_at: int = EPOCH, started_at: int = EPOCH, timeout: float = 60.0
) -> Job:
    """A job that runs, as handlers are given it."""
    job = make_job(kind="call", timeout=timeout, seq=1)
    return job._replace(
        token="token",
        params=params,
        state=State.RUNNING,
        attempt=number,
        due_at=due_at,
        started_at=started_at,
        late_by=max(0, started_at - due_at) / SECOND,
    )


def make_python(function: str, *, module: str = FUNCTIONS) -> Handler:
    """Declare one kind, named call, and make its handler as the service does."""
    return make_handlers(Config(kinds={"call": Kind(python=f"{module}:{function}")}))["call"]
