"""A row that can never be read or written stops only its own job."""

from __future__ import annotations

import asyncio
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest

from erelong.duties.waiters import NEVER_LEAVES
from erelong.handlers.kinds import Kinds
from erelong.handlers.pull.declaration import make_pull_kind
from erelong.lanes.pollers import LeaseRequest
from erelong.model.job import Job, State
from erelong.model.query import Query
from erelong.model.reports.callback import make_on_finish
from erelong.model.submission import NewJob
from erelong.node import Node
from erelong.settings.queues import QueueSettings, Retention
from erelong.settings.sections import Config, StoreSection
from erelong.stores.sqlite.store import SqliteStore
from tests.support.builders import make_job, make_retry
from tests.support.engine import Engine
from tests.support.kinds import FakeRunner, lasting
from tests.support.virtual import VirtualClock

HOUR = 3_600
SOUND = 700
ONE_SLOT = QueueSettings(concurrency=1)
VICTIM = "v" * 12_000  # fills several pages
OWN_PAGE = b"v" * 1_000
PULLED = [make_pull_kind(name="pulled")]
PULL = LeaseRequest(frozenset({"pulled"}), frozenset(), 1, 2.0)


# on virtual time and a store that refuses the row


async def test_job_that_cannot_be_read_when_it_expires_delays_no_other(clock: VirtualClock) -> None:
    async with Engine(clock=clock) as engine:
        await engine.node.services.queues.pause("held")
        (bad,) = await engine.submit_all([{"queue": "held", "delay": 5, "expires_after": 1}])
        sound = await engine.submit_all([{"delay": 6 + index / SOUND} for index in range(SOUND)])
        engine.store.refuse("get", bad.seq)

        await asyncio.sleep(8)
        ended = [await engine.read(job) for job in sound]
        await asyncio.sleep(HOUR)

        assert {job.state for job in ended} == {State.SUCCEEDED}
        assert max(job.late_by or 0 for job in ended) < 0.01
        assert engine.node.health.checks()["scheduler"].startswith(f"ok, but 1 set aside, the last {bad.seq}: ")
        assert engine.node.metrics.laps_failed.values == {}
        assert engine.store.calls.count("get") < 200 + 2 * SOUND
        del engine.store.refused["get"]
        await asyncio.sleep(61)
        assert (await engine.read(bad)).state is State.EXPIRED
        assert engine.node.health.checks()["scheduler"] == "ok"


async def test_job_that_can_be_read_again_when_due_is_no_longer_set_aside(clock: VirtualClock) -> None:
    async with Engine(clock=clock) as engine:
        bad, *_ = await engine.submit_many(20, delay=1.0)
        engine.store.refuse("peek", bad.seq)
        await asyncio.sleep(10)
        while_refused = engine.node.health.checks()["scheduler"]
        engine.store.refused.clear()

        ended = await engine.until_final(bad, within=61)

        assert while_refused.startswith(f"ok, but 1 set aside, the last {bad.seq}: ")
        assert ended.state is State.SUCCEEDED
        assert engine.node.health.checks()["scheduler"] == "ok"


async def test_job_that_can_never_be_claimed_keeps_no_other_from_running(clock: VirtualClock) -> None:
    async with Engine(clock=clock, queue=QueueSettings(concurrency=10)) as engine:
        bad, *sound = await engine.submit_many(100, delay=1.0)
        engine.store.refuse("claim", bad.seq)

        for job in sound:
            await engine.until_final(job, within=5)
        await asyncio.sleep(HOUR)

        assert engine.node.health.checks()["dispatcher"].startswith("ok, but 1 set aside")
        assert (await engine.read(bad)).state is State.SCHEDULED
        del engine.store.refused["claim"]
        assert (await engine.until_final(bad, within=61)).state is State.SUCCEEDED
        engine.assert_all_given_back()


async def test_outcome_that_can_never_be_saved_keeps_no_other_from_being_saved(clock: VirtualClock) -> None:
    async with Engine(clock=clock) as engine:
        bad, *sound = await engine.submit_many(50)
        engine.store.refuse("finish", bad.seq)

        for job in sound:
            await engine.until_final(job, within=1)
        await asyncio.sleep(HOUR)

        assert (await engine.read(bad)).state is State.RUNNING
        assert len(engine.node.engine.completer) == 1
        assert engine.node.health.checks()["completer"].startswith("ok, but 1 set aside")
        assert engine.node.metrics.laps_failed.values == {}
        engine.assert_all_given_back()
        del engine.store.refused["finish"]
        assert (await engine.until_final(bad, within=61)).state is State.SUCCEEDED
        assert len(engine.node.engine.completer) == 0


async def test_lease_that_cannot_be_ended_frees_its_slot(clock: VirtualClock) -> None:
    async with Engine(clock=clock, queue=ONE_SLOT, kinds=PULLED) as engine:
        bad, next_one = await engine.submit_all([{"kind": "pulled"}] * 2)
        await asyncio.sleep(0.1)
        await engine.node.services.leases.lease(PULL, 1, NEVER_LEAVES)
        engine.store.refuse("get", bad.seq)

        leased = await engine.node.services.leases.lease(PULL, 10, NEVER_LEAVES)
        await engine.node.services.leases.release(leased[0].token)
        await asyncio.sleep(HOUR)

        assert leased[0].job.seq == next_one.seq
        assert engine.node.health.checks()["leases"].startswith("ok, but 1 set aside")
        assert engine.node.metrics.laps_failed.values == {}
        del engine.store.refused["get"]
        await asyncio.sleep(61)
        assert (await engine.read(bad)).state is State.SCHEDULED
        assert engine.node.engine.lanes._lanes["default"].running == 0


async def test_lease_that_cannot_be_saved_is_not_returned_and_others_are(clock: VirtualClock) -> None:
    async with Engine(clock=clock, kinds=PULLED) as engine:
        bad, *sound = await engine.submit_all([{"kind": "pulled"}] * 5)
        await asyncio.sleep(0.1)
        engine.store.refuse("save", bad.seq)

        leased = await engine.node.services.leases.lease(PULL._replace(max=5), 0, NEVER_LEAVES)

        assert {lease.job.seq for lease in leased} == {job.seq for job in sound}
        assert engine.node.engine.lanes._lanes["default"].running == 4


async def test_lost_job_that_can_never_be_saved_keeps_no_other_from_being_recovered(clock: VirtualClock) -> None:
    engine = Engine(clock=clock, handler=FakeRunner(lasting(100)))
    async with engine:
        jobs = await engine.submit_many(20)
        await engine.until(lambda: engine.handler.running == 20)
        await engine.node.engine.duties["completer"].stop()
        left = engine.store
    again = Engine(clock=clock, store=left)
    left._jobs |= {job.seq: job.start(clock.now()) for job in jobs}
    left._recount()
    left.refuse("save", jobs[0].seq)
    async with again:
        for job in jobs[1:]:
            assert (await again.until_final(job, within=5)).losses == 1
        await asyncio.sleep(HOUR)
        assert again.node.health.checks()["recovery"].startswith("ok, but 1 set aside")
        left.refused.clear()
        assert (await again.until_final(jobs[0], within=61)).losses == 1


async def test_job_that_cannot_be_reconciled_keeps_no_other_from_being_reconciled(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Engine(clock=clock) as engine:
        bad, *sound = await engine.submit_many(10, delay=HOUR * 2)
        engine.store.refuse("get", bad.seq)
        looked_at: list[int] = []
        monkeypatch.setattr(engine.node.engine.changes, "reread", lambda _queue, seq, _job: looked_at.append(seq))

        engine.node.engine._unknown_writes.note_change([bad, *sound])
        await asyncio.sleep(HOUR)

        assert sorted(looked_at) == [job.seq for job in sound]
        assert engine.node.health.checks()["reconciler"].startswith("ok, but 1 set aside")
        del engine.store.refused["get"]
        await asyncio.sleep(61)
        assert looked_at[-1] == bad.seq


# each duty killed


@pytest.mark.parametrize(
    "name",
    [
        *("scheduler", "refill", "overdue", "dispatcher", "completer", "reconciler", "leases", "recovery"),
        *("retention", "idempotency_records", "agenda_tidying", "idle_queues"),
    ],
)
async def test_duty_that_is_killed_turns_ready_red_by_name_and_is_restarted(clock: VirtualClock, name: str) -> None:
    async with Engine(clock=clock) as engine:
        await asyncio.sleep(1)
        task = engine.node.engine.duties[name]._task
        assert task is not None
        task.cancel()
        await asyncio.sleep(0.1)
        killed = engine.node.health.checks()
        job = await engine.until_final(await engine.submit(), within=2)
        await asyncio.sleep(2)

        assert [part for part, state in killed.items() if not state.startswith("ok")] == [name]
        assert engine.node.metrics.laps_failed.values == {(name,): 1}
        assert job.state is State.SUCCEEDED
        assert engine.node.health.checks()[name] == "ok"


# on the real store, with one byte changed on the disk


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return Config(store=StoreSection(path=tmp_path / "erelong.db", retention_interval=0.2), queues={"pulled": ONE_SLOT})


async def started(config: Config) -> Node:
    node = Node(
        config=config, store=SqliteStore(path=config.store.path), kinds=Kinds(FakeRunner().kind("echo"), *PULLED)
    )
    await node.start()
    return node


async def submit(node: Node, *submissions: dict[str, Any]) -> list[Job]:
    now = node.engine.now()
    receipt = await node.services.jobs.add(
        [NewJob(make_job(now=now, retry=ONCE, **fields)) for fields in submissions], now=now
    )
    return [entry.job for entry in receipt.entries if entry is not None]


ONCE = make_retry(max_attempts=1)


def damage(config: Config) -> None:
    """Change a byte on each page with only params of the victim; some of these pages are unused by then."""
    content = config.store.path.read_bytes()
    size = int.from_bytes(content[16:18], "big")
    starts = range(0, len(content), size)
    own = [start for start in starts if content[start] == 0 and content[start + 4 : start + 1_004] == OWN_PAGE]
    assert own
    with config.store.path.open("r+b") as file:
        for start in own:
            file.seek(start + 100)
            file.write(b"V")


@pytest.mark.real_loop
@pytest.mark.timeout(20)
async def test_damaged_page_of_an_expiring_job_delays_no_other(config: Config) -> None:
    node = await started(config)
    await node.services.queues.pause("held")
    (bad,) = await submit(node, {"queue": "held", "delay": 1.5, "expires_after": 0.5, "params": {"a": VICTIM}})
    sound = await submit(node, *({"delay": 2 + index / SOUND} for index in range(SOUND)))
    await node.stop()
    damage(config)
    node = await started(config)

    ended = [await node.services.jobs.wait(job.id, 10) for job in sound]

    assert {job.state for job in ended} == {State.SUCCEEDED}
    assert max(job.late_by or 0 for job in ended) < 0.5
    assert node.health.checks()["scheduler"].startswith(f"ok, but 1 set aside, the last {bad.seq}: ")
    assert node.health.checks()["store"].startswith("damaged: ")
    await node.stop()


@pytest.mark.real_loop
@pytest.mark.timeout(20)
@pytest.mark.parametrize(("field", "text"), [("params", b"{"), ("extras", b"{")])
async def test_job_that_has_become_unreadable_calls_nobody_and_the_log_says_so(
    config: Config, caplog: pytest.LogCaptureFixture, field: str, text: bytes
) -> None:
    node = await started(config)
    extras = {"on_finish": make_on_finish({"url": "https://app.example/done"}, None)}
    bad, plain = await submit(node, {"delay": 1.0, "extras": extras}, {"delay": 1.0})
    await node.stop()
    with closing(apsw.Connection(str(config.store.path))) as database:
        database.execute(f"UPDATE jobs SET {field} = ? WHERE seq IN (?, ?)", (text, bad.seq, plain.seq))
    node = await started(config)

    ended = [await node.services.jobs.wait(job.id, 10) for job in (bad, plain)]

    skipped = [record.__dict__["fields"] for record in caplog.records if record.getMessage() == "callback_skipped"]
    assert {job.state for job in ended} == {State.FAILED}
    assert bad.id in [fields["job"] for fields in skipped]
    assert len(skipped) == (1 if field == "params" else 2)  # without its extras, the other may have had one
    assert len(await node.engine.store.list(Query())) == 2
    await node.stop()


@pytest.mark.real_loop
@pytest.mark.timeout(20)
async def test_lease_of_a_job_on_a_damaged_page_frees_its_slot(config: Config) -> None:
    node = await started(config)
    pulled = {"kind": "pulled", "queue": "pulled"}
    await submit(node, {**pulled, "params": {"a": VICTIM}})
    await asyncio.sleep(0.2)
    assert len(await node.services.leases.lease(PULL, 5, NEVER_LEAVES)) == 1
    (next_one,) = await submit(node, pulled)
    await node.stop()
    damage(config)
    node = await started(config)

    (leased,) = await node.services.leases.lease(PULL, 10, NEVER_LEAVES)

    assert leased.job.seq == next_one.seq
    assert node.health.checks()["leases"].startswith("ok, but 1 set aside")
    await node.stop()


@pytest.mark.real_loop
@pytest.mark.timeout(20)
async def test_damaged_page_of_a_job_to_be_purged_keeps_no_other_from_being_purged(config: Config) -> None:
    node = await started(config)
    submissions: list[dict[str, Any]] = [
        {"queue": "a", "params": {"a": VICTIM}},
        {"queue": "a"},
        {"queue": "a"},
        {"queue": "b"},
        {"queue": "b"},
    ]
    bad, *sound = await submit(node, *submissions)
    for job in (bad, *sound):
        assert (await node.services.jobs.wait(job.id, 10)).state is State.SUCCEEDED
    await node.stop()
    damage(config)
    node = await started(config)

    for queue in ("a", "b"):
        await node.services.queues.put(queue, QueueSettings(retention=Retention(succeeded=0.0)))
    async with asyncio.timeout(10):
        while len(await node.engine.store.list(Query())) > 1:  # noqa: ASYNC110 - the sweeps have no event
            await asyncio.sleep(0.05)

    assert [job.seq for job in await node.engine.store.list(Query())] == [bad.seq]
    assert node.health.checks()["retention"] == "ok"
    assert node.health.checks()["store"].startswith("damaged: ")
    await node.stop()
