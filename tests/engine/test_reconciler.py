"""Writes that failed and may have been done all the same."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import pytest_asyncio

from erelong.duties.duty import Duty
from erelong.engine import reconciler, unknown_writes
from erelong.engine.reconciler import Reconciler
from erelong.engine.unknown_writes import RecordingStore, UnknownWrites
from erelong.errors import IdempotencyMismatch, StorageFull, StoreUnavailable
from erelong.model.job import Job, State
from erelong.model.outcome import End, Outcome
from erelong.stores.base import Ending
from erelong.telemetry.metrics import Metrics
from tests.support.builders import NOW, make_job, make_new_job, make_running, put, put_one
from tests.support.faults import FaultyStore


class Heard:
    """In place of the parts that are told: what each was told."""

    def __init__(self, store: FaultyStore) -> None:
        self.released: list[Job] = []
        self.reread_jobs: dict[int, Job | None] = {}
        self.reloaded: list[str] = []
        self._store = store

    def add(self, *endings: Ending) -> None:
        assert {ending.outcome.end for ending in endings} == {End.RELEASED}
        self.released += [ending.job for ending in endings]

    def reread(self, *about: Any) -> None:
        *_, seq, job = about
        self.reread_jobs[seq] = job

    async def reload(self, queue: str) -> None:
        await self._store.overrides()
        self.reloaded.append(queue)


class Ground:
    """A store, the doubts about it, and what the reconciler has made of them."""

    def __init__(self) -> None:
        self.store = FaultyStore()
        self.metrics = Metrics()
        self.heard = Heard(self.store)
        self.unknown_writes = UnknownWrites()
        heard: Any = self.heard
        self.reconciler = Reconciler(
            store=self.store,
            unknown_writes=self.unknown_writes,
            completer=heard,
            changes=heard,
            leases=heard,
            overrides=heard,
            metrics=self.metrics,
            now=lambda: NOW,
        )
        self.recording = RecordingStore(store=self.store, unknown_writes=self.unknown_writes)


@pytest_asyncio.fixture
async def ground() -> Ground:
    return Ground()


async def test_attempt_that_began_by_the_claim_in_doubt_is_told_of_and_no_other(ground: Ground) -> None:
    ours, waiting, earlier, lent = await put(
        ground.store, make_running(), make_job(), make_running(now=NOW - 1), make_running().lease_out("token", NOW)
    )
    ground.unknown_writes.note_claim([ours.seq, waiting.seq, earlier.seq, lent.seq], NOW)

    await ground.reconciler.lap()

    assert ground.heard.released == [ours]


async def test_job_that_is_gone_is_looked_at_too(ground: Ground) -> None:
    job = await put_one(ground.store)
    ground.unknown_writes.note_change([job, job._replace(seq=99)])

    await ground.reconciler.lap()

    assert ground.heard.reread_jobs == {job.seq: job, 99: None}


async def test_job_whose_end_may_not_be_stored_is_looked_at(ground: Ground) -> None:
    (running,) = await put(ground.store, make_running())
    ground.store.broken["finish"] = StoreUnavailable("not now")
    with pytest.raises(StoreUnavailable):
        await ground.recording.finish([Ending(running, Outcome(End.SUCCEEDED), NOW)])

    await ground.reconciler.lap()

    assert ground.heard.reread_jobs == {running.seq: running}


async def test_new_jobs_are_found_by_their_numbers_however_many_there_are(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconciler, "PAGE", 3)
    known = await put(ground.store, *[make_job() for _ in range(5)])
    new = await put(ground.store, *[make_job() for _ in range(8)])
    ground.unknown_writes.note_add([make_new_job()], known[-1].seq)

    await ground.reconciler.lap()

    assert sorted(ground.heard.reread_jobs) == [job.seq for job in new]


async def test_holder_of_a_key_in_doubt_is_looked_at_though_it_is_old(ground: Ground) -> None:
    holder = await put_one(ground.store, key="k")
    ground.unknown_writes.note_add([make_new_job(key="k")], holder.seq)

    await ground.reconciler.lap()

    assert [*ground.heard.reread_jobs] == [holder.seq]


async def test_all_that_waits_is_looked_at_when_too_many_keys_are_in_doubt(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unknown_writes, "MAX_KEYS", 2)
    jobs = await put(ground.store, *[make_job(key=str(number)) for number in range(4)])
    ground.unknown_writes.note_add([make_new_job(key=str(number)) for number in range(3)], jobs[-1].seq)

    await ground.reconciler.lap()

    assert sorted(ground.heard.reread_jobs) == [job.seq for job in jobs]


async def test_doubts_stay_until_the_store_answers(ground: Ground) -> None:
    (running,) = await put(ground.store, make_running())
    ground.unknown_writes.note_claim([running.seq], NOW)
    ground.unknown_writes.note_change([running])
    ground.unknown_writes.note_add([make_new_job(key="k")], 0)
    ground.unknown_writes.note_override("q")
    for method in ("get", "list", "overrides"):
        ground.store.broken[method] = StoreUnavailable("not now")
        with pytest.raises(StoreUnavailable):
            await ground.reconciler.lap()
        assert ground.heard.reloaded == []
        del ground.store.broken[method]

    await ground.reconciler.lap()

    assert ground.heard.released == [running]
    assert ground.heard.reread_jobs == {running.seq: running}
    assert ground.heard.reloaded == ["q"]


async def test_what_comes_into_doubt_while_the_store_answers_is_asked_for_again(ground: Ground) -> None:
    holder = await put_one(ground.store, key="k")
    answer = ground.store.hold("holder")
    ground.unknown_writes.note_add([make_new_job(key="k")], holder.seq)
    looking = asyncio.create_task(ground.reconciler.lap())
    await asyncio.sleep(1)
    ground.unknown_writes.note_add([make_new_job(key="k")], holder.seq)
    asked = ground.store.calls.count("holder")

    answer.set()
    await looking

    assert (asked, ground.store.calls.count("holder"), ground.store.calls.count("list")) == (1, 2, 1)


async def test_doubts_are_looked_into_a_moment_after_the_failure_and_again_until_it_works(ground: Ground) -> None:
    job = await put_one(ground.store)
    ground.store.broken["get"] = StoreUnavailable("not now")
    looking = Duty(work=ground.reconciler, metrics=ground.metrics)
    looking.start()
    ground.unknown_writes.note_change([job])
    await asyncio.sleep(2)
    assert ground.metrics.laps_failed.values["reconciler",] >= 2
    del ground.store.broken["get"]

    await asyncio.sleep(1)

    assert ground.heard.reread_jobs == {job.seq: job}
    await looking.stop()


@pytest.mark.parametrize("error", [StorageFull("no room"), IdempotencyMismatch("another body")], ids=["full", "memo"])
async def test_refusal_that_is_sure_to_have_changed_nothing_leaves_no_doubt(ground: Ground, error: Exception) -> None:
    job = make_running(seq=1)
    ground.store.broken |= dict.fromkeys(("claim", "save", "finish"), error)
    ending = Ending(job, Outcome(End.SUCCEEDED), NOW)
    for call in (ground.recording.claim([1], now=NOW), ground.recording.save([job]), ground.recording.finish([ending])):
        with pytest.raises(type(error)):
            await call

    await ground.reconciler.lap()

    assert "get" not in ground.store.calls


async def test_final_state_counts_as_a_look(ground: Ground) -> None:
    job = await put_one(ground.store)
    (verdict,) = await ground.store.save([job.cancel(NOW)])
    ground.unknown_writes.note_change([job])

    await ground.reconciler.lap()

    found = ground.heard.reread_jobs[job.seq]
    assert found == verdict.job
    assert found is not None
    assert found.state is State.CANCELLED
