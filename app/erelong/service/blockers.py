"""What keeps a scheduled job from starting: one decision, behind `waiting_for` and behind explain."""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

from erelong.clock.instants import SECOND, format_instant
from erelong.duties.lifecycle import Phase
from erelong.model.blocker import ORDER, WORDS, Ahead, Blocker, Hold, Remover
from erelong.model.job import State

if TYPE_CHECKING:
    from collections.abc import Callable

    from erelong.clock.instants import Instant
    from erelong.engine.engine import Engine
    from erelong.lanes.lane import Lane
    from erelong.model.job import Job

SLOW_COMMIT = 5.0  # seconds

_SCHEDULED = State.SCHEDULED


class Blockers:
    """Finds what keeps jobs from starting. It reads the parts of the engine and changes nothing."""

    def __init__(self, *, engine: Engine) -> None:
        self._engine = engine
        self._lanes = engine.lanes
        self._pollers = engine.pollers
        self._describe: dict[Hold, Callable[[Job, Instant], Blocker]] = {
            Hold.TIME: self._time,
            Hold.RETRY: self._retry,
            Hold.PAUSE: self._pause,
            Hold.WORKER: self._worker,
            Hold.DISK: self._disk,
            Hold.RATE: self._rate,
            Hold.LABEL: self._label,
            Hold.SLOT: self._slot,
            Hold.WORKERS: self._workers,
        }

    def waiting_for(self, job: Job, now: Instant) -> str | None:
        """Return the word of the first blocker that has one; None if the job is not scheduled, or starts now."""
        if job.state is not _SCHEDULED or job.due_at is None:
            return None
        if job.due_at > now:  # as in `_holds`; hot: submit
            return "time"
        holds = self._holds(job, now)
        return WORDS[holds[0]] if holds else None

    def of(self, job: Job, now: Instant) -> list[Blocker]:
        """Return everything that keeps a scheduled job from starting at this moment, except the jobs ahead of it."""
        holds = self._holds(job, now)
        if self._what_ails(job) is not None:
            holds.append(Hold.DISK)
        return [self._describe[hold](job, now) for hold in sorted(holds, key=ORDER.__getitem__)]

    def ahead(self, job: Job, ahead: Ahead, per_second: float | None, likely: Instant | None) -> Blocker:
        """Return the jobs ahead of a job as its last blocker."""
        number = f"more than {ahead.number:,}" if ahead.is_more else f"{ahead.number:,}"
        pace = "" if per_second is None else f" at {per_second:.3g}/s"
        jobs = "due job" if number == "1" else "due jobs"
        detail = f"{number} {jobs} of queue {job.queue!r} before it; a higher priority moves it forward"
        return Blocker(Hold.AHEAD, f"{number} ahead{pace}", detail, ahead.number, clears_at=likely)

    # the decision

    def _holds(self, job: Job, now: Instant) -> list[Hold]:
        """Return what `waiting_for` has words for, the first one first."""
        engine = self._engine
        holds: list[Hold] = []
        if engine.lifecycle.phase is Phase.STARTING:  # another node leads, and its lanes are not known here
            return holds
        if job.due_at is not None and job.due_at > now:
            holds.append(Hold.RETRY if job.attempt else Hold.TIME)
        elif job.seq in engine.dispatcher.under_way:  # it has its slot
            return holds
        holds += self._lanes.holds(job)
        if engine.kinds[job.kind].is_pull:
            if engine.lifecycle.is_draining and Hold.WORKER not in holds:
                holds.append(Hold.WORKER)
                holds.sort(key=ORDER.__getitem__)
        elif engine.workers.free <= 0 or engine.lifecycle.is_draining:
            holds.append(Hold.WORKERS)
        return holds

    def _what_ails(self, job: Job) -> str | None:
        """Return the trouble of the store that keeps this job from starting."""
        engine = self._engine
        status, commit = engine.store.status(), engine.metrics.commits.under_way
        if status is not None and not status.startswith("ok"):
            return f"the store reports: {status}"
        if engine.completer.is_full and not engine.kinds[job.kind].is_pull:
            return f"{len(engine.completer)} outcomes are not saved yet"
        if job.seq in engine.claimer.aside.failures or job.seq in engine.scheduler.aside.failures:
            return "the store refuses this job"
        if engine.claimer.refusal is not None:
            return f"the store refuses to start jobs: {engine.claimer.refusal}"
        return f"a commit has been running for {commit:.0f} s" if commit >= SLOW_COMMIT else None

    # one blocker each

    def _time(self, job: Job, now: Instant) -> Blocker:
        due_at = job.due_at or now
        at = format_instant(due_at)
        detail = f"due at {at}; POST /v1/jobs/{job.id}/run makes it due"
        return Blocker(Hold.TIME, f"due at {shown(due_at, now)}", detail, (due_at - now) / SECOND, due_at, due_at)

    def _retry(self, job: Job, now: Instant) -> Blocker:
        due_at = job.due_at or now
        error = "" if job.error is None else f" ({orjson.loads(job.error)['type']})"
        detail = f"attempt {job.attempt} has ended{error} and the next may start at {format_instant(due_at)}"
        detail += f"; POST /v1/jobs/{job.id}/run makes it due"
        phrase = f"retry at {shown(due_at, now)} after attempt {job.attempt}{error}"
        return Blocker(Hold.RETRY, phrase, detail, (due_at - now) / SECOND, due_at, due_at)

    def _pause(self, job: Job, now: Instant) -> Blocker:
        pause = self._engine.overrides.pause_of(job.queue)
        since = None if pause is None else pause.at
        by = "" if pause is None or pause.by is None else f" by {pause.by}"
        why = "" if pause is None or pause.reason is None else f" ({pause.reason})"
        phrase = f"paused{by}" if since is None else f"paused{by} since {shown(since, now)}{why}"
        detail = f"queue {job.queue!r} is paused{by}{why}; POST /v1/queues/{job.queue}/resume starts its jobs again"
        return Blocker(Hold.PAUSE, phrase, detail, since, clears_by=Remover.RESUME)

    def _worker(self, job: Job, now: Instant) -> Blocker:
        kind, remover = job.kind, Remover.WORKER
        if kind not in self._engine.kinds:
            phrase, detail = (
                f"no kind {kind}",
                f"no kind {kind!r} is declared; declare it in [kinds] and restart, or with PUT /v1/kinds",
            )
            remover = Remover.DECLARATION
        elif self._engine.lifecycle.is_draining:
            phrase, detail, remover = _STOPPING, "the service is stopping and leases no jobs", Remover.RESTART
        else:
            phrase = f"no worker asks for {kind}"
            detail = f"no worker asks for kind {kind!r} in queue {job.queue!r}; start one, or let it ask again"
        ago = self._pollers.unpolled_for(kind, job.queue)
        last = None if ago is None else now - round(ago * SECOND)
        return Blocker(Hold.WORKER, phrase, detail, last, clears_by=remover)

    def _disk(self, job: Job, now: Instant) -> Blocker:
        completer, ails = self._engine.completer, self._what_ails(job)
        detail = f"{ails}; see /readyz and the log"
        is_full = completer.is_full
        value = len(completer) if is_full else ails
        limit = self._engine.config.workers.max_unsaved if is_full else None
        return Blocker(Hold.DISK, ails or "", detail, value, limit, clears_by=Remover.OPERATOR)

    def _rate(self, job: Job, now: Instant) -> Blocker:
        lane = self._lane(job)
        rate, wait = lane.settings.rate, lane.token_in(self._engine.clock.tick())
        per_second = 0.0 if rate is None else rate.per_second
        detail = f"queue {job.queue!r} has used up its rate of {per_second:g} jobs per second"
        limit = None if rate is None else rate.model_dump()
        tokens = round(max(0.0, lane.tokens), 6)
        return Blocker(
            Hold.RATE, f"rate of {per_second:g}/s used up", detail, tokens, limit, now + round(wait * SECOND)
        )

    def _label(self, job: Job, now: Instant) -> Blocker:
        lane = self._lane(job)
        value, limited = lane.label_of(job), lane.settings.label_concurrency
        name, limit = ("", 0) if limited is None else (limited.label, limited.limit)
        running = lane.running_by[value]
        phrase = f"{running} of {limit} jobs with {name} {value or repr(value)} run"
        jobs, run = _words(running)
        detail = f"{running} {jobs} with label {name} {value!r} {run} in queue {job.queue!r}, and its limit is {limit}"
        return Blocker(Hold.LABEL, phrase, detail, running, limit)

    def _slot(self, job: Job, now: Instant) -> Blocker:
        lane = self._lane(job)
        running, limit = lane.running, lane.settings.concurrency
        jobs, run = _words(running)
        detail = f"{running} {jobs} of queue {job.queue!r} {run}, and its concurrency is {limit}"
        return Blocker(Hold.SLOT, f"{running} of {limit} slots in use", detail, running, limit)

    def _workers(self, job: Job, now: Instant) -> Blocker:
        limit = self._engine.config.workers.concurrency
        running = limit - self._engine.workers.free
        if self._engine.lifecycle.is_draining:
            detail = "the service is stopping and starts no jobs; they start after its restart"
            return Blocker(Hold.WORKERS, _STOPPING, detail, running, limit, clears_by=Remover.RESTART)
        jobs, run = _words(running)
        detail = f"{running} {jobs} of all queues {run}, and [workers] concurrency is {limit}"
        return Blocker(Hold.WORKERS, f"{running} of {limit} workers busy", detail, running, limit)

    def _lane(self, job: Job) -> Lane:
        lane = self._lanes.find(job.queue)
        assert lane is not None  # a limit of its queue holds the job
        return lane


_STOPPING = "the service is stopping"


def _words(running: int) -> tuple[str, str]:
    """Return the noun and the verb for a number of jobs that run."""
    return ("job", "runs") if running == 1 else ("jobs", "run")


def shown(instant: Instant, now: Instant) -> str:
    """Return an instant for people, in UTC: the time, after the date if that is another."""
    text, today = format_instant(instant), format_instant(now)[:10]
    day, time = text[:10], f"{text[11:19]}Z"
    return time if day == today else f"{day} {time}"
