"""What can be asked about jobs: submit, get, list, change, cancel, run, retry, forget, wait for."""

from __future__ import annotations

import asyncio
import difflib
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Required, TypedDict

import orjson

from app import job as jobs
from app.access import ANYBODY, Caller
from app.config import merged
from app.errors import Draining, Fault, Invalid, JobNotFound, KeyTaken, VersionMismatch, WrongState
from app.ids import draw_tokens, parse_id
from app.job import Job, State
from app.stores.base import ADDED, CHANGED, CONFLICT, Offer
from app.watchers import STAYS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from app.agenda import Agenda
    from app.backlog import Backlog
    from app.clock import Instant, Now
    from app.config import Config, QueueSettings, RetryPatch
    from app.handlers.base import Handler
    from app.lanes import Lanes
    from app.metrics import Metrics
    from app.stores.base import Added, Memo, Query, Receipt, Store
    from app.watchers import Client, Watchers
    from app.workers import Workers


MAX_PAGE = 8_388_608  # bytes of params, results and attempts in one listing; a page that would have more is shorter
PAGE_SLICE = 50


class Submission(TypedDict, total=False):
    """A job as somebody asks for it; what is absent or None falls to the kind, the queue, the defaults."""

    kind: Required[str]
    params: dict[str, Any] | None
    queue: str | None
    execute_at: Instant
    delay: float
    priority: int | None
    timeout: float | None
    retry: RetryPatch | None
    expires_after: float | None
    labels: dict[str, str] | None
    key: str | None
    on_conflict: str | None


class Terms(NamedTuple):
    """What a job of a kind gets where these settings hold, unless it asks for other."""

    settings: QueueSettings
    timeout: float
    retry: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What a PATCH asks for: only the given names are touched; None clears what can be cleared."""

    given: frozenset[str] = field(default_factory=frozenset)
    execute_at: Instant | None = None
    delay: float | None = None
    priority: int = 0
    params: bytes = jobs.NOTHING
    labels: bytes | None = None
    timeout: float | None = None
    expires_after: float | None = None
    retry: RetryPatch | None = None


class Service:
    """The one door to jobs. `expect` is what `If-Match` names: versions, or None for any."""

    def __init__(
        self,
        *,
        store: Store,
        agenda: Agenda,
        lanes: Lanes,
        workers: Workers,
        backlog: Backlog,
        watchers: Watchers,
        handlers: Mapping[str, Handler],
        config: Config,
        metrics: Metrics,
        now: Now,
    ) -> None:
        self._store = store
        self._agenda = agenda
        self._lanes = lanes
        self._workers = workers
        self._backlog = backlog
        self._watchers = watchers
        self._handlers = handlers
        self._config = config
        self._max_params = config.server.max_params
        self._metrics = metrics
        self._now = now
        self._made_terms: dict[tuple[str, int], Terms] = {}
        self._tokens = draw_tokens()
        self.is_draining = False

    # submitting

    def draft(self, asked: Submission, now: Instant) -> Job:
        """Make a job of what is asked, or raise `Invalid` naming each field that cannot be."""
        kind, queue = asked["kind"], queue_of(asked)
        handler = self._handlers.get(kind)
        if handler is None:
            raise Invalid("the job cannot be taken", faults=[Fault("/kind", self._no_kind(kind))])
        params = orjson.dumps(asked["params"]) if asked.get("params") else jobs.NOTHING
        self._check_params(handler, params)
        terms = self._terms(kind, self._lanes.settings(queue))
        delay, timeout = asked.get("delay"), asked.get("timeout")
        retry, labels = asked.get("retry"), asked.get("labels")
        return jobs.new(
            kind=kind,
            queue=queue,
            now=now,
            execute_at=asked.get("execute_at", now) if delay is None else now + round(delay * jobs.SECOND),
            timeout=terms.timeout if timeout is None else self._timeout(timeout),
            retry=terms.retry if retry is None else self._policy(kind, terms.settings, retry),
            params=params,
            key=asked.get("key"),
            labels=orjson.dumps(labels) if labels else None,
            priority=asked.get("priority") or 0,
            expires_after=asked.get("expires_after"),
            token=next(self._tokens),
        )

    async def add(
        self,
        offers: Sequence[Offer],
        *,
        now: Instant,
        is_whole: bool = False,
        memo: Memo | None = None,
        client: Client = STAYS,
    ) -> Receipt:
        """Store drafts; when it returns they are durable and on the agenda."""
        self.refuse_when_draining()
        if memo is not None and (receipt := await self._store.recall(memo, now=now)) is not None:
            return receipt  # before it would need room
        room = await self._backlog.take_room(offers, client)
        try:
            self.refuse_when_draining()  # there may have been a wait
            receipt = await self._store.add(offers, now=now, is_whole=is_whole, memo=memo)
        finally:
            self._backlog.give_back(room)
        if receipt.replayed or (is_whole and any(entry and entry.fate is CONFLICT for entry in receipt.entries)):
            return receipt
        self._take_in([entry for entry in receipt.entries if entry is not None])
        return receipt

    def _take_in(self, entries: Sequence[Added]) -> None:
        """See to what follows from an add."""
        instants = []
        submitted = self._metrics.submitted.values
        for fate, job in entries:
            if fate is ADDED:
                submitted[job.kind,] += 1
            elif fate is CHANGED:
                self._lanes.discard(job.queue, job.seq)
                self._watchers.tell(job.seq)
            else:
                continue
            if (wakes_at := job.wakes_at) is not None:
                instants.append((wakes_at, job.seq))
        if len(instants) == 1:
            self._agenda.add(*instants[0])
        else:
            self._agenda.extend(instants)

    def drain(self) -> None:
        """Take no new work from now on, and let all go that wait."""
        self.is_draining = True
        self._watchers.close()
        self._backlog.close()

    def refuse_when_draining(self) -> None:
        if self.is_draining:
            raise Draining("the service is stopping and takes no new work")

    # asking

    async def get(self, id: str, caller: Caller = ANYBODY) -> Job:
        """The job, if the caller may use its queue."""
        name = parse_id(id)
        if name is not None:
            seq, token = name
            job = (await self._store.get([seq])).get(seq)
            if job is not None and job.token == token and caller.may_use(job.queue):
                return job
        raise JobNotFound(f"no job {id!r}; it was never made, or it is gone after its retention")

    async def whole(self, brief: Sequence[Job]) -> tuple[list[Job], int]:
        """These jobs with all that is stored of them, as far as a page goes; and how many it took to fill it."""
        page: list[Job] = []
        taken = size = 0
        while taken < len(brief) and size < MAX_PAGE:
            some = brief[taken : taken + PAGE_SLICE]
            found = await self._store.get([job.seq for job in some])
            for job in some:
                if size >= MAX_PAGE:
                    break
                taken += 1
                if (full := found.get(job.seq)) is not None:  # else it was deleted meanwhile
                    size += len(full.params) + len(full.result or b"") + len(full.attempts)
                    page.append(full)
        return page, taken

    async def list(self, query: Query) -> list[Job]:
        return await self._store.list(query)

    async def wait(self, id: str, seconds: float, known: frozenset[int] | None = None, client: Client = STAYS) -> Job:
        """The job as soon as it is final, or not one of the known versions; or as it is when the time is up."""
        name = parse_id(id)
        with self._watchers.watch(name[0] if name else 0, client) as event, suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while event is not None and not self._watchers.is_closed and not client.is_gone:
                    job = await self.get(id)
                    if job.is_final or (known is not None and job.version not in known):
                        return job
                    await event.wait()
                    event.clear()
        return await self.get(id)

    def waiting_for(self, job: Job, now: Instant) -> str | None:
        """Why a scheduled job does not run: the first that holds."""
        if job.state is not State.SCHEDULED or job.due_at is None:
            return None
        if job.due_at > now:
            return "time"
        return self._lanes.waiting_for(job) or ("slot" if self._workers.is_full else None)

    # changing

    async def patch(self, id: str, change: Change, expect: frozenset[int] | None) -> Job:
        """Change a scheduled job; nothing given changes nothing."""
        return await self._step(id, expect, lambda job, now: self._changed(job, change, now))

    async def cancel(self, id: str, reason: str | None, expect: frozenset[int] | None) -> Job:
        """End a waiting job at once, ask a running one to stop."""
        job = await self._step(id, expect, lambda job, now: job.cancel(now, reason))
        if job.state is State.RUNNING:
            self._workers.cancel(job.seq)
        return job

    async def run(self, id: str, expect: frozenset[int] | None) -> Job:
        self.refuse_when_draining()
        return await self._step(id, expect, lambda job, now: job.run_now(now))

    async def retry(self, id: str, expect: frozenset[int] | None) -> Job:
        self.refuse_when_draining()
        return await self._step(id, expect, lambda job, now: job.again(now))

    async def delete(self, id: str, expect: frozenset[int] | None) -> None:
        """Forget a job that is not running."""
        while True:
            job = await self.get(id)
            _check_version(job, expect)
            if job.state is State.RUNNING:
                raise WrongState(f"job {id} is running; cancel it first", job=job)
            if await self._store.delete(job):
                self._left(job)
                self._watchers.tell(job.seq)
                return

    async def _step(self, id: str, expect: frozenset[int] | None, step: Callable[[Job, Instant], Job]) -> Job:
        """Take one step with a job as it is now; when somebody else was quicker, look again."""
        while True:
            before = await self.get(id)
            _check_version(before, expect)
            after = step(before, self._now())
            if after is before:
                return before
            (verdict,) = await self._store.save([after])
            if verdict.is_saved:
                self.changed(before, after)
                return after
            if verdict.job is not None and verdict.job.seq != after.seq:
                detail = f"key {after.key!r} has a new holder, job {verdict.job.id}; cancel that one first"
                raise KeyTaken(detail, job=verdict.job)

    def changed(self, before: Job, after: Job) -> None:
        """See to what follows from a stored change."""
        was_in_lane = before.state is State.SCHEDULED and self._left(before)
        if (wakes_at := after.wakes_at) is not None:
            self._agenda.add(wakes_at, after.seq)
        elif was_in_lane:  # perhaps already of a next life, if the answer to this came late: the row decides
            self._agenda.add(self._now(), after.seq)
        if after.is_final:
            self._metrics.finished.values[after.kind, after.state.word] += 1
        self._watchers.tell(after.seq)

    def _left(self, job: Job) -> bool:
        """See to what follows when a job does not wait any more; whether its lane had it."""
        self._backlog.left(job.queue)
        return self._lanes.discard(job.queue, job.seq)

    def _changed(self, job: Job, change: Change, now: Instant) -> Job:
        if job.state is not State.SCHEDULED:
            raise WrongState(f"only a scheduled job can be changed; job {job.id} is {job.state.word}", job=job)
        if not change.given:
            return job
        after = job.rewrite(**self._rewritten(job, change))
        if "expires_after" in change.given:
            after = after.expire_after(change.expires_after, now)
        if change.execute_at is not None:
            after = after.move(change.execute_at, now)
        elif change.delay is not None:
            after = after.move(now + round(change.delay * jobs.SECOND), now)
        return after._replace(version=job.version + 1)

    def _rewritten(self, job: Job, change: Change) -> dict[str, Any]:
        given, terms = change.given, self._terms(job.kind, self._lanes.settings(job.queue))
        if "params" in given:
            self._check_params(self._handlers.get(job.kind), change.params)
        timeout = terms.timeout if change.timeout is None else self._timeout(change.timeout)
        return {
            "params": change.params if "params" in given else job.params,
            "labels": change.labels if "labels" in given else job.labels,
            "priority": change.priority if "priority" in given else job.priority,
            "timeout": timeout if "timeout" in given else job.timeout,
            "retry": _changed_policy(job, terms, change.retry) if "retry" in given else job.retry,
        }

    # what is checked and filled in

    def _check_params(self, handler: Handler | None, params: bytes) -> None:
        limit = self._max_params
        if len(params) > limit:
            detail = (
                f"{len(params)} bytes of JSON; at most {limit} are taken. Store large data elsewhere and pass its name"
            )
            raise Invalid("params are too large", faults=[Fault("/params", detail)])
        if handler is None:
            return
        try:
            handler.check(params)
        except Invalid as invalid:
            raise Invalid(invalid.detail, faults=[fault.under("/params") for fault in invalid.faults]) from None

    def _no_kind(self, kind: str) -> str:
        known = ", ".join(self._handlers)
        close = difflib.get_close_matches(kind, self._handlers, n=1)
        return f"no kind {kind!r}; known kinds: {known}" + (f". Did you mean {close[0]!r}?" if close else "")

    def _terms(self, kind: str, settings: QueueSettings) -> Terms:
        """Made once for all jobs of a kind under the same settings, and their policy is the same object."""
        terms = self._made_terms.get((kind, id(settings)))
        if terms is None:
            declared = self._config.kinds.get(kind)
            timeout = (declared.timeout if declared else None) or settings.timeout or self._config.jobs.timeout
            terms = Terms(settings, timeout, self._policy(kind, settings, None))
            self._made_terms[kind, id(settings)] = terms  # which keeps the id from being another's
        return terms

    def _timeout(self, asked: float) -> float:
        limit = self._config.jobs.max_timeout
        if asked > limit:
            raise Invalid("the job cannot be taken", faults=[Fault("/timeout", f"{asked:g} s; at most {limit:g} s")])
        return asked

    def _policy(self, kind: str, settings: QueueSettings, asked: RetryPatch | None) -> bytes:
        """The whole retry policy as JSON."""
        declared = self._config.kinds.get(kind)
        of_kind = declared.retry if declared else None
        return merged(self._config.jobs.retry, settings.retry, of_kind, asked).model_dump_json().encode()


def queue_of(asked: Submission) -> str:
    return asked.get("queue") or "default"


def _changed_policy(job: Job, terms: Terms, patch: RetryPatch | None) -> bytes:
    """Lay a patch over the policy of a job; what it names as null goes back to what a new job would get."""
    if patch is None:
        return terms.retry
    nulls = {name for name in patch.model_fields_set if getattr(patch, name) is None}
    base = job.policy.model_copy(update=jobs.read_policy(terms.retry).model_dump(include=nulls))
    return merged(base, patch).model_dump_json().encode()


def _check_version(job: Job, expect: frozenset[int] | None) -> None:
    if expect is not None and job.version not in expect:
        wanted = ", ".join(f'"{version}"' for version in sorted(expect)) or "none"
        raise VersionMismatch(f'job {job.id} is at version "{job.version}", If-Match names {wanted}; read it again')
