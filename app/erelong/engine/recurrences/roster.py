"""All schedules as far as memory knows them: which are paused, which are due next, and which wait for a job."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from erelong.duties.duty import SetAside
from erelong.engine.recurrences.plan import Plan
from erelong.engine.recurrences.watches import Watches

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from erelong.clock.instants import Instant
    from erelong.duties.signal import Settable
    from erelong.duties.waiters import Waiters
    from erelong.model.schedules.schedule import Schedule
    from erelong.telemetry.metrics import Metrics


class Roster:
    """The schedules by name. Those that are not planned have no next time yet, or an outdated one."""

    def __init__(self, *, name: str, waiters: Waiters, wake: Settable, metrics: Metrics) -> None:
        """Set `wake` when there is work."""
        self.plan = Plan(earlier=wake)
        self.watches = Watches(waiters=waiters, wake=wake)
        self.aside: SetAside[str] = SetAside(name=name, metrics=metrics)
        self.paused: dict[str, bool] | None = None  # every schedule, and whether it is paused; None: not loaded yet
        self.unplanned: deque[str] = deque()
        self._wake = wake

    @property
    def has_work(self) -> bool:
        """Whether something is to be done though nothing may be due."""
        return self.paused is None or bool(self.unplanned or self.watches.woken)

    @property
    def count(self) -> int:
        return len(self.paused or ())

    def load(self, paused: dict[str, bool]) -> None:
        """Take all stored schedules, to be planned."""
        self.paused = paused
        self.unplanned.extend(paused)

    def set(self, schedule: Schedule, at: Instant | None) -> None:
        """Note a schedule as it is stored, and when it is due next (None: never)."""
        assert self.paused is not None
        self.paused[schedule.name] = schedule.is_paused
        self.plan.set(schedule.name, at)
        self.watches.set(schedule)

    def forget(self, name: str) -> None:
        self.aside.remove([name])
        if self.paused is not None:
            self.paused.pop(name, None)
        self.plan.set(name, None)
        self.watches.remove(name)

    def is_due(self, name: str, now: Instant) -> bool:
        at = self.plan.next_of(name)
        return name in self.watches.woken or (at is not None and at <= now)

    def take_unplanned(self, limit: int) -> list[str]:
        """Return some of the schedules to plan, each once."""
        return [*dict.fromkeys(self.unplanned.popleft() for _ in range(min(limit, len(self.unplanned))))]

    def plan_later(self, name: str) -> None:
        self.unplanned.append(name)
        self._wake.set()

    def plan_again(self) -> None:
        """Plan all schedules again; until then none is due, since its next time may be wrong."""
        self.plan.clear()
        self.unplanned = deque(self.paused or ())
        self._wake.set()

    def set_aside(self, names: Iterable[str], failed: Sequence[tuple[str, Exception]]) -> None:
        """Repeat those of these schedules that failed alone after a pause."""
        self.aside.remove({*names}.difference(name for name, _ in failed))
        for name, error in failed:
            pause = self.aside.add(name, error)
            asyncio.get_running_loop().call_later(pause, self.plan_later, name)
