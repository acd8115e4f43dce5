"""The kinds by name: the declaration and the runner of each."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, Protocol

from erelong.handlers.base import Params, Runner, Stop

if TYPE_CHECKING:
    from erelong.model.job import Job
    from erelong.settings.queues import RetryPatch


class Origin(StrEnum):
    """Where a kind is declared."""

    BUILT_IN = "built-in"
    CONFIG = "config"
    API = "api"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind. Without a runner it is a pull kind, whose jobs external workers lease.

    `timeout` and `retry` are defaults of its jobs, and `example` has params that it accepts, if such are known.
    The param `any_param` may have any value: whether params are sound does not depend on it.
    """

    name: str
    type: str
    stop: Stop
    params_schema: dict[str, Any]
    params: Params
    runner: Runner | None
    any_param: str | None = None
    isolation: str | None = None
    result_schema: dict[str, Any] | None = None
    declared: Origin = Origin.CONFIG
    timeout: float | None = None
    retry: RetryPatch | None = None
    example: dict[str, Any] | None = None

    @property
    def is_pull(self) -> bool:
        return self.runner is None


class AnyParams:
    """Accepts any params."""

    def check(self, params: bytes) -> None: ...


# Its jobs wait until the kind is declared again, as jobs of a pull kind wait for a worker.
UNDECLARED: Final = Kind(
    name="", type="undeclared", stop=Stop.COOPERATIVE, params_schema={}, params=AnyParams(), runner=None
)


class LeaseTracer(Protocol):
    """Traces attempts that external workers run."""

    def lease(self, job: Job) -> str:
        """Begin the trace of a leased attempt; return the `traceparent` with which its worker continues the trace."""
        ...


class Kinds(dict[str, Kind]):
    """All kinds, sorted by name. It may change while the service runs.

    `kinds[name]` is `UNDECLARED` for an undeclared name. `name in kinds` and `get` know only declared kinds.
    """

    def __init__(self, *kinds: Kind, tracer: LeaseTracer | None = None) -> None:
        super().__init__({kind.name: kind for kind in sorted(kinds, key=lambda kind: kind.name)})
        self.tracer = tracer
        self._opened = AsyncExitStack()

    def __missing__(self, name: str) -> Kind:
        return UNDECLARED

    def declare(self, kind: Kind) -> None:
        """Add a pull kind, or replace it."""
        every = {**self, kind.name: kind}
        self.clear()
        self.update({name: every[name] for name in sorted(every)})

    def withdraw(self, name: str) -> None:
        """Remove a pull kind. Its jobs wait until it is declared again."""
        del self[name]

    @property
    def abandoned(self) -> int:
        """Return the number of abandoned attempts that the runners count."""
        return sum(kind.runner.abandoned for kind in self.values() if kind.runner is not None)

    async def open(self) -> None:
        """Open every runner; if one fails, close those already open."""
        async with AsyncExitStack() as opened:
            for kind in self.values():
                if kind.runner is not None:
                    await kind.runner.open()
                    opened.push_async_callback(kind.runner.close)
            self._opened = opened.pop_all()

    async def close(self) -> None:
        await self._opened.aclose()
