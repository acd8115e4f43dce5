"""The status of each part of the service, with a remedy, for `/readyz`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from erelong.clock.instants import SECOND
from erelong.duties.lifecycle import Phase

if TYPE_CHECKING:
    from erelong.engine.engine import Engine
    from erelong.monitoring.watchdog import Watchdog
    from erelong.service.services import Services
    from erelong.stores.base import SharedStore

OVERDUE = 5.0  # seconds that a commit or a lap of the scheduler may take before it is reported
SHOWN = 600.0  # seconds for which a clock step or a blocked loop is still reported


class Health:
    """Reports the status of each part of the service."""

    def __init__(
        self, *, services: Services, watchdog: Watchdog | None = None, shared: SharedStore | None = None
    ) -> None:
        self._services = services
        self._watchdog = watchdog
        self._shared = shared

    @property
    def _engine(self) -> Engine:
        return self._services.engine

    def checks(self) -> dict[str, str]:
        """Return the status of each part: "ok", "ok" with a note, or the failure and its remedy."""
        checks = {
            "service": self._of_service(),
            "store": self._of_store(),
            "outcomes": self._of_outcomes(),
            "loop": self._watchdog.state() if self._watchdog else "ok",
            "clock": self._of_clock(),
        }
        return checks | {name: self._of_duty(name) for name in self._engine.duties}

    def _of_duty(self, name: str) -> str:
        engine = self._engine
        status = engine.duties[name].status()
        if status == "ok" and name == engine.scheduler.name:
            status = self._of_scheduler()
        if status == "ok" and name in engine.asides:
            status = engine.asides[name].status()
        if status == "ok" and name == engine.zone_changes.name:
            status = f"ok, {engine.zone_source.current.version}"
        return status

    def _of_service(self) -> str:
        reason = None if self._shared is None else self._shared.standby()
        match self._engine.lifecycle.phase:
            case Phase.RUNNING:
                return "ok"
            case Phase.STARTING if reason is not None and self._shared is not None and self._shared.may_lead:
                return f"standby: {reason}; this node takes over when it can"
            case Phase.STARTING if reason is not None:
                return f"standby: {reason}; this node never does ([cluster] lead is false)"
            case Phase.DRAINING if self._engine.lifecycle.hands_over:
                return "ok, draining until another node leads"
            case phase:
                return phase.name.lower()

    def _of_scheduler(self) -> str:
        engine = self._engine
        began_at = engine.duties[engine.scheduler.name].lap_began_at
        if began_at is not None and (takes := engine.tick() - began_at) >= OVERDUE:
            return f"a lap has been running for {takes:.0f} s: the store does not answer its reads; check the disk"
        since, next_due = engine.tick() - engine.scheduler.checked_at, engine.scheduler.next_due
        if since < OVERDUE or began_at is not None:
            return "ok"
        late = 0.0 if next_due is None else (engine.now() - next_due) / SECOND
        if late < OVERDUE:
            return "ok"
        return f"asleep although a job has been due for {late:.0f} s; restart, and report this bug"

    def _of_store(self) -> str:
        state, under_way = self._engine.store.status() or "ok", self._engine.metrics.commits.under_way
        if under_way < OVERDUE or not state.startswith("ok"):
            return state
        running = f"a commit has been running for {under_way:.0f} s"
        return f"{running}: check the disk for faults (dmesg) and for its load (iostat)"

    def _of_outcomes(self) -> str:
        completer = self._engine.completer
        if not completer.is_full:
            return "ok"
        return f"{len(completer)} unsaved outcomes, so no job starts; look for duty_failed in the log"

    def _of_clock(self) -> str:
        if (virtual := self._services.clock) is not None:
            return f"ok, {virtual.describe()}"
        if self._shared is not None and abs(shift := self._shared.clock.shift) > SECOND:
            return f"ok, {shift / SECOND:+.1f} s off: jobs follow the clock of the store; synchronize this machine"
        scheduler, tick = self._engine.scheduler, self._engine.tick()
        jump, ago = scheduler.last_jump, tick - scheduler.jumped_at
        if jump is None or ago > SHOWN:
            return "ok"
        effect = "waiting jobs are due sooner" if jump > 0 else "waiting jobs wait longer"
        return f"ok, stepped by {jump:+.1f} s {ago:.0f} s ago: {effect}"
