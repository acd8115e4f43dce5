"""The agenda does not grow without limit when a job is moved again and again."""

from __future__ import annotations

import pytest

from erelong.model.job import SECOND
from tests.support.builders import make_job, put
from tests.support.desk import Desk
from tests.support.virtual import VirtualClock

LATER = 3_600 * SECOND


@pytest.fixture(autouse=True)
def low_stale_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("erelong.engine.maintenance.MANY_STALE", 100)


async def test_stale_entries_are_dropped_when_they_are_the_majority(clock: VirtualClock) -> None:
    desk = Desk(clock=clock)
    due = clock.now() + LATER
    jobs = await put(desk.store, *[make_job(now=clock.now(), delay=3_600 + index) for index in range(10)])
    desk.agenda.extend((job.due_at or 0, job.seq) for job in jobs)
    for index in range(1_000):
        desk.agenda.add(due + index * SECOND + 1, jobs[index % 10].seq)

    assert await desk.tidying.tidy(clock.now()) == 1_000

    assert desk.agenda.pop(due + LATER, 2_000) == [(job.due_at, job.seq) for job in jobs]


async def test_duplicate_entries_are_dropped(clock: VirtualClock) -> None:
    desk = Desk(clock=clock)
    due = clock.now() + LATER
    (job,) = await put(desk.store, make_job(now=clock.now(), delay=3_600))
    for _ in range(500):
        desk.agenda.add(due, job.seq)

    await desk.tidying.tidy(clock.now())

    assert desk.agenda.pop(due, 1_000) == [(due, job.seq)]


async def test_agenda_is_left_alone_while_few_are_stale(clock: VirtualClock) -> None:
    desk = Desk(clock=clock)
    for index in range(100):
        desk.agenda.add(clock.now() + LATER + index, 1)

    assert await desk.tidying.tidy(clock.now()) == 0
    assert len(desk.agenda) == 100


async def test_entry_added_while_others_are_checked_stays(clock: VirtualClock) -> None:
    desk = Desk(clock=clock)
    due = clock.now() + LATER
    for index in range(500):
        desk.agenda.add(due + index, 1)

    async def add_meanwhile(seqs: object) -> list[object]:
        desk.agenda.add(due, 2)
        return []

    desk.engine.store.peek = add_meanwhile  # type: ignore[assignment]  # a row changes just then
    await desk.tidying.tidy(clock.now())

    assert desk.agenda.pop(due + LATER, 1_000) == [(due, 2)]


async def test_time_and_expiry_of_a_job_are_both_kept(clock: VirtualClock) -> None:
    desk = Desk(clock=clock)
    due = clock.now() + LATER
    (job,) = await put(desk.store, make_job(now=clock.now(), delay=3_600, expires_after=1))
    for instant in (due, due + SECOND, *range(due + 2, due + 500)):
        desk.agenda.add(instant, job.seq)

    await desk.tidying.tidy(clock.now())

    assert desk.agenda.pop(due + LATER, 1_000) == [(due, job.seq), (due + SECOND, job.seq)]
