"""The kinds of work by name: what is declared of each, and what runs it."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, Final

from erelong.handlers.base import Params, Runner, Stop


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of work. Without a runner its jobs are leased by workers outside: a pull kind."""

    name: str
    type: str
    stop: Stop
    params_schema: dict[str, Any]
    params: Params
    runner: Runner | None
    isolation: str | None = None
    result_schema: dict[str, Any] | None = None

    @property
    def is_pull(self) -> bool:
        return self.runner is None


class AnyParams:
    """Takes any params: there is nothing to check them against."""

    def check(self, params: bytes) -> None: ...


# Its jobs wait, as those of a pull kind that no worker asks for, until the kind is declared again.
UNDECLARED: Final = Kind(
    name="", type="undeclared", stop=Stop.COOPERATIVE, params_schema={}, params=AnyParams(), runner=None
)


class Kinds(dict[str, Kind]):
    """All kinds in the order of their names; it may change while the service runs.

    `kinds[name]` of a name that is not declared is `UNDECLARED`; `name in kinds` and `get` know only declared ones.
    """

    def __init__(self, *kinds: Kind) -> None:
        super().__init__({kind.name: kind for kind in sorted(kinds, key=lambda kind: kind.name)})
        self._opened = AsyncExitStack()

    def __missing__(self, name: str) -> Kind:
        return UNDECLARED

    @property
    def abandoned(self) -> int:
        """Attempts that were given up on and still run, as the runners know of them."""
        return sum(kind.runner.abandoned for kind in self.values() if kind.runner is not None)

    async def open(self) -> None:
        """Open every runner; one that fails closes those that were opened."""
        async with AsyncExitStack() as opened:
            for kind in self.values():
                if kind.runner is not None:
                    await kind.runner.open()
                    opened.push_async_callback(kind.runner.close)
            self._opened = opened.pop_all()

    async def close(self) -> None:
        await self._opened.aclose()
