"""Claimed jobs of the embedded store: reads while they run, and the claim log after a crash."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from erelong.errors import Problem, StoreUnavailable
from erelong.model.job import Job, State
from erelong.model.outcome import End, Outcome
from erelong.model.query import Query
from erelong.stores.base import Ending
from erelong.stores.sqlite.backup import back_up, restore
from erelong.stores.sqlite.files import claim_log as claim_file
from erelong.stores.sqlite.files.claim_log import Claimed, ClaimFile
from erelong.stores.sqlite.store import SqliteStore
from tests.support.builders import ALL, NOW, count_both, make_failure, make_job, put, put_one
from tests.support.disk import FaultyDisk, fail_once, faulty_disk

pytestmark = pytest.mark.real_loop

CLAIMS, LOG = "erelong.db.claims", "erelong.db-wal"
RUNNING = Query(states=frozenset({State.RUNNING}), is_full=True)
WELL = Outcome(End.SUCCEEDED)


@pytest.fixture
def disk() -> Iterator[FaultyDisk]:
    with faulty_disk() as disk:
        yield disk


@asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(path=folder / "erelong.db")
    await store.open()
    try:
        yield store
    finally:
        await store.close()


def crash(folder: Path) -> Path:
    """Copy the files as a process killed at this moment leaves them."""
    crashed = folder.with_name(folder.name + "-crashed")
    shutil.rmtree(crashed, ignore_errors=True)
    shutil.copytree(folder, crashed, ignore=shutil.ignore_patterns("*-shm", "*.lock"))
    return crashed


async def ran_in(folder: Path) -> list[Job]:
    """Return the jobs that a start loads as running."""
    async with opened(folder) as store:
        counted, stored = await count_both(store)
        assert counted == stored
        return await store.list(RUNNING)


async def start(store: SqliteStore, *jobs: Job, now: int = NOW) -> list[Job]:
    return (await store.claim([job.seq for job in jobs], now=now)).jobs


# across processes


async def test_claims_are_loaded_from_a_long_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claim_file, "_LONG", 64)
    async with opened(tmp_path) as store:
        (lasting,) = await start(store, await put_one(store))
        size = (tmp_path / CLAIMS).stat().st_size
        for number in range(1, 60):
            jobs = await start(store, *await put(store, *[make_job() for _ in range(5)]))
            if number % 7 == 0:
                assert await ran_in(crash(tmp_path)) == [*reversed(jobs), lasting]
            await store.finish([Ending(job, WELL, NOW) for job in jobs])

        assert store._file.claims._generation > 10
        assert (tmp_path / CLAIMS).stat().st_size == size


async def test_store_closed_without_running_jobs_leaves_no_claims(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        (job,) = await start(store, await put_one(store))
        await store.finish([Ending(job, WELL, NOW)])

    assert await ran_in(tmp_path) == []


@pytest.mark.parametrize(
    "break_file",
    [
        lambda file: file.unlink(),
        lambda file: file.write_bytes(b""),
        lambda file: file.write_bytes(os.urandom(5_001)),
        lambda file: file.write_bytes(b"\xff" * 4_096),
        lambda file: file.write_bytes(file.read_bytes()[:39]),
    ],
    ids=["deleted", "empty", "random", "ones", "torn"],
)
async def test_job_without_its_claims_file_is_waiting(tmp_path: Path, break_file: Callable[[Path], object]) -> None:
    async with opened(tmp_path) as store:
        job = await put_one(store)
        await start(store, job)
        crashed = crash(tmp_path)

    break_file(crashed / CLAIMS)

    assert await ran_in(crashed) == []
    async with opened(crashed) as store:
        assert await store.list(ALL) == [job]
        assert len(await start(store, job)) == 1


async def test_claims_of_another_store_are_ignored(tmp_path: Path) -> None:
    for name in ("one", "other"):
        async with opened(tmp_path / name) as store:
            job = await put_one(store)
            if name == "one":
                await start(store, job)
                crash(tmp_path / name)

    shutil.copyfile(tmp_path / "one-crashed" / CLAIMS, tmp_path / "other" / CLAIMS)

    assert len(await ran_in(tmp_path / "one-crashed")) == 1
    assert await ran_in(tmp_path / "other") == []


async def test_restore_moves_the_claims_aside_with_their_store(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await start(store, await put_one(store))
        crashed = crash(tmp_path)
    path, copy = crashed / "erelong.db", tmp_path / "copy.db"
    back_up(path, copy)

    aside = restore(path, copy).aside

    assert await ran_in(crashed) == []
    assert aside is not None
    shutil.copytree(crashed, tmp_path / "old")
    for file in crashed.glob(f"{aside.name}*"):
        shutil.copyfile(file, tmp_path / "old" / f"erelong.db{file.name.removeprefix(aside.name)}")
    assert len(await ran_in(tmp_path / "old")) == 1


# while an attempt ends


async def test_job_runs_until_its_end_is_committed(disk: FaultyDisk, tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        (job,) = await start(store, await put_one(store))
        with disk.held("sync") as is_held:
            ending = asyncio.ensure_future(store.finish([Ending(job, WELL, NOW)]))
            await asyncio.to_thread(is_held.wait, 5)

            assert await store.get([job.seq]) == {job.seq: job}
            assert await store.list(RUNNING) == [job]
            assert await store.peek([job.seq]) == []
        await ending

        assert (await store.get([job.seq]))[job.seq].state is State.SUCCEEDED
        assert await store.list(RUNNING) == []


async def test_rescheduled_job_is_not_read_as_running(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        (job,) = await start(store, await put_one(store))
        before = store._running.all()
        await store.finish([Ending(job, make_failure(), NOW)])
        store._running._jobs = before  # as for a reader that read it just before
        store._cache.drop_all()

        assert (await store.get([job.seq]))[job.seq].state is State.SCHEDULED
        assert await store.list(RUNNING) == []
        assert [peek.seq for peek in await store.peek([job.seq])] == [job.seq]


async def test_job_claimed_in_the_transaction_of_its_end_is_early(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        (job,) = await start(store, await put_one(store))
        ending, claiming = store.finish([Ending(job, make_failure(), NOW)]), store.claim([job.seq], now=NOW + 5)

        _, claim = await asyncio.gather(ending, claiming)

        assert claim == ([], [(NOW + 5, job.seq)], [])
        assert len(await start(store, job, now=NOW + 5)) == 1


# on bad days


async def test_undone_claim_is_not_loaded_at_a_start(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        job = await put_one(store)
        store._file.write.exec_trace = lambda _, statement, __: statement != "COMMIT"
        with pytest.raises(StoreUnavailable):
            await start(store, job)
        store._file.write.exec_trace = None

        assert await store.list(RUNNING) == []
        assert await ran_in(crash(tmp_path)) == []


@pytest.mark.parametrize("error", [OSError(5, "I/O error"), OSError(28, "no space left")], ids=["EIO", "ENOSPC"])
async def test_claim_that_cannot_be_logged_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: OSError
) -> None:
    async with opened(tmp_path) as store:
        job = await put_one(store)

        def refuse(*_: object) -> None:
            monkeypatch.undo()
            raise error

        monkeypatch.setattr(store._file.claims, "add", refuse)
        with pytest.raises(Problem, match="the disk"):
            await start(store, job)

        assert await store.get([job.seq]) == {job.seq: job}
        assert len(await start(store, job)) == 1
        counted, stored = await count_both(store)
        assert counted == stored


def let_log_keep_commits(store: SqliteStore, log: Path) -> None:
    """Make a failed commit take effect when the store is reopened."""

    def reopen() -> None:
        content = log.read_bytes()
        store._file._disconnect()
        log.write_bytes(content)
        store._file._connect()

    store._file.reopen = reopen  # type: ignore[method-assign]


@pytest.mark.parametrize("has_taken_effect", [False, True])
async def test_disk_failure_leaves_running_jobs_running(
    disk: FaultyDisk, tmp_path: Path, has_taken_effect: bool
) -> None:
    async with opened(tmp_path) as store:
        one, other = await start(store, *await put(store, make_job(), make_job()))
        if has_taken_effect:
            let_log_keep_commits(store, tmp_path / LOG)
        fail_once(disk, "synced")
        ending = store.finish([Ending(one, WELL, NOW)])
        if has_taken_effect:
            await ending
        else:
            with pytest.raises(StoreUnavailable):
                await ending
        left = [other] if has_taken_effect else [other, one]

        assert await store.list(RUNNING) == left
        assert await ran_in(crash(tmp_path)) == left
        counted, stored = await count_both(store)
        assert counted == stored


async def test_claim_in_a_commit_that_only_seemed_to_fail_holds(disk: FaultyDisk, tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        job = await put_one(store)
        let_log_keep_commits(store, tmp_path / LOG)
        fail_once(disk, "synced")

        calls = asyncio.gather(store.claim([job.seq], now=NOW), put_one(store))
        (started,) = (await calls)[0].jobs

        assert await store.list(RUNNING) == [started]
        assert await ran_in(crash(tmp_path)) == [started]


async def test_damaged_page_of_a_running_job_does_not_hide_others_from_listings(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        jobs = await put(store, *[make_job(params={"a": f"job{number:03}" * 40}) for number in range(100)])
    async with opened(tmp_path) as store:
        started = await start(store, *jobs)
        with (tmp_path / "erelong.db").open("r+b") as file:
            file.seek(file.read().index(b"job050" * 40))
            file.write(b"J")

        assert await store.list(replace(RUNNING, limit=20)) == started[:-21:-1]
        with pytest.raises(StoreUnavailable):
            await store.list(RUNNING)


async def test_damaged_page_does_not_prevent_a_start(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        long = [make_job(params={"a": f"job{number:03}" * 2_000}) for number in range(3)]
        jobs = await put(store, *long, *[make_job(params={"a": f"job{number:03}" * 40}) for number in range(3, 99)])
        started = await start(store, *jobs)
        await store.finish([Ending(job, WELL, NOW) for job in started[20:]])
    crashed = crash(tmp_path)
    with (crashed / "erelong.db").open("r+b") as file:
        content = file.read()
        for offset in (content.index(b"job001" * 100), content.index(b"job050" * 40)):
            file.seek(offset)
            file.write(b"J")

    async with opened(crashed) as store:
        assert await store.list(RUNNING) == [*reversed([started[0], *started[2:20]])]


async def test_claim_of_a_lost_job_does_not_apply_to_a_new_job_of_its_number(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        (running,) = await start(store, await put_one(store))
        await store.finish([Ending(running, WELL, NOW)])
        await store.delete((await store.get([running.seq]))[running.seq])
        store._counters.last_seq = 0  # as if the commits that assigned it were lost
        other = await put_one(store, delay=60)
        crashed = crash(tmp_path)

    assert other.seq == 1
    assert await ran_in(crashed) == []


async def test_start_on_a_full_disk_writes_no_claims(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(tmp_path) as store:
        jobs = await start(store, await put_one(store))
        crashed = crash(tmp_path)

    def refuse(*_: object) -> None:
        raise OSError(28, "no space left")

    monkeypatch.setattr(os, "pwrite", refuse)

    assert await ran_in(crashed) == jobs


def test_torn_claims_are_read_up_to_the_tear(tmp_path: Path) -> None:
    claims = ClaimFile(path=tmp_path / CLAIMS)
    claims.open("ab" * 16)
    claims.read()
    claims.renew([Claimed(1, 2, NOW)])
    claims.add([7, 8, 9], [2, 2, 4], NOW + 1)
    written = claims.read()
    content = claims.path.read_bytes()
    first = content.index(NOW.to_bytes(8, "little")) - 32  # in the current half

    for end in reversed(range(200)):
        os.truncate(claims.path, first + end)
        found = claims.read()
        assert found == written[: len(found)]
    assert written == [Claimed(1, 2, NOW), Claimed(7, 2, NOW + 1), Claimed(8, 2, NOW + 1), Claimed(9, 4, NOW + 1)]
    claims.close()


def test_torn_claims_are_not_mixed_with_older_ones(tmp_path: Path) -> None:
    claims = ClaimFile(path=tmp_path / CLAIMS)
    claims.open("ab" * 16)
    claims.read()
    for number in range(1, 40):
        claims.add([number, number + 1], [2, 4], NOW + number)
    claims.renew([])
    claims.renew([])
    with claims.path.open("r+b", buffering=0) as file:
        file.seek(claims._offset(claims._generation, claims.end))
        before = file.read(100)
        claims.add([101, 102, 103, 104], [2, 2, 2, 2], NOW)
        written = claims.read()
        file.seek(-len(before), os.SEEK_CUR)
        after = file.read(100)

        for end in range(len(before) + 1):
            file.seek(-len(before), os.SEEK_CUR)
            file.write(after[:end] + before[end:])
            assert claims.read() in ([], written)
    assert len(written) == 4
    claims.close()
