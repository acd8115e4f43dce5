"""What ails the service, part by part, and what to do about it: the answer of `/readyz`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from erelong.model.job import SECOND

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from erelong.clock.instants import Now
    from erelong.duties.duty import Duty, SetAside
    from erelong.engine.agenda import Agenda
    from erelong.engine.completer import Outcomes
    from erelong.engine.scheduler import Scheduler
    from erelong.service.jobs import Service
    from erelong.stores.base import Store
    from erelong.telemetry.metrics import GroupTimer

OVERDUE = 5.0  # seconds that a commit, or a lap of the scheduler, may take before it is told
SHOWN = 600.0  # seconds for which a step of the clock, or a loop that stood still, is shown after it is over


class Health:
    """Names each part with "ok", perhaps with something to know, or what ails it. `tick` is the monotonic clock."""

    def __init__(
        self,
        *,
        service: Service,
        scheduler: Scheduler,
        agenda: Agenda,
        outcomes: Outcomes,
        store: Store,
        duties: Mapping[str, Duty],
        asides: Mapping[str, SetAside[Any]],
        commits: GroupTimer,
        tick: Callable[[], float],
        now: Now,
    ) -> None:
        self._service = service
        self._scheduler = scheduler
        self._agenda = agenda
        self._outcomes = outcomes
        self._store = store
        self._duties = duties
        self._asides = asides
        self._commits = commits
        self._tick = tick
        self._now = now
        self.is_started = False
        self.loop: Callable[[], str] = lambda: "ok"

    def checks(self) -> dict[str, str]:
        """Return the state of each part: "ok" if it is fit, perhaps with something to know, or what is wrong."""
        checks = {
            "service": self._of_service(),
            "store": self._of_store(),
            "outcomes": self._of_outcomes(),
            "loop": self.loop(),
            "clock": self._of_clock(),
        }
        return checks | {name: self._of_duty(name) for name in self._duties}

    def _of_duty(self, name: str) -> str:
        status = self._duties[name].status()
        if status == "ok" and name == self._scheduler.name:
            status = self._of_scheduler()
        if status == "ok" and name in self._asides:
            status = self._asides[name].status()
        return status

    def _of_service(self) -> str:
        if self._service.is_draining:
            return "draining"
        return "ok" if self.is_started else "starting"

    def _of_scheduler(self) -> str:
        began_at = self._duties[self._scheduler.name].lap_began_at
        if began_at is not None and (takes := self._tick() - began_at) >= OVERDUE:
            return f"a lap has been running for {takes:.0f} s: the store does not answer its reads; check the disk"
        since, next_due = self._tick() - self._scheduler.looked_at, self._agenda.next_due()
        if since < OVERDUE or began_at is not None:
            return "ok"
        late = 0.0 if next_due is None else (self._now() - next_due) / SECOND
        return (
            "ok" if late < OVERDUE else f"asleep although a job has been due for {late:.0f} s; restart, and report it"
        )

    def _of_store(self) -> str:
        ailment, under_way = self._store.ailment() or "ok", self._commits.under_way
        if under_way < OVERDUE or not ailment.startswith("ok"):
            return ailment
        return f"a commit takes {under_way:.0f} s already: look at the disk (dmesg, iostat) and who else writes to it"

    def _of_outcomes(self) -> str:
        if not self._outcomes.is_full:
            return "ok"
        return f"{len(self._outcomes)} wait for the disk and nothing new begins; look for duty_failed in the log"

    def _of_clock(self) -> str:
        jump, jumped_at = self._scheduler.last_jump, self._scheduler.jumped_at
        if jump is None or self._tick() - jumped_at > SHOWN:
            return "ok"
        effect = "what waits is due sooner" if jump > 0 else "what waits, waits longer"
        return f"ok, stepped by {jump:+.1f} s {self._tick() - jumped_at:.0f} s ago: {effect}"
