"""Leased jobs are first by rank over all queues and kinds, as if each were taken alone."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from erelong.lanes.lanes import Lanes
from erelong.settings.queues import LabelConcurrency, QueueSettings
from erelong.stores.base import peek_at
from tests.support.builders import make_job, make_retry
from tests.support.lanes import make_lanes as build_lanes

KINDS, QUEUES = ("resize", "print"), ("a", "b", "c")
LIMITED = {
    "a": QueueSettings(concurrency=4, label_concurrency=LabelConcurrency(label="tenant", limit=1)),
    "b": QueueSettings(concurrency=3),
}
RETRY = make_retry()
JOBS = st.lists(
    st.tuples(st.sampled_from(KINDS), st.sampled_from(QUEUES), st.integers(0, 3), st.sampled_from(["x", "y"])),
    max_size=25,
)


def make_lanes(jobs: list[tuple[str, str, int, str]]) -> Lanes:
    lanes = build_lanes(LIMITED, pull_kinds=KINDS)
    for seq, (kind, queue, delay, tenant) in enumerate(jobs, 1):
        labels = {"tenant": tenant}
        lanes.put(peek_at(make_job(kind=kind, queue=queue, delay=delay, labels=labels, seq=seq, retry=RETRY)))
    return lanes


@given(
    jobs=JOBS,
    kinds=st.sampled_from([("resize",), KINDS]),
    queues=st.sampled_from([(), ("a", "b")]),
    limit=st.integers(1, 30),
)
@example(  # the first job fills the label of the second, so the third is next
    jobs=[("resize", "a", 0, "x"), ("print", "a", 1, "x"), ("print", "a", 2, "y")], kinds=KINDS, queues=(), limit=30
)
def test_jobs_taken_together_are_those_taken_one_by_one(
    jobs: list[tuple[str, str, int, str]], kinds: tuple[str, ...], queues: tuple[str, ...], limit: int
) -> None:
    together = make_lanes(jobs).take_for(kinds, queues, limit)

    lanes = make_lanes(jobs)
    one_by_one = [slot for _ in range(limit) for slot in lanes.take_for(kinds, queues, 1)]

    assert list(together) == one_by_one
