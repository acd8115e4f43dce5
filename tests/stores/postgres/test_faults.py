"""Random faults under load: what was acknowledged is stored, once, and the counts agree.

ERELONG_FAULT_SECONDS in the environment makes the trial longer, and ERELONG_FAULT_SEED repeats one.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
from contextlib import suppress
from dataclasses import dataclass, field

import psycopg
import pytest

from erelong.errors import StoreUnavailable
from erelong.model.job import Job, State
from erelong.model.outcome import End, Outcome
from erelong.model.submission import NewJob
from erelong.stores.base import Ending
from erelong.stores.postgres.store import PostgresStore
from tests.support.builders import ALL, NOW, count_both, make_job
from tests.support.postgres import PostgresServer
from tests.support.postgres_proxy import Proxy

SECONDS = float(os.environ.get("ERELONG_FAULT_SECONDS", "4"))
SEED = int(os.environ.get("ERELONG_FAULT_SEED", "1"))
CALLERS = 8
WRITER_PIDS = "SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'erelong/0/%/writer'"

pytestmark = [pytest.mark.real_loop, pytest.mark.timeout(60 + 3 * SECONDS)]


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
    faults: int = 0

    async def live(self, until: float) -> None:
        loop = asyncio.get_running_loop()
        while loop.time() < until:
            await asyncio.sleep(self.random.uniform(0.05, 0.5))
            await self._harm()
            self.faults += 1

    async def _harm(self) -> None:
        match self.random.choices(range(6), weights=(6, 6, 6, 6, 4, 1))[0]:
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
                for pid in await asyncio.to_thread(self._writers):
                    os.kill(pid, signal.SIGTERM)
            case 4:
                await self._freeze()
            case _:
                how = self.random.choice((signal.SIGINT, signal.SIGQUIT))
                await asyncio.to_thread(self.server.stop, how)
                self.server.start()  # it ends with the thread that starts it

    async def _freeze(self) -> None:
        """Stop the process of a writing session; it continues after the store has given it up, or before."""
        pids = await asyncio.to_thread(self._writers)
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        await asyncio.sleep(self.random.uniform(0.1, 1.0))
        for pid in pids:
            os.kill(pid, signal.SIGCONT)

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


async def test_acknowledged_jobs_are_stored_once_whatever_happens_to_sessions(
    server: PostgresServer, proxy: Proxy, distant: PostgresStore
) -> None:
    ledger, seeds = Ledger(), random.Random(SEED)
    nemesis = Nemesis(server, proxy, random.Random(seeds.random()))
    clients = [Client(distant, ledger, random.Random(seeds.random())) for _ in range(CALLERS)]
    until = asyncio.get_running_loop().time() + SECONDS

    await asyncio.gather(nemesis.live(until), *(client.live(until) for client in clients))

    stored = await list_when_reachable(distant)
    assert len({job.token for job in stored}) == len(stored)
    found = {job.token: job.state for job in stored if job.token not in ledger.unknown}
    assert found == {token: state for token, state in ledger.states.items() if token not in ledger.unknown}
    counted, actual = await count_both(distant)
    assert counted == actual
    assert ledger.failures < ledger.calls / 2
