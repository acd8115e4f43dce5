"""Only its owner ends a background loop, and one bad item is set aside alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from erelong.duties.duty import Duty, SetAside, in_halves
from erelong.errors import StorageFull, StoreRefused, StoreUnavailable
from erelong.telemetry.metrics import Metrics


class FakeWork:
    """Work that a test supplies: each lap takes it, and raises `error` if that is set."""

    name = "work"

    def __init__(self) -> None:
        self.given = asyncio.Event()
        self.error: BaseException | None = None
        self.laps = 0

    async def ready(self) -> None:
        await self.given.wait()

    async def lap(self) -> None:
        self.laps += 1
        if self.error is not None:
            raise self.error
        self.given.clear()


@pytest.fixture
async def work() -> FakeWork:
    return FakeWork()


@pytest.fixture
async def duty(work: FakeWork) -> AsyncIterator[Duty]:
    duty = Duty(work=work, metrics=Metrics())
    duty.start()
    yield duty
    await duty.stop()


async def test_duty_sleeps_until_there_is_something_to_do(duty: Duty, work: FakeWork) -> None:
    await asyncio.sleep(1_000)
    before = work.laps
    work.given.set()
    await asyncio.sleep(1_000)

    assert (before, work.laps, duty.status()) == (0, 1, "ok")


@pytest.mark.parametrize("error", [StoreUnavailable("not now"), RuntimeError("a bug")], ids=repr)
async def test_failed_lap_is_shown_and_repeated_until_it_works(duty: Duty, work: FakeWork, error: Exception) -> None:
    work.error = error
    work.given.set()
    await asyncio.sleep(10)
    failing = duty.status()
    work.error = None
    await asyncio.sleep(2)

    assert failing.startswith("failed 11 times in a row: ")
    assert str(error) in failing
    assert (work.laps, duty.status(), work.given.is_set()) == (12, "ok", False)


async def test_full_disk_is_retried_and_does_not_fail_the_duty(duty: Duty, work: FakeWork) -> None:
    work.error = StorageFull("no room")
    work.given.set()
    await asyncio.sleep(10)

    assert (work.laps, duty.status()) == (11, "ok")


async def test_failures_are_logged_once_a_minute_and_once_when_they_are_over(
    duty: Duty, work: FakeWork, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    work.error = ValueError("bad")
    work.given.set()
    await asyncio.sleep(130)
    work.error = None
    await asyncio.sleep(2)

    logged = [(record.msg, record.__dict__["fields"]["laps"]) for record in caplog.records]
    assert [event for event, _ in logged] == ["duty_failed"] * 3 + ["duty_recovered"]
    assert logged[0][1] == 1


async def test_killed_loop_is_reported_and_restarted(duty: Duty, work: FakeWork) -> None:
    await asyncio.sleep(1)
    assert duty._task is not None
    duty._task.cancel()
    await asyncio.sleep(0.1)
    killed = duty.status()
    await asyncio.sleep(2)
    restarted = duty.status()
    work.given.set()
    await asyncio.sleep(1)

    assert killed.startswith("failed 1 times in a row: CancelledError")
    assert (restarted, work.laps) == ("ok", 2)


async def test_stopped_duty_stays_stopped(work: FakeWork) -> None:
    duty = Duty(work=work, metrics=Metrics())
    duty.start()
    await asyncio.sleep(1)

    await duty.stop()
    work.given.set()
    await asyncio.sleep(10)

    assert (work.laps, duty.status()) == (0, "stopped")


async def test_duty_that_is_stopped_between_its_end_and_its_restart_stays_stopped(work: FakeWork) -> None:
    duty = Duty(work=work, metrics=Metrics())
    duty.start()
    await asyncio.sleep(1)
    assert duty._task is not None
    duty._task.cancel()
    await asyncio.sleep(0.1)

    await duty.stop()
    work.given.set()
    await asyncio.sleep(10)

    assert work.laps == 0


# halves


@given(st.integers(1, 200), st.sets(st.integers(0, 199), max_size=5))
def test_halving_processes_each_good_item_once(number: int, bad: set[int]) -> None:
    bad &= set(range(number))
    done: list[int] = []

    async def do(items: Sequence[int]) -> None:
        if not bad.isdisjoint(items):
            raise StoreRefused("damaged")
        done.extend(items)

    async def run() -> list[tuple[int, Exception]]:
        return await in_halves(range(number), do)

    assume(len(bad) < number or number == 1)  # when nothing works, it may be the store
    alone = asyncio.run(run())

    assert done == [item for item in range(number) if item not in bad]
    assert [item for item, _ in alone] == sorted(bad)


@pytest.mark.parametrize("error", [StorageFull("full"), StoreUnavailable("down")], ids=repr)
async def test_error_of_the_store_itself_is_raised_at_once(error: Exception) -> None:
    calls = 0

    async def do(_: Sequence[int]) -> None:
        nonlocal calls
        calls += 1
        raise error

    with pytest.raises(type(error)):
        await in_halves(range(500), do)
    assert calls == 1


async def test_no_item_is_set_aside_if_all_fail(caplog: pytest.LogCaptureFixture) -> None:
    calls = 0

    async def do(_: Sequence[int]) -> None:
        nonlocal calls
        calls += 1
        raise ValueError("a bug")

    with pytest.raises(ValueError, match="a bug"):
        await in_halves(range(500), do)
    assert calls < 30


async def test_no_items_make_no_call() -> None:
    async def do(_: Sequence[int]) -> None:
        raise AssertionError

    assert await in_halves([], do) == []


def test_item_set_aside_is_retried_after_growing_pauses_up_to_a_minute() -> None:
    aside: SetAside[int] = SetAside(name="work", metrics=Metrics())

    pauses = [aside.add(7, ValueError("bad")) for _ in range(2_000)]

    assert pauses[:8] == [1, 2, 4, 8, 16, 32, 60, 60]
    assert pauses[-1] == 60
    assert aside.status() == "ok, but 1 set aside, the last 7: bad; see item_set_aside in the log"
    aside.remove([7, 8])
    assert (aside.failures, aside.status()) == ({}, "ok")
