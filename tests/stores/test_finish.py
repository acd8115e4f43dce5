"""Finishing: the store writes the job that the outcome of its attempt makes."""

from __future__ import annotations

import pytest

from erelong.errors import WrongState
from erelong.model.job import Job, State
from erelong.model.outcome import End, Error, Outcome
from erelong.stores.base import Ending, Saved, Store
from erelong.stores.cache import MAX_AT_ONCE
from tests.support.builders import ALL, NOW, count_both, make_failure, make_job, put, put_one

pytestmark = pytest.mark.real_loop

OUTCOMES = {
    "with nothing to say": Outcome(End.SUCCEEDED),
    "with a result": Outcome(End.SUCCEEDED, b'{"x":1.5}'),
    "with a cut result": Outcome(End.SUCCEEDED, b'"cut"', result_truncated=True),
    "with output": Outcome(End.SUCCEEDED, output="words"),
    "failed": Outcome(End.ERROR, error=Error("exception", "it broke")),
    "failed for good": Outcome(End.ERROR, error=Error("give_up", "no use", retryable=False)),
    "timed out": Outcome(End.TIMEOUT),
    "cancelled": Outcome(End.CANCELLED),
    "released": Outcome(End.RELEASED),
    "lost": Outcome(End.LOST),
}
WELL = OUTCOMES["with nothing to say"]


@pytest.mark.parametrize("outcome", OUTCOMES.values(), ids=OUTCOMES)
async def test_finish_stores_the_job_that_its_steps_make(store: Store, outcome: Outcome) -> None:
    ending = Ending(await begin(store), outcome, NOW + 12_345, backoff=7.5)

    verdicts = await store.finish([ending])

    assert [verdict.is_saved for verdict in verdicts] == [True]
    assert await store.list(ALL) == [ending.after]
    assert await store.get([ending.job.seq]) == {ending.job.seq: ending.after}


@pytest.mark.parametrize("outcome", OUTCOMES.values(), ids=OUTCOMES)
async def test_second_attempt_keeps_the_history_of_the_first(store: Store, outcome: Outcome) -> None:
    failed = Ending(await begin(store), make_failure(), NOW + 1)
    await store.finish([failed])
    (second,) = (await store.claim([failed.job.seq], now=NOW + 2_500_000)).jobs

    await store.finish([ending := Ending(second, outcome, NOW + 3_000_000)])

    assert await store.list(ALL) == [ending.after]
    assert second == failed.after.start(NOW + 2_500_000)


async def test_many_jobs_are_finished_in_one_call_each_with_its_outcome(store: Store) -> None:
    jobs = await put(store, *(make_job(queue="ab"[number % 2]) for number in range(200)))
    running = (await store.claim([job.seq for job in jobs], now=NOW + 5)).jobs
    endings = [
        Ending(job, list(OUTCOMES.values())[job.seq % 7], NOW + 5 + job.seq, backoff=float(job.seq)) for job in running
    ]

    verdicts = await store.finish(endings)

    assert [verdict.is_saved for verdict in verdicts] == [True] * len(endings)
    assert await store.list(ALL) == [ending.after for ending in endings[::-1]]
    assert await store.get([job.seq for job in jobs]) == {ending.job.seq: ending.after for ending in endings}
    counted, stored = await count_both(store)
    assert counted == stored


async def test_finished_job_is_no_longer_running(store: Store) -> None:
    job = await begin(store)

    await store.finish([Ending(job, WELL, NOW)])

    counts = store.counts()
    assert (counts[job.queue, job.kind, State.RUNNING], counts[job.queue, job.kind, State.SUCCEEDED]) == (0, 1)
    assert (await store.claim([job.seq], now=NOW)).jobs == []


@pytest.mark.parametrize("first", OUTCOMES.values(), ids=OUTCOMES)
async def test_first_of_two_ends_of_an_attempt_in_one_call_counts(store: Store, first: Outcome) -> None:
    job = await begin(store)
    endings = [Ending(job, first, NOW + 1, backoff=7.5), Ending(job, WELL, NOW + 2)]

    verdicts = await store.finish(endings)

    assert [verdict.is_saved for verdict in verdicts] == [True, False]
    assert await store.list(ALL) == [endings[0].after]


async def test_same_attempt_ends_once(store: Store) -> None:
    ending = Ending(await begin(store), WELL, NOW + 1)

    verdicts = await store.finish([ending, ending])

    assert [verdict.is_saved for verdict in verdicts] == [True, False]
    assert await store.finish([ending]) == [Saved(False, ending.after)]
    counted, stored = await count_both(store)
    assert counted == stored


async def test_ending_is_refused_after_another_change_and_returns_the_stored_job(store: Store) -> None:
    changed, gone, sound = [await begin(store) for _ in range(3)]
    wanted = changed.cancel(NOW, "enough")
    await store.save([wanted])
    await store.delete(gone)
    endings = [Ending(job, WELL, NOW + 1) for job in (changed, gone, sound)]

    refused, missing, saved = await store.finish(endings)

    assert (refused, missing, saved.is_saved) == (Saved(False, wanted), Saved(False, None), True)
    assert await store.list(ALL) == [endings[2].after, wanted]
    assert [await store.get([job.seq]) for job in (changed, gone)] == [{changed.seq: wanted}, {}]


async def test_ending_on_top_of_a_change_of_the_running_job_is_stored(store: Store) -> None:
    wanted = (await begin(store)).cancel(NOW, "enough")
    await store.save([wanted])

    await store.finish([ending := Ending(wanted, WELL, NOW + 1)])

    assert await store.list(ALL) == [ending.after]


async def test_job_changed_while_running_is_read_as_finished_among_many(store: Store) -> None:
    jobs = await put(store, *(make_job() for _ in range(MAX_AT_ONCE + 1)))
    changed, *others = (await store.claim([job.seq for job in jobs], now=NOW)).jobs
    await store.save([wanted := changed.cancel(NOW, "enough")])
    endings = [Ending(job, WELL, NOW + 1) for job in (wanted, *others)]

    await store.finish(endings)

    assert await store.get([changed.seq]) == {changed.seq: endings[0].after}


async def test_ending_of_an_earlier_attempt_does_not_end_the_running_one(store: Store) -> None:
    first = await begin(store)
    await store.finish([Ending(first, Outcome(End.RELEASED), NOW + 1)])
    (second,) = (await store.claim([first.seq], now=NOW + 2)).jobs

    assert await store.finish([Ending(first, WELL, NOW + 3)]) == [Saved(False, second)]
    assert await store.list(ALL) == [second]


async def test_ending_of_a_job_that_is_not_running_is_refused_before_others_are_stored(store: Store) -> None:
    running, waiting = await begin(store), await put_one(store)

    with pytest.raises(WrongState):
        await store.finish([Ending(running, WELL, NOW + 1), Ending(waiting, WELL, NOW + 1)])

    assert await store.list(ALL) == [waiting, running]
    counted, stored = await count_both(store)
    assert counted == stored


async def test_job_that_was_read_but_not_claimed_is_finished(store: Store) -> None:
    running = await begin(store)
    (read,) = await store.list(ALL)

    await store.finish([ending := Ending(read, WELL, NOW + 1)])

    assert read == running
    assert await store.list(ALL) == [ending.after]


async def test_finishing_nothing_is_no_error(store: Store) -> None:
    assert await store.finish([]) == []


async def begin(store: Store) -> Job:
    """Return a running job that started a little late."""
    job = await put_one(store)
    (running,) = (await store.claim([job.seq], now=NOW + 250_000)).jobs
    return running
