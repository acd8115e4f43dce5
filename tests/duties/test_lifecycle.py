"""A service goes from starting to stopped, and refuses work from the drain on."""

from __future__ import annotations

import pytest

from erelong.duties.lifecycle import Lifecycle, Phase
from erelong.errors import Draining


def test_phases_follow_one_another() -> None:
    lifecycle = Lifecycle()
    phases = [lifecycle.phase]
    for step in (lifecycle.started, lifecycle.drain, lifecycle.stopped, lifecycle.drain):
        step()
        phases.append(lifecycle.phase)

    assert phases == [Phase.STARTING, Phase.RUNNING, Phase.DRAINING, Phase.STOPPED, Phase.STOPPED]


def test_work_is_refused_from_the_drain_on() -> None:
    lifecycle = Lifecycle()
    lifecycle.started()
    lifecycle.refuse_work()

    lifecycle.drain()
    with pytest.raises(Draining, match="takes no new work"):
        lifecycle.refuse_work()
    lifecycle.stopped()
    with pytest.raises(Draining, match="leases no more jobs"):
        lifecycle.refuse("leases no more jobs")


def test_service_that_hands_over_takes_jobs_until_the_end_of_the_drain() -> None:
    lifecycle = Lifecycle(hands_over=True)
    lifecycle.started()

    lifecycle.drain()
    lifecycle.refuse_work()
    with pytest.raises(Draining, match="leases no more jobs"):
        lifecycle.refuse("leases no more jobs")
    lifecycle.stopped()
    with pytest.raises(Draining, match="takes no new work"):
        lifecycle.refuse_work()
