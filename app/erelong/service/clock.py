"""Reads and moves the virtual clock: from one instant at which something is due to the next, until all is done."""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple

from erelong.clock import instants
from erelong.clock.instants import LATEST_VIRTUAL, SECOND, format_instant
from erelong.duties.waiters import NEVER_LEAVES
from erelong.errors import ClockBackwards, ClockBusy, Fault, Invalid, Problem
from erelong.service.clock_record import ClockRecord
from erelong.service.standstill import Standstill
from erelong.telemetry.log import get_logger

if TYPE_CHECKING:
    from collections.abc import Iterator

    from erelong.clock.instants import Instant
    from erelong.clock.virtual import VirtualClock
    from erelong.duties.duty import Settling
    from erelong.duties.waiters import Client
    from erelong.engine.engine import Engine
    from erelong.engine.operations.duty import Operations
    from erelong.service.standstill import Busy

MAX_STARTS = 100_000  # in one move, since a job may submit itself again and again
MAX_PENDING = 20

log = get_logger(__name__)


class ClockState(NamedTuple):
    """Where the clock stands, the next instant at which anything is due, and the work under way."""

    now: Instant
    is_frozen: bool
    next_at: Instant | None
    busy: Busy


class Move(NamedTuple):
    """What one move did. `reason` says why it ended early: "wait" or "limit"."""

    now: Instant
    is_settled: bool
    reason: str | None
    started: int
    ended: dict[str, int]
    pending: list[str]
    next_at: Instant | None


class Bounds(NamedTuple):
    """Where a move ends early: at an instant of real time, at a number of attempts, or when its client is gone."""

    until: float
    starts: float
    client: Client


class Clock:
    """The operations on a virtual clock. `wait` is in real seconds.

    A move stands still at each instant until nothing is left to do there. It writes an instant to the store before it
    goes there, so that a restart continues from the last one and no stored instant is in the future.
    """

    def __init__(self, *, engine: Engine, leases: Settling, operations: Operations, clock: VirtualClock) -> None:
        self._engine = engine
        self._clock = clock
        self._standstill = Standstill(engine=engine, leases=leases, operations=operations)
        self.record = ClockRecord(store=engine.store, clock=clock)
        self._is_moving = False

    async def load(self) -> None:
        """Start the clock where it was set, but not before the instant in the store."""
        stored = await self.record.read()
        at = max(self._clock.now(), stored or 0) or instants.now()
        self._clock.start(at)
        await self.record.write(at)
        log.warning("clock_virtual", now=format_instant(at), effect="time passes only as POST /v1/clock says")

    def describe(self) -> str:
        """Return where the clock stands, in words."""
        state = "frozen" if self._clock.is_frozen else "flowing"
        return f"virtual, {state} at {format_instant(self._clock.now())}"

    async def read(self) -> ClockState:
        next_at = await self._standstill.next_at()
        return ClockState(self._clock.now(), self._clock.is_frozen, next_at, self._standstill.busy())

    async def set(self, at: Instant, *, wait: float, client: Client = NEVER_LEAVES) -> Move:
        """Move to an instant."""
        with self._alone():
            if at < self._clock.now():
                stands = f"the clock stands at {format_instant(self._clock.now())}"
                raise ClockBackwards(f"{stands} and cannot go back to {format_instant(at)}; set a later time")
            _refuse_late(at, "/set")
            return await self._leap(at, wait=wait, client=client)

    async def advance(self, seconds: float, *, wait: float, client: Client = NEVER_LEAVES) -> Move:
        """Move by so many seconds."""
        with self._alone():
            _refuse_late(at := self._after(seconds), "/advance")
            return await self._leap(at, wait=wait, client=client)

    async def run_until_idle(self, within: float, *, wait: float, client: Client = NEVER_LEAVES) -> Move:
        """Move until nothing is due within so many seconds from now."""
        with self._alone():
            target = min(self._after(within), LATEST_VIRTUAL)
            return await self._leap(target, wait=wait, client=client, ends_idle=True)

    async def freeze(self, is_frozen: bool, *, wait: float, client: Client = NEVER_LEAVES) -> Move:
        """Let the clock stand still, or flow at real speed."""
        with self._alone():
            if is_frozen:
                self._clock.freeze()
                await self.record.write(self._clock.now())
            else:
                await self.record.write_ahead()
                self._clock.flow()
            log.info("clock_frozen" if is_frozen else "clock_flows", now=format_instant(self._clock.now()))
            return await self._leap(self._clock.now(), wait=wait, client=client)

    def _after(self, seconds: float) -> Instant:
        return self._clock.now() + round(seconds * SECOND)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        if self._is_moving:
            raise ClockBusy("another request moves the clock; wait for its response")
        self._is_moving = True
        try:
            yield
        finally:
            self._is_moving = False

    # moving

    async def _leap(self, target: Instant, *, wait: float, client: Client, ends_idle: bool = False) -> Move:
        """Move to the target. A clock that flows stands still meanwhile, and flows on from there."""
        started, ended = self._starts(), self._ends()
        bounds = Bounds(self._engine.tick() + wait, started + MAX_STARTS, client)
        is_flowing = not self._clock.is_frozen
        self._clock.freeze()
        try:
            reason = await self._go(target, bounds, ends_idle=ends_idle)
        finally:
            if is_flowing:
                try:
                    await self.record.write_ahead()
                finally:
                    self._clock.flow()
        move = Move(
            now=self._clock.now(),
            is_settled=reason is None,
            reason=reason,
            started=self._starts() - started,
            ended=dict(self._ends() - ended),
            pending=self._standstill.pending(MAX_PENDING),
            next_at=await self._standstill.next_at(),
        )
        why = {} if reason is None else {"reason": reason}
        log.info("clock_moved", now=format_instant(move.now), started=move.started, **why)
        return move

    async def _go(self, target: Instant, bounds: Bounds, *, ends_idle: bool) -> str | None:
        """Go from instant to instant as far as the target; return why it ended early."""
        while (reason := await self._settle(bounds)) is None:
            self._engine.lifecycle.refuse("does not move the clock")
            next_at = await self._standstill.next_at()
            if self._clock.now() >= target or (next_at is None and ends_idle):
                await self._clean()
                return await self._settle(bounds)
            if self._starts() >= bounds.starts:
                return "limit"
            if self._engine.tick() >= bounds.until or bounds.client.is_gone:
                return "wait"
            await self._step(target if next_at is None else min(next_at, target))
        return reason

    async def _settle(self, bounds: Bounds) -> str | None:
        """Wait until everything is done at this instant; return the bound that ended the wait."""
        while not self._standstill.is_settled():
            left = bounds.until - self._engine.tick()
            if left <= 0 or bounds.client.is_gone:
                return "wait"
            if self._starts() >= bounds.starts:
                return "limit"
            self._engine.lifecycle.refuse("does not move the clock")
            await self._standstill.wait(left)
        return None

    async def _step(self, at: Instant) -> None:
        """Move to an instant, unless an earlier one has come up while it was written."""
        at = max(at, self._clock.now())  # a job may have become due at this instant meanwhile
        await self.record.write(at)
        if self._standstill.is_settled() and not self._standstill.has_before(at):
            self._clock.move(at)

    async def _clean(self) -> None:
        """Delete jobs and records past their retention. The duties repeat a deletion that fails."""
        now = self._clock.now()
        with suppress(Problem):
            await self._engine.retention.sweep(now)
            await self._engine.records.sweep(now)

    def _starts(self) -> int:
        return int(sum(self._engine.metrics.started.values.values()))

    def _ends(self) -> Counter[str]:
        ended: Counter[str] = Counter()
        for (_, state), jobs in self._engine.metrics.finished.values.items():
            ended[state] += int(jobs)
        return ended


def _refuse_late(at: Instant, pointer: str) -> None:
    """Refuse to move beyond the last instant of virtual clocks: later ones cannot be written after some more moves."""
    if at > LATEST_VIRTUAL:
        detail = f"ends at {format_instant(at)}; the virtual clock goes up to {format_instant(LATEST_VIRTUAL)}"
        raise Invalid("the move is not valid", faults=[Fault(pointer, f"{detail}: move by less")])
