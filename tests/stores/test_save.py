"""Saving: a change is stored only on top of the version that it was made from."""

from __future__ import annotations

import pytest

from erelong.model.conflict import OnConflict
from erelong.model.job import State
from erelong.model.outcome import End, Outcome
from erelong.model.query import Query
from erelong.model.submission import AddStatus
from erelong.stores.base import Saved, Store
from tests.support.builders import (
    ALL,
    NOW,
    count_both,
    make_ended,
    make_failure,
    make_job,
    make_new_job,
    make_retry,
    make_running,
    put,
    put_one,
    statuses,
)

pytestmark = pytest.mark.real_loop


async def test_saved_job_is_read_unchanged(store: Store) -> None:
    (running,) = await put(store, make_running(labels={"a": "b"}))
    done = running.finish(Outcome(End.SUCCEEDED, result=b'{"x":1.5}', result_truncated=True), NOW + 7)

    verdicts = await store.save([done])

    assert verdicts == [Saved(True, done)]
    assert await store.list(ALL) == [done]


async def test_every_field_that_may_change_is_saved(store: Store) -> None:
    job = await put_one(store)
    changed = job._replace(
        kind="http",
        params=b'{"a":1}',
        labels=b'{"b":"c"}',
        priority=7,
        timeout=1.25,
        retry=make_retry(max_attempts=9),
        execute_at=NOW + 1,
        expires_after=2.5,
        state=State.RUNNING,
        due_at=NOW + 2,
        expires_at=NOW + 3,
        attempt=4,
        failures=3,
        losses=2,
        cancel_requested=True,
        superseded=True,
        started_at=NOW + 4,
        finished_at=NOW + 5,
        late_by=0.25,
        result=b"[1]",
        result_truncated=True,
        error=b'{"type":"lost"}',
        attempts=b'[{"number":1}]',
        version=2,
    )

    await store.save([changed])

    assert await store.list(ALL) == [changed]


async def test_every_changed_field_of_a_claimed_job_is_saved(store: Store) -> None:
    jobs = await put(store, *(make_job(labels={"a": "b"}) for _ in range(5)))
    as_it_is, with_params, with_labels, asked_to_stop, lent = (
        await store.claim([job.seq for job in jobs], now=NOW)
    ).jobs
    done = Outcome(End.SUCCEEDED, result=b"1")
    saved = [
        as_it_is.finish(done, NOW + 1),
        with_params.finish(done, NOW + 1)._replace(params=b'{"a":2}'),
        with_labels.finish(done, NOW + 1)._replace(labels=b'{"c":"d"}'),
        asked_to_stop.cancel(NOW + 1),
        lent.lease_out("token", NOW + 9),
    ]

    for job in saved:  # one by one, so that no other job of the call causes the full write
        await store.save([job])

    assert await store.list(ALL) == saved[::-1]
    assert [job.seq for job in await store.list(Query(labels={"c": "d"}))] == [with_labels.seq]


async def test_each_of_many_outcomes_is_saved_in_one_call(store: Store) -> None:
    jobs = await put(store, *(make_job(queue="ab"[number % 2]) for number in range(150)))
    running = (await store.claim([job.seq for job in jobs], now=NOW)).jobs
    ended = [
        job.finish(Outcome(End.SUCCEEDED, result=b"%d" % job.seq), NOW + job.seq)
        if job.seq % 3
        else job.finish(make_failure(), NOW + job.seq, backoff=job.seq)
        for job in running
    ]

    verdicts = await store.save(ended)

    assert verdicts == [Saved(True, job) for job in ended]
    assert await store.list(ALL) == ended[::-1]
    counted, stored = await count_both(store)
    assert counted == stored


async def test_same_outcome_twice_in_one_call_counts_once(store: Store) -> None:
    job = await put_one(store)
    (running,) = (await store.claim([job.seq], now=NOW)).jobs
    done = running.finish(Outcome(End.SUCCEEDED), NOW + 1)

    verdicts = await store.save([done, done])

    assert verdicts == [Saved(True, done), Saved(False, done)]
    counted, stored = await count_both(store)
    assert counted == stored


async def test_outcome_of_a_job_that_was_deleted_meanwhile_is_refused(store: Store) -> None:
    job = await put_one(store)
    (running,) = (await store.claim([job.seq], now=NOW)).jobs
    assert await store.delete(running)

    verdicts = await store.save([running.finish(Outcome(End.SUCCEEDED), NOW + 1)])

    assert verdicts == [Saved(False, None)]


async def test_change_of_an_older_version_is_refused_and_returns_the_stored_job(store: Store) -> None:
    job = await put_one(store)
    moved = job.move(NOW + 5, NOW)
    await store.save([moved])

    verdicts = await store.save([job.cancel(NOW)])

    assert verdicts == [Saved(False, moved)]
    assert await store.list(ALL) == [moved]


async def test_change_that_skips_a_version_is_refused(store: Store) -> None:
    job = await put_one(store, delay=60)

    verdicts = await store.save([job.run_now(NOW).cancel(NOW)])

    assert verdicts == [Saved(False, job)]


async def test_deleted_job_is_not_saved(store: Store) -> None:
    job = await put_one(store)
    await store.delete(job)

    verdicts = await store.save([job.cancel(NOW)])

    assert verdicts == [Saved(False, None)]
    assert await store.list(ALL) == []


async def test_another_job_with_the_same_number_is_not_overwritten(store: Store) -> None:
    job = await put_one(store)

    verdicts = await store.save([make_job(seq=job.seq).cancel(NOW)])

    assert verdicts == [Saved(False, job)]


async def test_refused_job_does_not_stop_the_others(store: Store) -> None:
    first, second, third = await put(store, make_job(), make_job(), make_job())
    jobs = [first.cancel(NOW), second._replace(version=9), third.cancel(NOW)]

    verdicts = await store.save(jobs)

    assert verdicts == [Saved(True, jobs[0]), Saved(False, second), Saved(True, jobs[2])]


async def test_one_call_may_save_two_changes_of_one_job(store: Store) -> None:
    job = await put_one(store)
    moved = job.move(NOW + 5, NOW)

    verdicts = await store.save([moved, moved.cancel(NOW), moved.run_now(NOW)])

    assert verdicts == [Saved(True, moved), Saved(True, moved.cancel(NOW)), Saved(False, moved.cancel(NOW))]


async def test_saving_nothing_is_no_error(store: Store) -> None:
    assert await store.save([]) == []


async def test_saved_change_moves_the_job_between_the_counts(store: Store) -> None:
    job = await put_one(store, queue="q", kind="k")

    await store.save([job.cancel(NOW)])

    counts = store.counts()
    assert counts["q", "k", State.SCHEDULED] == 0
    assert counts["q", "k", State.CANCELLED] == 1


async def test_saved_labels_are_found_and_old_ones_are_not(store: Store) -> None:
    job = await put_one(store, labels={"a": "old", "b": "same"})
    saved = job._replace(labels=b'{"a":"new","b":"same"}', version=2)

    await store.save([saved])

    assert await store.list(Query(labels={"a": "old"})) == []
    assert await store.list(Query(labels={"a": "new", "b": "same"}, is_full=True)) == [saved]


async def test_job_is_revived_when_its_key_is_free(store: Store) -> None:
    (failed,) = await put(store, make_ended(State.FAILED, key="k"))

    verdicts = await store.save([failed.revive(NOW)])

    assert verdicts == [Saved(True, failed.revive(NOW))]
    assert statuses(await store.add([make_new_job(key="k")], now=NOW)) == [AddStatus.CONFLICT]


async def test_job_is_not_revived_when_its_key_has_a_new_holder(store: Store) -> None:
    (failed,) = await put(store, make_ended(State.FAILED, key="k"))
    holder = await put_one(store, key="k")

    verdicts = await store.save([failed.revive(NOW)])

    assert verdicts == [Saved(False, holder)]
    assert await store.list(ALL) == [holder, failed]


async def test_job_is_revived_when_its_key_is_held_in_another_queue(store: Store) -> None:
    failed, _ = await put(store, make_ended(State.FAILED, key="k"), make_job(key="k", queue="other"))

    (verdict,) = await store.save([failed.revive(NOW)])

    assert verdict.is_saved


async def test_only_the_first_of_two_jobs_with_a_key_is_revived_in_a_call(store: Store) -> None:
    first, second = await put(store, make_ended(State.FAILED, key="k"), make_ended(State.EXPIRED, key="k"))

    verdicts = await store.save([first.revive(NOW), second.revive(NOW)])

    assert verdicts == [Saved(True, first.revive(NOW)), Saved(False, first.revive(NOW))]


async def test_holder_of_a_key_keeps_it_over_a_retry_of_its_attempt(store: Store) -> None:
    job = await put_one(store, key="k")
    (running,) = (await store.claim([job.seq], now=NOW)).jobs

    (verdict,) = await store.save([running.finish(make_failure(), NOW)])

    assert verdict.is_saved
    new_job = make_new_job(key="k", on_conflict=OnConflict.KEEP)
    assert statuses(await store.add([new_job], now=NOW)) == [AddStatus.EXISTS]
