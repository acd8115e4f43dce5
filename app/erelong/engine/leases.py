"""The leases that pull workers hold: their slots and deadlines, and their expiry."""

from __future__ import annotations

import asyncio
import math
import random
from typing import TYPE_CHECKING, NamedTuple

from erelong.clock.instants import SECOND
from erelong.duties.duty import SetAside, in_halves
from erelong.duties.signal import Signal
from erelong.engine.agenda import Agenda
from erelong.errors import StoreRefused
from erelong.model import retry
from erelong.model.job import Job, State
from erelong.model.outcome import End, Error, Outcome
from erelong.model.query import Query

if TYPE_CHECKING:
    from collections.abc import Sequence

    from erelong.clock.instants import Instant
    from erelong.clock.system import Clock
    from erelong.engine.changes import Changes
    from erelong.handlers.kinds import Kinds
    from erelong.lanes.lane import Slot
    from erelong.lanes.lanes import Lanes
    from erelong.stores.base import Saved, Store
    from erelong.telemetry.metrics import Metrics

MAX_EXPIRE = 200
MAX_STALE = 1_000
RAN_OUT = Outcome(End.LOST, error=Error("lost", "its lease ran out"))


class Held(NamedTuple):
    """The slot of a lease, its deadline on the monotonic clock, and the wall time of that deadline as it is stored.

    The slot is None after the lease has expired, while its end cannot be saved. `entry` is the instant at which the
    lease is next in the agenda of deadlines, at or before its deadline (None: it is being ended, or set aside).
    """

    slot: Slot | None
    deadline: int
    until: Instant | None
    entry: int | None


class HeldLeases:
    """Keeps deadlines on the monotonic clock, so no step of the wall clock ends a lease. The store has their wall time,
    from which they continue after a restart.
    """

    name = "leases"

    def __init__(
        self, *, store: Store, lanes: Lanes, changes: Changes, kinds: Kinds, metrics: Metrics, clock: Clock
    ) -> None:
        self._store = store
        self._kinds = kinds
        self._lanes = lanes
        self._changes = changes
        self._clock = clock
        self._now, self._tick = clock.now, clock.tick
        self._held: dict[int, Held] = {}
        self._sooner = Signal()
        self._deadlines = Agenda(earlier=self._sooner)
        self.aside: SetAside[int] = SetAside(name=self.name, metrics=metrics)

    def __len__(self) -> int:
        """Return how many leases are held."""
        return sum(held.slot is not None for held in self._held.values()) if self.aside.failures else len(self._held)

    async def load(self) -> None:
        """Load the leases that were held when the service last stopped."""
        now = self._now()
        after: tuple[int, int] | None = None
        groups = [group for group, jobs in dict(self._store.counts()).items() if jobs]
        may_be_held = any(state is State.RUNNING and self._kinds[kind].is_pull for _, kind, state in groups)
        page = MAX_EXPIRE if may_be_held else 0
        while page == MAX_EXPIRE:
            query = Query(states=frozenset({State.RUNNING}), after=after, limit=MAX_EXPIRE)
            jobs = await self._store.list(query)
            for job in jobs:
                if job.lease is not None and self._kinds[job.kind].is_pull:
                    self.hold(job, self._lanes.occupy(job), _left(job, now))
            page = len(jobs)
            after = (0, jobs[-1].seq) if jobs else None

    def hold(self, job: Job, slot: Slot, seconds: float) -> None:
        """Record the lease of a job for `seconds` from now, with its slot."""
        before = self._held.get(job.seq)
        if before is not None and before.slot is not slot:  # of an earlier lease of the job
            self._release(before)
        self._set(job, slot, seconds)

    def extend(self, job: Job, seconds: float) -> None:
        """Extend the held lease of a job to `seconds` from now."""
        held = self._held.get(job.seq)
        if held is not None:
            self._set(job, held.slot, seconds)

    def reread(self, seq: int, job: Job | None) -> None:
        """Forget the lease of a job and free its slot if the stored job has none."""
        if (job is None or job.lease is None) and (held := self._held.pop(seq, None)) is not None:
            self._release(held)

    def next_at(self) -> Instant | None:
        """Return when the next lease runs out."""
        deadlines = [held.deadline for held in self._held.values() if held.slot is not None]
        return self._now() + min(deadlines) - round(self._tick() * SECOND) if deadlines else None

    def is_settled(self) -> bool:
        return (next_at := self.next_at()) is None or next_at > self._now()

    async def ready(self) -> None:
        """Wait until a lease may have expired."""
        due = self._deadlines.next_due()
        left = math.inf if due is None else due / SECOND - self._tick()
        if left <= 0:
            return
        alarm = None if due is None else self._clock.call_later(left, self._sooner.set)
        try:
            await self._sooner.wait()
        finally:
            if alarm is not None:
                alarm.cancel()

    async def lap(self) -> None:
        """End the expired leases."""
        tick = round(self._tick() * SECOND)
        expired = self._pop_expired(tick)
        if not expired:
            return
        try:
            for seq, error in await in_halves(expired, self._expire):
                self._keep_without_slot(seq, self.aside.add(seq, error))
        except BaseException:
            for seq in expired:
                self._try_again(seq)  # the duty pauses before its next lap
            raise

    def _set(self, job: Job, slot: Slot | None, seconds: float) -> None:
        deadline = round((self._tick() + max(seconds, 0.0)) * SECOND)
        before = self._held.get(job.seq)
        entry = None if before is None else before.entry
        self._held[job.seq] = Held(slot, deadline, job.lease_until, entry)
        if entry is None or entry > deadline:  # otherwise the entry comes early and is added again
            self._enter(job.seq, deadline)

    def _enter(self, seq: int, due: int) -> None:
        """Add an entry for a held lease, in place of any other; rebuild the deadlines if many entries are stale."""
        self._held[seq] = self._held[seq]._replace(entry=due)
        self._deadlines.add(due, seq)
        if len(self._deadlines) > 2 * len(self._held) + MAX_STALE:
            self._deadlines = Agenda(earlier=self._sooner)
            entries = [(held.entry, seq) for seq, held in self._held.items() if held.entry is not None]
            self._deadlines.extend(entries)

    def _release(self, held: Held) -> None:
        if held.slot is not None:
            self._lanes.release(held.slot)

    def _pop_expired(self, tick: int) -> list[int]:
        """Return the jobs whose leases have expired; add extended leases to the deadlines again."""
        expired: list[int] = []
        for due, seq in self._deadlines.pop(tick, MAX_EXPIRE):
            held = self._held.get(seq)
            if held is None or held.entry != due:  # ended, or entered again for another instant
                continue
            if held.deadline <= tick:
                self._held[seq] = held._replace(entry=None)
                expired.append(seq)
            else:
                self._enter(seq, held.deadline)
        return expired

    async def _expire(self, seqs: Sequence[int]) -> None:
        jobs = await self._store.get(seqs)
        now, tick = self._now(), round(self._tick() * SECOND)
        over = [job for job in jobs.values() if self._is_over(job, now, tick)]
        pairs = [(job, end_lease(job, RAN_OUT, "expired", now)) for job in over]
        verdicts = await self._store.save([after for _, after in pairs]) if pairs else []
        for (before, _), verdict in zip(pairs, verdicts, strict=True):
            self._apply(before, verdict)
        if len(jobs) < len(seqs) > 1:
            raise StoreRefused("some of these jobs cannot be read")  # a single read raises the reason
        if not jobs:
            self.reread(seqs[0], None)
        self.aside.remove(seqs)

    def _is_over(self, job: Job, now: Instant, tick: int) -> bool:
        """Return whether the lease of a job must be ended; apply what its worker has done to it meanwhile."""
        held = self._held.get(job.seq)
        if held is None or held.deadline > tick:
            return False
        if job.lease is None:
            self.reread(job.seq, job)
            return False
        if job.lease_until != held.until:  # an extension is stored, and not yet answered or refused
            self._set(job, held.slot, _left(job, now))
            return False
        return True

    def _apply(self, before: Job, verdict: Saved) -> None:
        self.reread(before.seq, verdict.job)
        if verdict.is_saved:
            self._changes.lease_ended(before, verdict, RAN_OUT)
        else:  # changed meanwhile
            self._try_again(before.seq)

    def _keep_without_slot(self, seq: int, pause: float) -> None:
        """Free the slot of a lease whose end cannot be saved, and retry later."""
        held = self._held.get(seq)
        if held is not None:
            self._release(held)
            self._held[seq] = held._replace(slot=None)
        asyncio.get_running_loop().call_later(pause, self._try_again, seq)

    def _try_again(self, seq: int) -> None:
        """Let the next lap end a lease, unless it has ended or was extended meanwhile."""
        held = self._held.get(seq)
        if held is not None and held.entry is None:
            self._enter(seq, 0)


def _left(job: Job, now: Instant) -> float:
    """Return the seconds until the stored end of the lease of a job."""
    return ((job.lease_until or now) - now) / SECOND


def end_lease(job: Job, outcome: Outcome, action: str, now: Instant, delay: float | None = None) -> Job:
    """Return a job after its lease has ended: a retry waits as its policy says, or `delay` seconds."""
    backoff = delay
    if backoff is None and outcome.end is not End.SUCCEEDED:
        backoff = retry.wait(job.policy, job.failures + 1, random.random())
    return job.finish(outcome, now, backoff=backoff or 0.0, answer=action)
