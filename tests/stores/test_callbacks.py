"""A callback is stored in the commit that ends its job, and each names the other."""

from __future__ import annotations

import orjson
import pytest

from erelong.model.extras import Extras, read_extras
from erelong.model.job import Job, State
from erelong.model.outcome import End, Outcome
from erelong.model.reports.callback import make_callback, make_on_finish
from erelong.stores.base import Ending, Store
from tests.support.builders import ALL, NOW, make_failure, make_job, make_retry, put, put_one

pytestmark = pytest.mark.real_loop

EXTRAS: Extras = {"on_finish": make_on_finish({"url": "https://app.example/done"}, None)}
FAILED = make_failure(retryable=False)


def make_callback_of(job: Job) -> Job:
    return make_callback(job, "callbacks", timeout=9.0, retry=make_retry(), token="f" * 16, now=NOW)


async def claim(store: Store, *jobs: Job) -> list[Job]:
    return (await store.claim([job.seq for job in jobs], now=NOW)).jobs


async def read(store: Store, job: Job) -> Job:
    return (await store.get([job.seq]))[job.seq]


async def assert_linked(store: Store, job: Job, callback: Job) -> None:
    """Check that both name each other, as the store returns them and on the disk."""
    assert callback.id == read_extras(job.extras)["on_finish"]["job"]
    assert read_extras(callback.extras) == {"callback_of": job.id}
    assert orjson.loads(callback.params)["json"]["job"]["version"] == job.version
    assert await store.get([job.seq, callback.seq]) == {job.seq: job, callback.seq: callback}
    assert {found.seq: found for found in await store.list(ALL) if found.seq in (job.seq, callback.seq)} == {
        job.seq: job,
        callback.seq: callback,
    }


async def test_save_links_a_job_and_its_callback(store: Store) -> None:
    cancelled = (await put_one(store, extras=EXTRAS)).cancel(NOW)

    (verdict,) = await store.save([cancelled], also=[(0, make_callback_of(cancelled))])

    assert verdict.job is not None
    (callback,) = verdict.also
    assert verdict.job._replace(extras=None) == cancelled._replace(extras=None)
    await assert_linked(store, verdict.job, callback)


@pytest.mark.parametrize("outcome", [Outcome(End.SUCCEEDED, result=b"1"), FAILED], ids=["success", "failure"])
async def test_finish_links_a_job_and_its_callback(store: Store, outcome: Outcome) -> None:
    (running,) = await claim(store, await put_one(store, extras=EXTRAS))
    ending = Ending(running, outcome, NOW)

    (verdict,) = await store.finish([ending], also=[(0, make_callback_of(ending.after))])

    assert verdict.job is not None
    (callback,) = verdict.also
    assert verdict.job._replace(extras=None) == ending.after._replace(extras=None)
    await assert_linked(store, verdict.job, callback)


async def test_each_job_of_a_call_gets_its_own_callback(store: Store) -> None:
    jobs = await put(store, *[make_job(extras=EXTRAS if number % 2 else None) for number in range(5)])
    endings = [Ending(job, Outcome(End.SUCCEEDED), NOW) for job in await claim(store, *jobs)]
    also = [(item, make_callback_of(endings[item].after)) for item in (1, 3)]

    verdicts = await store.finish(endings, also=also)

    assert [len(verdict.also) for verdict in verdicts] == [0, 1, 0, 1, 0]
    for item in (1, 3):
        await assert_linked(store, await read(store, jobs[item]), verdicts[item].also[0])


async def test_many_endings_with_callbacks_are_read_as_they_are_stored(store: Store) -> None:
    jobs = await put(store, *[make_job(extras=EXTRAS) for _ in range(100)])
    endings = [Ending(job, Outcome(End.SUCCEEDED), NOW) for job in await claim(store, *jobs)]

    verdicts = await store.finish(
        endings, also=[(item, make_callback_of(ending.after)) for item, ending in enumerate(endings)]
    )

    for job, verdict in zip(jobs, verdicts, strict=True):
        await assert_linked(store, await read(store, job), verdict.also[0])


async def test_refused_end_stores_no_callback_and_changes_no_job(store: Store) -> None:
    (running,) = await claim(store, await put_one(store, extras=EXTRAS))
    (changed,) = await store.save([running.cancel(NOW)])
    late = Ending(running, Outcome(End.SUCCEEDED), NOW)

    (finished,) = await store.finish([late], also=[(0, make_callback_of(late.after))])
    (saved,) = await store.save([late.after], also=[(0, make_callback_of(late.after))])

    assert (finished.is_saved, finished.also, saved.is_saved, saved.also) == (False, (), False, ())
    assert await store.list(ALL) == [changed.job]
    assert store.waiting("callbacks") == 0


async def test_second_end_names_the_second_callback(store: Store) -> None:
    job = await put_one(store, extras=EXTRAS)
    cancelled = job.cancel(NOW)
    (first,) = await store.save([cancelled], also=[(0, make_callback_of(cancelled))])
    assert first.job is not None
    (revived,) = await store.save([first.job.revive(NOW)])
    assert revived.job is not None
    again = revived.job.cancel(NOW)

    (second,) = await store.save([again], also=[(0, make_callback_of(again))])

    assert second.job is not None
    assert read_extras(revived.job.extras)["on_finish"]["job"] == first.also[0].id
    await assert_linked(store, second.job, second.also[0])
    assert store.waiting("callbacks") == 2


async def test_numbers_of_callbacks_are_never_given_again(store: Store) -> None:
    jobs = await put(store, make_job(extras=EXTRAS), make_job(extras=EXTRAS))
    ended = [jobs[0].cancel(NOW), jobs[1].cancel(NOW)._replace(version=9)]

    verdicts = await store.save(ended, also=[(item, make_callback_of(job)) for item, job in enumerate(ended)])
    later = await put_one(store)

    assert [verdict.is_saved for verdict in verdicts] == [True, False]
    assert later.seq > verdicts[0].also[0].seq > jobs[1].seq


async def test_deleted_job_has_no_link(store: Store) -> None:
    job = await put_one(store, extras=EXTRAS)
    other = make_job(extras={"callback_of": job.id})

    saved = await store.delete(job, also=[(0, other)])

    assert [found.extras for found in saved.also] == [other.extras]
    assert (await store.list(ALL))[0].state is State.SCHEDULED
