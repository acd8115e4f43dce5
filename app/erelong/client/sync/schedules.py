"""Schedules: jobs that recur."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack

from erelong.client import doubts
from erelong.client.calls import schedules as calls
from erelong.client.errors import Changed, NoAnswer, Refused
from erelong.client.records import ScheduleRecord
from erelong.client.sync.jobs import Job
from erelong.client.sync.operations import Operation

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from erelong.client.drafts import Draft, Timing
    from erelong.client.sync.client import Client
    from erelong.client.times import Instant


class Schedules:
    """The schedules of a service, as `client.schedules`."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def put(self, name: str, job: Draft[Any], **timing: Unpack[Timing]) -> ScheduleRecord:
        """Create or replace a schedule. The same definition again changes nothing, so send it at every start."""
        return ScheduleRecord(self._client.send(calls.put(name, job, timing)))

    def edit(self, name: str, *, version: int | None = None, **changes: Any) -> ScheduleRecord:
        """Change only the fields that are given. With `version`, raise Changed if it is in another one by now."""
        try:
            return ScheduleRecord(self._client.send(calls.edit(name, changes, version)))
        except Changed as problem:
            if version is None or not problem.maybe_done:
                raise
            try:
                found = self.get(name)
            except (NoAnswer, Refused):
                raise problem from None  # that of the read would not say that the change may have been made
            if doubts.shows(found, changes, version):  # an earlier try did it, and its answer was lost
                return found
            raise

    def get(self, name: str) -> ScheduleRecord:
        return ScheduleRecord(self._client.send(calls.read(name)))

    def list(self, **filters: Any) -> Iterator[ScheduleRecord]:
        """Yield the schedules by name; filters are `queue`, `kind` and `paused`."""
        cursor = None
        while True:
            page = self._client.send(calls.page(filters, cursor))
            for raw in page["schedules"]:
                yield ScheduleRecord(raw)
            cursor = page.get("next")
            if cursor is None:
                return

    def delete(self, name: str) -> None:
        """Forget a schedule. The jobs that it has made stay."""
        self._client.send(calls.delete(name))

    def pause(self, name: str, reason: str | None = None) -> ScheduleRecord:
        return ScheduleRecord(self._client.send(calls.pause(name, reason)))

    def resume(self, name: str) -> ScheduleRecord:
        return ScheduleRecord(self._client.send(calls.resume(name)))

    def trigger(self, name: str, *, overlap: str | None = None) -> Job[Any]:
        """Make one job now; this does not move the schedule."""
        return Job(self._client.send(calls.trigger(name, overlap)), self._client)

    def backfill(self, name: str, start: Instant, end: Instant) -> Operation:
        """Make the jobs of past occurrences, from `start` until before `end`."""
        return Operation(self._client.send(calls.backfill(name, start, end)), self._client)

    def preview(self, name: str, *, start: Instant | None = None, count: int = 10) -> Sequence[Mapping[str, Any]]:
        """Return the next occurrences."""
        preview = self._client.send(calls.preview(name, start, count))
        occurrences: Sequence[Mapping[str, Any]] = preview["occurrences"]
        return occurrences
