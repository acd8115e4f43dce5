"""A superseded job ends once in every way it can end, and the job that took its key stays live."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress

import orjson
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from erelong.attempt import Attempt, GiveUp
from erelong.duties.waiters import NEVER_LEAVES
from erelong.errors import Problem
from erelong.handlers.base import AttemptFailed
from erelong.handlers.pull.declaration import make_pull_kind
from erelong.lanes.pollers import LeaseRequest
from erelong.model.conflict import OnConflict
from erelong.model.job import Job, State
from erelong.model.outcome import End, Error
from erelong.model.submission import NewJob
from erelong.settings.sections import ServerSection
from tests.support.builders import make_job, make_retry
from tests.support.dawdling import DawdlingStore
from tests.support.engine import Engine, error_of, outcomes_of
from tests.support.examples import examples
from tests.support.kinds import FakeRunner, for_ever
from tests.support.virtual import VirtualClock, VirtualLoop

RETRY = make_retry(max_attempts=3, delay=0.01, jitter=0)
DUE = 0.05
LASTS = 0.2  # from its due time until the chosen end
EARLY = -0.1
INSIDE = ("success", "error", "give up", "crash", "timeout", "cancel", "cancel that fails", "drain", "kill")
OUTSIDE = ("finish", "fail", "fail for good", "release", "lease runs out", "cancel of a lease", "drain", "kill")
EXPECTED = {
    "success": (State.SUCCEEDED, None),
    "error": (State.FAILED, "exception"),
    "give up": (State.FAILED, "give_up"),
    "crash": (State.FAILED, "crashed"),
    "timeout": (State.FAILED, "timeout"),
    "cancel": (State.CANCELLED, "cancelled"),
    "cancel that fails": (State.CANCELLED, "cancelled"),
    "drain": (State.CANCELLED, "superseded"),
    "kill": (State.CANCELLED, "superseded"),
    "finish": (State.SUCCEEDED, None),
    "fail": (State.FAILED, "broken"),
    "fail for good": (State.FAILED, "broken"),
    "release": (State.CANCELLED, "superseded"),
    "lease runs out": (State.CANCELLED, "superseded"),
    "cancel of a lease": (State.CANCELLED, "cancelled"),
}


class Trial:
    """A job that holds a key and ends in the chosen way, and a newer job that takes the key."""

    def __init__(self, *, clock: VirtualClock, end: str, is_lent: bool, seed: int) -> None:
        self.clock = clock
        self.end = end
        self.is_lent = is_lent
        self.chance = random.Random(seed)
        self.store = DawdlingStore(chance=self.chance)
        self.engine = self._engine()
        self.starts: list[int] = []
        self.newer: Job | None = None
        self.was_superseded = False

    def _engine(self) -> Engine:
        kinds = [make_pull_kind(name="pull")]
        server = ServerSection(drain_timeout=0.0)
        return Engine(clock=self.clock, handler=FakeRunner(self.work), store=self.store, kinds=kinds, server=server)

    async def run(self, on_conflict: OnConflict, offset: float) -> None:
        kind = "pull" if self.is_lent else "echo"
        timeout = LASTS if self.end == "timeout" else 60.0
        await self.engine.node.start()
        self.older = await self.engine.submit(key="k", kind=kind, delay=DUE, timeout=timeout, retry=RETRY)
        taking = asyncio.create_task(self.take_over(on_conflict, DUE + LASTS + offset))
        ending = asyncio.create_task(self.lease_out() if self.is_lent else self.cause_end())
        await asyncio.gather(taking, ending)
        await asyncio.sleep(2)
        if self.end in ("drain", "kill"):
            self.engine = self._engine()
            await self.engine.node.start()
            await asyncio.sleep(2)
        try:
            self.check()
            if self.was_superseded and offset == EARLY:
                self.check_end()
        finally:
            await self.engine.node.stop()

    async def take_over(self, on_conflict: OnConflict, after: float) -> None:
        await asyncio.sleep(after)
        now = self.clock.now()
        new_job = NewJob(make_job(key="k", params={"new": 1}, delay=1_000, now=now), on_conflict)
        with suppress(Problem):  # the service may be stopping: then nothing is promised
            (entry,) = (await self.engine.node.services.jobs.add([new_job], now=now)).entries
            assert entry is not None
            self.newer, self.was_superseded = entry.job, entry.superseded is not None

    # the ways to end

    async def work(self, attempt: Attempt) -> bytes | None:
        self.starts.append(attempt.started_at)
        if len(self.starts) > 1 and self.end in ("drain", "kill"):
            await for_ever(attempt)
        match self.end:
            case "timeout" | "cancel" | "drain" | "kill":
                await for_ever(attempt)
            case "cancel that fails":
                with suppress(asyncio.CancelledError):
                    await for_ever(attempt)
                raise ValueError("stopped")
        await asyncio.sleep(LASTS)
        match self.end:
            case "error":
                raise ValueError("bad luck")
            case "give up":
                raise GiveUp("no use")
            case "crash":
                raise AttemptFailed("crashed", "it was killed")
        return b"1"

    async def cause_end(self) -> None:
        """Cause the chosen end from outside the handler."""
        await asyncio.sleep(DUE + LASTS)
        if self.end.startswith("cancel"):
            with suppress(Problem):
                await self.engine.node.services.jobs.cancel(self.older.id, None, None)
        await self._stop()

    async def _stop(self) -> None:
        if self.end == "drain":
            await self.engine.node.stop()
        elif self.end == "kill":
            died = self.store
            self.store = DawdlingStore(chance=self.chance)
            self.store.copy_from(died)
            await self.engine.node.stop()

    async def lease_out(self) -> None:
        leases = self.engine.node.services.leases
        seconds = LASTS if self.end in ("lease runs out", "drain", "kill") else 1.0
        ask = LeaseRequest(frozenset({"pull"}), frozenset(), 1, seconds)
        leased = await leases.lease(ask, DUE + 1, NEVER_LEAVES)
        if not leased:
            return  # the newer job came first
        ((token, _, job, _),) = leased
        self.starts.append(job.started_at or 0)
        await asyncio.sleep(LASTS - 0.02)
        with suppress(Problem):
            match self.end:
                case "finish":
                    await leases.finish(token, b"1")
                case "fail" | "fail for good":
                    error = Error("broken", "bad luck", retryable=self.end == "fail")
                    await leases.fail(token, error, None)
                case "release":
                    await leases.release(token)
                case "cancel of a lease":
                    await self.engine.node.services.jobs.cancel(self.older.id, None, None)
                    await leases.fail(token, Error("broken", "stopped"), None)
        await self._stop()

    # checks

    def check(self) -> None:
        jobs = self.store.peek_all()
        live = [job for job in jobs if not job.is_final and job.key == "k"]
        assert len(live) <= 1
        older = self.store.snapshot(self.older.seq)
        assert older is not None
        if self.newer is not None and self.store.snapshot(self.newer.seq) is not None:
            assert [job.seq for job in live] == [self.newer.seq], "the newer job does not hold the key, or is not live"
            assert not live[0].superseded
        if older.superseded:
            self.check_superseded(older)
        else:
            assert older.key == "k"
        assert self.engine.node.metrics.laps_failed.values == {}
        assert self.engine.node.metrics.outdated.values[()] == 0

    def check_superseded(self, older: Job) -> None:
        assert older.key is None
        assert older.is_final
        outcomes = outcomes_of(older)
        assert outcomes.count(End.RELEASED) + older.attempt == len(outcomes) == len(self.starts)
        by_outcome = {
            "succeeded": State.SUCCEEDED,
            **dict.fromkeys(("error", "timeout", "crashed"), State.FAILED),
            **dict.fromkeys(("lost", "released", "cancelled"), State.CANCELLED),
        }
        expected = State.CANCELLED if older.cancel_requested else by_outcome[outcomes[-1]]
        assert older.state is expected or (outcomes[-1] == "succeeded" and older.state is State.SUCCEEDED)
        last = orjson.loads(older.history)[-1]
        if older.state is State.FAILED:
            assert error_of(older) == last["error"]
        elif older.state is State.CANCELLED and not older.cancel_requested:
            assert error_of(older)["type"] == "superseded"

    def check_end(self) -> None:
        """Check the end of a job that was superseded during its first attempt."""
        older = self.store.snapshot(self.older.seq)
        assert older is not None
        error = error_of(older)["type"] if older.error else None
        assert (older.superseded, older.state, error) == (True, *EXPECTED[self.end])


def assert_ends_once(end: str, *, is_lent: bool, on_conflict: OnConflict, offset: float, seed: int) -> None:
    async def trial() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        trial = Trial(clock=VirtualClock(loop=loop), end=end, is_lent=is_lent, seed=seed)
        await trial.run(on_conflict, offset)
        assert trial.was_superseded or offset > EARLY

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(trial())


@pytest.mark.parametrize(
    ("end", "is_lent"), [*((end, False) for end in INSIDE), *((end, True) for end in OUTSIDE)], ids=str
)
def test_superseded_job_ends_once_and_the_newer_job_stays_live(end: str, is_lent: bool) -> None:
    @settings(max_examples=examples(20))
    @given(
        offset=st.just(EARLY) | st.integers(-60, 60).map(lambda ms: ms / 1_000),
        on_conflict=st.sampled_from([OnConflict.REPLACE, OnConflict.RESCHEDULE]),
        seed=st.integers(0, 2**32),
    )
    @example(offset=EARLY, on_conflict=OnConflict.REPLACE, seed=0)
    def check(offset: float, on_conflict: OnConflict, seed: int) -> None:
        assert_ends_once(end, is_lent=is_lent, on_conflict=on_conflict, offset=offset, seed=seed)

    check()
