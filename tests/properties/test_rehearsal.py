"""A dry run of submits answers as the store does, and changes nothing."""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from erelong.duties.lifecycle import Lifecycle
from erelong.engine.engine import Engine
from erelong.errors import BacklogFull
from erelong.handlers.kinds import Kinds
from erelong.model.conflict import OnConflict
from erelong.model.submission import NewJob, Receipt
from erelong.service.factory import JobFactory
from erelong.service.jobs import Jobs
from erelong.settings.queues import QueueSettings
from erelong.settings.sections import Config
from erelong.stores.memory import MemoryStore
from erelong.telemetry.metrics import Metrics
from tests.support.builders import ALL, NOW, make_job, put

QUEUES = st.sampled_from("ab")
KEYS = st.sampled_from([None, "k", "l"])
FIELDS = st.fixed_dictionaries({"queue": QUEUES, "key": KEYS, "delay": st.integers(1, 3)})
STORED = st.lists(st.tuples(FIELDS, st.booleans()), max_size=4, unique_by=lambda job: (job[0]["queue"], job[0]["key"]))
CALLS = st.lists(st.lists(st.tuples(FIELDS, st.sampled_from(OnConflict)), min_size=1, max_size=4), max_size=4)


def make_jobs(store: MemoryStore, max_backlog: int) -> Jobs:
    queue = QueueSettings(max_backlog=max_backlog, overflow="reject")
    config, kinds, lifecycle = Config(queues={"a": queue}), Kinds(), Lifecycle()
    lifecycle.started()
    engine = Engine(
        store=store, kinds=kinds, config=config, lifecycle=lifecycle, metrics=Metrics(), now=lambda: NOW, tick=lambda: 0
    )
    return Jobs(
        engine=engine, factory=JobFactory(lanes=engine.lanes, kinds=kinds, config=config, zones=engine.zone_source)
    )


async def answer(jobs: Any, new_jobs: list[NewJob], is_whole: bool) -> object:
    """Return each job in short, or the queue that is full."""
    try:
        receipt: Receipt = await jobs.add(new_jobs, now=NOW, is_whole=is_whole)
    except BacklogFull as problem:
        return problem.queue
    entries = [entry for entry in receipt.entries if entry is not None]
    return [
        (entry.status, entry.job.key, entry.job.due_at, entry.job.version, entry.superseded is None)
        for entry in entries
    ]


async def both(stored: Any, calls: Any, is_whole: bool, max_backlog: int) -> tuple[Any, Any, bool]:
    """Return the answers of a dry run and those for real, and whether the dry run changed the store."""
    store = MemoryStore()
    jobs = make_jobs(store, max_backlog)
    jobs_put = await put(store, *(make_job(**fields) for fields, _ in stored))
    await store.save([job.start(NOW) for job, (_, runs) in zip(jobs_put, stored, strict=True) if runs])
    before = await store.list(ALL)
    made = [[NewJob(make_job(**fields), policy) for fields, policy in call] for call in calls]
    made = made[:1] if is_whole else made  # only streams make several calls

    rehearsal = jobs.rehearsal()
    rehearsed = [await answer(rehearsal, call, is_whole) for call in made]

    has_changed = await store.list(ALL) != before
    return rehearsed, [await answer(jobs, call, is_whole) for call in made], has_changed


@given(STORED, CALLS, st.booleans(), st.integers(0, 4))
def test_dry_run_answers_as_the_store_does(stored: Any, calls: Any, is_whole: bool, max_backlog: int) -> None:
    rehearsed, real, has_changed = asyncio.run(both(stored, calls, is_whole, max_backlog))

    assert rehearsed == real
    assert not has_changed
