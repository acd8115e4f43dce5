"""Explains why a job has not run, and when it is likely to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, assert_never

import orjson

from erelong.lanes.order import NONE_AHEAD
from erelong.model.blocker import UNKNOWN_START, Hold, Start, estimate
from erelong.model.job import State
from erelong.service.blockers import shown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from erelong.clock.instants import Instant
    from erelong.clock.virtual import VirtualClock
    from erelong.engine.engine import Engine
    from erelong.model.blocker import Ahead, Blocker, Flow
    from erelong.model.job import Job
    from erelong.service.blockers import Blockers
    from erelong.service.jobs import JobName, Jobs

MAX_MESSAGE = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Why a job has not run, in one line, and in full."""

    job: Job
    at: Instant
    summary: str
    blockers: Sequence[Blocker] = ()
    ahead: Ahead = NONE_AHEAD
    start: Start = UNKNOWN_START


class Explain:
    """Explains jobs. It changes nothing."""

    def __init__(self, *, engine: Engine, jobs: Jobs, blockers: Blockers, clock: VirtualClock | None) -> None:
        self._engine = engine
        self._jobs = jobs
        self._blockers = blockers
        self._clock = clock

    async def explain(self, name: JobName) -> Explanation:
        """Return why a job does not run at this moment."""
        job, now = await self._jobs.get(name), self._engine.now()
        match job.state:
            case State.SCHEDULED:
                return await self._explain_waiting(job, now)
            case State.RUNNING:
                return Explanation(job=job, at=now, summary=self._running(job, now))
            case State.SUCCEEDED | State.FAILED | State.CANCELLED | State.EXPIRED:
                return Explanation(job=job, at=now, summary=_final(job, now))
            case _:
                assert_never(job.state)

    async def _explain_waiting(self, job: Job, now: Instant) -> Explanation:
        ahead = await self._count_ahead(job, now)
        blockers = self._blockers.of(job, now)
        start = estimate(blockers, ahead, self._flow(job, now), now)
        if ahead.number or ahead.is_more:
            blockers.append(self._blockers.ahead(job, ahead, start.per_second, start.likely))
        summary = _waiting(blockers, self._notes(job, start, now))
        return Explanation(job=job, at=now, summary=summary, blockers=blockers, ahead=ahead, start=start)

    async def _count_ahead(self, job: Job, now: Instant) -> Ahead:
        if job.seq in self._engine.dispatcher.under_way:
            return NONE_AHEAD
        ahead = await self._engine.lanes.ahead(job)
        lane = self._engine.lanes.find(job.queue)
        is_here = lane is not None and lane.has(job.seq)
        is_partial = not is_here and self._engine.overdue.may_miss(job.queue)
        return ahead._replace(is_more=ahead.is_more or is_partial)

    def _flow(self, job: Job, now: Instant) -> Flow:
        due = self._engine.lanes.due(job.queue) + (job.due_at is not None and job.due_at > now)
        return self._engine.lanes.flow(job)._replace(soon=max(0, self._engine.store.waiting(job.queue) - due))

    def _notes(self, job: Job, start: Start, now: Instant) -> list[str]:
        """Return what the summary adds to the blockers: facts about the job or the service that are no blockers."""
        notes: list[str] = []
        expires_at, starts_at = job.expires_at, start.likely or start.earliest
        if expires_at is not None:
            is_before = starts_at is not None and expires_at <= starts_at
            notes.append(f"expires {'before that, ' if is_before else ''}at {shown(expires_at, now)}")
        if self._clock is not None and self._clock.is_frozen:
            notes.append(f"the clock is frozen at {shown(now, now)}")
        return notes

    def _running(self, job: Job, now: Instant) -> str:
        since = "" if job.started_at is None else f" since {shown(job.started_at, now)}"
        facts = [f"running{since}, attempt {job.attempt}"]
        if job.lease_until is not None:
            facts.append(f"leased to a worker until {shown(job.lease_until, now)}")
        else:
            facts.append(f"timeout {job.timeout:.12g} s")
            if not self._engine.workers.has(job.seq):
                facts.append("its attempt is over, but its outcome is not saved yet")
        if job.cancel_requested:
            facts.append("asked to stop")
        if self._engine.lifecycle.is_draining:
            facts.append("the service is stopping")
        return "; ".join(facts)


def _waiting(blockers: Sequence[Blocker], notes: Sequence[str]) -> str:
    phrases = [blocker.phrase for blocker in blockers] or ["starts now"]
    if len(blockers) > 1 and blockers[-1].type is Hold.AHEAD:
        phrases[-1] = f"then {phrases[-1]}"
    return "; ".join([*phrases, *notes])


def _final(job: Job, now: Instant) -> str:
    at = "" if job.finished_at is None else f" at {shown(job.finished_at, now)}"
    summary = f"{job.state.word}{at}"
    if job.attempt:
        summary += f", attempt {job.attempt}"
    if job.error is None:
        return summary
    error = orjson.loads(job.error)
    message = " ".join(error["message"].split())
    short = message if len(message) <= MAX_MESSAGE else f"{message[: MAX_MESSAGE - 1]}…"
    return f"{summary}: {error['type']}: {short}"
