"""The power is cut under load: with full durability, every acknowledged write is on the disk."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.process import ServiceProcess
from tests.system.client import Client
from tests.system.disks import Disk, power_disk
from tests.system.promises import Promises, keep, stop_loading
from tests.system.trials import IS_FULL, sized

CUTS = sized(2, 100)
CUTS_OF_ONE = 5  # store; more would make the comparison slow
CUTS_OF_NORMAL = 20  # at most; the short trial ends with the first loss

pytestmark = [pytest.mark.real_loop, pytest.mark.timeout(sized(60, 1_800))]

MakeService = Callable[..., ServiceProcess]
MakeClient = Callable[[ServiceProcess], Client]
Figure = Callable[[str, object], None]


async def test_power_cuts_lose_no_acknowledged_write(
    make_service: MakeService, make_client: MakeClient, figure: Figure, tmp_path: Path
) -> None:
    acknowledged = 0
    with power_disk(tmp_path) as disk:
        for first in range(0, CUTS, CUTS_OF_ONE):
            service = make_service()
            service.data = disk.folder / f"data{first}"
            client = make_client(service)
            promises = Promises(client, seed=first)
            for cut in range(first, min(first + CUTS_OF_ONE, CUTS)):
                await asyncio.to_thread(service.start)
                await keep(promises, client)
                await _load_until_the_power_is_cut(promises, service, disk, seed=cut)
            await asyncio.to_thread(service.start)
            await keep(promises, client)
            acknowledged += len(promises.book)
            assert service.stop().code == 0
    figure("cuts", CUTS)
    figure("acknowledged jobs, none of them lost or undone", acknowledged)
    assert acknowledged > 20 * CUTS, "too few writes were acknowledged: the trial shows nothing"


async def test_power_cuts_lose_writes_without_fsync(
    make_service: MakeService, make_client: MakeClient, figure: Figure, tmp_path: Path
) -> None:
    """Verify that the trial above can detect a loss: repeat a small one until it does."""
    lost, acknowledged, cut = 0, 0, 0
    with power_disk(tmp_path) as disk:
        while cut < CUTS_OF_NORMAL and (IS_FULL or not lost):
            cut += 1
            service = make_service(settings={"store.durability": "normal"})
            service.data = disk.folder / f"data{cut}"
            client = make_client(service)
            promises = Promises(client, seed=cut)
            await asyncio.to_thread(service.start)
            await _load_until_the_power_is_cut(promises, service, disk, seed=cut)
            await asyncio.to_thread(service.start)

            lost += len(promises.broken(await client.list_all("view=full")))
            acknowledged += len(promises.book)
            service.kill()
    figure("cuts", cut)
    figure("acknowledged jobs, of them lost or undone", f"{acknowledged}, {lost}")
    assert lost > 0


async def _load_until_the_power_is_cut(promises: Promises, service: ServiceProcess, disk: Disk, *, seed: int) -> None:
    """Cut the power of the disk. The book holds what was acknowledged before.

    While the cut is under way, `fdatasync` reports some writes as done that ext4 then drops; a machine without power
    acknowledges none of them.
    """
    promises.is_over = promises.is_power_cut = False
    loading = asyncio.create_task(promises.load())
    await asyncio.sleep(random.Random(seed).uniform(0.15, 0.6))
    promises.is_over = promises.is_power_cut = True
    await asyncio.to_thread(disk.cut_power)
    service.kill()
    await stop_loading(promises, loading)
    await asyncio.to_thread(disk.restore_power)
