"""Jobs lent to workers outside: a token and a time for each, answers taken from whoever still holds one."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

import orjson

from erelong.duties.duty import SetAside, in_halves
from erelong.engine.agenda import Agenda
from erelong.engine.job_log import fields_of, report_end
from erelong.errors import Draining, LeaseLost, LeaseNotFound, StoreRefused
from erelong.model import retry
from erelong.model.caller import ANYBODY, Caller
from erelong.model.ids import make_lease_token, seq_of_lease
from erelong.model.job import SECOND, Job, State, read_ended_leases
from erelong.model.outcome import End, Error, Outcome
from erelong.model.query import Query
from erelong.stores.base import Ending
from erelong.telemetry.log import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from erelong.clock.instants import Instant, Now
    from erelong.duties.waiters import Client, Places
    from erelong.engine.completer import Outcomes
    from erelong.lanes.lane import Slot
    from erelong.lanes.lanes import Lanes
    from erelong.lanes.pollers import Ask, Askers
    from erelong.stores.base import Saved, Store
    from erelong.telemetry.metrics import Metrics

MAX_EXPIRE = 200
STORE_PAUSE = 0.5
LATE_RING = 0.001  # timers of the loop may be early by half a millisecond

log = get_logger(__name__)


class Leased(NamedTuple):
    """A job in somebody's hands."""

    token: str
    lease_until: Instant
    job: Job


class Held(NamedTuple):
    """What is known here of a lease: its slot, and when it ends on the monotonic clock.

    One that ran out and could not be ended has no slot any more: only its row is still to be written.
    """

    slot: Slot | None
    deadline: int


class Leases:
    """Lends due jobs of pull kinds. Deadlines are kept on the monotonic clock, so no step of the wall clock ends one;
    what is stored is their wall time, from which they go on after a restart.

    `changed` sees to what follows when a lease ends, of the job as it was and as it is; `on_change` hears of those
    that were lent.
    """

    name = "leases"

    def __init__(
        self,
        *,
        store: Store,
        lanes: Lanes,
        agenda: Agenda,
        outcomes: Outcomes,
        places: Places,
        askers: Askers,
        pull_kinds: frozenset[str],
        metrics: Metrics,
        now: Now,
        changed: Callable[[Job, Job], None],
        on_change: Callable[[*tuple[Job, ...]], None],
    ) -> None:
        self._store = store
        self._lanes = lanes
        self._agenda = agenda
        self._outcomes = outcomes
        self._places = places
        self._askers = askers
        self._pull_kinds = pull_kinds
        self._metrics = metrics
        self._now = now
        self._changed = changed
        self._on_change = on_change
        self._held: dict[int, Held] = {}
        self._deadlines = Agenda()
        self._is_sooner = asyncio.Event()
        self._is_draining = False
        self.aside: SetAside[int] = SetAside(name=self.name, metrics=metrics)

    async def load(self) -> int:
        """Take over the leases that were held when the service last stopped."""
        self._loop = asyncio.get_running_loop()
        now = self._now()
        after: tuple[int, int] | None = None
        while self._pull_kinds:
            query = Query(states=frozenset({State.RUNNING}), after=after, limit=MAX_EXPIRE)
            jobs = await self._store.list(query)
            for job in jobs:
                if job.kind in self._pull_kinds and job.lease is not None and job.lease_until is not None:
                    self._hold(job.seq, self._lanes.occupy(job), (job.lease_until - now) / SECOND)
            if len(jobs) < MAX_EXPIRE:
                return len(self._held)
            after = (0, jobs[-1].seq)
        return 0

    def drain(self) -> None:
        """Lend nothing more, and let all go that wait for a job; answers are taken until the end."""
        self._is_draining = True
        self._askers.wake_all()

    # lending

    async def lend(self, ask: Ask, wait: float, client: Client) -> list[Leased]:
        """Jobs for a worker, as soon as there is one; none when the wait is over, the worker gone, or too many wait."""
        if self._is_draining:
            raise Draining("the service is stopping and lends no more jobs")
        until = self._loop.time() + wait
        with self._places.take() as has_place, self._askers.add(ask) as event, client.wakes(event):
            while not client.is_gone:
                event.clear()
                leased = await self._take(ask)
                if leased:
                    self._askers.pass_on(ask)
                    return await self._hand_over(leased, client)
                left = until - self._loop.time()
                if left <= 0 or not has_place or self._is_draining:
                    break
                thirst = self._lanes.token_in_for(ask.kinds, ask.queues)
                with suppress(TimeoutError):
                    async with asyncio.timeout(left if thirst is None else min(left, thirst + LATE_RING)):
                        await event.wait()
        return []

    async def _hand_over(self, leased: list[Leased], client: Client) -> list[Leased]:
        """What a worker gets; if it has left meanwhile, nobody but us can give it back."""
        if not client.is_gone:
            return leased
        for lease in leased:
            await self.release(lease.token)
        return []

    @property
    def held(self) -> int:
        return sum(held.slot is not None for held in self._held.values()) if self.aside else len(self._held)

    async def _take(self, ask: Ask) -> list[Leased]:
        slots = self._lanes.take_for(ask.kinds, ask.queues, ask.max)
        if not slots:
            return []
        claimed = await self._claim(slots)
        try:
            return await self._lend_out(claimed, slots, ask.seconds)
        finally:
            self._lanes.release(*slots.values())

    async def _claim(self, slots: dict[int, Slot]) -> list[Job]:
        """Claim jobs; those that could not be claimed give their slot back and are due again after a pause."""
        claimed: list[Job] = []
        now, pauses = self._now(), dict.fromkeys(slots, STORE_PAUSE)

        async def claim(seqs: Sequence[int]) -> None:
            claim = await self._store.claim(seqs, now=self._now())
            claimed.extend(claim.jobs)
            self._agenda.extend(claim.early)
            for job in claim.spoiled:
                self._metrics.finished.values[job.kind, job.state.word] += 1
                self._on_change(job)
            self.aside.remove(seqs)
            for seq in seqs:
                del pauses[seq]

        try:
            for seq, error in await in_halves(list(slots), claim):
                pauses[seq] = self.aside.add(seq, error)
        except BaseException:
            self._release_unlent(claimed)
            self._lanes.release(*(slots.pop(job.seq) for job in claimed))
            raise
        finally:
            self._agenda.extend([(now + round(pause * SECOND), seq) for seq, pause in pauses.items()])
            self._lanes.release(*map(slots.pop, pauses))
        return claimed

    async def _lend_out(self, jobs: Sequence[Job], slots: dict[int, Slot], seconds: float) -> list[Leased]:
        """Write down who has what; a job that could not be written down goes back, uncounted."""
        until = self._now() + round(seconds * SECOND)
        lent = [job.lend(make_lease_token(job.seq), until) for job in jobs]
        is_lent: set[int] = set()

        async def save(jobs: Sequence[Job]) -> None:
            for verdict in await self._store.save(jobs):
                if verdict.is_saved and verdict.job is not None:
                    is_lent.add(verdict.job.seq)

        try:
            for job, error in await in_halves(lent, save):
                log.warning("lease_not_stored", **fields_of(job), error=str(error))
        finally:
            self._release_unlent([job for job in jobs if job.seq not in is_lent])
        leased = [Leased(job.lease, until, job) for job in lent if job.seq in is_lent and job.lease is not None]
        for lease in leased:
            self._hold(lease.job.seq, slots.pop(lease.job.seq), seconds)
            self._note_start(lease.job)
            self._on_change(lease.job)
        return leased

    def _release_unlent(self, jobs: Sequence[Job]) -> None:
        """Give back, uncounted, attempts that no worker has been told of."""
        self._outcomes.add(*[Ending(job, Outcome(End.RELEASED), self._now()) for job in jobs])

    def look(self, seq: int, job: Job | None) -> None:
        """Forget a lease that turns out to be over."""
        if (job is None or job.lease is None) and (held := self._held.pop(seq, None)) is not None:
            self._release(held)

    def _release(self, held: Held) -> None:
        if held.slot is not None:
            self._lanes.release(held.slot)

    # answers

    async def get(self, token: str, caller: Caller = ANYBODY) -> Job:
        """The job that a token was given for, if the caller may use its queue."""
        if (seq := seq_of_lease(token)) is not None:
            job = (await self._store.get([seq])).get(seq)
            if job is not None and job.was_lent_by(token) and caller.may_use(job.queue):
                return job
        raise LeaseNotFound("no lease has this token; send it as `POST /v1/leases` gave it")

    async def extend(self, token: str, seconds: float) -> Leased:
        """Keep a job for `seconds` from now."""
        until = self._now() + round(seconds * SECOND)
        job = await self._answer(token, "extend", lambda job: job.extend(until))
        held = self._held.get(job.seq)
        if held is not None and job.lease == token:
            self._hold(job.seq, held.slot, seconds)
        return Leased(token, job.lease_until or until, job)

    async def finish(self, token: str, outcome: Outcome) -> Job:
        """The work is done, even if a cancel was asked for meanwhile."""
        return await self._end(token, "finish", outcome)

    async def fail(self, token: str, error: Error, delay: float | None) -> Job:
        """It did not work: retried by the policy, or in `delay` as given."""
        return await self._end(token, "fail", Outcome(End.ERROR, error=error), delay)

    async def release(self, token: str) -> Job:
        """Give a job back unrun; the attempt does not count."""
        return await self._end(token, "release", Outcome(End.RELEASED))

    async def _end(self, token: str, answer: str, outcome: Outcome, delay: float | None = None) -> Job:
        return await self._answer(token, answer, lambda job: self._finished(job, outcome, answer, delay))

    def _finished(self, job: Job, outcome: Outcome, answer: str, delay: float | None = None) -> Job:
        backoff = delay
        if backoff is None and outcome.end is not End.SUCCEEDED:
            backoff = retry.wait(job.policy, job.failures + 1, random.random())
        return job.finish(outcome, self._now(), backoff=backoff or 0.0, answer=answer)

    async def _answer(self, token: str, answer: str, step: Callable[[Job], Job]) -> Job:
        """Take one answer of who holds a lease; one who has lost it changes nothing."""
        while True:
            before = await self.get(token)
            if before.lease != token:
                if read_ended_leases(before.ended_leases)[-1:] == [[token, answer]]:
                    return before  # said once more: the reply was lost on its way
                raise LeaseLost(f"the lease is over; its job is {before.state.word} without it")
            after = step(before)
            (verdict,) = await self._store.save([after])
            if verdict.is_saved:
                self._settle(before, after)
                return after

    def _settle(self, before: Job, after: Job) -> None:
        """See to what follows from the end of a lease."""
        if after.lease is not None:
            return
        self.look(after.seq, after)
        self._note_end(before, after)
        self._changed(before, after)

    # leases that run out

    def _hold(self, seq: int, slot: Slot | None, seconds: float) -> None:
        deadline = round((self._loop.time() + max(seconds, 0.0)) * SECOND)
        before = self._held.get(seq)
        self._held[seq] = Held(slot, deadline)
        if before is not None and before.slot is not slot:  # one of an earlier lease, which may look the same
            self._release(before)
        if before is not None and before.deadline <= deadline:
            return  # what is on the agenda comes early, and is put there again
        earliest = self._deadlines.next_due()
        self._deadlines.add(deadline, seq)
        if earliest is None or deadline < earliest:
            self._is_sooner.set()

    async def ready(self) -> None:
        """Wait until a lease may have run out."""
        due = self._deadlines.next_due()
        left = None if due is None else due / SECOND - self._loop.time()
        self._is_sooner.clear()
        if left is None or left > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(None if left is None else left + LATE_RING):
                    await self._is_sooner.wait()

    async def lap(self) -> None:
        """End the leases that have run out."""
        tick = round(self._loop.time() * SECOND)
        over = self._over(tick)
        if not over:
            return
        try:
            for seq, error in await in_halves(over, self._expire):
                self._keep_without_slot(seq, self.aside.add(seq, error))
        except BaseException:
            self._deadlines.extend([(tick + round(STORE_PAUSE * SECOND), seq) for seq in over])
            raise

    def _keep_without_slot(self, seq: int, pause: float) -> None:
        """Free the slot of a lease whose end cannot be stored, and try again later."""
        held = self._held.get(seq)
        if held is not None:
            self._release(held)
            self._held[seq] = Held(None, held.deadline)
        self._deadlines.add(round((self._loop.time() + pause) * SECOND), seq)

    def _over(self, tick: int) -> list[int]:
        """Those whose time has run out; one that was extended meanwhile comes again."""
        over: dict[int, None] = {}
        for _, seq in self._deadlines.pop(tick, MAX_EXPIRE):
            held = self._held.get(seq)
            if held is not None and held.deadline <= tick:
                over[seq] = None
            elif held is not None:
                self._deadlines.add(held.deadline, seq)
        return list(over)

    async def _expire(self, seqs: Sequence[int]) -> None:
        jobs = await self._store.get(seqs)
        lost = Outcome(End.LOST, error=Error("lost", "its lease ran out"))
        pairs = [(job, self._finished(job, lost, "expired")) for job in jobs.values() if job.lease is not None]
        verdicts = await self._store.save([after for _, after in pairs])
        for (before, after), verdict in zip(pairs, verdicts, strict=True):
            self._expired(before, after, verdict)
        if len(jobs) < len(seqs) > 1:
            raise StoreRefused("some of these jobs cannot be read")  # asked alone, each says why
        if not jobs:
            self.look(seqs[0], None)
        self.aside.remove(seqs)

    def _expired(self, before: Job, after: Job, verdict: Saved) -> None:
        if verdict.is_saved:
            self._settle(before, after)
        elif verdict.job is not None and verdict.job.lease is not None:  # changed meanwhile: look again at once
            self._deadlines.add(0, after.seq)
            self._is_sooner.set()

    # counting

    def _note_start(self, job: Job) -> None:
        self._metrics.started.values[job.kind,] += 1
        self._metrics.late.note(job.kind, job.late_by or 0.0)
        self._lanes.note_starts(job.queue, job.late_by or 0.0)

    def _note_end(self, before: Job, after: Job) -> None:
        entry = orjson.loads(after.history)[-1]
        self._metrics.ended.values[after.kind, entry["outcome"]] += 1
        error = Error(**entry["error"]) if entry["error"] else None
        report_end(before, Outcome(End(entry["outcome"]), error=error), after)
        self._metrics.duration.note(after.kind, max(0, self._now() - (before.started_at or 0)) / SECOND)
