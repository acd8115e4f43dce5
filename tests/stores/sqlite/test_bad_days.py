"""The embedded store on bad days: a failing disk, a full disk, and damaged pages."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import apsw
import pytest

from erelong.errors import Problem, StorageFull, StoreFailed, StoreUnavailable
from erelong.model.job import Job, State
from erelong.model.outcome import End, Outcome
from erelong.model.query import Order, Query
from erelong.model.submission import IdempotencyRecord
from erelong.stores.base import Ending, Saved
from erelong.stores.group_thread import Call
from erelong.stores.sqlite import checkpoint as sqlite_upkeep
from erelong.stores.sqlite.files.disk_reserve import DiskReserve
from erelong.stores.sqlite.store import SqliteStore
from tests.support.builders import ALL, NOW, count_both, make_job, make_new_job, purge, put, put_one
from tests.support.disk import FaultyDisk, fail_once, faulty_disk, io_error

pytestmark = pytest.mark.real_loop

KIB = 1_024
PAGE = 4_096


@pytest.fixture
def disk() -> Iterator[FaultyDisk]:
    """Return a disk that fails on demand."""
    with faulty_disk() as disk:
        yield disk


@asynccontextmanager
async def opened(folder: Path, reserve: int = 0) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(path=folder / "erelong.db", reserve=reserve)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


# disk failures


@pytest.mark.parametrize("kind", ["write", "written", "sync", "synced"])
async def test_group_with_an_io_error_is_refused_and_the_next_one_stored(
    disk: FaultyDisk, tmp_path: Path, kind: str
) -> None:
    async with opened(tmp_path) as store:
        first = await put_one(store)
        fail_once(disk, kind)

        with pytest.raises(StoreUnavailable, match="the disk failed; nothing was stored"):
            await put_one(store)

        assert store.status() is None
        second = await put_one(store)
        assert [job.seq for job in await store.list(ALL)] == [second.seq, first.seq]
        counted, stored = await count_both(store)
        assert counted == stored


async def test_answer_matches_the_disk_wherever_it_failed(disk: FaultyDisk, tmp_path: Path) -> None:
    """Sweep: fail the n-th operation, for each n until a run passes."""
    nth, operations = 0, 1
    while nth < operations:
        nth += 1
        folder = tmp_path / str(nth)
        async with opened(folder) as store:
            await put_one(store)
            begun = len(disk.operations)
            disk.fault = lambda _, __, number, at=begun + nth: io_error() if number == at else None  # type: ignore[misc]
            try:
                refused, job = False, await put_one(store, params={"a": "x" * 20_000})
            except StoreUnavailable:
                refused = True
            operations = len(disk.operations) - begun
            disk.fault = lambda *_: None

            if store.status() is None:
                assert len(await store.list(ALL)) == (1 if refused else 2)
                if not refused:
                    assert await store.get([job.seq]) == {job.seq: job}
                counted, stored = await count_both(store)
                assert counted == stored
        async with opened(folder) as store:
            assert len(await store.list(ALL)) >= (1 if refused else 2)
    assert nth > 10


async def test_commit_that_took_effect_despite_a_disk_failure_is_answered_as_done(
    disk: FaultyDisk, tmp_path: Path
) -> None:
    async with opened(tmp_path) as store:
        await put_one(store)
        commits = store._counters.commits

        def reopen() -> None:
            store._file._disconnect()
            store._file._connect()
            store._file.write.execute("UPDATE counts SET jobs = ? WHERE kind = 'commits'", (commits + 1,))

        store._file.reopen = reopen  # type: ignore[method-assign]  # as if the log had kept the commit
        fail_once(disk, "sync")

        assert (await put_one(store)).seq == 2


async def test_second_io_error_within_a_minute_ends_the_store(
    disk: FaultyDisk, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(tmp_path) as store:
        for _ in range(2):
            fail_once(disk, "sync")
            with pytest.raises(StoreUnavailable):
                await put_one(store)
        disk.fault = lambda *_: None

        reason = await asyncio.wait_for(store.end(), 5)

        assert (type(reason), reason.code) == (StoreFailed, 74)
        assert "twice in a minute" in str(reason)
        assert (store.status() or "").startswith("ended: ")
        for call in (put_one(store), store.get([1]), store.list(ALL)):
            with pytest.raises(StoreUnavailable):
                await call
    events = [record.msg for record in caplog.records if record.name == "erelong.stores.sqlite.executor"]
    assert events == ["store_io_error", "store_reopened", "store_io_error", "store_ended"]


async def test_store_recovers_from_io_errors_more_than_a_minute_apart(disk: FaultyDisk, tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        for _ in range(3):
            fail_once(disk, "sync")
            with pytest.raises(StoreUnavailable):
                await put_one(store)
            store._threads._failed_at -= 61

        assert (await put_one(store)).seq > 0


async def test_persistent_disk_failure_ends_the_store_at_the_first_error(disk: FaultyDisk, tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        disk.fault = lambda *_: io_error()

        with pytest.raises(StoreUnavailable):
            await put_one(store)

        assert (await asyncio.wait_for(store.end(), 5)).code == 74
        disk.fault = lambda *_: None


async def test_read_with_an_io_error_reopens_the_store(disk: FaultyDisk, tmp_path: Path) -> None:
    async with opened(tmp_path):
        pass
    async with opened(tmp_path) as store:
        job = await put_one(store)
        fail_once(disk, "read")

        with pytest.raises(StoreUnavailable):
            await store.list(Query())

        await put_one(store)
        assert store.status() is None
        assert len(await store.list(ALL)) == 2
        assert await store.get([job.seq]) == {job.seq: job}


async def test_reads_pending_before_a_reopen_are_answered_after_it(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        job = await put_one(store)
        with store._threads._quick_lock:
            reads = [
                store.find_replay(IdempotencyRecord("", "k", b""), now=NOW),
                store.get([job.seq]),
                store.overrides(),
            ]
            tasks = [asyncio.create_task(read) for read in reads]
            await asyncio.sleep(0.01)
            store._file.reopen()

        assert await asyncio.gather(*tasks) == [None, {job.seq: job}, {}]


async def test_abandoned_read_is_skipped(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        made: list[int] = []
        get = store._get
        store._get = lambda seqs, *others: (made.extend(seqs), get(seqs, *others))[1]  # type: ignore[method-assign, func-returns-value]  # watched
        with store._threads._quick_lock:
            for seq in range(10):
                with suppress(TimeoutError):
                    await asyncio.wait_for(store.get([seq]), 0.001)
        await store.get([99])

        assert made == [99]


async def test_missing_store_ends_with_a_remedy(disk: FaultyDisk, tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await put_one(store)
        (tmp_path / "erelong.db").rename(tmp_path / "moved")
        fail_once(disk, "sync")

        with pytest.raises(StoreUnavailable):
            await put_one(store)

        reason = await asyncio.wait_for(store.end(), 5)
        assert reason.code == 65
        assert "restore" in str(reason)


async def test_slow_sync_does_not_stall_reads(disk: FaultyDisk, tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        job = await put_one(store)
        with disk.held("sync") as is_held:
            adding = asyncio.ensure_future(put_one(store))
            await asyncio.to_thread(is_held.wait, 5)

            assert await store.get([job.seq]) == {job.seq: job}
            assert await store.list(ALL) == [job]
            assert not adding.done()

        assert (await adding).seq == 2


# a full disk


def full_from_now(disk: FaultyDisk, folder: Path) -> Callable[[], bool]:
    """Fail writes until the reserve is spent or the disk is cleared; return the function that clears it."""
    cleared = False
    reserve = folder / "erelong.db.reserve"

    def fault(kind: str, name: str, _: int) -> Exception | None:
        is_full = not cleared and reserve.stat().st_size > 0
        return apsw.FullError("database or disk is full") if kind == "write" and is_full else None

    def clear() -> bool:
        nonlocal cleared
        cleared = True
        return True

    disk.fault = fault
    return clear


async def test_full_disk_refuses_only_submits(
    disk: FaultyDisk, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(tmp_path, reserve=64 * KIB) as store:
        running, waiting, other = await put(store, *(make_job() for _ in range(3)))
        (running,) = (await store.claim([running.seq], now=NOW)).jobs
        full_from_now(disk, tmp_path)

        with pytest.raises(StorageFull, match="the disk is full; nothing was stored") as caught:
            await put_one(store)

        assert caught.value.headers["Retry-After"] == "5"
        assert (store.status() or "").startswith("ok, but the disk is full")
        done = running.finish(Outcome(End.SUCCEEDED), NOW)
        assert (await store.save([done]))[0].is_saved
        assert [job.seq for job in (await store.claim([waiting.seq], now=NOW)).jobs] == [waiting.seq]
        assert await store.delete(other)
        with pytest.raises(StorageFull):
            await put_one(store)
        assert await store.get([done.seq]) == {done.seq: done}
    assert [record.msg for record in caplog.records] == ["storage_full"]


async def test_outcome_on_a_full_disk_is_stored_from_the_reserve(disk: FaultyDisk, tmp_path: Path) -> None:
    async with opened(tmp_path, reserve=64 * KIB) as store:
        job = await put_one(store)
        (running,) = (await store.claim([job.seq], now=NOW)).jobs
        full_from_now(disk, tmp_path)

        assert (await store.save([running.finish(Outcome(End.SUCCEEDED), NOW)]))[0].is_saved
        with pytest.raises(StorageFull):
            await put_one(store)


async def test_store_accepts_submits_again_when_there_is_room(disk: FaultyDisk, tmp_path: Path) -> None:
    async with opened(tmp_path, reserve=64 * KIB) as store:
        clear = full_from_now(disk, tmp_path)
        with pytest.raises(StorageFull):
            await put_one(store)

        clear()
        store._threads.checkpointer._room_checked_at -= 60
        store._writer.wake()
        for _ in range(500):
            if store.status() is None:
                break
            await asyncio.to_thread(lambda: None)

        assert (await put_one(store)).seq > 0
        assert (tmp_path / "erelong.db.reserve").stat().st_size == 64 * KIB


async def test_store_opened_on_a_full_disk_restores_its_reserve_without_a_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_upkeep, "CHECK_ROOM_EVERY", 0.0)
    monkeypatch.setattr(sqlite_upkeep, "SYNC_EVERY", 0.01)
    monkeypatch.setattr("erelong.stores.sqlite.files.disk_reserve._has_room", lambda *_: False)
    async with opened(tmp_path, reserve=64 * KIB) as store:
        full = store.status()
        monkeypatch.setattr("erelong.stores.sqlite.files.disk_reserve._has_room", lambda *_: True)
        for _ in range(500):
            if store.status() is None:
                break
            await asyncio.to_thread(threading.Event().wait, 0.01)

        assert full is not None
        assert store.status() is None


async def test_full_disk_without_a_reserve_refuses_writes_that_do_not_fit(disk: FaultyDisk, tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await put_one(store)
        disk.fault = lambda kind, *_: apsw.FullError("full") if kind == "write" else None
        for _ in range(2):
            with pytest.raises(StorageFull):
                await put_one(store)
        disk.fault = lambda *_: None

        assert len(await store.list(ALL)) == 1
        await put_one(store)


async def test_store_opens_on_a_full_disk_from_its_reserve(disk: FaultyDisk, tmp_path: Path) -> None:
    async with opened(tmp_path, reserve=64 * KIB) as store:
        job = await put_one(store)
    full_from_now(disk, tmp_path)

    async with opened(tmp_path, reserve=64 * KIB) as store:
        assert await store.get([job.seq]) == {job.seq: job}
        with pytest.raises(StorageFull):
            await put_one(store)


async def test_group_is_refused_at_once_while_another_program_locks_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The calls are not tried one by one, since each would wait for the lock."""
    async with opened(tmp_path) as store:
        await put_one(store)
        store._file.write.set_busy_timeout(10)
        tries: list[int] = []
        transact = store._threads._transact

        def counted(group: Sequence[Call]) -> None:
            tries.append(len(group))
            transact(group)

        monkeypatch.setattr(store._threads, "_transact", counted)
        other = apsw.Connection(str(tmp_path / "erelong.db"))
        other.execute("BEGIN IMMEDIATE")

        answers = await asyncio.gather(*(put_one(store) for _ in range(100)), return_exceptions=True)
        other.execute("ROLLBACK")

        assert tries == [100]
        assert {str(answer) for answer in answers} == {
            "another program has locked the store; nothing was stored. Operator: stop that program"
        }
        await put_one(store)


def test_reserve_has_real_blocks(tmp_path: Path) -> None:
    reserve = DiskReserve(path=tmp_path / "reserve", size=1 << 20)

    assert reserve.hold()
    assert (tmp_path / "reserve").stat().st_blocks * 512 >= 1 << 20
    assert reserve.spend()
    assert reserve.is_spent
    assert not reserve.spend()
    assert (tmp_path / "reserve").stat().st_blocks == 0
    assert reserve.hold()
    assert not reserve.is_spent


def test_sparse_reserve_is_allocated(tmp_path: Path) -> None:
    with (tmp_path / "reserve").open("wb") as file:
        file.truncate(1 << 20)

    assert DiskReserve(path=tmp_path / "reserve", size=1 << 20).hold()
    assert (tmp_path / "reserve").stat().st_blocks * 512 >= 1 << 20


def test_reserve_without_room_allocates_nothing(tmp_path: Path) -> None:
    reserve = DiskReserve(path=tmp_path / "reserve", size=1 << 60)

    assert not reserve.hold()
    assert reserve.is_spent
    assert (tmp_path / "reserve").stat().st_blocks == 0


def test_empty_reserve_is_never_spent(tmp_path: Path) -> None:
    reserve = DiskReserve(path=tmp_path / "reserve", size=0)

    assert reserve.hold()
    assert not reserve.spend()
    assert not reserve.is_spent
    assert list(tmp_path.iterdir()) == []


# damaged pages


async def damaged(folder: Path, jobs: list[Job], victim: Job) -> SqliteStore:
    """Return a store in which the page of a job's row has changed on the disk."""
    path = folder / "erelong.db"
    with path.open("r+b") as file:
        content = file.read()
        offset = content.index(b"victim" * 20)
        file.seek(offset)
        file.write(b"V")
    store = SqliteStore(path=path)
    await store.open()
    return store


@pytest.fixture
async def jobs(tmp_path: Path) -> list[Job]:
    """Store jobs of several pages each; the third contains a word that locates its page."""
    async with opened(tmp_path) as store:
        texts = ["victim" * 1_950 if number == 2 else "x" * 11_700 for number in range(5)]
        return [await put_one(store, params={"a": text}) for text in texts]


async def test_read_of_a_damaged_page_is_refused_and_logged(
    tmp_path: Path, jobs: list[Job], caplog: pytest.LogCaptureFixture
) -> None:
    store = await damaged(tmp_path, jobs, jobs[2])
    assert store.status() is None

    with pytest.raises(StoreUnavailable, match=r"damaged: disk I/O error \(8202\).*restore"):
        await store.get([jobs[2].seq])

    assert (store.status() or "").startswith("damaged: ")
    assert "erelong restore FILE" in (store.status() or "")
    assert await store.get([jobs[1].seq]) == {jobs[1].seq: jobs[1]}
    await put_one(store)
    (fields,) = [record.__dict__["fields"] for record in caplog.records if record.msg == "store_corrupt"]
    assert fields["jobs"] == [jobs[2].seq]
    await store.close()


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5, 100])
@pytest.mark.parametrize("order", [Order.CREATED, Order.DUE])
async def test_damaged_page_does_not_hide_other_jobs_from_listings(
    tmp_path: Path, jobs: list[Job], order: Order, limit: int
) -> None:
    """A page of the listing has its full length; a shorter one would look like the last."""
    store = await damaged(tmp_path, jobs, jobs[2])
    sound = [job for job in jobs if job is not jobs[2]]

    page = await store.list(Query(order=order, limit=limit, is_full=True))

    assert page == (sound if order is Order.DUE else sound[::-1])[:limit]
    assert (store.status() or "").startswith("damaged: ") == (limit > 2 or page[-1] is sound[-1])
    await store.close()


async def test_damaged_page_does_not_stop_other_jobs(tmp_path: Path, jobs: list[Job]) -> None:
    store = await damaged(tmp_path, jobs, jobs[2])
    seqs, sound = [job.seq for job in jobs], [job.seq for job in jobs if job is not jobs[2]]

    assert list(await store.get(seqs)) == sound
    claim = await store.claim(seqs, now=NOW)

    assert [job.seq for job in claim.jobs] == sound
    assert (claim.early, claim.unreadable) == ([], [])
    counted, stored = await count_both_brief(store)
    assert counted == stored
    await store.close()


async def test_outcome_on_a_damaged_page_is_dropped_and_the_others_are_stored(tmp_path: Path, jobs: list[Job]) -> None:
    store = await damaged(tmp_path, jobs, jobs[2])
    claimed = (await store.claim([job.seq for job in jobs], now=NOW)).jobs
    stale = jobs[2].start(NOW).finish(Outcome(End.SUCCEEDED), NOW)._replace(version=2, params=b"{}")
    done = [stale, *(job.finish(Outcome(End.SUCCEEDED), NOW) for job in claimed)]

    verdicts = await store.save(done)

    assert [verdict.is_saved for verdict in verdicts] == [False, True, True, True, True]
    await store.close()


async def test_ending_on_a_damaged_page_is_dropped_and_logged_with_its_number(
    tmp_path: Path, jobs: list[Job], caplog: pytest.LogCaptureFixture
) -> None:
    store = await damaged(tmp_path, jobs, jobs[2])
    claimed = (await store.claim([job.seq for job in jobs], now=NOW)).jobs
    caplog.clear()

    verdicts = await store.finish([Ending(job, Outcome(End.SUCCEEDED), NOW) for job in (jobs[2].start(NOW), *claimed)])

    assert [verdict.is_saved for verdict in verdicts] == [False, True, True, True, True]
    (fields,) = [record.__dict__["fields"] for record in caplog.records if record.msg == "store_corrupt"]
    assert fields["jobs"] == [jobs[2].seq]
    await store.close()


async def test_damaged_page_does_not_fail_other_calls_of_its_group(tmp_path: Path, jobs: list[Job]) -> None:
    store = await damaged(tmp_path, jobs, jobs[2])

    answers = await asyncio.gather(store.delete(jobs[2]), store.delete(jobs[1]), put_one(store), return_exceptions=True)

    assert isinstance(answers[0], StoreUnavailable)
    assert answers[1] == Saved(True, None)
    assert isinstance(answers[2], Job)
    await store.close()


async def test_damage_does_not_end_the_store(tmp_path: Path, jobs: list[Job]) -> None:
    store = await damaged(tmp_path, jobs, jobs[2])
    end = asyncio.ensure_future(store.end())
    for _ in range(5):
        with pytest.raises(Problem):
            await store.get([jobs[2].seq])

    assert not end.done()
    end.cancel()
    await store.close()


async def count_both_brief(store: SqliteStore) -> tuple[int, int]:
    return store.counts()["default", "echo", State.RUNNING], len(store._running.all())


# size


async def test_file_does_not_grow_as_jobs_come_and_go(tmp_path: Path) -> None:
    sizes = []
    async with opened(tmp_path) as store:
        for _ in range(12):
            receipt = await store.add([make_new_job(params={"a": "x" * 500}, labels={"a": "b"})] * 400, now=NOW)
            jobs = [entry.job for entry in receipt.entries if entry is not None]
            started = (await store.claim([job.seq for job in jobs], now=NOW)).jobs
            await store.save([job.finish(Outcome(End.SUCCEEDED), NOW) for job in started])
            while await purge(store, "default", State.SUCCEEDED, before=NOW + 1, limit=200):
                pass
            sizes.append(store._file.write.pragma("page_count"))

    assert sizes[-1] == sizes[2]


async def test_log_does_not_grow_with_the_number_of_writes(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        for _ in range(40):
            await store.add([make_new_job(params={"a": "x" * 2_000})] * 500, now=NOW)

        assert store._threads.checkpointer.log_pages < 4_000
    assert not (tmp_path / "erelong.db-wal").exists()


async def test_log_shrinks_after_a_reader_made_it_grow(tmp_path: Path) -> None:
    log, large = tmp_path / "erelong.db-wal", [make_new_job(params={"a": "x" * 4_000})] * 500
    async with opened(tmp_path) as store:
        reader = apsw.Connection(str(tmp_path / "erelong.db"))
        reader.execute("BEGIN; SELECT * FROM jobs").fetchall()
        for _ in range(8):
            await store.add(large, now=NOW)
        grown = log.stat().st_size
        reader.close()

        for _ in range(8):
            await store.add(large, now=NOW)

        assert grown > 14 * 2**20
        assert log.stat().st_size < 12 * 2**20  # the 8 MiB that are kept, and the last group
