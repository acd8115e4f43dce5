"""Schedules: jobs that recur."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack

from erelong.client import doubts
from erelong.client.aio.jobs import AsyncJob
from erelong.client.aio.operations import AsyncOperation
from erelong.client.calls import schedules as calls
from erelong.client.errors import Changed, NoAnswer, Refused
from erelong.client.records import ScheduleRecord

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from erelong.client.aio.client import AsyncClient
    from erelong.client.drafts import Draft, Timing
    from erelong.client.times import Instant


class AsyncSchedules:
    """The schedules of a service, as `client.schedules`."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client

    async def put(self, name: str, job: Draft[Any], **timing: Unpack[Timing]) -> ScheduleRecord:
        """Create or replace a schedule. The same definition again changes nothing, so send it at every start."""
        return ScheduleRecord(await self._client.send(calls.put(name, job, timing)))

    async def edit(self, name: str, *, version: int | None = None, **changes: Any) -> ScheduleRecord:
        """Change only the fields that are given. With `version`, raise Changed if it is in another one by now."""
        try:
            return ScheduleRecord(await self._client.send(calls.edit(name, changes, version)))
        except Changed as problem:
            if version is None or not problem.maybe_done:
                raise
            try:
                found = await self.get(name)
            except (NoAnswer, Refused):
                raise problem from None  # that of the read would not say that the change may have been made
            if doubts.shows(found, changes, version):  # an earlier try did it, and its answer was lost
                return found
            raise

    async def get(self, name: str) -> ScheduleRecord:
        return ScheduleRecord(await self._client.send(calls.read(name)))

    async def list(self, **filters: Any) -> AsyncIterator[ScheduleRecord]:
        """Yield the schedules by name; filters are `queue`, `kind` and `paused`."""
        cursor = None
        while True:
            page = await self._client.send(calls.page(filters, cursor))
            for raw in page["schedules"]:
                yield ScheduleRecord(raw)
            cursor = page.get("next")
            if cursor is None:
                return

    async def delete(self, name: str) -> None:
        """Forget a schedule. The jobs that it has made stay."""
        await self._client.send(calls.delete(name))

    async def pause(self, name: str, reason: str | None = None) -> ScheduleRecord:
        return ScheduleRecord(await self._client.send(calls.pause(name, reason)))

    async def resume(self, name: str) -> ScheduleRecord:
        return ScheduleRecord(await self._client.send(calls.resume(name)))

    async def trigger(self, name: str, *, overlap: str | None = None) -> AsyncJob[Any]:
        """Make one job now; this does not move the schedule."""
        return AsyncJob(await self._client.send(calls.trigger(name, overlap)), self._client)

    async def backfill(self, name: str, start: Instant, end: Instant) -> AsyncOperation:
        """Make the jobs of past occurrences, from `start` until before `end`."""
        return AsyncOperation(await self._client.send(calls.backfill(name, start, end)), self._client)

    async def preview(self, name: str, *, start: Instant | None = None, count: int = 10) -> Sequence[Mapping[str, Any]]:
        """Return the next occurrences."""
        preview = await self._client.send(calls.preview(name, start, count))
        occurrences: Sequence[Mapping[str, Any]] = preview["occurrences"]
        return occurrences
