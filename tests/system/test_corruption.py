"""The files of a stopped store are damaged: the next start repairs or reports the damage, and never hides it."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import ROOT
from tests.support.process import NotReadyError, ServiceProcess
from tests.system.client import Client
from tests.system.damage import DATABASE, MARKER, OF_KILLED, OF_STOPPED, Left
from tests.system.promises import Promises, keep
from tests.system.trials import sized

CORRUPT = 65
WAYS_OUT = ("erelong restore FILE", "name another file")
AT_ONCE = 3
RESTORED = sized(1, 100)
FEW = [
    *("flipped byte in a row", "flipped byte in an index", "flipped byte in the header", "truncated database"),
    *("emptied database", "older copy of the database", "deleted mark", "flipped byte in the WAL", "truncated WAL"),
    *("deleted WAL", "garbage in the shared memory", "deleted database beside its WAL"),
]
TRIED = sized(FEW, [*OF_STOPPED, *OF_KILLED])
CLIENTS, ASKS = 6, 9

pytestmark = [pytest.mark.real_loop, pytest.mark.timeout(sized(120, 600))]

MakeService = Callable[..., ServiceProcess]
MakeClient = Callable[[ServiceProcess], Client]
Figure = Callable[[str, object], None]


class Ground:
    """The files of a service, and its promises at the backup and at its end."""

    def __init__(self, *, folder: Path, make_service: MakeService, make_client: MakeClient) -> None:
        self.left = Left(*(folder / name for name in ("killed", "stopped", "old", "other", "backup.db")))
        self._make_service = make_service
        self._make_client = make_client

    async def prepare(self) -> None:
        other = self._make_service()
        await self._load(other)
        other.kill()
        shutil.copytree(other.data, self.left.other)
        service = self._make_service()
        self.promises = await self._load(service)
        assert service.stop().code == 0
        shutil.copytree(service.data, self.left.old)
        service.start()
        await self.promises.load(CLIENTS, asks=ASKS)
        assert tell("backup", str(self.left.backup), "--data", str(service.data)) == 0
        self.backed_up = set(self.promises.book)
        await self.promises.load(CLIENTS, asks=ASKS)
        service.kill()
        shutil.copytree(service.data, self.left.killed)
        service.start()
        await keep(self.promises, self._make_client(service))
        assert service.stop().code == 0
        shutil.copytree(service.data, self.left.stopped)

    def damaged(self, name: str) -> ServiceProcess:
        """Return a service, not started, on damaged files."""
        service = self._make_service(settings={"store.reserve": "0"})
        shutil.copytree(self.left.killed if name in OF_KILLED else self.left.stopped, service.data)
        (OF_STOPPED | OF_KILLED)[name](service.data, self.left)
        return service

    async def restore(self, name: str) -> None:
        service = self.damaged(name)
        assert tell("restore", str(self.left.backup), "--data", str(service.data)) == 0
        service.start()
        ids = {job["id"] for job in await self._make_client(service).list_all()}
        assert ids >= self.backed_up, name
        service.kill()

    async def _load(self, service: ServiceProcess) -> Promises:
        service.start()
        promises = Promises(self._make_client(service), params={"text": MARKER.decode() + "x" * 300})
        await promises.load(CLIENTS, asks=ASKS)
        return promises


async def test_every_damage_is_repaired_or_reported_and_a_restore_heals_it(
    make_service: MakeService, make_client: MakeClient, figure: Figure, tmp_path: Path
) -> None:
    ground = Ground(folder=tmp_path, make_service=make_service, make_client=make_client)
    await ground.prepare()
    places = asyncio.Semaphore(AT_ONCE)

    async def judge(name: str) -> str:
        async with places:
            service = ground.damaged(name)
            verdict = await _start_and_check(service, make_client(service), ground.promises)
            service.kill()
            return verdict

    verdicts = dict(zip(TRIED, await asyncio.gather(*map(judge, TRIED)), strict=True))

    for name, verdict in verdicts.items():
        figure(name, verdict)
    assert {name: verdict for name, verdict in verdicts.items() if verdict.startswith("SILENT")} == {}
    for name in [name for name, verdict in verdicts.items() if verdict != "repaired"][:RESTORED]:
        await ground.restore(name)


async def _start_and_check(service: ServiceProcess, client: Client, promises: Promises) -> str:
    """Return the effect of a damage; "SILENT" with a reason if an acknowledged state is lost without a report."""
    try:
        await asyncio.to_thread(service.start)
    except NotReadyError:
        return _judge_end(service)
    if await _is_all_there(client, promises):
        return "repaired"
    reported = wrong = 0
    for id in promises.book:
        status, job = await client.ask("GET", f"/v1/jobs/{id}")
        fault = promises.fault(id, job if status == 200 else None)
        if status == 503 or "says so" in fault:
            reported += 1
        elif fault:
            wrong += 1
    if wrong:
        return f"SILENT {wrong} of {len(promises.book)} promises broken"
    status, ready = await client.ask("GET", "/readyz")
    is_red = status == 503 and ready["checks"]["store"] != "ok"
    return (
        f"reported {reported} of {len(promises.book)} jobs"
        if is_red
        else f"SILENT {reported} jobs, /readyz {status} {ready}"
    )


async def _is_all_there(client: Client, promises: Promises) -> bool:
    """Whether a listing, if it works, shows no broken promise: the quick check."""
    try:
        return not promises.broken(await client.list_all("view=full"))
    except AssertionError:
        return False


def _judge_end(service: ServiceProcess) -> str:
    code, text, path = service.wait().code, service.log_text(), str(service.data / DATABASE)
    if code == CORRUPT and path in text and any(way in text for way in WAYS_OUT):
        return f"refused: {text.strip().splitlines()[-1].replace(path, 'it')[:90]}"
    return f"SILENT exit {code}: {text[-500:]}"


def tell(*words: str) -> int:
    """Run the program as an operator does; return the exit code."""
    return subprocess.run([sys.executable, "-m", "app", *words], cwd=ROOT, check=False, capture_output=True).returncode
