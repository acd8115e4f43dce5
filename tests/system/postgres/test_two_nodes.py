"""Two services on one PostgreSQL: when the leader ends in any way, the other one takes over, and nothing is lost."""

from __future__ import annotations

import asyncio
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.postgres import PostgresServer
from tests.support.postgres_proxy import Proxy
from tests.support.process import ServiceProcess
from tests.system.postgres.balancer import loaded
from tests.system.postgres.conftest import MakeNode
from tests.system.trials import percentile, sized

pytestmark = [pytest.mark.real_loop, pytest.mark.timeout(sized(90, 1800))]

Figure = Callable[[str, object], None]
TTL = 2.0
WARM_UP = 0.5


@pytest.fixture
def proxy(server: PostgresServer) -> Iterator[Proxy]:
    """Return a proxy before the server."""
    home = Path(tempfile.mkdtemp(prefix="erelong-proxy-"))  # the path of a socket must be short
    proxy = Proxy(home=home, server=server.home)
    yield proxy
    proxy.close()
    shutil.rmtree(home)


async def start_both(nodes: list[ServiceProcess]) -> None:
    await asyncio.to_thread(nodes[0].start)
    await asyncio.to_thread(nodes[1].start, is_standby=True)


async def restart(node: ServiceProcess) -> None:
    await asyncio.to_thread(node.start, is_standby=True)


def kill(leader: ServiceProcess) -> None:
    leader.kill()


def stop(leader: ServiceProcess) -> None:
    leader.signal(signal.SIGTERM)


@pytest.mark.parametrize(
    ("end", "rounds", "most"), [(kill, sized(2, 50), 1.5), (stop, sized(2, 20), 1.5)], ids=["kill -9", "SIGTERM"]
)
async def test_standby_takes_over_when_the_leader_ends(
    end: Callable[[ServiceProcess], None], rounds: int, most: float, make_node: MakeNode, figure: Figure
) -> None:
    nodes = [make_node(), make_node()]
    await start_both(nodes)
    gaps = []
    async with loaded(nodes) as trial:
        for _ in range(rounds):
            await asyncio.sleep(WARM_UP)
            leader = trial.leader
            began = time.monotonic()
            end(leader)
            gaps.append(await trial.pause_until_taken_over(began))
            assert (await asyncio.to_thread(leader.wait)).code in (0, -signal.SIGKILL)
            await restart(leader)
        jobs = await trial.keep()

    figure("longest pause, p50 and max", f"{percentile(gaps, 0.5):.3f} {max(gaps):.3f} s of {len(gaps)}")
    figure("acknowledged jobs", jobs)
    assert max(gaps) <= most


async def test_frozen_leader_is_replaced_and_writes_nothing_afterwards(make_node: MakeNode, figure: Figure) -> None:
    nodes = [make_node(), make_node()]
    await start_both(nodes)
    gaps = []
    async with loaded(nodes) as trial:
        for _ in range(sized(1, 10)):
            await asyncio.sleep(WARM_UP)
            leader = trial.leader
            began = time.monotonic()
            leader.signal(signal.SIGSTOP)
            gaps.append(await trial.pause_until_taken_over(began))
            await asyncio.sleep(sized(0.5, 30.0))
            leader.signal(signal.SIGCONT)
            assert (await asyncio.to_thread(leader.wait)).code == 74
            assert "another node has taken over" in leader.log_text()
            await restart(leader)
        await trial.keep()

    figure("longest pause, max", f"{max(gaps):.3f} s of {len(gaps)}")
    assert max(gaps) <= TTL + 1


async def test_leader_that_is_cut_off_is_replaced(make_node: MakeNode, proxy: Proxy, figure: Figure) -> None:
    nodes = [make_node(proxy.url), make_node()]
    await start_both(nodes)
    async with loaded(nodes) as trial:
        await asyncio.sleep(WARM_UP)
        began = time.monotonic()
        proxy.isolate()
        gap = await trial.pause_until_taken_over(began)
        assert trial.leader is nodes[1]
        proxy.heal()
        assert (await asyncio.to_thread(nodes[0].wait)).code == 74
        await trial.keep()

    figure("longest pause", f"{gap:.3f} s")
    assert gap <= TTL + 1
