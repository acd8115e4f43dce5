"""The PATCH of an operation as it is stored, and its application to single jobs."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

from erelong.clock.instants import SECOND
from erelong.service.factory import Change
from erelong.settings.queues import RetryPatch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from erelong.clock.instants import Instant
    from erelong.model.job import Job
    from erelong.service.factory import JobFactory


class JobChanger:
    """Applies the PATCH of an operation to single jobs."""

    def __init__(self, *, factory: JobFactory, max_horizon: float) -> None:
        self._factory = factory
        self._max_horizon = max_horizon

    def change(self, job: Job, change: Mapping[str, Any], now: Instant) -> Job:
        return self._factory.change(job, read_change(change), now)

    def latest(self, now: Instant) -> Instant:
        return now + round(self._max_horizon * SECOND)


def write_change(change: Change) -> dict[str, Any]:
    """Return a change as JSON."""
    given = {item.name: getattr(change, item.name) for item in fields(change)} | {"given": sorted(change.given)}
    given["params"], given["labels"] = None, change.labels and change.labels.decode()
    if change.retry is not None:
        given["retry"] = change.retry.model_dump(exclude_unset=True)
    return {name: value for name, value in given.items() if value is not None}


def read_change(given: Mapping[str, Any]) -> Change:
    """Return a change from its JSON."""
    known = dict(given) | {"given": frozenset(given["given"])}
    if "labels" in known:
        known["labels"] = known["labels"].encode()
    if "retry" in known:
        known["retry"] = RetryPatch.model_validate(known["retry"])
    return Change(**known)
