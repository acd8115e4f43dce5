"""Running jobs for handlers, and handlers from settings."""

from __future__ import annotations

from typing import Protocol, cast

from erelong.handlers.base import Params, Runner
from erelong.handlers.kinds import Kind
from erelong.handlers.registry import make_kinds
from erelong.model.ids import write_id
from erelong.model.job import SECOND, Job, State
from erelong.settings.kinds import KindSettings
from erelong.settings.sections import Config
from tests.support.builders import make_job
from tests.support.virtual import EPOCH

FUNCTIONS = "tests.handlers.functions"


ID = write_id(1, "token")


def make_attempt(
    params: bytes = b"{}", *, number: int = 1, due_at: int = EPOCH, started_at: int = EPOCH, timeout: float = 60.0
) -> Job:
    """Return a running job as a handler receives it."""
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


class Handler(Params, Runner, Protocol):
    """A runner that checks params too, as all runners do."""


def handler_of(kind: Kind) -> Handler:
    """Return the runner of a kind, which checks its params too."""
    return cast("Handler", kind.runner)


def make_python_kind(function: str, *, module: str = FUNCTIONS) -> Kind:
    """Return a kind named call, made as from settings."""
    return make_kinds(Config(kinds={"call": KindSettings(python=f"{module}:{function}")}))["call"]


def make_python(function: str, *, module: str = FUNCTIONS) -> Handler:
    """Return the runner of such a kind."""
    return handler_of(make_python_kind(function, module=module))
