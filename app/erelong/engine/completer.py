"""Saves outcomes: gathers them, writes them together, and keeps them until they are on disk."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from typing import TYPE_CHECKING

from erelong.duties.duty import SetAside, in_halves
from erelong.duties.signal import Signal
from erelong.engine.job_log import fields_of
from erelong.model import retry
from erelong.model.outcome import End
from erelong.stores.base import FINISHED, Ending
from erelong.telemetry.log import get_logger

if TYPE_CHECKING:
    from collections.abc import Sequence

    from erelong.clock.instants import Now
    from erelong.engine.changes import Changes
    from erelong.model.job import Job
    from erelong.stores.base import Store, Verdicts
    from erelong.telemetry.metrics import Metrics

MAX_SAVE = 1_000
GATHER_TIME = 0.005  # no client waits for these commits: fewer, larger ones halve their cost
RUSH = 50  # outcomes in one commit from which the next ones are gathered for longer
RUSH_TIME = 0.02
FLUSH_TIME = 5.0

_SUCCEEDED = End.SUCCEEDED

log = get_logger(__name__)


class Completer:
    """Saves the outcomes of attempts. At most `max_unsaved` may wait for the disk: when it is full, no attempt should
    start, and `room` is set when there is room again.
    """

    name = "completer"

    def __init__(
        self, *, store: Store, changes: Changes, max_unsaved: int, room: Signal, metrics: Metrics, now: Now
    ) -> None:
        self._store = store
        self._changes = changes
        self._max_unsaved = max_unsaved
        self._room = room
        self._metrics = metrics
        self._now = now
        self._unsaved: list[Ending] = []
        self.aside: SetAside[int] = SetAside(name=self.name, metrics=metrics)
        self._has_unsaved = Signal()
        self.ready = self._has_unsaved.wait
        self._all_saved = asyncio.Event()
        self._all_saved.set()
        self.is_hurried = False  # whether to save without gathering
        self._gather_until = 0.0  # in the loop's time

    def __len__(self) -> int:
        return len(self._unsaved) + len(self.aside.failures)

    @property
    def is_full(self) -> bool:
        return len(self._unsaved) + len(self.aside.failures) >= self._max_unsaved

    def is_settled(self) -> bool:
        """Return whether all outcomes are stored, except those set aside."""
        return not self._unsaved

    def add(self, *endings: Ending) -> None:
        """Take attempts that are over, and compute the wait before each retry."""
        self._unsaved += [ending if ending.outcome.end is _SUCCEEDED else _with_backoff(ending) for ending in endings]
        if self._unsaved:
            self._has_unsaved.set()
            self._all_saved.clear()

    async def lap(self) -> None:
        """Save the unsaved outcomes, the oldest first; the next lap repeats those that fail."""
        loop = asyncio.get_running_loop()
        while self._unsaved:
            wait = self._gather_until - loop.time()
            if wait > 0 and not self.is_hurried and len(self._unsaved) < MAX_SAVE:
                await asyncio.sleep(wait)
            batch, was_full = self._unsaved[:MAX_SAVE], self.is_full
            for ending, error in await in_halves(batch, self._save):
                self._set_aside(ending, error)
            if was_full:
                self._room.set()
            self._gather_until = loop.time() + (GATHER_TIME if len(batch) < RUSH else RUSH_TIME)
            del batch  # frees its jobs before the sleep
        self._all_saved.set()

    async def flush(self, within: float = FLUSH_TIME) -> int:
        """Save outcomes without gathering, for `within` seconds at most; return how many are left."""
        self.is_hurried = True
        with suppress(TimeoutError):
            await asyncio.wait_for(self._all_saved.wait(), within)
        return len(self)

    async def _save(self, endings: Sequence[Ending]) -> None:
        verdicts = await self._store.finish(endings)
        self._forget(endings)
        if verdicts.count(FINISHED) < len(endings):
            endings, verdicts = self._saved(endings, verdicts)
        self._changes.ended(endings, verdicts)

    def _forget(self, saved: Sequence[Ending]) -> None:
        """Remove saved endings: the first ones, except after one that will be set aside."""
        first = 0
        while self._unsaved[first] is not saved[0]:
            first += 1
        del self._unsaved[first : first + len(saved)]
        if self.aside.failures:
            self.aside.remove([ending.seq for ending in saved])

    def _saved(self, endings: Sequence[Ending], verdicts: Verdicts) -> tuple[Sequence[Ending], Verdicts]:
        """Return the endings that are stored, with their verdicts; another change came before the others."""
        saved, of_saved = [], []
        for ending, verdict in zip(endings, verdicts, strict=True):
            if verdict.is_saved or _is_stored(ending, verdict.job):
                saved.append(ending)
                of_saved.append(verdict)
            else:
                self._lost_race(ending, verdict.job)
        return saved, of_saved

    def _lost_race(self, ending: Ending, stored: Job | None) -> None:
        """Handle an earlier change: if the same attempt is still running, apply the outcome on top of it."""
        running, outcome, _, _ = ending
        if stored is not None and stored.is_same_attempt(running):
            self.add(Ending(stored, outcome, self._now()))
            return
        self._metrics.outdated.values[()] += 1
        state = stored.state.word if stored else "gone"
        log.warning("outcome_dropped", **fields_of(running), outcome=outcome.end, state=state)

    def _set_aside(self, ending: Ending, error: Exception) -> None:
        self._unsaved.remove(ending)
        asyncio.get_running_loop().call_later(self.aside.add(ending.seq, error), self._try_again, ending)

    def _try_again(self, ending: Ending) -> None:
        self._unsaved.append(ending)
        self._has_unsaved.set()


def _is_stored(ending: Ending, stored: Job | None) -> bool:
    """Return whether a write that seemed to fail has stored this ending, perhaps with the id of a callback."""
    after = ending.after
    return stored is not None and stored._replace(extras=after.extras) == after


def _with_backoff(ending: Ending) -> Ending:
    job, outcome, at, _ = ending
    if outcome.end not in (End.ERROR, End.TIMEOUT, End.CRASHED):
        return ending
    if outcome.backoff is not None:
        return Ending(job, outcome, at, outcome.backoff)
    return Ending(job, outcome, at, retry.wait(job.policy, job.failures + 1, random.random()))
