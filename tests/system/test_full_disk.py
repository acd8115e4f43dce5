"""On a full disk the service refuses submits only, and recovers by itself."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.process import ServiceProcess
from tests.system.client import Client, looks
from tests.system.disks import small_disk
from tests.system.promises import Promises, keep
from tests.system.test_corruption import tell
from tests.system.trials import sized

MEGABYTES = 24  # most of it ballast: its space must hold the reserve
SETTINGS = {"store.reserve": "2097152"}
BIG = {"text": "x" * 20_000}
CLIENTS = 4

pytestmark = [pytest.mark.real_loop, pytest.mark.timeout(sized(60, 300))]

MakeService = Callable[..., ServiceProcess]
MakeClient = Callable[[ServiceProcess], Client]
Figure = Callable[[str, object], None]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path, megabytes=MEGABYTES) as folder:
        yield folder


async def test_full_disk_refuses_submits_and_nothing_else_and_recovers(
    make_service: MakeService, make_client: MakeClient, figure: Figure, disk: Path
) -> None:
    service = make_service(settings=SETTINGS)
    service.data = disk / "data"
    service.start()
    client = make_client(service)
    promises = Promises(client, params=BIG)
    ballast = _fill(disk, leave=5 << 20)
    waiting = [await client.submit(kind="echo", delay=3_600) for _ in range(3)]
    running = [await client.submit_and_wait_for_start(kind="echo", params={"sleep": 2}) for _ in range(3)]

    loading = asyncio.create_task(promises.load(CLIENTS))
    async for _ in looks(30):
        if promises.statuses[507] >= 20:
            break
    promises.is_over = True
    await loading

    status, headers, problem = await client.ask_closely("POST", "/v1/jobs", {"kind": "echo", "params": BIG})
    assert (status, problem["code"]) == (507, "storage_full")
    assert int(headers["Retry-After"]) >= 1
    assert [(await client.wait_until_final(job["id"]))["state"] for job in running] == ["succeeded"] * 3
    status, _ = await client.ask("POST", f"/v1/jobs/{waiting[0]['id']}/cancel")
    assert status == 200
    await keep(promises, client)

    ballast.unlink()
    await _submit_until_taken(client)
    await keep(promises, client)
    figure("acknowledged until it was full", len(promises.book))
    figure("answers", dict(sorted(promises.statuses.items())))
    service.kill()
    service.start()
    await keep(promises, client)
    assert (await client.read(waiting[0]["id"]))["state"] == "cancelled"
    assert service.stop().code == 0


async def test_start_on_a_full_disk_serves_reads_and_refuses_submits(
    make_service: MakeService, make_client: MakeClient, disk: Path
) -> None:
    service = make_service(settings=SETTINGS)
    service.data = disk / "data"
    service.start()
    client = make_client(service)
    promises = Promises(client)
    await promises.load(CLIENTS, asks=10)
    service.kill()
    (disk / "data" / "erelong.db.reserve").unlink(missing_ok=True)
    ballast = _fill(disk, leave=0)

    service.start()
    status, _ = await client.ask("POST", "/v1/jobs", {"kind": "echo", "delay": 3_600, "params": BIG})

    assert status == 507
    assert promises.broken(await client.list_all()) == {}
    ballast.unlink()
    await _submit_until_taken(client)
    await keep(promises, client)
    assert service.stop().code == 0


async def test_backup_under_load_holds_everything_acknowledged_before_it(
    make_service: MakeService, make_client: MakeClient, figure: Figure, tmp_path: Path
) -> None:
    service, restored = make_service(), make_service()
    service.start()
    client = make_client(service)
    promises = Promises(client)
    loading = asyncio.create_task(promises.load())
    async for _ in looks(20):
        if len(promises.book) > sized(300, 5_000):
            break
    before = {id: promise for id, promise in promises.book.items() if id not in promises.unsure}

    code = await asyncio.to_thread(tell, "backup", str(tmp_path / "backup.db"), "--data", str(service.data))
    promises.is_over = True
    await loading
    after = promises.book
    service.kill()

    assert code == 0
    assert tell("restore", str(tmp_path / "backup.db"), "--data", str(restored.data)) == 0
    restored.start()
    jobs = {job["id"]: job for job in await make_client(restored).list_all()}
    assert before.keys() <= jobs.keys()
    still = {id: promise for id, promise in before.items() if promise == after[id] and id not in promises.unsure}
    assert {id: fault for id in still if (fault := promises.fault(id, jobs[id]))} == {}
    figure("acknowledged before the backup, in it", f"{len(before)}, {len(jobs)}")


def _fill(disk: Path, *, leave: int) -> Path:
    """Fill the disk with a file, except for some space."""
    ballast = disk / "ballast"
    free = shutil.disk_usage(disk).free - leave
    with ballast.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, max(free, 4_096))
    return ballast


async def _submit_until_taken(client: Client) -> dict[str, Any]:
    async for _ in looks(20, 0.2):
        status, job = await client.ask("POST", "/v1/jobs", {"kind": "echo", "delay": 3_600, "params": BIG})
        if status == 201:
            break
        assert status == 507, job
    return dict(job)
