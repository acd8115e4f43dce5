"""The disk fails under a running service and during its start: every acknowledged write survives."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import aiohttp
import pytest

from tests.support.process import NotReadyError, ServiceProcess
from tests.system.bad_disk import FAULTS, BadDisk, Calls, Fault, compile_library
from tests.system.client import Client
from tests.system.promises import Promises, keep
from tests.system.trials import IS_FULL, sized

UNDER_LOAD = [name for name, fault in FAULTS.items() if fault.calls is not Calls.TRUNCATE]  # a load truncates nothing
CLIENTS, ASKS = sized((4, 12), (2, 4))  # in a full run each call of a short load fails once
MOST_CALLS = 400
STARTS = sized(2, MOST_CALLS)
IO_FAILED = 74

pytestmark = [pytest.mark.real_loop, pytest.mark.timeout(sized(60, 3_600))]

MakeService = Callable[..., ServiceProcess]
MakeClient = Callable[[ServiceProcess], Client]
Figure = Callable[[str, object], None]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_library(tmp_path_factory.mktemp("library"))


@pytest.mark.parametrize("name", sized(["EIO on write", "EIO on fdatasync", "short write"], UNDER_LOAD))
async def test_disk_that_fails_under_load_breaks_no_promise(
    make_service: MakeService, make_client: MakeClient, figure: Figure, library: Path, tmp_path: Path, name: str
) -> None:
    sweep = Sweep(make_service, make_client, BadDisk(folder=tmp_path, library=library))
    for nth in range(1, MOST_CALLS) if IS_FULL else (3,):
        if not await sweep.fail(nth, FAULTS[name]):
            break
    figure("faults", sweep.ends.total())
    figure("the service", dict(sweep.ends))
    figure("answers", dict(sorted(sweep.promises.statuses.items())))
    figure("acknowledged jobs, none of them lost or undone", len(sweep.promises.book))
    assert sweep.ends.total(), "no call failed: the trial shows nothing"
    assert not IS_FULL or nth < MOST_CALLS - 1, "the sweep did not end"


class Sweep:
    """A service with a failing call, and a second one on the same data that fails next."""

    def __init__(self, make_service: MakeService, make_client: MakeClient, disk: BadDisk) -> None:
        self._disk = disk
        self._service = make_service(environment=disk.environment)
        self._client = make_client(self._service)
        self.promises = Promises(self._client)
        self.ends: Counter[str] = Counter()

    async def fail(self, nth: int, fault: Fault) -> bool:
        """Make the n-th call of a short load fail; return whether it was reached."""
        if not self._service.is_running:
            await asyncio.to_thread(self._service.start)
        faults = self._disk.faults
        self._disk.inject(nth, fault)
        await self.promises.load(CLIENTS, asks=ASKS)
        self._disk.heal()
        end = await self._check_without_restart()
        if nth % 2 or not self._service.is_running:
            self._service.kill()
        else:
            assert self._service.stop().code == 0
        await asyncio.to_thread(self._service.start)
        await keep(self.promises, self._client)
        has_failed = self._disk.faults > faults
        self.ends[end] += has_failed
        return has_failed

    async def _check_without_restart(self) -> str:
        """Check a service that goes on without a restart, or its exit code; return the result."""
        try:
            await self.promises.load(CLIENTS, asks=3)  # it recovers, or exits
            await keep(self.promises, self._client)
        except (aiohttp.ClientError, OSError):
            assert self._service.wait().code == IO_FAILED, self._service.log_text()
            return f"exit {IO_FAILED}"
        return "went on"


async def test_disk_that_fails_again_ends_the_service_with_74(
    make_service: MakeService, make_client: MakeClient, library: Path, tmp_path: Path
) -> None:
    disk = BadDisk(folder=tmp_path, library=library)
    service = make_service(environment=disk.environment)
    client = make_client(service)
    promises = Promises(client)
    service.start()
    for _ in range(2):
        await promises.load(2, asks=3)
        disk.inject(2, FAULTS["EIO on fdatasync"])
        await promises.load(2, asks=8)

    assert service.wait().code == IO_FAILED
    assert disk.faults == 2
    assert service.log_text().splitlines()[-1].startswith("erelong: the disk failed twice in a minute: disk I/O error")
    assert "Traceback" not in service.log_text()
    disk.heal()
    await asyncio.to_thread(service.start)
    await keep(promises, client)


@pytest.mark.parametrize("name", sized(["EIO on write", "EIO on fdatasync"], list(FAULTS)))
async def test_disk_that_fails_at_the_start_ends_it_with_74_or_is_survived(
    make_service: MakeService, make_client: MakeClient, figure: Figure, library: Path, tmp_path: Path, name: str
) -> None:
    disk = BadDisk(folder=tmp_path, library=library)
    service = make_service(environment=disk.environment)
    client = make_client(service)
    promises = Promises(client)
    service.start()
    await promises.load(CLIENTS, asks=ASKS)
    service.kill()
    ends: Counter[str] = Counter()
    for nth in range(1, STARTS):
        faults = disk.faults
        disk.inject(nth, FAULTS[name])
        ends[await _start(service, promises, client)] += 1
        service.kill()
        if disk.faults == faults:
            break
    disk.heal()
    await asyncio.to_thread(service.start)
    await keep(promises, client)
    figure("faults", disk.faults)
    figure("starts", dict(ends))
    assert disk.faults, "no call failed: the trial shows nothing"


async def _start(service: ServiceProcess, promises: Promises, client: Client) -> str:
    try:
        await asyncio.to_thread(service.start)
    except NotReadyError:
        assert service.wait().code == IO_FAILED, service.log_text()
        return f"exit {IO_FAILED}"
    await keep(promises, client)
    return "went on"
