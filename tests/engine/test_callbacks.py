"""Whatever ends a job with `on_finish` makes one callback in the same commit."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import orjson
import pytest
import pytest_asyncio

from erelong.attempt import GiveUp
from erelong.duties.waiters import NEVER_LEAVES
from erelong.handlers.pull.declaration import make_pull_kind
from erelong.lanes.pollers import LeaseRequest
from erelong.model.caller import ANYBODY
from erelong.model.conflict import OnConflict
from erelong.model.events.event import STORED
from erelong.model.extras import Extras, read_extras
from erelong.model.job import MAX_LOSSES, Job, State
from erelong.model.operations.operation import Action, Request
from erelong.model.outcome import Error
from erelong.model.query import Query
from erelong.model.reports.callback import make_on_finish
from erelong.model.submission import NewJob
from erelong.service.factory import Change
from erelong.settings.queues import QueueSettings
from erelong.settings.sections import ServerSection
from tests.support.builders import make_job, make_retry, make_running, put
from tests.support.engine import ONCE, STEADY, Engine
from tests.support.faults import FaultyStore
from tests.support.kinds import FakeRunner, for_ever, lasting, raising
from tests.support.virtual import VirtualClock

URL = "https://app.example/done"
Start = Callable[..., Any]


def on_finish(**given: Any) -> Extras:
    return {"on_finish": make_on_finish({"url": URL, **given}, None)}


class Calling(Engine):
    """An engine whose http jobs run in `http` and succeed; jobs of the kind `pull` are leased."""

    def __init__(self, **given: Any) -> None:
        self.http = FakeRunner()
        kinds = [self.http.kind("http"), make_pull_kind(name="pull")]
        super().__init__(kinds=kinds, server=ServerSection(drain_timeout=1.0), **given)
        self.node.engine.events.open(STORED)

    def told(self, job: Job) -> list[Job]:
        """Return what readers of events learn of the end of a job."""
        events = self.node.engine.events.after(0, self.node.engine.events.end.number)
        return [
            event.job for event in events if event.job is not None and event.job.id == job.id and event.job.is_final
        ]

    async def submit_calling(self, **fields: Any) -> Job:
        return await self.submit(**{"extras": on_finish(), "retry": ONCE} | fields)

    async def callbacks(self) -> list[Job]:
        """Return all callbacks, the first one first."""
        jobs = await self.store.list(Query(kinds=frozenset({"http"}), limit=1_000, is_full=True))
        return jobs[::-1]

    async def assert_called_once(self, job: Job, state: State) -> Job:
        """Check that the job ended in a state and made one callback, which ran; return it."""
        ended = await self.until_final(job)
        (callback,) = await self.callbacks()
        report = orjson.loads(callback.params)["json"]
        assert ended.state is state
        assert read_extras(callback.extras) == {"callback_of": job.id}
        assert read_extras(ended.extras)["on_finish"]["job"] == callback.id
        assert (report["type"], report["job"]["version"]) == (f"job.{state.word}", ended.version)
        assert {(told.version, told.extras) for told in self.told(job)} <= {(ended.version, ended.extras)}
        assert (await self.until_final(callback)).state is State.SUCCEEDED
        assert len(self.http.attempts) == 1
        return callback

    async def lease(self) -> str:
        ask = LeaseRequest(frozenset({"pull"}), frozenset(), 1, 30.0)
        (lease,) = await self.node.services.leases.lease(ask, 60.0, NEVER_LEAVES)
        return lease.token


@pytest_asyncio.fixture
async def engine(clock: VirtualClock) -> AsyncIterator[Calling]:
    async with Calling(clock=clock) as engine:
        yield engine


# outcomes


async def test_success_is_reported_at_once(engine: Calling) -> None:
    engine.handler.work = lasting(0, b'{"n":1}')
    job = await engine.submit_calling(delay=5, labels={"tenant": "t1"})

    callback = await engine.assert_called_once(job, State.SUCCEEDED)

    assert len(engine.told(job)) == 1
    ended = await engine.read(job)
    assert (callback.queue, callback.due_at) == ("callbacks", callback.created_at)
    assert callback.created_at - (ended.finished_at or 0) < 100_000
    assert orjson.loads(callback.labels or b"") == {"tenant": "t1"}
    assert orjson.loads(callback.params)["json"]["job"]["result"] == {"n": 1}


@pytest.mark.parametrize("error", [ValueError("boom"), GiveUp("never")], ids=repr)
async def test_failure_is_reported(engine: Calling, error: Exception) -> None:
    engine.handler.work = raising(error)

    await engine.assert_called_once(await engine.submit_calling(), State.FAILED)


async def test_timeout_is_reported(engine: Calling) -> None:
    engine.handler.work = for_ever

    await engine.assert_called_once(await engine.submit_calling(timeout=5), State.FAILED)


async def test_attempt_that_is_retried_is_not_reported(engine: Calling) -> None:
    engine.handler.work = raising(ValueError("once"), ValueError("twice"), None)
    job = await engine.submit_calling(retry=STEADY)
    await asyncio.sleep(25)
    during = await engine.callbacks()

    await engine.assert_called_once(job, State.SUCCEEDED)

    assert during == []
    assert len(engine.handler.attempts) == 3


async def test_states_that_are_not_asked_for_are_not_reported(engine: Calling) -> None:
    job = await engine.submit_calling(extras=on_finish(states=["failed", "expired"]))

    assert (await engine.until_final(job)).state is State.SUCCEEDED
    await asyncio.sleep(5)
    assert await engine.callbacks() == []


async def test_callback_waits_in_its_queue_like_any_job(engine: Calling) -> None:
    await engine.node.services.queues.pause("quiet")
    job = await engine.submit_calling(extras=on_finish(queue="quiet"))
    await engine.until_final(job)
    await asyncio.sleep(60)

    (waiting,) = await engine.callbacks()
    assert (waiting.state, engine.node.services.blockers.waiting_for(waiting, engine.clock.now())) == (
        State.SCHEDULED,
        "pause",
    )


async def test_callback_has_the_retry_policy_and_timeout_of_its_queue(clock: VirtualClock) -> None:
    async with Calling(clock=clock) as engine:
        settings = QueueSettings.model_validate({"timeout": 7, "retry": {"max_attempts": 2, "delay": 3, "jitter": 0}})
        await engine.node.services.queues.put("callbacks", settings)
        engine.http.work = raising(ValueError("the receiver is down"))
        job = await engine.submit_calling()
        await engine.until_final(job)
        (callback,) = await engine.callbacks()

        failed = await engine.until_final(callback)

    assert (failed.state, failed.timeout, len(engine.http.attempts)) == (State.FAILED, 7.0, 2)
    assert await engine.callbacks() == [failed]


async def test_many_ends_in_one_commit_are_each_reported(engine: Calling) -> None:
    jobs = await engine.submit_many(50, extras=on_finish(), retry=ONCE, delay=3)
    others = await engine.submit_many(50, delay=3)
    await engine.until_final(jobs[-1])
    await asyncio.sleep(1)

    callbacks = await engine.callbacks()

    assert sorted(read_extras(callback.extras)["callback_of"] for callback in callbacks) == [job.id for job in jobs]
    assert {callback.state for callback in callbacks} == {State.SUCCEEDED}
    assert len(others) == 50


# requests


async def test_cancel_of_a_waiting_job_is_reported(engine: Calling) -> None:
    job = await engine.submit_calling(delay=500)

    shown = await engine.node.services.jobs.cancel(job.id, "not needed", None)

    callback = await engine.assert_called_once(job, State.CANCELLED)
    assert read_extras(shown.extras)["on_finish"]["job"] == callback.id


async def test_cancel_of_a_running_job_is_reported_once(engine: Calling) -> None:
    engine.handler.work = for_ever
    job = await engine.submit_calling()
    await asyncio.sleep(1)

    for _ in range(3):
        await engine.node.services.jobs.cancel(job.id, None, None)

    await engine.assert_called_once(job, State.CANCELLED)


async def test_repeated_cancel_makes_no_second_callback(engine: Calling) -> None:
    job = await engine.submit_calling(delay=500)

    await asyncio.gather(*(engine.node.services.jobs.cancel(job.id, None, None) for _ in range(5)))

    await engine.assert_called_once(job, State.CANCELLED)


async def test_expiry_is_reported(engine: Calling) -> None:
    await engine.node.services.queues.pause("default")

    await engine.assert_called_once(await engine.submit_calling(expires_after=5.0), State.EXPIRED)


async def test_purge_is_reported(engine: Calling) -> None:
    job = await engine.submit_calling(delay=500)

    await engine.node.services.queues.purge("default")

    await engine.assert_called_once(job, State.CANCELLED)


async def test_drop_is_reported(clock: VirtualClock) -> None:
    async with Calling(clock=clock, queue=QueueSettings(max_backlog=1, overflow="drop_oldest")) as engine:
        job = await engine.submit_calling(delay=500)
        await engine.submit(delay=500)

        callback = await engine.assert_called_once(job, State.CANCELLED)

    assert orjson.loads(callback.params)["json"]["job"]["error"]["type"] == "dropped"


async def test_end_by_an_operation_is_reported(engine: Calling) -> None:
    job = await engine.submit_calling(delay=500)
    request = Request(action=Action.CANCEL, filter={"queue": ["default"]}, at_most=None)

    await engine.node.services.operations.start(request, ANYBODY, None)

    await engine.assert_called_once(job, State.CANCELLED)
    assert len(engine.told(job)) == 1


async def test_delete_calls_nobody(engine: Calling) -> None:
    job = await engine.submit_calling(delay=500)

    await engine.node.services.jobs.delete(job.id, None)
    await asyncio.sleep(5)

    assert await engine.callbacks() == []


async def test_second_end_after_a_retry_is_reported_again(engine: Calling) -> None:
    job = await engine.submit_calling(delay=500)
    await engine.node.services.jobs.cancel(job.id, None, None)

    revived = await engine.node.services.jobs.retry(job.id, None)
    ended = await engine.until_final(job)
    await asyncio.sleep(1)

    first, second = await engine.callbacks()
    types = [orjson.loads(callback.params)["json"]["type"] for callback in (first, second)]
    assert types == ["job.cancelled", "job.succeeded"]
    assert read_extras(revived.extras)["on_finish"]["job"] == first.id
    assert read_extras(ended.extras)["on_finish"]["job"] == second.id


# keys


async def replace(engine: Calling, on_conflict: OnConflict, **fields: Any) -> Job:
    now = engine.clock.now()
    new_job = NewJob(make_job(key="k", now=now, retry=ONCE, **fields), on_conflict)
    (entry,) = (await engine.node.services.jobs.add([new_job], now=now)).entries
    assert entry is not None
    return entry.job


@pytest.mark.parametrize(
    ("on_conflict", "extras", "url"),
    [
        (OnConflict.KEEP, on_finish(url="https://b.example"), URL),
        (OnConflict.RESCHEDULE, on_finish(url="https://b.example"), URL),
        (OnConflict.REPLACE, on_finish(url="https://b.example"), "https://b.example"),
        (OnConflict.REPLACE, None, None),
        (OnConflict.REJECT, on_finish(url="https://b.example"), URL),
    ],
)
async def test_holder_of_a_key_calls_as_its_content_says(
    engine: Calling, on_conflict: OnConflict, extras: Extras | None, url: str | None
) -> None:
    job = await engine.submit_calling(key="k", delay=50)

    await replace(engine, on_conflict, extras=extras, delay=20)
    before = await engine.callbacks()
    await engine.until_final(job)
    await asyncio.sleep(1)

    assert before == []
    assert [orjson.loads(callback.params)["url"] for callback in await engine.callbacks()] == ([url] if url else [])


@pytest.mark.parametrize(
    ("work", "state"), [(lasting(5), State.SUCCEEDED), (raising(ValueError("boom")), State.FAILED)], ids=repr
)
async def test_superseded_job_is_reported_when_it_ends(engine: Calling, work: Any, state: State) -> None:
    async def begin(attempt: Any) -> None:
        await asyncio.sleep(3)
        await work(attempt)

    engine.handler.work = begin
    job = await engine.submit_calling(key="k", retry=STEADY)
    await asyncio.sleep(1)

    newer = await replace(engine, OnConflict.REPLACE, delay=500)

    assert newer.seq != job.seq
    await engine.assert_called_once(job, state)


async def test_superseded_job_that_is_lost_is_reported(clock: VirtualClock) -> None:
    store = FaultyStore()
    job, _ = await put(store, make_running(key="k", extras=on_finish()).supersede(), make_job(key="k", delay=500))

    async with Calling(clock=clock, store=store) as engine:
        callback = await engine.assert_called_once(job, State.CANCELLED)

    assert orjson.loads(callback.params)["json"]["job"]["error"]["type"] == "superseded"


# leases


@pytest.mark.parametrize("state", [State.SUCCEEDED, State.FAILED], ids=lambda state: state.word)
async def test_end_of_a_lease_is_reported(engine: Calling, state: State) -> None:
    job = await engine.submit_calling(kind="pull")
    token = await engine.lease()

    if state is State.SUCCEEDED:
        shown = await engine.node.services.leases.finish(token, b"1")
        await engine.node.services.leases.finish(token, b"1")
    else:
        shown = await engine.node.services.leases.fail(token, Error("broken", "bad luck"), None)

    callback = await engine.assert_called_once(job, state)
    assert read_extras(shown.extras)["on_finish"]["job"] == callback.id


async def test_lease_that_runs_out_for_the_last_time_is_reported(engine: Calling) -> None:
    job = await engine.submit_calling(kind="pull")
    await engine.lease()

    await engine.assert_called_once(job, State.FAILED)


async def test_released_lease_is_not_reported(engine: Calling) -> None:
    await engine.submit_calling(kind="pull")

    await engine.node.services.leases.release(await engine.lease())
    await asyncio.sleep(5)

    assert await engine.callbacks() == []


# stops


async def test_last_loss_of_an_attempt_is_reported(clock: VirtualClock) -> None:
    store = FaultyStore()
    lost = make_running(extras=on_finish())._replace(losses=MAX_LOSSES - 1)
    job, again = await put(store, lost, make_running(extras=on_finish(), retry=make_retry()))

    async with Calling(clock=clock, store=store) as engine:
        engine.handler.work = for_ever
        callback = await engine.assert_called_once(job, State.FAILED)
        assert (await engine.read(again)).state is State.RUNNING

    assert orjson.loads(callback.params)["json"]["job"]["error"]["type"] == "lost"


async def test_end_during_a_drain_is_reported_after_the_next_start(clock: VirtualClock) -> None:
    engine = Calling(clock=clock, handler=FakeRunner(lasting(3)))
    await engine.node.start()
    job = await engine.submit_calling()
    await asyncio.sleep(2.5)
    await engine.node.stop()
    at_the_stop = await engine.callbacks()

    async with Calling(clock=clock, store=engine.store) as later:
        await later.assert_called_once(job, State.SUCCEEDED)

    assert [callback.state for callback in at_the_stop] == [State.SCHEDULED]


async def test_released_job_is_not_reported(clock: VirtualClock) -> None:
    engine = Calling(clock=clock, handler=FakeRunner(for_ever))
    await engine.node.start()
    job = await engine.submit_calling()
    await asyncio.sleep(1)
    await engine.node.stop()

    assert (await engine.read(job)).state is State.SCHEDULED
    assert await engine.callbacks() == []


# limits and counts


@pytest.mark.parametrize("overflow", ["reject", "drop_oldest", "wait"])
async def test_full_backlog_takes_callbacks(clock: VirtualClock, overflow: str) -> None:
    async with Calling(clock=clock) as engine:
        settings = QueueSettings.model_validate({"max_backlog": 1, "overflow": overflow})
        await engine.node.services.queues.put("callbacks", settings)
        await engine.node.services.queues.pause("callbacks")
        jobs = await engine.submit_many(5, extras=on_finish(), retry=ONCE)
        await engine.until_final(jobs[-1])

        assert [callback.state for callback in await engine.callbacks()] == [State.SCHEDULED] * 5
        assert engine.node.engine.backlog.waiting("callbacks") == 5

    async with Calling(clock=clock, store=engine.store) as later:
        assert later.node.engine.backlog.waiting("callbacks") == 5
        await later.node.services.queues.resume("callbacks")
        await asyncio.sleep(1)
        assert later.node.engine.backlog.waiting("callbacks") == 0
        assert len(later.http.attempts) == 5


async def test_callbacks_are_counted_as_jobs(engine: Calling) -> None:
    jobs = await engine.submit_many(3, extras=on_finish(), retry=ONCE)
    await engine.until_final(jobs[-1])
    await asyncio.sleep(1)

    metrics = engine.node.metrics
    assert metrics.submitted.values == {("echo",): 3, ("http",): 3}
    assert metrics.finished.values["http", "succeeded"] == 3
    assert engine.store.counts()["callbacks", "http", State.SUCCEEDED] == 3


async def test_changed_on_finish_is_the_one_that_calls(engine: Calling) -> None:
    job = await engine.submit_calling(delay=500)
    jobs = engine.node.services.jobs

    await jobs.patch(
        job.id, Change(given=frozenset({"on_finish"}), extras={"on_finish": {"url": "https://c.example"}}), None
    )
    await jobs.cancel(job.id, None, None)
    await asyncio.sleep(1)

    assert [orjson.loads(callback.params)["url"] for callback in await engine.callbacks()] == ["https://c.example"]


async def test_cleared_on_finish_calls_nobody(engine: Calling) -> None:
    job = await engine.submit_calling(delay=500)
    jobs = engine.node.services.jobs

    await jobs.patch(job.id, Change(given=frozenset({"on_finish"}), extras={"on_finish": None}), None)
    await jobs.cancel(job.id, None, None)
    await asyncio.sleep(1)

    assert await engine.callbacks() == []


# failures


async def test_end_that_cannot_be_written_is_reported_once_it_is(engine: Calling) -> None:
    job = await engine.submit_calling()
    engine.store.fill_disk()
    await asyncio.sleep(60)
    during = await engine.callbacks()
    engine.store.broken.clear()

    await engine.assert_called_once(job, State.SUCCEEDED)

    assert during == []


async def test_job_that_cannot_be_written_delays_no_other_callback(engine: Calling) -> None:
    bad, good = await engine.submit_many(2, extras=on_finish(), retry=ONCE, delay=3)
    engine.store.refuse("finish", bad.seq)
    await engine.until_final(good)
    await asyncio.sleep(1)
    during = await engine.callbacks()
    engine.store.refused.clear()
    await engine.until_final(bad)

    assert [read_extras(callback.extras)["callback_of"] for callback in during] == [good.id]
    assert [read_extras(callback.extras)["callback_of"] for callback in await engine.callbacks()] == [good.id, bad.id]
