"""Jobs and queues are re-read after a write whose result is unknown."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import pytest_asyncio

from erelong.duties.duty import Duty
from erelong.engine import reconciler, unknown_writes
from erelong.engine.reconciler import Reconciler
from erelong.engine.unknown_writes import EngineStore, UnknownWrites
from erelong.errors import IdempotencyMismatch, StorageFull, StoreUnavailable
from erelong.model.job import Job, State
from erelong.model.outcome import End, Outcome
from erelong.stores.base import Claim, Ending
from erelong.telemetry.metrics import Metrics
from tests.support.builders import NOW, make_ended, make_job, make_new_job, make_running, put, put_one
from tests.support.faults import FaultyStore


class RecordedCalls:
    """Records the calls of the reconciler to the other parts."""

    def __init__(self, store: FaultyStore) -> None:
        self.released: list[Job] = []
        self.reread_jobs: dict[int, Job | None] = {}
        self.reloaded: list[str] = []
        self.unreadable: list[Job] = []
        self.resets = 0
        self._store = store

    def add(self, *endings: Ending) -> None:
        assert {ending.outcome.end for ending in endings} == {End.RELEASED}
        self.released += [ending.job for ending in endings]

    def reread(self, *about: Any) -> None:
        *_, seq, job = about
        self.reread_jobs[seq] = job

    def untold(self) -> None:
        self.resets += 1

    def not_claimed(self, claim: Claim) -> None:
        self.unreadable += claim.unreadable

    async def reload(self, queue: str) -> None:
        await self._store.overrides()
        self.reloaded.append(queue)


class Setup:
    """A faulty store, its unknown writes, and a reconciler with recorded calls."""

    def __init__(self) -> None:
        self.store = FaultyStore()
        self.metrics = Metrics()
        self.calls = RecordedCalls(self.store)
        self.unknown_writes = UnknownWrites()
        calls: Any = self.calls
        self.reconciler = Reconciler(
            store=self.store,
            unknown_writes=self.unknown_writes,
            completer=calls,
            changes=calls,
            leases=calls,
            overrides=calls,
            metrics=self.metrics,
            now=lambda: NOW,
        )
        self.recording = EngineStore(
            store=self.store, unknown_writes=self.unknown_writes, callbacks=calls, changes=calls
        )


@pytest_asyncio.fixture
async def setup() -> Setup:
    return Setup()


async def test_only_the_attempt_of_the_unknown_claim_is_released(setup: Setup) -> None:
    ours, waiting, earlier, lent = await put(
        setup.store, make_running(), make_job(), make_running(now=NOW - 1), make_running().lease_out("token", NOW)
    )
    setup.unknown_writes.note_claim([ours.seq, waiting.seq, earlier.seq, lent.seq], NOW)

    await setup.reconciler.lap()

    assert setup.calls.released == [ours]
    assert setup.calls.resets == 1


async def test_claim_that_was_not_stored_resets_no_reader(setup: Setup) -> None:
    waiting, earlier = await put(setup.store, make_job(), make_running(now=NOW - 1))
    setup.unknown_writes.note_claim([waiting.seq, earlier.seq], NOW)

    await setup.reconciler.lap()

    assert (setup.calls.released, setup.calls.unreadable, setup.calls.resets) == ([], [], 0)


async def test_job_that_an_unknown_claim_found_unreadable_is_told(setup: Setup) -> None:
    job = await put_one(setup.store)
    (verdict,) = await setup.store.save([job.mark_unreadable(NOW, "its stored params cannot be read")])
    setup.unknown_writes.note_claim([job.seq], NOW)

    await setup.reconciler.lap()

    assert setup.calls.unreadable == [verdict.job]


async def test_unknown_add_resets_readers_also_if_its_job_has_run(setup: Setup) -> None:
    await put(setup.store, make_ended(State.SUCCEEDED))
    setup.unknown_writes.note_add([make_new_job()], 0)

    await setup.reconciler.lap()

    assert (setup.calls.reread_jobs, setup.calls.resets) == ({}, 1)


async def test_readers_are_reset_after_the_reread_and_not_before(setup: Setup) -> None:
    setup.unknown_writes.note_add([make_new_job()], 0)
    setup.store.broken["list"] = StoreUnavailable("not now")
    with pytest.raises(StoreUnavailable):
        await setup.reconciler.lap()
    before = setup.calls.resets
    setup.store.broken.clear()

    await setup.reconciler.lap()

    assert (before, setup.calls.resets) == (0, 1)


async def test_deleted_job_is_reread(setup: Setup) -> None:
    job = await put_one(setup.store)
    setup.unknown_writes.note_change([job, job._replace(seq=99)])

    await setup.reconciler.lap()

    assert setup.calls.reread_jobs == {job.seq: job, 99: None}


async def test_job_is_reread_after_a_failed_finish(setup: Setup) -> None:
    (running,) = await put(setup.store, make_running())
    setup.store.broken["finish"] = StoreUnavailable("not now")
    with pytest.raises(StoreUnavailable):
        await setup.recording.finish([Ending(running, Outcome(End.SUCCEEDED), NOW)])

    await setup.reconciler.lap()

    assert setup.calls.reread_jobs == {running.seq: running}


async def test_new_jobs_are_found_by_seq_over_many_pages(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconciler, "PAGE", 3)
    known = await put(setup.store, *[make_job() for _ in range(5)])
    new = await put(setup.store, *[make_job() for _ in range(8)])
    setup.unknown_writes.note_add([make_new_job()], known[-1].seq)

    await setup.reconciler.lap()

    assert sorted(setup.calls.reread_jobs) == [job.seq for job in new]


async def test_old_holder_of_a_key_in_doubt_is_reread(setup: Setup) -> None:
    holder = await put_one(setup.store, key="k")
    setup.unknown_writes.note_add([make_new_job(key="k")], holder.seq)

    await setup.reconciler.lap()

    assert [*setup.calls.reread_jobs] == [holder.seq]


async def test_all_waiting_jobs_are_reread_when_too_many_keys_are_in_doubt(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unknown_writes, "MAX_KEYS", 2)
    jobs = await put(setup.store, *[make_job(key=str(number)) for number in range(4)])
    setup.unknown_writes.note_add([make_new_job(key=str(number)) for number in range(3)], jobs[-1].seq)

    await setup.reconciler.lap()

    assert sorted(setup.calls.reread_jobs) == [job.seq for job in jobs]


async def test_doubts_stay_until_the_store_answers(setup: Setup) -> None:
    (running,) = await put(setup.store, make_running())
    setup.unknown_writes.note_claim([running.seq], NOW)
    setup.unknown_writes.note_change([running])
    setup.unknown_writes.note_add([make_new_job(key="k")], 0)
    setup.unknown_writes.note_override("q")
    for method in ("get", "list", "overrides"):
        setup.store.broken[method] = StoreUnavailable("not now")
        with pytest.raises(StoreUnavailable):
            await setup.reconciler.lap()
        assert setup.calls.reloaded == []
        del setup.store.broken[method]

    await setup.reconciler.lap()

    assert setup.calls.released == [running]
    assert setup.calls.reread_jobs == {running.seq: running}
    assert setup.calls.reloaded == ["q"]


async def test_doubt_added_during_a_lap_is_reread_by_the_next(setup: Setup) -> None:
    holder = await put_one(setup.store, key="k")
    answer = setup.store.hold("holder")
    setup.unknown_writes.note_add([make_new_job(key="k")], holder.seq)
    looking = asyncio.create_task(setup.reconciler.lap())
    await asyncio.sleep(1)
    setup.unknown_writes.note_add([make_new_job(key="k")], holder.seq)
    answer.set()
    await looking
    lookups = setup.store.calls.count("holder")

    await setup.reconciler.lap()

    assert (lookups, setup.store.calls.count("holder"), setup.store.calls.count("list")) == (1, 2, 2)


async def test_doubts_stay_until_the_store_has_settled(setup: Setup) -> None:
    job = await put_one(setup.store)
    setup.unknown_writes.note_change([job])
    setup.store.broken["settle"] = StoreUnavailable("the store did not answer")
    with pytest.raises(StoreUnavailable):
        await setup.reconciler.lap()
    before = setup.calls.reread_jobs.copy()
    setup.store.broken.clear()

    await setup.reconciler.lap()

    assert (before, setup.calls.reread_jobs) == ({}, {job.seq: job})


async def test_doubt_that_arises_while_the_store_settles_waits_for_the_next_lap(setup: Setup) -> None:
    first, second = await put(setup.store, make_job(), make_job())
    settled = setup.store.hold("settle")
    setup.unknown_writes.note_change([first])
    lap = asyncio.create_task(setup.reconciler.lap())
    await asyncio.sleep(0)
    setup.unknown_writes.note_change([second])

    settled.set()
    await lap

    assert setup.calls.reread_jobs == {first.seq: first}
    await setup.reconciler.lap()
    assert setup.calls.reread_jobs == {first.seq: first, second.seq: second}


@pytest.mark.parametrize("started_at", [NOW, NOW + 1])
async def test_attempt_of_any_of_several_unknown_claims_is_released(setup: Setup, started_at: int) -> None:
    (job,) = await put(setup.store, make_running(now=started_at))
    setup.unknown_writes.note_claim([job.seq], NOW)
    setup.unknown_writes.note_claim([job.seq], NOW + 1)

    await setup.reconciler.lap()

    assert setup.calls.released == [job]


async def test_doubts_are_reread_soon_after_the_failure_and_until_it_works(setup: Setup) -> None:
    job = await put_one(setup.store)
    setup.store.broken["get"] = StoreUnavailable("not now")
    looking = Duty(work=setup.reconciler, metrics=setup.metrics)
    looking.start()
    setup.unknown_writes.note_change([job])
    await asyncio.sleep(2)
    assert setup.metrics.laps_failed.values["reconciler",] >= 2
    del setup.store.broken["get"]

    await asyncio.sleep(1)

    assert setup.calls.reread_jobs == {job.seq: job}
    await looking.stop()


@pytest.mark.parametrize("error", [StorageFull("no room"), IdempotencyMismatch("another body")], ids=["full", "memo"])
async def test_refusal_that_wrote_nothing_leaves_no_doubt(setup: Setup, error: Exception) -> None:
    job = make_running(seq=1)
    setup.store.broken |= dict.fromkeys(("claim", "save", "finish"), error)
    ending = Ending(job, Outcome(End.SUCCEEDED), NOW)
    for call in (setup.recording.claim([1], now=NOW), setup.recording.save([job]), setup.recording.finish([ending])):
        with pytest.raises(type(error)):
            await call

    await setup.reconciler.lap()

    assert "get" not in setup.store.calls


async def test_final_state_settles_a_doubt(setup: Setup) -> None:
    job = await put_one(setup.store)
    (verdict,) = await setup.store.save([job.cancel(NOW)])
    setup.unknown_writes.note_change([job])

    await setup.reconciler.lap()

    reread = setup.calls.reread_jobs[job.seq]
    assert reread == verdict.job
    assert reread is not None
    assert reread.state is State.CANCELLED
