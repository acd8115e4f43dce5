"""Readers of events miss nothing without a reset, for any order of changes, slow readers and resumed ones.

The store notes each change as it is written. What a reader gets between two resets must be a part of these notes
without a gap.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import pytest

from erelong.clock.instants import Instant
from erelong.duties.waiters import NEVER_LEAVES
from erelong.engine.events import ring
from erelong.errors import Problem
from erelong.model.caller import Caller, Scope
from erelong.model.conflict import OnConflict
from erelong.model.events.event import Event, EventType
from erelong.model.events.selection import Selection
from erelong.model.ids import parse_id
from erelong.model.job import Job, State
from erelong.model.submission import ADDED, CHANGED, NewJob, Receipt
from erelong.service.events import Reader
from erelong.service.factory import Change
from erelong.settings.queues import QueueSettings, Retention
from erelong.stores.base import Claim, Ending, Saved, Verdicts
from tests.support.builders import make_job, make_retry
from tests.support.engine import Engine
from tests.support.examples import examples
from tests.support.faults import FaultyStore
from tests.support.kinds import FakeRunner, lasting, raising
from tests.support.virtual import VirtualClock

RUNS = examples(150)
SECONDS = 12.0
CHANGES = 40
RINGS = (7, 30, 1_000)
LINGER = 1.0
SLOWEST = 0.05
RETRY = make_retry(max_attempts=2, delay=0.5, jitter=0)
ENDS = frozenset({EventType.SUCCEEDED, EventType.FAILED, EventType.CANCELLED, EventType.EXPIRED})
MAIL = Caller(name="mail", scopes=frozenset(Scope), queues=frozenset({"mail"}))
ANYBODY = Caller(name="", scopes=frozenset(Scope))


class Note(NamedTuple):
    """A stored change: the job after it, and whether it was deleted."""

    job: Job
    is_deleted: bool = False

    @property
    def what(self) -> tuple[int, int, bool]:
        return self.job.seq, self.job.version, self.is_deleted


class NotingStore(FaultyStore):
    """Notes each change, in order. Answers take a random time; those to writes keep their order, as in a real store."""

    def __init__(self, *, dice: random.Random) -> None:
        super().__init__()
        self.notes: list[Note] = []
        self._dice = dice
        self._writing = asyncio.Lock()

    async def dawdle(self) -> None:
        await asyncio.sleep(self._dice.choice((0, 0, self._dice.random())) * SLOWEST)

    async def get(self, seqs: Sequence[int]) -> dict[int, Job]:
        await self.dawdle()
        jobs = await super().get(seqs)
        await self.dawdle()
        return jobs

    async def add(self, new_jobs: Sequence[NewJob], **others: Any) -> Receipt:
        async with self._writing:
            receipt = await super().add(new_jobs, **others)
            for entry in receipt.entries:
                if entry is not None and entry.status in (ADDED, CHANGED):
                    self.notes += [Note(job) for job in (entry.superseded, entry.job) if job is not None]
            await self.dawdle()
            return receipt

    async def claim(self, seqs: Sequence[int], *, now: Instant) -> Claim:
        async with self._writing:
            claim = await super().claim(seqs, now=now)
            self.notes += map(Note, claim.jobs)
            await self.dawdle()
            return claim

    async def save(self, jobs: Sequence[Job], **others: Any) -> Verdicts:
        async with self._writing:
            verdicts = await super().save(jobs, **others)
            self.notes += [Note(job) for job, verdict in zip(jobs, verdicts, strict=True) if verdict.is_saved]
            await self.dawdle()
            return verdicts

    async def finish(self, endings: Sequence[Ending], **others: Any) -> Verdicts:
        async with self._writing:
            verdicts = await super().finish(endings, **others)
            ended = zip(endings, verdicts, strict=True)
            self.notes += [Note(ending.after) for ending, verdict in ended if verdict.is_saved]
            await self.dawdle()
            return verdicts

    async def delete(self, job: Job, **others: Any) -> Saved:
        async with self._writing:
            saved = await super().delete(job, **others)
            self.notes += [Note(job, True)] if saved.is_saved else []
            await self.dawdle()
            return saved

    async def purge(self, seqs: Sequence[int], *, before: Instant) -> list[int]:
        async with self._writing:
            stored = {seq: self._jobs[seq] for seq in seqs if seq in self._jobs}
            deleted = await super().purge(seqs, before=before)
            self.notes += [Note(stored[seq], True) for seq in deleted]
            await self.dawdle()
            return deleted


class Wish(NamedTuple):
    """What a reader asks for, and which notes are about it."""

    selection: Selection
    takes: Callable[[Note], bool]
    caller: Caller = ANYBODY


WISHES = (
    Wish(Selection(), lambda note: True),
    Wish(Selection(types=ENDS), lambda note: note.job.is_final and not note.is_deleted),
    Wish(Selection(types=frozenset({EventType.DELETED})), lambda note: note.is_deleted),
    Wish(Selection(states=frozenset({State.RUNNING})), lambda note: note.job.state is State.RUNNING),
    Wish(Selection(labels={"tenant": "a"}), lambda note: note.job.labels == b'{"tenant":"a"}'),
    Wish(Selection(kinds=frozenset({"bad"}), key="k1"), lambda note: (note.job.kind, note.job.key) == ("bad", "k1")),
    Wish(Selection(), lambda note: note.job.queue == "mail", MAIL),
)


class Follower:
    """One client: it reads slowly, leaves, comes back, and writes down what it gets."""

    def __init__(self, world: World, wish: Wish, dice: random.Random) -> None:
        self.world = world
        self.wish = wish
        self.dice = dice
        self.segments: list[tuple[int, list[tuple[int, int, bool]]]] = []  # by resets: changes noted before, events
        self.place: str | None = None

    async def run(self) -> None:
        """Follow until the world ends, then read the rest."""
        await asyncio.sleep(SECONDS * 0.5 * self.dice.random())
        while not self.world.is_over:
            await self._follow()
            await asyncio.sleep(self.dice.choice((0.0, 0.5, 4.0)) * self.dice.random())
        await self._follow(is_last=True)

    async def _follow(self, *, is_last: bool = False) -> None:
        events = self.world.engine.node.services.events
        with events.open(self.wish.selection, place=self.place, caller=self.wish.caller, client=NEVER_LEAVES) as reader:
            if self.place is None:
                self._begin()
                self.place = str(reader.place)
            rounds = self.dice.randint(1, 20)
            while rounds and not (is_last and reader.place == self.world.ring.end and reader._reset is None):
                rounds -= not is_last
                self._read(reader)
                await asyncio.sleep(self.dice.choice((0.0, 0.0, 0.3, 3.0)) * self.dice.random())
                if not is_last:
                    await reader.wait(self.dice.random())

    def _begin(self) -> None:
        self.segments.append((len(self.world.store.notes), []))

    def _read(self, reader: Reader) -> None:
        if reader.take_reset() is not None:
            self._begin()
        elif self.dice.random() < 0.9:
            self.segments[-1][1].extend(seen(event) for _, event in reader.take())
        self.place = str(reader.place)

    def check(self) -> None:
        every = self.world.store.notes
        for number, (noted, got) in enumerate(self.segments):
            is_last = number == len(self.segments) - 1
            wanted = [(index, note.what) for index, note in enumerate(every) if self.wish.takes(note)]
            start = next((at for at, (_, what) in enumerate(wanted) if got and what == got[0]), None)
            if got:
                assert start is not None, "it got what was not stored"
                assert [what for _, what in wanted[start : start + len(got)]] == got, "it has a gap"
                assert all(index < noted for index, _ in wanted[:start]), "it begins too late"
                assert not is_last or start + len(got) == len(wanted), "it lacks the last"
            else:
                assert not is_last or all(index < noted for index, _ in wanted), "it got nothing"
        check_versions([what for _, got in self.segments for what in got])


class Watcher(Follower):
    """A client that follows a few jobs from their present state on."""

    def __init__(self, world: World, ids: Sequence[str], dice: random.Random) -> None:
        numbers = frozenset(parts[0] for id in ids if (parts := parse_id(id)) is not None)
        super().__init__(world, Wish(Selection(ids=tuple(ids), seqs=numbers), lambda _: True), dice)
        self.numbers = numbers

    async def run(self) -> None:
        await asyncio.sleep(SECONDS * 0.5 * self.dice.random())
        events = self.world.engine.node.services.events
        with events.open(self.wish.selection, place=None, caller=ANYBODY, client=NEVER_LEAVES) as reader:
            present = await reader.read_present()
            self.present = dict(zip(self._seqs(), present, strict=True))
            self.got = [seen(event) for event in present if event.job is not None]
            self.was_reset = False
            while not (self.world.is_over and reader.place == self.world.ring.end) and not self.was_reset:
                self.was_reset = reader.take_reset() is not None
                if not self.was_reset:
                    self.got += [seen(event) for _, event in reader.take()]
                await reader.wait(0.05 * self.dice.random())

    def _seqs(self) -> list[int]:
        return [parts[0] for id in self.wish.selection.ids if (parts := parse_id(id)) is not None]

    def check(self) -> None:
        check_versions(self.got)
        for seq in self.numbers if not self.was_reset else ():
            stored = [note.what for note in self.world.store.notes if note.job.seq == seq]
            shown = self.present[seq].job
            first = len(stored) if shown is None else stored.index((seq, shown.version, False))
            assert [what for what in self.got if what[0] == seq] == stored[first:], "it misses a change"


def seen(event: Event) -> tuple[int, int, bool]:
    assert event.job is not None
    return event.job.seq, event.job.version, event.type is EventType.DELETED


def check_versions(got: Sequence[tuple[int, int, bool]]) -> None:
    """Check that the versions of each job only rise; a deleted job keeps its version."""
    last: dict[int, tuple[int, bool]] = {}
    for seq, version, is_deleted in got:
        assert (version, is_deleted) > last.get(seq, (0, False)), "a version falls"
        last[seq] = (version, is_deleted)


class World:
    """A service, some clients that change jobs, and some that follow them."""

    def __init__(self, *, clock: VirtualClock, seed: int) -> None:
        self.dice = random.Random(seed)
        self.store = NotingStore(dice=self.dice)
        bad, slow = FakeRunner(raising(ValueError("boom"))), FakeRunner(lasting(0.7))
        self.engine = Engine(
            clock=clock,
            store=self.store,
            kinds=[bad.kind("bad"), slow.kind("slow")],
            queue=QueueSettings(retention=Retention(succeeded=2.0, other=3.0)),
        )
        self.ids: list[str] = []
        self.is_over = False
        self.ring = self.engine.node.engine.events
        self.ring._events = deque(maxlen=self.dice.choice(RINGS))

    async def run(self) -> int:
        """Return how many resets the readers got."""
        async with self.engine:
            followers = [
                Follower(self, wish, random.Random(self.dice.random()))
                for wish in self.dice.choices(WISHES, k=self.dice.randint(1, 5))
            ]
            while len({*self.ids}) < 3:
                await self.submit()
            followers.append(Watcher(self, self.dice.sample(sorted({*self.ids}), 3), random.Random(self.dice.random())))
            async with asyncio.TaskGroup() as group:
                for follower in followers:
                    group.create_task(follower.run())
                for _ in range(3):
                    group.create_task(self.change())
                await asyncio.sleep(SECONDS)
                await self.settle()
                self.is_over = True
            for follower in followers:
                follower.check()
        return int(self.engine.node.metrics.stream_resets.values.total())

    async def settle(self) -> None:
        """Wait until nothing has been written for some time."""
        noted = -1
        while noted < len(self.store.notes):
            noted = len(self.store.notes)
            await asyncio.sleep(5)

    async def submit(self) -> None:
        now, dice = self.engine.clock.now(), self.dice
        key = dice.choice((None, None, "k1", "k2"))
        job = make_job(
            kind=dice.choice(("echo", "bad", "slow")),
            queue=dice.choice(("default", "mail")),
            labels=dice.choice((None, {"tenant": "a"}, {"tenant": "b"})),
            key=key,
            delay=dice.choice((0.0, 1.0, 3.0)) * dice.random(),
            expires_after=dice.choice((None, None, 0.01)),
            retry=RETRY,
            now=now,
        )
        receipt = await self.engine.node.services.jobs.add([NewJob(job, dice.choice([*OnConflict]))], now=now)
        self.ids += [entry.job.id for entry in receipt.entries if entry is not None]

    async def change(self) -> None:
        """Change jobs at random."""
        jobs, queues = self.engine.node.services.jobs, self.engine.node.services.queues
        for _ in range(CHANGES):
            await asyncio.sleep(2 * SECONDS / CHANGES * self.dice.random())
            id = self.dice.choice(self.ids)
            with suppress(Problem):
                match self.dice.choice(
                    ("submit", "submit", "cancel", "run", "retry", "delete", "patch", "purge", "sweep")
                ):
                    case "submit":
                        await self.submit()
                    case "cancel":
                        await jobs.cancel(id, None, None)
                    case "run":
                        await jobs.run(id, None)
                    case "retry":
                        await jobs.retry(id, None)
                    case "delete":
                        await jobs.delete(id, None)
                    case "patch":
                        await jobs.patch(id, Change(given=frozenset({"delay"}), delay=self.dice.random()), None)
                    case "sweep":
                        await self.engine.node.engine.retention.sweep(self.engine.clock.now())
                    case "purge":
                        if self.dice.random() < 0.2:
                            await queues.purge("mail")


@pytest.mark.timeout(600)
async def test_readers_miss_nothing_without_a_reset(clock: VirtualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ring, "LINGER", LINGER)

    worlds = [World(clock=clock, seed=seed) for seed in range(RUNS)]
    resets = 0
    for world in worlds:
        resets += await world.run()

    assert resets > RUNS, "readers rarely lose their place"
