"""Builders of jobs with defaults, and functions that store them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import orjson

from erelong.model import submission
from erelong.model.conflict import OnConflict
from erelong.model.extras import Extras
from erelong.model.ids import draw_tokens
from erelong.model.job import SECOND, Job, State
from erelong.model.outcome import End, Error, Outcome
from erelong.model.query import Query
from erelong.model.submission import AddStatus, NewJob, Receipt
from erelong.settings.queues import Retry
from erelong.stores.base import Group, Store
from tests.support.virtual import EPOCH

NOW = EPOCH
ALL = Query(limit=1_000_000, is_full=True)


_tokens = draw_tokens()


def make_retry(**policy: Any) -> bytes:
    return Retry(**policy).model_dump_json().encode()


def make_job(
    *,
    kind: str = "echo",
    queue: str = "default",
    params: object = None,
    key: str | None = None,
    labels: dict[str, str] | None = None,
    extras: Extras | None = None,
    priority: int = 0,
    timeout: float = 60.0,
    retry: bytes | None = None,
    delay: float = 0.0,
    expires_after: float | None = None,
    now: int = NOW,
    seq: int = 0,
) -> Job:
    """Return a waiting job, submitted at `now` to run `delay` seconds later."""
    job = submission.make_job(
        kind=kind,
        queue=queue,
        params=orjson.dumps(params or {}),
        key=key,
        labels=None if labels is None else orjson.dumps(labels),
        extras=extras,
        priority=priority,
        timeout=timeout,
        retry=make_retry() if retry is None else retry,
        execute_at=now + round(delay * SECOND),
        expires_after=expires_after,
        now=now,
        token=next(_tokens),
    )
    return job._replace(seq=seq)


def make_running(*, now: int = NOW, **fields: Any) -> Job:
    """Return a job whose first attempt started at `now`."""
    return make_job(now=now, **fields).start(now)


def make_ended(state: State, *, now: int = NOW, **fields: Any) -> Job:
    """Return a job that reached a final state at `now`."""
    match state:
        case State.SUCCEEDED:
            return make_running(now=now, **fields).finish(Outcome(End.SUCCEEDED), now)
        case State.FAILED:
            return make_running(now=now, **fields).finish(make_failure(retryable=False), now)
        case State.CANCELLED:
            return make_job(now=now, **fields).cancel(now)
        case State.EXPIRED:
            return make_job(now=now, **fields).expire(now)
        case _:
            raise ValueError(f"{state.word} is not a final state")


def make_failure(
    *, end: End = End.ERROR, type: str = "exception", message: str = "boom", retryable: bool = True, delay: float = 0.0
) -> Outcome:
    return Outcome(end, error=Error(type, message, retryable), delay=delay)


def make_new_job(*, on_conflict: OnConflict = OnConflict.REJECT, **fields: Any) -> NewJob:
    return NewJob(make_job(**fields), on_conflict)


async def put(store: Store, *jobs: Job, now: int = NOW) -> list[Job]:
    """Store jobs in any state, and return them with their `seq`."""
    receipt = await store.add([NewJob(job) for job in jobs], now=now)
    assert set(statuses(receipt)) <= {AddStatus.ADDED}
    return [entry.job for entry in receipt.entries if entry is not None]


async def put_one(store: Store, *, now: int = NOW, **fields: Any) -> Job:
    """Store a waiting job, submitted at `now`."""
    (job,) = await put(store, make_job(now=now, **fields), now=now)
    return job


async def purge(store: Store, queue: str, state: State, *, before: int, limit: int) -> int:
    """Delete the first jobs of a queue and state that ended before an instant; return how many."""
    ended = await store.ended(queue, state, after=(-1, -1), before=before, limit=limit)
    return len(await store.purge([seq for _, seq in ended], before=before))


def statuses(receipt: Receipt) -> list[AddStatus | None]:
    return [entry.status if entry else None for entry in receipt.entries]


async def count_both(store: Store) -> tuple[dict[Group, int], dict[Group, int]]:
    """Return the counts that a store reports and the actual ones."""
    counted = {group: jobs for group, jobs in store.counts().items() if jobs}
    stored = Counter(job.group for job in await store.list(ALL))
    waiting = Counter(queue for queue, _, state in stored.elements() if state is State.SCHEDULED)
    queues = {queue for queue, _, _ in stored}
    assert {queue: store.waiting(queue) for queue in queues} == {queue: waiting[queue] for queue in queues}
    return counted, stored
