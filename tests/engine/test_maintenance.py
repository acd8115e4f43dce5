"""Final jobs and idempotency keys are deleted after their retention."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from erelong.duties.duty import Duty
from erelong.errors import StoreRefused, StoreUnavailable
from erelong.model.job import SECOND, State
from erelong.model.submission import RECORD_LIFE, IdempotencyRecord, NewJob
from erelong.settings.queues import QueueSettings, Retention
from tests.support.builders import ALL, make_ended, make_job, make_running, put
from tests.support.desk import HOUR, RETRY, Desk
from tests.support.virtual import VirtualClock

# retention

KEPT = QueueSettings(retention=Retention(succeeded=10.0, other=100.0))
ALL_ENDS = frozenset({State.SUCCEEDED, State.FAILED, State.CANCELLED, State.EXPIRED})


@pytest.mark.parametrize(
    ("age", "left"),
    [
        (9, set(ALL_ENDS)),
        (11, set(ALL_ENDS) - {State.SUCCEEDED}),
        (99, set(ALL_ENDS) - {State.SUCCEEDED}),
        (101, set()),
    ],
    ids=str,
)
async def test_final_job_is_kept_for_the_retention_of_its_queue(
    clock: VirtualClock, age: int, left: frozenset[State]
) -> None:
    desk = Desk(clock=clock, default=KEPT)
    jobs = await put(desk.store, *[make_ended(state) for state in ALL_ENDS], make_job(), make_running())

    purged = await desk.retention.sweep(clock.now() + age * SECOND)

    kept = await desk.store.get([job.seq for job in jobs])
    assert {job.state for job in kept.values()} == left | {State.SCHEDULED, State.RUNNING}
    assert (purged, desk.metrics.purged.values[()]) == (4 - len(left), 4 - len(left))


async def test_many_jobs_are_deleted_in_one_sweep(clock: VirtualClock) -> None:
    desk = Desk(clock=clock, default=KEPT)
    await put(desk.store, *[make_ended(State.SUCCEEDED, retry=RETRY) for _ in range(1_700)])

    assert await desk.retention.sweep(clock.now() + 60 * SECOND) == 1_700


async def test_idempotency_keys_are_deleted_after_a_day(clock: VirtualClock) -> None:
    desk = Desk(clock=clock)
    record = IdempotencyRecord("somebody", "key", b"digest")
    await desk.store.add([NewJob(make_job())], now=clock.now(), record=record)

    await desk.records.sweep(clock.now() + round(23.9 * HOUR * SECOND))
    assert await desk.store.forget_records(now=clock.now() + RECORD_LIFE, limit=10) == 1
    await desk.store.add([NewJob(make_job())], now=clock.now(), record=record)
    await desk.records.sweep(clock.now() + round(24.1 * HOUR * SECOND))

    assert await desk.store.forget_records(now=clock.now() + RECORD_LIFE, limit=10) == 0


async def test_many_idempotency_keys_are_deleted_in_one_sweep(clock: VirtualClock) -> None:
    desk = Desk(clock=clock)
    for number in range(1_100):
        await desk.store.add([], now=clock.now(), record=IdempotencyRecord("somebody", str(number), b"digest"))

    await desk.records.sweep(clock.now() + round(24.1 * HOUR * SECOND))

    assert await desk.store.forget_records(now=clock.now() + RECORD_LIFE, limit=10) == 0


async def test_sweep_that_fails_is_repeated_soon(clock: VirtualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk(clock=clock, default=KEPT)
    await put(desk.store, make_ended(State.SUCCEEDED))
    duty = Duty(work=desk.retention, metrics=desk.metrics)
    desk.store.broken["ended"] = StoreUnavailable("not now")
    duty.start()

    await asyncio.sleep(61)
    failing = duty.status()
    purged = desk.metrics.purged.values[()]
    desk.store.broken.clear()
    await asyncio.sleep(2)

    assert failing.startswith("failed 2 times in a row: not now")
    assert (purged, desk.metrics.purged.values[()], duty.status()) == (0, 1, "ok")
    await duty.stop()


async def test_queue_that_cannot_be_purged_keeps_no_other_from_being_purged(clock: VirtualClock) -> None:
    desk = Desk(clock=clock, a=KEPT, b=KEPT)
    bad, *_ = await put(desk.store, *[make_ended(State.SUCCEEDED, queue=queue) for queue in "aaabbb"])
    desk.store.refuse("purge", bad.seq)

    purged = await desk.retention.sweep(clock.now() + 60 * SECOND)

    assert purged == 5
    assert await desk.store.list(ALL) == [bad]
    assert desk.retention.aside.status().startswith(f"ok, but 1 set aside, the last {bad.seq}: ")


async def test_queue_whose_list_cannot_be_read_keeps_no_other_from_being_purged(clock: VirtualClock) -> None:
    desk = Desk(clock=clock, a=KEPT, b=KEPT)
    await put(desk.store, *[make_ended(State.SUCCEEDED, queue=queue) for queue in "ab"])
    ended = desk.store.ended

    async def refuse_a(queue: str, *about: Any, **more: Any) -> Any:
        if queue == "a":
            raise StoreRefused("damaged")
        return await ended(queue, *about, **more)

    desk.engine.store.ended = refuse_a  # a page of an index

    assert await desk.retention.sweep(clock.now() + 60 * SECOND) == 1
    assert [job.queue for job in await desk.store.list(ALL)] == ["a"]


async def test_queue_whose_store_never_answers_keeps_no_other_from_being_purged(clock: VirtualClock) -> None:
    desk = Desk(clock=clock, a=KEPT, b=KEPT)
    await put(desk.store, *[make_ended(State.SUCCEEDED, queue=queue) for queue in "ab"])
    ended = desk.store.ended

    async def answer_for_b(queue: str, *about: Any, **more: Any) -> Any:
        if queue == "a":
            raise StoreUnavailable("no answer in time")
        return await ended(queue, *about, **more)

    desk.engine.store.ended = answer_for_b
    duty = Duty(work=desk.retention, metrics=desk.metrics)
    duty.start()

    await asyncio.sleep(65)

    assert [job.queue for job in await desk.store.list(ALL)] == ["a"]
    assert duty.status().startswith("failed ")
    await duty.stop()


async def test_row_that_can_never_be_purged_stays_alone_through_a_month_of_sweeps(clock: VirtualClock) -> None:
    desk = Desk(clock=clock, default=KEPT)
    bad, *_ = await put(desk.store, *[make_ended(State.SUCCEEDED, retry=RETRY) for _ in range(10)])
    desk.store.refuse("purge", bad.seq)
    duty = Duty(work=desk.retention, metrics=desk.metrics)
    duty.start()

    await asyncio.sleep(30 * 24 * HOUR)

    assert await desk.store.list(ALL) == [bad]
    assert duty.status() == "ok"
    assert desk.metrics.set_aside.values["retention",] > 40_000
    await duty.stop()
