"""Saves and deletes of many jobs that are done completely or not at all."""

from __future__ import annotations

import pytest

from erelong.errors import DocumentChanged
from erelong.model.document import Document
from erelong.model.job import State
from erelong.stores.base import Store
from tests.support.builders import ALL, NOW, make_ended, make_job, put, put_one

pytestmark = pytest.mark.real_loop

PROGRESS = Document("operation", "1", 1, NOW, b"{}")


async def test_whole_save_writes_all_jobs_and_the_document(store: Store) -> None:
    jobs = await put(store, *(make_job(delay=60) for _ in range(3)))

    verdicts = await store.save([job.run_now(NOW) for job in jobs], is_whole=True, beside=[PROGRESS])

    assert [verdict.is_saved for verdict in verdicts] == [True] * 3
    assert {job.due_at for job in await store.list(ALL)} == {NOW}
    assert await store.document("operation", "1") == PROGRESS


@pytest.mark.parametrize("bad", range(3))
async def test_job_that_has_changed_keeps_a_whole_save_from_writing_any(store: Store, bad: int) -> None:
    jobs = await put(store, *(make_job(delay=60) for _ in range(3)))
    await store.save([jobs[bad].move(NOW + 1, NOW)])
    before = await store.list(ALL)

    verdicts = await store.save(
        [job.run_now(NOW) for job in jobs], is_whole=True, beside=[PROGRESS], also=[(0, make_job(queue="other"))]
    )

    assert [verdict.is_saved for verdict in verdicts] == [False] * 3
    assert await store.list(ALL) == before
    assert await store.document("operation", "1") is None


async def test_running_job_takes_part_in_a_whole_save(store: Store) -> None:
    waiting, running = await put(store, make_job(), make_job())
    (running,) = (await store.claim([running.seq], now=NOW)).jobs

    (_, verdict) = await store.save([waiting.cancel(NOW), running.cancel(NOW)], is_whole=True, beside=[PROGRESS])

    assert verdict.is_saved
    assert {job.state for job in await store.list(ALL)} == {State.CANCELLED, State.RUNNING}


async def test_claim_keeps_a_whole_save_from_writing_any(store: Store) -> None:
    jobs = await put(store, make_job(), make_job())
    await store.claim([jobs[1].seq], now=NOW)

    verdicts = await store.save([job.run_now(NOW) for job in jobs], is_whole=True, beside=[PROGRESS])

    assert not any(verdict.is_saved for verdict in verdicts)
    assert await store.document("operation", "1") is None


async def test_held_key_keeps_a_whole_save_from_reviving_any_job(store: Store) -> None:
    one, other = await put(store, make_ended(State.FAILED, key="taken"), make_ended(State.FAILED, key="free"))
    await put_one(store, key="taken")

    verdicts = await store.save([one.revive(NOW), other.revive(NOW)], is_whole=True, beside=[PROGRESS])
    alone = await store.save([other.revive(NOW)], is_whole=True, beside=[PROGRESS])

    assert [verdict.is_saved for verdict in [*verdicts, *alone]] == [False, False, True]


async def test_two_jobs_of_one_key_cannot_be_revived_together(store: Store) -> None:
    jobs = await put(store, *(make_ended(State.FAILED, key="k") for _ in range(2)))

    verdicts = await store.save([job.revive(NOW) for job in jobs], is_whole=True)

    assert [verdict.is_saved for verdict in verdicts] == [False, False]


async def test_many_jobs_are_deleted_with_a_document(store: Store) -> None:
    jobs = await put(store, make_job(labels={"a": "b"}), make_ended(State.SUCCEEDED), make_job(key="k"))
    kept = await put_one(store)

    assert await store.delete_all(jobs, beside=[PROGRESS])

    assert await store.list(ALL) == [kept]
    assert await store.get([job.seq for job in jobs]) == {}
    assert await store.holder("default", "k") is None
    assert await store.document("operation", "1") == PROGRESS


@pytest.mark.parametrize("is_gone", [False, True])
async def test_job_that_has_changed_keeps_all_from_being_deleted(store: Store, is_gone: bool) -> None:
    jobs = await put(store, make_job(delay=60), make_job(delay=60))
    if is_gone:
        await store.delete(jobs[1])
    else:
        await store.save([jobs[1].run_now(NOW)])
    before = await store.list(ALL)

    assert not await store.delete_all(jobs, beside=[PROGRESS])

    assert await store.list(ALL) == before
    assert await store.document("operation", "1") is None


async def test_outdated_document_keeps_a_whole_write_from_writing_any_job(store: Store) -> None:
    (job,) = await put(store, make_job(delay=60))

    with pytest.raises(DocumentChanged):
        await store.save([job.run_now(NOW)], is_whole=True, beside=[PROGRESS._replace(version=2)])
    with pytest.raises(DocumentChanged):
        await store.delete_all([job], beside=[PROGRESS._replace(version=2)])

    assert await store.list(ALL) == [job]
