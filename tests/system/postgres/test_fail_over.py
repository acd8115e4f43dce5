"""Several services on one PostgreSQL: when the leader ends in any way, another one takes over, and nothing is lost."""

from __future__ import annotations

import asyncio
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import pytest

from tests.support.postgres_proxy import Proxy
from tests.support.process import ServiceProcess
from tests.system.book import Run, install, read_book
from tests.system.client import Client, looks
from tests.system.postgres.balancer import Trial, loaded
from tests.system.postgres.conftest import KINDS, MakeNode
from tests.system.trials import IS_FULL, percentile, sized

pytestmark = [pytest.mark.real_loop, pytest.mark.timeout(sized(90, 3600))]

Figure = Callable[[str, object], None]
TTL = 2.0
WARM_UP = 0.5
SETTLED = 1.0  # seconds after which a leader that was stopped has learnt that it no longer leads


@asynccontextmanager
async def running(nodes: Sequence[ServiceProcess], kind: str = "echo") -> AsyncIterator[Trial]:
    """Start nodes, of which the first one leads, put them under load, and check at the end that nothing is lost."""
    await asyncio.to_thread(nodes[0].start)
    for node in nodes[1:]:
        await restart(node)
    async with loaded(nodes, kind=kind) as trial:
        yield trial
        await trial.keep()


async def restart(node: ServiceProcess) -> None:
    await asyncio.to_thread(node.start, is_standby=True)


def kill(leader: ServiceProcess) -> None:
    leader.kill()


def stop(leader: ServiceProcess) -> None:
    leader.signal(signal.SIGTERM)


@pytest.mark.parametrize("number", [2, 3])
@pytest.mark.parametrize("end", [kill, stop], ids=["kill -9", "SIGTERM"])
async def test_standby_takes_over_when_the_leader_ends(
    end: Callable[[ServiceProcess], None], number: int, make_node: MakeNode, figure: Figure
) -> None:
    gaps = []
    async with running([make_node() for _ in range(number)]) as trial:
        for _ in range(sized(1, 50)):
            await asyncio.sleep(WARM_UP)
            leader = trial.leader
            began = time.monotonic()
            end(leader)
            gaps.append(await trial.pause_until_taken_over(began))
            assert (await asyncio.to_thread(leader.wait)).code in (0, -signal.SIGKILL)
            await restart(leader)

    figure("longest pause, p50 and max", f"{percentile(gaps, 0.5):.3f} {max(gaps):.3f} s of {len(gaps)}")
    figure("acknowledged jobs", len(trial.promises.book))
    assert max(gaps) <= 1.5
    assert not IS_FULL or percentile(gaps, 0.5) <= 0.3


@pytest.mark.parametrize("number", sized([2], [2, 3]))
async def test_frozen_leader_is_replaced_and_does_nothing_afterwards(
    number: int, make_node: MakeNode, figure: Figure
) -> None:
    nodes = [make_node(kinds=KINDS) for _ in range(number)]
    for node in nodes:
        install(node)
    gaps = []
    async with running(nodes, kind="note") as trial:
        for _ in range(sized(1, 10)):
            await asyncio.sleep(WARM_UP)
            leader = trial.leader
            began = time.monotonic()
            leader.signal(signal.SIGSTOP)
            gaps.append(await trial.pause_until_taken_over(began))
            await asyncio.sleep(sized(SETTLED, 30.0))
            started = len(read_book(leader))
            leader.signal(signal.SIGCONT)
            assert (await asyncio.to_thread(leader.wait)).code == 74
            assert "another node has taken over" in leader.log_text()
            assert len(read_book(leader)) == started
            await restart(leader)

    figure("longest pause, max", f"{max(gaps):.3f} s of {len(gaps)}")
    figure("runs", len(_runs(nodes)))
    assert max(gaps) <= TTL + 1
    assert [run for run, times in Counter((run.id, run.attempt) for run in _runs(nodes)).items() if times > 1] == []


@pytest.mark.parametrize("way", sized(["both", "responses"], ["both", "requests", "responses"]))
async def test_leader_that_is_cut_off_is_replaced(way: str, make_node: MakeNode, proxy: Proxy, figure: Figure) -> None:
    nodes = [make_node(proxy.url), make_node()]
    gaps = []
    async with running(nodes) as trial:
        for _ in range(sized(1, 10)):
            await asyncio.sleep(WARM_UP)
            began = time.monotonic()
            proxy.isolate(requests=way != "responses", responses=way != "requests")
            gaps.append(await trial.pause_until_taken_over(began))
            assert trial.leader is nodes[1]
            await asyncio.sleep(sized(0.0, 5.0))
            proxy.heal()
            assert (await asyncio.to_thread(nodes[0].wait)).code == 74
            await restart(nodes[0])
            if len(gaps) < sized(1, 10):  # the node behind the proxy leads again
                stop(nodes[1])
                await trial.pause_until_taken_over(time.monotonic())
                await asyncio.to_thread(nodes[1].wait)
                await restart(nodes[1])

    figure("longest pause, max", f"{max(gaps):.3f} s of {len(gaps)}")
    assert max(gaps) <= TTL + 1


async def test_leader_that_loses_only_the_session_of_its_term_shows_nothing_old(
    make_node: MakeNode, make_client: Callable[[ServiceProcess], Client], proxy: Proxy
) -> None:
    nodes = [make_node(proxy.url, kinds="[cluster]\nttl = 20\n"), make_node(kinds="[cluster]\nttl = 20\n")]
    await asyncio.to_thread(nodes[0].start)
    await restart(nodes[1])
    leader, successor = map(make_client, nodes)
    path = f"/v1/jobs/{(await leader.submit(kind='echo', delay=600))['id']}"
    proxy.is_refusing = True

    proxy.cut("term")
    async for _ in looks():
        if (await successor.ask("GET", "/readyz"))[0] == 200:
            break
    assert (await successor.ask("POST", f"{path}/cancel"))[0] == 200

    assert (await leader.ask("GET", path))[1]["state"] == "cancelled"
    assert (await leader.ask("GET", "/readyz"))[0] == 503
    proxy.is_refusing = False
    assert (await asyncio.to_thread(nodes[0].wait)).code == 74


def _runs(nodes: Sequence[ServiceProcess]) -> list[Run]:
    return [run for node in nodes for run in read_book(node)]
