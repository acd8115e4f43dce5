"""Random faults under load: what was acknowledged is stored, once, and the counts agree."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import psycopg
import pytest

from erelong.errors import StoreUnavailable
from erelong.model.job import Job, State
from erelong.model.outcome import End, Outcome
from erelong.model.submission import NewJob
from erelong.stores.base import Ending
from erelong.stores.postgres import session
from erelong.stores.postgres import statements as sql
from erelong.stores.postgres.connection import connect
from erelong.stores.postgres.failures import Unsettled
from erelong.stores.postgres.session import WriteSession
from erelong.stores.postgres.store import PostgresStore
from erelong.stores.postgres.writing import Writes, _joined
from tests.support.builders import ALL, NOW, make_job
from tests.support.postgres import PostgresServer
from tests.support.postgres_proxy import Proxy
from tests.system.trials import sized

SECONDS = sized(4.0, 60.0)
SEEDS = range(1, sized(2, 11))
MUTANT_SECONDS = sized(3.0, 10.0)
MUTANT_ROUNDS = 15  # of which it takes a few
CALLERS = 8
TTL = 60.0  # a term that ends on a busy machine would end the trial, which is about sessions
Weights = Sequence[int]
MIXED: Weights = (6, 6, 6, 6, 4, 2, 1)
FREEZES: Weights = (0, 0, 0, 0, 1, 0, 0)
LATE: Weights = (0, 0, 0, 0, 0, 1, 0)  # requests that the server gets after their callers were refused
WRITER_PIDS = "SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'erelong/0/%/writer'"

pytestmark = [pytest.mark.real_loop, pytest.mark.timeout(60 + 5 * SECONDS)]


@pytest.fixture(autouse=True)
def short_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make sessions give up soon, so that there are many faults."""
    monkeypatch.setattr(session, "PATIENCE", 0.5)


@dataclass
class Ledger:
    """What clients know of their jobs, by id: of most their state, of some that a call may have changed them."""

    states: dict[str, State] = field(default_factory=dict)
    unknown: set[str] = field(default_factory=set)
    calls: int = 0
    failures: int = 0


@dataclass
class Client:
    """Adds jobs, and claims, ends, cancels and deletes its own."""

    store: PostgresStore
    ledger: Ledger
    random: random.Random

    async def live(self, until: float) -> None:
        loop = asyncio.get_running_loop()
        while loop.time() < until:
            self.ledger.calls += 1
            made = [make_job(labels={"n": "1"}) for _ in range(self.random.choice((1, 1, 5, 50)))]
            tokens = {job.token for job in made}
            try:
                receipt = await self.store.add([NewJob(job) for job in made], now=NOW)
            except StoreUnavailable:
                self.ledger.failures += 1
                self.ledger.unknown |= tokens
                continue
            jobs = [entry.job for entry in receipt.entries if entry is not None]
            self.ledger.states |= {job.token: job.state for job in jobs}
            try:
                await self._change(jobs)
            except StoreUnavailable:
                self.ledger.failures += 1
                self.ledger.unknown |= tokens

    async def _change(self, jobs: list[Job]) -> None:
        states = self.ledger.states
        match self.random.randrange(4):
            case 0:
                claim = await self.store.claim([job.seq for job in jobs], now=NOW)
                assert [job.seq for job in claim.jobs] == [job.seq for job in jobs]
                states |= {job.token: State.RUNNING for job in jobs}
                ends = [Ending(job, Outcome(End.SUCCEEDED), NOW) for job in claim.jobs[::2]]
                verdicts = await self.store.finish(ends)
                assert all(verdict.is_saved for verdict in verdicts)
                states |= {ending.job.token: State.SUCCEEDED for ending in ends}
            case 1:
                verdicts = await self.store.save([job.cancel(NOW) for job in jobs])
                assert all(verdict.is_saved for verdict in verdicts)
                states |= {job.token: State.CANCELLED for job in jobs}
            case 2:
                assert (await self.store.delete(jobs[0])).is_saved
                del states[jobs[0].token]
            case _:
                found = await self.store.get([job.seq for job in jobs])
                assert found == {job.seq: job for job in jobs}


@dataclass
class Nemesis:
    """Makes faults, one after another."""

    server: PostgresServer
    proxy: Proxy
    random: random.Random
    weights: Weights
    faults: int = 0

    async def live(self, until: float) -> None:
        loop = asyncio.get_running_loop()
        while loop.time() < until:
            await asyncio.sleep(self.random.uniform(0.05, 0.5))
            await self._harm()
            self.faults += 1

    async def _harm(self) -> None:
        match self.random.choices(range(7), weights=self.weights)[0]:
            case 0:
                self.proxy.lose_responses("writer")
            case 1:
                held = self.proxy.hold_requests("writer")
                await asyncio.sleep(self.random.uniform(0.1, 1.2))
                for link in held:
                    link.is_passing_requests.set()
            case 2:
                self.proxy.cut("writer")
            case 3:
                self._signal(await asyncio.to_thread(self._writers), signal.SIGTERM)
            case 4:
                await self._freeze()
            case 5:
                await self._disconnect()
            case _:
                how = self.random.choice((signal.SIGINT, signal.SIGQUIT))
                await asyncio.to_thread(self.server.stop, how)
                self.server.start()  # it ends with the thread that starts it

    async def _disconnect(self) -> None:
        """Hold requests and refuse new connections, until the callers have been refused; then pass the requests on."""
        held = self.proxy.hold_requests("writer")
        self.proxy.is_refusing = True
        await asyncio.sleep(self.random.uniform(0.6, 0.9) + session.PATIENCE)
        self.proxy.is_refusing = False
        await asyncio.sleep(self.random.uniform(0.05, 0.4))
        for link in held:
            link.is_passing_requests.set()

    async def _freeze(self) -> None:
        """Stop the process of a writing session; it continues after the store has given it up, or before."""
        pids = await asyncio.to_thread(self._writers)
        self._signal(pids, signal.SIGSTOP)
        await asyncio.sleep(self.random.uniform(0.1, 1.0))
        self._signal(pids, signal.SIGCONT)

    def _signal(self, pids: list[int], number: signal.Signals) -> None:
        for pid in pids:
            with suppress(ProcessLookupError):  # an earlier fault has ended it
                os.kill(pid, number)

    def _writers(self) -> list[int]:
        with psycopg.connect(self.server.url) as connection:
            return [pid for (pid,) in connection.execute(WRITER_PIDS).fetchall()]


async def list_when_reachable(store: PostgresStore) -> list[Job]:
    """Return all jobs; the last fault may keep the server from answering for a moment."""
    async with asyncio.timeout(20):
        while True:
            with suppress(StoreUnavailable):
                return await store.list(ALL)
            await asyncio.sleep(0.05)


@dataclass
class Trial:
    """A store under load while its sessions fail."""

    store: PostgresStore
    server: PostgresServer
    nemesis: Nemesis
    ledger: Ledger = field(default_factory=Ledger)
    faults: list[str] = field(default_factory=list)

    async def run(self, seconds: float, seed: int) -> None:
        until = asyncio.get_running_loop().time() + seconds
        clients = [Client(self.store, self.ledger, random.Random(f"{seed} {number}")) for number in range(CALLERS)]
        nemesis, *lives = await asyncio.gather(
            self.nemesis.live(until), *(client.live(until) for client in clients), return_exceptions=True
        )
        if isinstance(nemesis, BaseException):
            raise nemesis
        self.faults += [f"a client was answered wrongly: {error!r}" for error in lives if error is not None]

    async def check(self) -> list[str]:
        """Return what is wrong: in the view of the store, and of one that is opened after it."""
        jobs = await list_when_reachable(self.store)
        counted = {group: number for group, number in self.store.counts().items() if number}
        await self.store.close()
        after = PostgresStore(url=self.server.url, durability="normal")
        await after.open()
        loaded = {group: number for group, number in after.counts().items() if number}
        faults = [*self.faults, *self._faults(await after.list(ALL)), *self._faults(jobs)]
        await after.close()
        actual = Counter(job.group for job in jobs)
        if counted != actual or loaded != actual:
            faults.append(f"stored: {actual}, counted: {counted}, counted after a start: {loaded}")
        return faults

    def _faults(self, stored: list[Job]) -> list[str]:
        ledger, found = self.ledger, {job.token: job.state for job in stored}
        known = {token: state for token, state in ledger.states.items() if token not in ledger.unknown}
        phantoms = found.keys() - ledger.states.keys() - ledger.unknown
        faults = [f"lost or wrong: {token}" for token, state in known.items() if found.get(token) is not state]
        faults += [f"phantom: {token}" for token in phantoms]
        return faults + (["stored twice"] if len(found) < len(stored) else [])


def make_trial(store: PostgresStore, server: PostgresServer, proxy: Proxy, seed: int, weights: Weights) -> Trial:
    return Trial(store, server, Nemesis(server, proxy, random.Random(seed), weights))


@pytest.mark.parametrize("seed", SEEDS)
async def test_acknowledged_jobs_are_stored_once_whatever_happens_to_sessions(
    seed: int, server: PostgresServer, proxy: Proxy, figure: Callable[[str, object], None]
) -> None:
    store = PostgresStore(url=proxy.url, durability="normal", ttl=TTL)
    await store.open()
    trial = make_trial(store, server, proxy, seed, MIXED)

    await trial.run(SECONDS, seed)

    ledger = trial.ledger
    figure("faults, calls, refused, jobs", (trial.nemesis.faults, ledger.calls, ledger.failures, len(ledger.states)))
    assert await trial.check() == []
    assert ledger.failures < ledger.calls / 2


# the same with a store that lacks one of its guards


def no_fence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Write whether the epoch is over or not."""
    monkeypatch.setattr(sql, "FENCED", "fence AS MATERIALIZED (SELECT 1 WHERE %s::bigint > 0)")
    monkeypatch.setattr(sql, "FENCE", "SELECT %s::bigint")


def no_new_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look whether a group is stored while the lost session may still write it."""
    epoch = "SELECT epoch FROM fences WHERE EXISTS (SELECT FROM terms WHERE terms.slice = 0 AND terms.node = %s)"
    monkeypatch.setattr(sql, "NEW_EPOCH", epoch)


def no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look before the new epoch, which waits for what the lost session is writing."""

    def is_stored(session: WriteSession, writes: Writes) -> bool:
        try:
            connection = connect(session._url, role="0/look", patience=0.5)
        except psycopg.Error as error:
            raise Unsettled from error
        try:
            return bool(connection.row(sql.IS_DONE, *[writes.receipt] * 3)[0])
        finally:
            connection.drop()

    monkeypatch.setattr(WriteSession, "is_stored", is_stored)


MUTANTS = {"no fence": (no_fence, LATE), "no new epoch": (no_new_epoch, LATE), "no wait": (no_wait, FREEZES)}


@pytest.mark.parametrize(("remove", "weights"), MUTANTS.values(), ids=MUTANTS.keys())
async def test_trial_finds_a_guard_that_is_missing(
    remove: Callable[[pytest.MonkeyPatch], None],
    weights: Weights,
    server: PostgresServer,
    proxy: Proxy,
    monkeypatch: pytest.MonkeyPatch,
    figure: Callable[[str, object], None],
) -> None:
    _joined.cache_clear()
    remove(monkeypatch)
    for seed in range(MUTANT_ROUNDS):
        server.empty()
        store = PostgresStore(url=proxy.url, durability="normal")
        await store.open()
        trial = make_trial(store, server, proxy, seed, weights)
        await trial.run(MUTANT_SECONDS, seed)
        if faults := await trial.check():
            break
    _joined.cache_clear()

    assert faults
    figure("found in round, after so many faults", (seed + 1, trial.nemesis.faults, faults[0][:60]))
