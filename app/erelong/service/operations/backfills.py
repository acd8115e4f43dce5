"""Backfills: makes the jobs of past occurrences of a schedule, as an operation."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Final

from erelong.clock.instants import format_instant
from erelong.errors import Fault, Invalid
from erelong.model.operations.operation import Action, Range, Request
from erelong.model.schedules.edits import reserve
from erelong.model.schedules.schedule import as_document
from erelong.service.operations.operations import Count
from erelong.service.schedules import known

if TYPE_CHECKING:
    from erelong.clock.instants import Instant
    from erelong.engine.engine import Engine
    from erelong.engine.recurrences.duty import Found, Recurrences
    from erelong.model.caller import Caller
    from erelong.model.operations.operation import Operation
    from erelong.model.schedules.schedule import Schedule
    from erelong.model.submission import IdempotencyRecord
    from erelong.service.operations.operations import Operations
    from erelong.service.schedules import Schedules

MAX_OCCURRENCES: Final = 10_000
AT_ONCE: Final = 25  # occurrences that are computed before others use the event loop
WHAT: Final = "the backfill cannot be made"


class Backfills:
    """Starts backfills. A range is reserved first, so that the schedule makes none of its occurrences again."""

    def __init__(
        self, *, engine: Engine, recurrences: Recurrences, schedules: Schedules, operations: Operations
    ) -> None:
        self._lifecycle = engine.lifecycle
        self._now = engine.now
        self._recurrences = recurrences
        self._schedules = schedules
        self._operations = operations

    async def start(
        self, name: str, first: Instant, end: Instant, caller: Caller, record: IdempotencyRecord | None
    ) -> tuple[Operation, bool]:
        """Store the operation that makes the occurrences from `first` on and before `end`.

        Return it, and whether it is a replay.
        """
        self._lifecycle.refuse_work()
        matches = await self._count(await self._read(name, first, end, caller), first, end)

        def step(before: Found, now: Instant) -> Schedule:
            return reserve(known(name, before, caller), end)

        _, schedule = await self._recurrences.edit(name, step)
        assert schedule is not None
        text = as_document(schedule, self._now()).text or b""
        occurrences = Range(name, first, end, text.decode(), schedule.queued)
        request = Request(action=Action.BACKFILL, filter={}, range=occurrences)
        return await self._operations.submit(request, caller, record, cursor=first, matches=matches)

    async def rehearse(self, name: str, first: Instant, end: Instant, caller: Caller) -> Count:
        """Count the occurrences."""
        schedule = await self._read(name, first, end, caller)
        number = await self._count(schedule, first, end)
        if not number:
            return Count()
        definition = schedule.definition
        queues, kinds = Counter({definition.queue: number}), Counter({definition.kind: number})
        return Count(matches=number, states=Counter(scheduled=number), queues=queues, kinds=kinds)

    async def _read(self, name: str, first: Instant, end: Instant, caller: Caller) -> Schedule:
        schedule = (await self._schedules.get(name, caller)).schedule
        now = self._now()
        if first >= end:
            raise Invalid(WHAT, faults=[Fault("/to", f"must be later than from, which is {format_instant(first)}")])
        if end > now:
            raise Invalid(WHAT, faults=[Fault("/to", f"lies in the future; send {format_instant(now)} at most")])
        return schedule

    async def _count(self, schedule: Schedule, first: Instant, end: Instant) -> int:
        """Return how many occurrences there are, computed some at a time."""
        try:
            recurrence = self._recurrences.rules.recurrence(schedule.definition.timing)
        except ValueError as error:  # its zone has gone
            raise Invalid(WHAT, faults=[Fault("", str(error))]) from None
        number = 0
        for _ in recurrence.between(first, end):
            number += 1
            if number > MAX_OCCURRENCES:
                detail = f"more than {MAX_OCCURRENCES} occurrences lie in the range; send a later instant"
                raise Invalid(WHAT, faults=[Fault("/from", detail)])
            if number % AT_ONCE == 0:
                await asyncio.sleep(0)
        return number
