"""Outcomes on their way to the disk: gathered, saved together, kept in line until they are there."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from operator import itemgetter
from typing import TYPE_CHECKING

from erelong.duties.duty import SetAside, in_halves
from erelong.engine.job_log import fields_of, report_end
from erelong.model import retry
from erelong.model.job import PLACES, State
from erelong.model.outcome import End
from erelong.model.runs import counted
from erelong.stores.base import FINISHED, Ending
from erelong.telemetry.log import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from erelong.clock.instants import Now
    from erelong.engine.agenda import Agenda
    from erelong.model.job import Job
    from erelong.stores.base import Store, Verdicts
    from erelong.telemetry.metrics import Metrics

MAX_SAVE = 1_000
GATHER_TIME = 0.005  # nobody waits for these commits: fewer and larger ones halve their cost
RUSH = 50  # outcomes of one commit; when they come so fast, the next ones gather for longer
RUSH_TIME = 0.02
FLUSH_TIME = 5.0

_WELL = End.SUCCEEDED  # by its class it costs 0.05 µs
_kind_of = itemgetter(PLACES["kind"])

log = get_logger(__name__)


class Outcomes:
    """Stores what outcomes make of their jobs. A bounded number may wait for the disk:

    when it is full nothing more should begin, and `on_room` is called when that has passed. `on_change` hears of every
    job whose attempt is stored as over, as it was while it ran.
    """

    name = "completer"

    def __init__(
        self,
        *,
        store: Store,
        agenda: Agenda,
        max_unsaved: int,
        metrics: Metrics,
        now: Now,
        on_change: Callable[[*tuple[Job, ...]], None],
    ) -> None:
        self._store = store
        self._agenda = agenda
        self._max_unsaved = max_unsaved
        self._metrics = metrics
        self._now = now
        self._on_change = on_change
        self._unsaved: list[Ending] = []
        self.aside: SetAside[int] = SetAside(name=self.name, metrics=metrics)
        self._has_some = asyncio.Event()
        self._is_clear = asyncio.Event()
        self._is_clear.set()
        self._is_hurried = False
        self.on_room: Callable[[], None] = lambda: None

    def __len__(self) -> int:
        return len(self._unsaved) + len(self.aside)

    @property
    def is_full(self) -> bool:
        return len(self) >= self._max_unsaved

    def add(self, *endings: Ending) -> None:
        """Take running jobs' attempts that are over; how long the next ones must wait is found here."""
        self._unsaved += [ending if ending.outcome.end is _WELL else _with_backoff(ending) for ending in endings]
        if self._unsaved:
            self._has_some.set()
            self._is_clear.clear()

    async def ready(self) -> None:
        await self._has_some.wait()

    async def lap(self) -> None:
        """Save what has come; what could not be saved stays for the next lap."""
        while self._unsaved:
            saved = await self._save_some()
            if not self._is_hurried and len(self._unsaved) < MAX_SAVE:
                await asyncio.sleep(GATHER_TIME if saved < RUSH else RUSH_TIME)
        self._has_some.clear()
        self._is_clear.set()

    async def flush(self, within: float = FLUSH_TIME) -> int:
        """Wait until all is on the disk, within reason; how many are not comes back."""
        self._is_hurried = True
        with suppress(TimeoutError):
            await asyncio.wait_for(self._is_clear.wait(), within)
        return len(self)

    async def _save_some(self) -> int:
        """Save the oldest, and return how many; they stay in line until they are on the disk."""
        batch = self._unsaved[:MAX_SAVE]
        for ending, error in await in_halves(batch, self._save):
            self._unsaved.remove(ending)
            asyncio.get_running_loop().call_later(self.aside.add(ending.seq, error), self._try_again, ending)
        return len(batch)

    async def _save(self, endings: Sequence[Ending]) -> None:
        verdicts = await self._store.finish(endings)
        was_full = self.is_full
        self._forget(endings)
        self._note_saved(endings if verdicts.count(FINISHED) == len(endings) else self._saved(endings, verdicts))
        if was_full and not self.is_full:
            self.on_room()

    def _forget(self, saved: Sequence[Ending]) -> None:
        """Take off what is saved: the first in line, except after one that was set aside."""
        self.aside.remove([ending.seq for ending in saved] if self.aside else ())
        first = next((index for index, ending in enumerate(self._unsaved) if ending is saved[0]), 0)
        del self._unsaved[first : first + len(saved)]

    def _try_again(self, ending: Ending) -> None:
        self._unsaved.append(ending)
        self._has_some.set()

    def _saved(self, endings: Sequence[Ending], verdicts: Verdicts) -> Sequence[Ending]:
        """Those that are stored; somebody was before the others."""
        saved = []
        for ending, verdict in zip(endings, verdicts, strict=True):
            if verdict.is_saved or verdict.job == ending.after:  # or done before, when it seemed to fail
                saved.append(ending)
            else:
                self._lost_race(ending, verdict.job)
        return saved

    def _note_saved(self, endings: Sequence[Ending]) -> None:
        well = [job for job, outcome, _, _ in endings if outcome.end is _WELL]
        for kind, jobs in counted(map(_kind_of, well)).items():
            self._metrics.finished.values[kind, State.SUCCEEDED.word] += jobs
        tells_all = log.has_debug
        for ending in endings if tells_all or len(well) < len(endings) else ():
            if tells_all or ending.outcome.end is not _WELL:
                self._note_end(ending)
        self._on_change(*(well if len(well) == len(endings) else [ending.job for ending in endings]))

    def _note_end(self, ending: Ending) -> None:
        after = ending.after
        report_end(ending.job, ending.outcome, after)
        if (wakes_at := after.wakes_at) is not None:
            self._agenda.add(wakes_at, after.seq)
        if after.is_final and ending.outcome.end is not _WELL:
            self._metrics.finished.values[after.kind, after.state.word] += 1

    def _lost_race(self, ending: Ending, stored: Job | None) -> None:
        """Somebody changed the job meanwhile: if only to ask for its end, the outcome counts on top of that."""
        running, outcome, _, _ = ending
        if stored is not None and stored.state is State.RUNNING and stored.started_at == running.started_at:
            self.add(Ending(stored, outcome, self._now()))
            return
        self._metrics.outdated.values[()] += 1
        state = stored.state.word if stored else "gone"
        log.warning("outcome_dropped", **fields_of(running), outcome=outcome.end, state=state)


def _with_backoff(ending: Ending) -> Ending:
    job, outcome, at, _ = ending
    if outcome.end not in (End.ERROR, End.TIMEOUT, End.CRASHED):
        return ending
    if outcome.backoff is not None:
        return Ending(job, outcome, at, outcome.backoff)
    return Ending(job, outcome, at, retry.wait(job.policy, job.failures + 1, random.random()))
