"""Operations on many jobs at work: order, bounds, pace, races, interruptions."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from erelong.clock.instants import SECOND
from erelong.engine.operations import book, slices
from erelong.errors import OperationNotFound, StorageFull, StoreUnavailable, TooMany
from erelong.model.caller import ANYBODY
from erelong.model.job import Job, State
from erelong.model.operations.operation import Action, Operation, Phase, Request
from erelong.service.factory import Change
from erelong.service.operations.operations import Operations
from tests.support.engine import ONCE, Engine
from tests.support.faults import FaultyStore
from tests.support.kinds import FakeRunner, for_ever
from tests.support.virtual import VirtualClock

HOUR = 3_600.0


def service_of(engine: Engine) -> Operations:
    return engine.node.services.operations


async def start(engine: Engine, action: str, **fields: Any) -> Operation:
    request = Request(action=Action(action), **{"filter": {"all": True}, **fields})
    operation, _ = await service_of(engine).start(request, ANYBODY, None)
    return operation


async def run(engine: Engine, action: str, **fields: Any) -> Operation:
    operation = await start(engine, action, **fields)
    return await service_of(engine).wait(operation.id, 10_000)


def counts(operation: Operation) -> tuple[Phase, int | None, int, int, int]:
    return operation.state, operation.matches, operation.done, operation.skipped, operation.failed


async def moves(engine: Engine, jobs: list[Job]) -> set[int]:
    """Return by how much each job was moved."""
    pairs = zip(await read_all(engine, jobs), jobs, strict=True)
    return {(after.due_at or 0) - (before.due_at or 0) for after, before in pairs}


async def read_all(engine: Engine, jobs: list[Job]) -> list[Job]:
    return [await engine.read(job) for job in jobs]


async def test_ids_rise_after_a_restart_with_an_earlier_clock(clock: VirtualClock) -> None:
    async with Engine(clock=clock) as engine:
        earlier = await run(engine, "cancel")
    clock.step(-HOUR)

    async with Engine(clock=clock, store=engine.store) as engine:
        later = await run(engine, "cancel")

    assert later.id > earlier.id


@pytest.mark.parametrize("filter", [{"all": True}, {"kind": ["echo"]}, {"labels": {"a": "b"}}])
async def test_jobs_submitted_after_the_operation_do_not_count(clock: VirtualClock, filter: dict[str, Any]) -> None:
    async with Engine(clock=clock) as engine:
        await engine.submit_many(5, delay=HOUR, labels={"a": "b"})
        await start(engine, "run", filter={"key": "nobody"})  # has its turn first
        operation = await start(engine, "cancel", filter=filter, at_most=5)
        await engine.submit_many(5, delay=HOUR, labels={"a": "b"})

        ended = await service_of(engine).wait(operation.id, 10_000)

        assert counts(ended) == (Phase.SUCCEEDED, 5, 5, 0, 0)


async def test_jobs_are_changed_newest_first_and_each_at_most_once(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Engine(clock=clock) as engine:
        jobs = await engine.submit_many(500, delay=HOUR)
        saved: list[int] = []
        save = engine.store.save

        async def noting(changed: Any, **others: Any) -> Any:
            saved.extend(job.seq for job in changed)
            return await save(changed, **others)

        monkeypatch.setattr(engine.store, "save", noting)  # only the operation writes

        operation = await run(engine, "patch", shift=HOUR * SECOND)

        assert counts(operation) == (Phase.SUCCEEDED, 500, 500, 0, 0)
        assert saved == [job.seq for job in reversed(jobs)]
        assert {job.version for job in await read_all(engine, jobs)} == {2}


async def test_more_matches_than_allowed_touch_nothing(clock: VirtualClock) -> None:
    async with Engine(clock=clock) as engine:
        jobs = await engine.submit_many(1_500, delay=HOUR)

        operation = await run(engine, "cancel", at_most=1_499)

        assert (operation.state, operation.done, operation.errors[0].code) == (Phase.REFUSED, 0, "too_many_match")
        assert await read_all(engine, jobs) == jobs


@pytest.mark.parametrize("filter", [{"all": True}, {"created_after": 0}, {"labels": {"a": "b"}}])
async def test_as_many_matches_as_allowed_are_changed(clock: VirtualClock, filter: dict[str, Any]) -> None:
    async with Engine(clock=clock) as engine:
        await engine.submit_many(1_200, delay=HOUR, labels={"a": "b"})

        operation = await run(engine, "cancel", at_most=1_200, filter=filter)

        assert counts(operation) == (Phase.SUCCEEDED, 1_200, 1_200, 0, 0)


async def test_job_that_is_submitted_later_is_not_touched(clock: VirtualClock) -> None:
    async with Engine(clock=clock) as engine:
        await engine.submit_many(100, delay=HOUR)
        first = await start(engine, "cancel", rate=10)
        second = await start(engine, "cancel", filter={"queue": ["late"]})
        late = await engine.submit(delay=HOUR)
        waiting = await engine.submit(delay=HOUR, queue="late")

        await service_of(engine).wait(second.id, 1_000)

        assert (await service_of(engine).get(first.id)).done == 100
        assert [(await engine.read(job)).state for job in (late, waiting)] == [State.SCHEDULED] * 2


async def test_job_that_no_longer_matches_is_skipped(clock: VirtualClock) -> None:
    async with Engine(clock=clock) as engine:
        oldest, gone, *_ = await engine.submit_many(50, delay=HOUR)
        operation = await start(engine, "run", rate=10)
        await engine.until(lambda: service_of(engine).states()["running"] == 1)
        await engine.node.services.jobs.cancel(oldest.id, None, None)
        await engine.node.services.jobs.delete(gone.id, None)

        ended = await service_of(engine).wait(operation.id, 1_000)

        assert counts(ended) == (Phase.SUCCEEDED, 50, 48, 2, 0)
        assert (await engine.read(oldest)).state is State.CANCELLED


async def test_operation_ends_when_as_many_jobs_are_done_as_allowed(clock: VirtualClock) -> None:
    async with Engine(clock=clock) as engine:
        first, *_ = await engine.submit_many(20, delay=HOUR)
        await engine.node.services.jobs.cancel(first.id, None, None)
        operation = await start(engine, "cancel", at_most=19, rate=1)
        await engine.until(lambda: service_of(engine).states()["running"] == 1)
        await engine.node.services.jobs.retry(first.id, None)  # it matches after all
        await engine.node.services.jobs.patch(first.id, Change(given=frozenset({"delay"}), delay=HOUR), None)

        ended = await service_of(engine).wait(operation.id, 1_000)

        assert counts(ended) == (Phase.SUCCEEDED, 19, 19, 0, 0)
        assert (await engine.read(first)).state is State.SCHEDULED


@pytest.mark.parametrize("rate", [1, 50, 700])
async def test_rate_is_kept(clock: VirtualClock, rate: int) -> None:
    async with Engine(clock=clock) as engine:
        await engine.submit_many(2 * rate, delay=10 * HOUR)
        began = clock.now()

        operation = await run(engine, "patch", shift=SECOND, rate=rate)

        took = (clock.now() - began) / SECOND
        assert operation.done == 2 * rate
        assert 0.9 <= took <= 2.5


async def test_operations_run_one_after_the_other(clock: VirtualClock) -> None:
    async with Engine(clock=clock) as engine:
        await engine.submit_many(300, delay=HOUR)
        first, second = await start(engine, "patch", shift=1, rate=100), await start(engine, "patch", shift=1, rate=100)

        ended = await service_of(engine).wait(second.id, 1_000)
        before = await service_of(engine).get(first.id)

        assert (before.done, ended.done) == (300, 300)
        assert (ended.started_at or 0) >= (before.finished_at or 0)


async def test_cancelled_operation_stops_before_its_next_slice(clock: VirtualClock) -> None:
    async with Engine(clock=clock) as engine:
        jobs = await engine.submit_many(100, delay=HOUR)
        operation = await start(engine, "cancel", rate=10)
        await asyncio.sleep(3.5)

        cancelled = await service_of(engine).cancel(operation.id, ANYBODY)
        await asyncio.sleep(100)
        again = await service_of(engine).cancel(operation.id, ANYBODY)

        done = sum(job.state is State.CANCELLED for job in await read_all(engine, jobs))
        assert cancelled.state is Phase.CANCELLED
        assert again == cancelled
        assert 0 < cancelled.done == done < 100


async def test_waiting_operation_can_be_cancelled(clock: VirtualClock) -> None:
    async with Engine(clock=clock) as engine:
        job = await engine.submit(delay=HOUR)
        await start(engine, "patch", shift=1, rate=1)
        waiting = await start(engine, "cancel")

        cancelled = await service_of(engine).cancel(waiting.id, ANYBODY)
        await asyncio.sleep(100)

        assert counts(cancelled) == (Phase.CANCELLED, None, 0, 0, 0)
        assert (await engine.read(job)).state is State.SCHEDULED


async def test_slice_that_loses_a_race_is_decided_again(clock: VirtualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    async with Engine(clock=clock) as engine:
        jobs = await engine.submit_many(300, delay=HOUR)
        save, races = engine.store.save, 0

        async def racing(changed: Any, **others: Any) -> Any:
            nonlocal races
            if others.get("beside") and races < 5:
                races += 1
                other = await engine.read(changed[0])
                await save([other.move(other.execute_at + 1, clock.now())])
            return await save(changed, **others)

        monkeypatch.setattr(engine.store, "save", racing)  # a client that comes first

        operation = await run(engine, "patch", shift=HOUR * SECOND)

        assert counts(operation) == (Phase.SUCCEEDED, 300, 300, 0, 0)
        assert {moved // SECOND for moved in await moves(engine, jobs)} == {3_600}


async def test_bad_job_is_counted_as_failed_and_stops_nothing(clock: VirtualClock) -> None:
    async with Engine(clock=clock) as engine:
        jobs = await engine.submit_many(40, delay=HOUR)
        engine.store.refuse("save", jobs[17].seq)

        operation = await run(engine, "cancel")

        assert counts(operation) == (Phase.SUCCEEDED, 40, 39, 0, 1)
        assert [(error.job, error.code) for error in operation.errors] == [(jobs[17].id, "store_unavailable")]


async def test_only_named_job_that_cannot_be_read_ends_the_operation(clock: VirtualClock) -> None:
    async with Engine(clock=clock) as engine:
        (job,) = await engine.submit_many(1, delay=100 * HOUR)
        engine.store.refuse("get", job.seq)

        operation = await run(engine, "cancel", filter={"jobs": [job.id]})
        other = await run(engine, "cancel", filter={"key": "nobody"})

        assert (operation.state, operation.done) == (Phase.SUCCEEDED, 0)
        assert other.state is Phase.SUCCEEDED


@pytest.mark.parametrize("problem", [StorageFull("full"), StoreUnavailable("down")])
async def test_full_or_failed_disk_makes_an_operation_wait(clock: VirtualClock, problem: Exception) -> None:
    async with Engine(clock=clock) as engine:
        jobs = await engine.submit_many(300, delay=HOUR)
        operation = await start(engine, "cancel", rate=100)
        await engine.until(lambda: service_of(engine).states()["running"] == 1)
        engine.store.broken["save"] = problem
        await asyncio.sleep(100)
        stuck = await service_of(engine).get(operation.id)
        del engine.store.broken["save"]

        ended = await service_of(engine).wait(operation.id, 1_000)

        assert stuck.state is Phase.RUNNING
        assert stuck.done < 300
        assert counts(ended) == (Phase.SUCCEEDED, 300, 300, 0, 0)
        assert {job.version for job in await read_all(engine, jobs)} == {2}


async def test_slice_whose_answer_was_lost_is_not_applied_twice(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Engine(clock=clock) as engine:
        jobs = await engine.submit_many(300, delay=HOUR)
        save, lost = engine.store.save, 0

        async def losing(changed: Any, **others: Any) -> Any:
            nonlocal lost
            verdicts = await save(changed, **others)
            if others.get("beside") and lost < 2:
                lost += 1
                raise StoreUnavailable("the answer was lost")
            return verdicts

        monkeypatch.setattr(engine.store, "save", losing)  # written, but the caller does not know

        operation = await run(engine, "patch", shift=HOUR * SECOND)

        assert counts(operation) == (Phase.SUCCEEDED, 300, 300, 0, 0)
        assert await moves(engine, jobs) == {HOUR * SECOND}


async def test_operation_that_was_stored_without_an_answer_is_carried_out(clock: VirtualClock) -> None:
    async with Engine(clock=clock) as engine:
        jobs = await engine.submit_many(3, delay=HOUR)

        with engine.store.losing_answers("add"), pytest.raises(StoreUnavailable):
            await start(engine, "cancel")
        await asyncio.sleep(10)

        assert {job.state for job in await read_all(engine, jobs)} == {State.CANCELLED}


async def test_wait_ends_with_an_operation_whose_last_answer_was_lost(clock: VirtualClock) -> None:
    async with Engine(clock=clock) as engine:
        await engine.submit_many(10, delay=HOUR)
        began_at = clock.now()

        with engine.store.losing_answers("save"):
            operation = await run(engine, "cancel")

        assert counts(operation) == (Phase.SUCCEEDED, 10, 10, 0, 0)
        assert clock.now() - began_at < 10 * SECOND


async def test_interrupted_operation_continues_after_a_restart(clock: VirtualClock) -> None:
    store = FaultyStore()
    async with Engine(clock=clock, store=store) as engine:
        jobs = await engine.submit_many(200, delay=HOUR)
        operation = await start(engine, "patch", shift=HOUR * SECOND, rate=20)
        queued = await start(engine, "cancel", filter={"queue": ["none"]})
        await asyncio.sleep(4.2)
        stopped = await service_of(engine).get(operation.id)

    async with Engine(clock=clock, store=store) as engine:
        ended = await service_of(engine).wait(operation.id, 1_000)
        last = await service_of(engine).wait(queued.id, 1_000)

        assert 0 < stopped.done < 200
        assert counts(ended) == (Phase.SUCCEEDED, 200, 200, 0, 0)
        assert last.state is Phase.SUCCEEDED
        assert await moves(engine, jobs) == {HOUR * SECOND}


async def test_run_jobs_start_and_cancelled_ones_stop(clock: VirtualClock) -> None:
    async with Engine(clock=clock, handler=FakeRunner(for_ever)) as engine:
        jobs = await engine.submit_many(20, delay=HOUR)
        await run(engine, "run")
        await engine.until(lambda: engine.handler.running == 20)

        await run(engine, "cancel", reason="enough")
        await engine.until(lambda: engine.handler.running == 0)

        assert {job.state for job in [await engine.until_final(job) for job in jobs]} == {State.CANCELLED}
        engine.assert_all_given_back()


async def test_deleted_jobs_never_start(clock: VirtualClock) -> None:
    async with Engine(clock=clock) as engine:
        await engine.submit_many(250, delay=10)

        operation = await run(engine, "delete")
        await asyncio.sleep(20)

        assert operation.done == 250
        assert await engine.states() == {}
        assert engine.node.metrics.started.values == {}


async def test_retry_leaves_the_job_whose_key_is_held(clock: VirtualClock) -> None:
    async with Engine(clock=clock, handler=FakeRunner()) as engine:
        failed = [await engine.submit(delay=HOUR, key="k", retry=ONCE) for _ in range(1)]
        await engine.node.services.jobs.cancel(failed[0].id, None, None)
        holder = await engine.submit(delay=HOUR, key="k")

        operation = await run(engine, "retry")

        assert counts(operation) == (Phase.SUCCEEDED, 1, 0, 0, 1)
        assert operation.errors == ((failed[0].id, "key_taken"),)
        assert (await engine.read(holder)).state is State.SCHEDULED


# keeping


async def test_more_than_a_hundred_waiting_operations_are_refused(clock: VirtualClock) -> None:
    async with Engine(clock=clock) as engine:
        await engine.submit_many(50, delay=HOUR)
        running = await start(engine, "patch", shift=1, rate=1)
        await engine.until(lambda: service_of(engine).states()["running"] == 1)
        for _ in range(book.MAX_WAITING):
            await start(engine, "cancel", filter={"queue": ["none"]})

        with pytest.raises(TooMany):
            await start(engine, "cancel")

        await service_of(engine).cancel(running.id, ANYBODY)
        await engine.until(lambda: service_of(engine).states()["waiting"] == 0, within=1_000)
        await start(engine, "cancel")


async def test_only_the_latest_operations_are_kept_and_for_a_week(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(book, "MAX_KEPT", 5)
    async with Engine(clock=clock) as engine:
        ids = [(await run(engine, "cancel")).id for _ in range(8)]
        await asyncio.sleep(2 * HOUR)
        kept, _ = await service_of(engine).list(frozenset(), frozenset(), None, 100, ANYBODY)
        clock.step(7 * 24 * HOUR)
        await asyncio.sleep(2 * HOUR)
        later, _ = await service_of(engine).list(frozenset(), frozenset(), None, 100, ANYBODY)

        assert [operation.id for operation in kept] == ids[:2:-1]
        assert later == []
        with pytest.raises(OperationNotFound):
            await service_of(engine).get(ids[-1])


async def test_old_operations_are_forgotten_even_if_new_ones_never_cease(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(book, "MAX_KEPT", 5)
    async with Engine(clock=clock) as engine:
        ids = []
        for _ in range(8):
            ids.append((await run(engine, "cancel")).id)
            await asyncio.sleep(HOUR / 2)
        kept, _ = await service_of(engine).list(frozenset(), frozenset(), None, 100, ANYBODY)

        assert [operation.id for operation in kept] == ids[:1:-1]
        assert len(await engine.store.documents("operation", after="", limit=100)) == 6


async def test_damaged_operation_stops_no_other(clock: VirtualClock) -> None:
    store = FaultyStore()
    async with Engine(clock=clock, store=store) as engine:
        await engine.submit_many(10, delay=HOUR)
        damaged = await start(engine, "cancel", rate=1)
        other = await start(engine, "cancel")
        await asyncio.sleep(1.5)
    name = ("operation", damaged.id)
    store._documents[name] = store._documents[name]._replace(text=b"{}")

    async with Engine(clock=clock, store=store) as engine:
        ended = await service_of(engine).wait(other.id, 1_000)

        assert ended.state is Phase.SUCCEEDED


async def test_operation_that_is_stored_while_the_others_are_read_again_is_known(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Engine(clock=clock) as engine:
        await engine.submit_many(10, delay=HOUR)
        damaged = await start(engine, "cancel", rate=1)
        name = ("operation", damaged.id)
        documents, is_read = engine.store.documents, asyncio.Event()

        async def answer_late(*arguments: Any, **others: Any) -> Any:
            page = await documents(*arguments, **others)
            if not page:
                is_read.set()
                await asyncio.sleep(1)
            return page

        monkeypatch.setattr(engine.node.engine.store, "documents", answer_late)
        engine.store._documents[name] = engine.store._documents[name]._replace(text=b"{}")
        await is_read.wait()

        other = await run(engine, "cancel")

        assert other.state is Phase.SUCCEEDED


async def test_slices_get_smaller_while_commits_are_slow(clock: VirtualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    async with Engine(clock=clock) as engine:
        await engine.submit_many(1_000, delay=HOUR)
        save, sizes = engine.store.save, list[int]()

        async def slow(changed: Any, **others: Any) -> Any:
            sizes.append(len(changed))
            await asyncio.sleep(0.1)
            return await save(changed, **others)

        monkeypatch.setattr(engine.store, "save", slow)  # a busy disk

        await run(engine, "cancel", rate=50_000)

        assert sizes[0] == slices.MAX_JOBS
        assert min(sizes[:-1]) == slices.FEW_JOBS  # the last slice takes what is left


@pytest.mark.parametrize(("rate", "size"), [(3, 3), (500, 10), (2_000, 20), (50_000, 100)])
async def test_slices_are_as_large_as_their_rate_needs(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch, rate: int, size: int
) -> None:
    async with Engine(clock=clock) as engine:
        await engine.submit_many(200, delay=HOUR)
        save, sizes = engine.store.save, list[int]()

        async def noted(changed: Any, **others: Any) -> Any:
            sizes.append(len(changed))
            return await save(changed, **others)

        monkeypatch.setattr(engine.store, "save", noted)
        began = asyncio.get_running_loop().time()

        await run(engine, "cancel", rate=rate)

        assert {*sizes[:-1]} == {size}
        assert asyncio.get_running_loop().time() - began >= (200 - size) / rate


async def test_operation_rests_twice_as_long_as_its_slices_take(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Engine(clock=clock) as engine:
        await engine.submit_many(1_000, delay=HOUR)
        save, busy = engine.store.save, 0.0

        async def slow(changed: Any, **others: Any) -> Any:
            nonlocal busy
            busy += 0.3
            await asyncio.sleep(0.3)
            return await save(changed, **others)

        monkeypatch.setattr(engine.store, "save", slow)  # a busy disk
        began = asyncio.get_running_loop().time()

        await run(engine, "cancel", rate=50_000)

        assert asyncio.get_running_loop().time() - began >= 2.9 * busy - 0.6
