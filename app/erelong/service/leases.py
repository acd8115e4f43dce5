"""The operations of pull workers: lease jobs, and extend, finish, fail or release them."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from erelong.clock.instants import SECOND
from erelong.duties.duty import in_halves
from erelong.engine.job_log import fields_of
from erelong.engine.leases import end_lease
from erelong.engine.verdicts import succeeded
from erelong.errors import Fault, Invalid, LeaseLost, LeaseNotFound
from erelong.model.caller import ANYBODY, Caller
from erelong.model.ended_leases import read_ended_leases
from erelong.model.extras import lease_length
from erelong.model.ids import make_lease_token, seq_of_lease
from erelong.model.job import Job
from erelong.model.outcome import End, Error, Outcome, last_of
from erelong.stores.base import Ending
from erelong.telemetry.log import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from erelong.clock.instants import Instant
    from erelong.duties.waiters import Client, Waiter
    from erelong.engine.engine import Engine
    from erelong.lanes.lane import Slot
    from erelong.lanes.pollers import LeaseRequest
    from erelong.stores.base import Saved

log = get_logger(__name__)


class Leased(NamedTuple):
    """A leased job with its token, its deadline, and the `traceparent` of its attempt if that is traced."""

    token: str
    lease_until: Instant
    job: Job
    traceparent: str | None = None


class Leases:
    """All operations of pull workers."""

    def __init__(self, *, engine: Engine) -> None:
        self._engine = engine
        self._store = engine.store
        self._lanes = engine.lanes
        self._held = engine.leases
        self._changes = engine.changes
        self._now = engine.now
        self._taking = 0  # requests that are claiming jobs

    def is_settled(self) -> bool:
        """Return whether no request claims jobs or has been woken to do so."""
        polls = self._engine.waiters.polls.held.values()
        return not self._taking and not any(waiter.event.is_set() for waiters in polls for waiter in waiters)

    # leasing

    async def lease(self, request: LeaseRequest, wait: float, client: Client) -> list[Leased]:
        """Return jobs as soon as there are some; none when the wait is over, the worker gone, or no wait slot free."""
        self._engine.lifecycle.refuse("leases no more jobs")
        self._refuse_other_kinds(request.kinds)
        until = self._engine.tick() + wait
        with self._engine.pollers.poll(request, client) as waiter:
            try:
                return await self._hand_over(await self._until_leased(request, waiter, until, client), client)
            finally:
                if waiter.event.is_set():  # it may leave a job that it was woken for
                    self._lanes.wake_next(request.kinds, request.queues)

    async def _until_leased(self, request: LeaseRequest, waiter: Waiter, until: float, client: Client) -> list[Leased]:
        while not client.is_gone:
            waiter.event.clear()
            slots = self._lanes.take_for(request.kinds, request.queues, request.max)
            if slots:
                if leased := await self._lease(slots, request, waiter):
                    return leased
            elif not await self._wait(request, waiter, until):
                break
            self._refuse_other_kinds(request.kinds)  # a client may have deleted one
        return []

    async def _wait(self, request: LeaseRequest, waiter: Waiter, until: float) -> bool:
        """Wait until there may be a job; return False when the request must not wait longer."""
        self._engine.dispatcher.arm_refill()
        left = until - self._engine.tick()
        if left <= 0 or not waiter.has_slot or self._engine.lifecycle.is_draining:
            return False
        with suppress(TimeoutError):
            async with asyncio.timeout(left):
                await waiter.event.wait()
        return True

    def _refuse_other_kinds(self, names: frozenset[str]) -> None:
        kinds = self._engine.kinds
        others = sorted(name for name in names if not kinds[name].is_pull or name not in kinds)
        if others:
            known = (
                ", ".join(name for name in kinds if kinds[name].is_pull) or "none; PUT /v1/kinds/{kind} declares one"
            )
            faults = [Fault("/kinds", f"{name!r} is not a pull kind; pull kinds: {known}") for name in others]
            raise Invalid("these kinds cannot be leased", faults=faults)

    async def _hand_over(self, leased: list[Leased], client: Client) -> list[Leased]:
        """Return the leased jobs, or release them if the worker has disconnected meanwhile."""
        if not client.is_gone:
            return leased
        for lease in leased:
            await self.release(lease.token)
        return []

    async def _lease(self, slots: dict[int, Slot], request: LeaseRequest, waiter: Waiter) -> list[Leased]:
        """Lease jobs that have a slot; none if all were cancelled or moved meanwhile."""
        waiter.event.set()  # so that jobs that are due from now on wake other requests
        self._lanes.wake_next(request.kinds, request.queues)
        self._taking += 1
        try:
            return await self._store_leases(await self._claim(slots), request)
        finally:
            self._taking -= 1

    async def _claim(self, slots: dict[int, Slot]) -> list[tuple[Job, Slot]]:
        claimed: list[tuple[Job, Slot]] = []
        try:
            await self._engine.claimer.claim(slots, claimed)
        except BaseException:
            self._release_unleased(claimed)
            raise
        return claimed

    async def _store_leases(self, claimed: Sequence[tuple[Job, Slot]], request: LeaseRequest) -> list[Leased]:
        """Save the leases; release jobs whose lease cannot be saved, without counting the attempt."""
        until = self._now() + round(request.seconds * SECOND)
        slots = {job.seq: slot for job, slot in claimed}
        how = (until, request.worker, request.seconds)
        leased = [job.lease_out(make_lease_token(job.seq), *how) for job, _ in claimed]
        stored: list[Job] = []

        async def save(jobs: Sequence[Job]) -> None:
            verdicts = await self._store.save(jobs)
            stored.extend(job for job, verdict in zip(jobs, verdicts, strict=True) if verdict.is_saved)

        try:
            for job, error in await in_halves(leased, save):
                log.warning("lease_not_saved", **fields_of(job), error=str(error))
        finally:
            for job in stored:
                self._held.hold(job, slots.pop(job.seq), request.seconds)
            self._release_unleased([(job, slot) for job, slot in claimed if job.seq in slots])
        self._changes.started(stored)
        tracer = self._engine.kinds.tracer
        return [Leased(job.lease or "", until, job, None if tracer is None else tracer.lease(job)) for job in stored]

    def _release_unleased(self, claimed: Sequence[tuple[Job, Slot]]) -> None:
        """Release attempts that no worker has received, without counting them."""
        self._engine.completer.add(*[Ending(job, Outcome(End.RELEASED), self._now()) for job, _ in claimed])
        self._lanes.release_unused(*[slot for _, slot in claimed])

    # actions of the holder

    async def get(self, token: str, caller: Caller = ANYBODY) -> Job:
        """Return the job that a token was given for, if the caller may use its queue."""
        if (seq := seq_of_lease(token)) is not None:
            job = (await self._store.get([seq])).get(seq)
            if job is not None and job.was_leased_by(token) and caller.may_use(job.queue):
                return job
        raise LeaseNotFound("no lease has this token; send the token from `POST /v1/leases` unchanged")

    async def extend(self, token: str, seconds: float | None) -> Leased:
        """Extend the lease to `seconds` from now; by default, to as many as it was last taken or extended for."""
        if seconds is None:
            seconds = lease_length((await self.get(token)).extras)
        until = self._now() + round(seconds * SECOND)
        job, verdict = await self._apply(token, "extend", lambda job: job.extend(until, seconds))
        if verdict is not None and verdict.job is not None:
            job = verdict.job
        if job.lease == token:
            self._held.extend(job, seconds)
            self._changes.lease_extended(job)
        return Leased(token, job.lease_until or until, job)

    async def finish(self, token: str, result: bytes | None) -> Job:
        """End the attempt with success, even if a cancel was requested meanwhile."""
        outcome = succeeded(result, self._engine.config.limits.max_result)
        return await self._end(token, "finish", outcome)

    async def fail(self, token: str, error: Error, delay: float | None, output: str = "") -> Job:
        """End the attempt as failed; a retry waits as the policy says, or `delay` seconds."""
        return await self._end(token, "fail", Outcome(End.ERROR, error=error, output=last_of(output)), delay)

    async def release(self, token: str) -> Job:
        """Release the lease without a run; the attempt does not count."""
        return await self._end(token, "release", Outcome(End.RELEASED))

    async def _end(self, token: str, action: str, outcome: Outcome, delay: float | None = None) -> Job:
        before, verdict = await self._apply(
            token, action, lambda job: end_lease(job, outcome, action, self._now(), delay)
        )
        if verdict is None:
            return before
        self._held.reread(before.seq, verdict.job)
        self._changes.lease_ended(before, verdict, outcome)
        return verdict.job or before

    async def _apply(self, token: str, action: str, step: Callable[[Job], Job]) -> tuple[Job, Saved | None]:
        """Apply an action of the lease holder; return the job before it, and the verdict of the store.

        Raise `LeaseLost` if the lease is over. A repeat of the action that ended it stores nothing.
        """
        while True:
            before = await self.get(token)
            if before.lease != token:
                if [token, action] in read_ended_leases(before.ended_leases):
                    return before, None  # a retry after a lost response
                raise LeaseLost(f"the lease is over: its job is {before.state.word}; this call changed nothing")
            after = step(before)
            (verdict,) = await self._store.save([after])
            if verdict.is_saved:
                return before, verdict
