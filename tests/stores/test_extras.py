"""Jobs with extras: kept through every step, and found by their system labels."""

from __future__ import annotations

import orjson
import pytest

from erelong.model.extras import ZONE_LABEL, Extras, label_of
from erelong.model.job import Job, State
from erelong.model.outcome import End, Outcome
from erelong.model.query import Query
from erelong.stores.base import Ending, Saved, Store
from tests.support.builders import NOW, make_ended, make_failure, make_job, put, put_one

pytestmark = pytest.mark.real_loop


async def found(store: Store, name: str, value: str | int) -> list[int]:
    """Return the numbers of the jobs that have a system label."""
    return [job.seq for job in await store.list(Query(labels=dict([label_of(name, value)])))]


async def test_job_keeps_its_extras_through_its_life(store: Store) -> None:
    job = await put_one(store, extras={"callback_of": "7"})
    (running,) = (await store.claim([job.seq], now=NOW)).jobs

    (verdict,) = await store.finish([Ending(running, Outcome(End.SUCCEEDED), NOW)])

    ended = running.finish(Outcome(End.SUCCEEDED), NOW)
    assert verdict == Saved(True, ended)
    assert (await store.get([job.seq]))[job.seq] == ended
    assert ended.extras == b'{"callback_of":"7"}'


async def test_job_keeps_its_extras_through_failure_and_retry(store: Store) -> None:
    job = await put_one(store, extras={"callback_of": "x"}, labels={"tenant": "t1"})
    (running,) = (await store.claim([job.seq], now=NOW)).jobs

    (verdict,) = await store.finish([Ending(running, make_failure(retryable=False), NOW)])
    assert verdict.job is not None
    (revived,) = await store.save([verdict.job.revive(NOW)])

    assert revived.job == (await store.get([job.seq]))[job.seq]
    assert (revived.job.extras, revived.job.labels) == (b'{"callback_of":"x"}', b'{"tenant":"t1"}')


async def test_jobs_are_found_by_their_system_labels_in_every_state(store: Store) -> None:
    extras: Extras = {"schedule": "report", "occurrence": NOW}
    jobs = await put(
        store,
        make_job(extras=extras),
        make_job(extras=extras | {"schedule": "other"}, labels={"schedule": "report"}),
        make_ended(State.FAILED, extras=extras),
    )
    await store.claim([jobs[0].seq], now=NOW)

    assert await found(store, "schedule", "report") == [jobs[2].seq, jobs[0].seq]
    assert await found(store, "schedule", "other") == [jobs[1].seq]
    assert await found(store, "occurrence", NOW) == [job.seq for job in reversed(jobs)]
    assert await found(store, "occurrence", NOW + 1_000) == []


async def test_changed_extras_are_stored_with_their_system_labels(store: Store) -> None:
    job = await put_one(store, extras={"zone": "UTC", "local_time": "2027-03-28T09:00:00"}, labels={"tenant": "t1"})
    other: Extras = {"zone": "Europe/Berlin", "local_time": "2027-03-28T09:00:00"}

    assert (await store.save([_next(job.with_extras(other))]))[0].is_saved

    stored = (await store.get([job.seq]))[job.seq]
    assert orjson.loads(stored.extras or b"{}") == other
    assert (await found(store, "zone", "UTC"), await found(store, "zone", "Europe/Berlin")) == ([], [job.seq])

    assert (await store.save([_next(stored.with_extras({}))]))[0].is_saved

    assert (await store.get([job.seq]))[job.seq].extras is None
    assert await found(store, "zone", "Europe/Berlin") == []
    assert [found.seq for found in await store.list(Query(labels={"tenant": "t1"}))] == [job.seq]


def _next(job: Job) -> Job:
    return job._replace(version=job.version + 1)


async def test_values_of_a_label_are_listed_once_each_in_order(store: Store) -> None:
    zones = ["UTC", "Europe/Berlin", "Asia/Tokyo", "Europe/Berlin", "UTC"]
    jobs = await put(store, *[make_job(extras={"zone": zone, "local_time": "x"}) for zone in zones], make_job())
    await put(store, make_job(labels={"zone": "Mars", "@zone2": "Venus"}))

    assert [*await store.label_values(ZONE_LABEL)] == ["Asia/Tokyo", "Europe/Berlin", "UTC"]
    assert [*await store.label_values("nobody")] == []

    await store.delete(jobs[2])

    assert [*await store.label_values(ZONE_LABEL)] == ["Europe/Berlin", "UTC"]


async def test_job_keeps_its_worker_until_its_lease_ends(store: Store) -> None:
    job = await put_one(store, extras={"submitted_by": "app"}, labels={"tenant": "t1"})
    (running,) = (await store.claim([job.seq], now=NOW)).jobs

    (leased,) = await store.save([running.lease_out("7", NOW, "host-1")])
    assert leased.job == (await store.get([job.seq]))[job.seq]
    (ended,) = await store.finish([Ending(running.lease_out("7", NOW, "host-1"), Outcome(End.SUCCEEDED), NOW)])

    stored = (await store.get([job.seq]))[job.seq]
    assert ended.job == stored
    assert (stored.extras, stored.labels) == (b'{"submitted_by":"app"}', b'{"tenant":"t1"}')
    assert [attempt["worker"] for attempt in orjson.loads(stored.history)] == ["host-1"]
