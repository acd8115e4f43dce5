"""Every command that writes, over connections that break: it is done once, or says that it may be done."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from erelong import Client, Draft
from erelong.cli.commands import COMMANDS, SERVICE
from tests.cli.conftest import Erelong
from tests.support.cuts import UNDONE, Cut, CuttingProxy

pytestmark = pytest.mark.timeout(60)


class Case(NamedTuple):
    """A command on the queue and the schedule `{queue}`, and the job `{id}`; `{file}` has lines to import.

    The job is `waiting`, `failed`, or there is `none`.
    """

    line: str
    job: str = "waiting"


REPEATED: dict[str, Case] = {
    "submit": Case("submit echo n:=1 --in 1h --queue {queue}"),
    "submit and wait": Case("submit echo n:=1 --queue {queue}-other --wait"),
    "cancel": Case("cancel {id} --reason paid"),
    "delete": Case("delete {id}"),
    "cancel many": Case("cancel --queue {queue} --yes --at-most 5"),
    "run many": Case("run --queue {queue} --yes --at-most 5"),
    "retry many": Case("retry --queue {queue} --yes --at-most 5", "failed"),
    "reschedule many": Case("reschedule --queue {queue} --by 1h --yes --at-most 5"),
    "edit many": Case("edit --queue {queue} --set priority=3 --yes --at-most 5"),
    "delete many": Case("delete --queue {queue} --yes --at-most 5"),
    "queue set": Case("queue {queue} set concurrency=3"),
    "queue reset": Case("queue {queue} reset", "none"),
    "queue pause": Case("queue {queue} pause --reason why"),
    "queue resume": Case("queue {queue} resume"),
    "queue purge": Case("queue {queue} purge --yes"),
    "schedule put": Case("schedule {queue} put --kind echo --queue {queue} --every 2h"),
    "schedule pause": Case("schedule {queue} pause"),
    "schedule resume": Case("schedule {queue} resume"),
    "schedule trigger": Case("schedule {queue} trigger"),
    "schedule backfill": Case("schedule {queue} backfill --from 2026-01-01T00:00:00Z --to 2026-01-01T02:00:00Z"),
    "schedule delete": Case("schedule {queue} delete"),
    "import": Case("import {file}"),
    "import schedules": Case("import {file} --schedules"),
    "api with a key": Case("api POST /v1/jobs kind=echo delay=1h queue={queue} --idempotency-key {queue}"),
}
ONCE: dict[str, Case] = {
    "cancel by version": Case("cancel {id} --version 1"),
    "edit": Case("edit {id} --set priority=4"),
    "reschedule": Case("reschedule {id} --in 2h"),
    "run": Case("run {id}"),
    "retry": Case("retry {id}", "failed"),
    "api": Case("api POST /v1/jobs kind=echo delay=1h queue={queue}"),
}


@pytest.fixture(scope="module")
def proxy(service_url: str) -> Iterator[CuttingProxy]:
    """A proxy before the service, on a loop of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    proxy = CuttingProxy(int(service_url.rpartition(":")[2]), only_writes=True)
    asyncio.run_coroutine_threadsafe(proxy.__aenter__(), loop).result(10)
    yield proxy
    asyncio.run_coroutine_threadsafe(proxy.__aexit__(), loop).result(10)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


class Stage:
    """A paused queue with a job, a schedule and a file, and what has become of them."""

    def __init__(self, *, client: Client, queue: str, folder: Path, case: Case) -> None:
        self._client = client
        self._queue = queue
        job = None
        if case.job == "failed":
            job = client.submit("echo", {"fail": "x"}, queue=queue, retry={"max_attempts": 1}).wait(timeout=10)
        client.queue(queue).set(concurrency=7)
        client.queue(queue).pause()
        if case.job == "waiting":
            job = client.submit("echo", queue=queue, delay="1h")
        client.schedules.put(queue, Draft("echo", queue=queue), every="1h", overlap="allow")
        file = folder / f"{queue}.ndjson"
        make = _schedule if "--schedules" in case.line else _job
        file.write_text("".join(json.dumps(make(queue, number)) + "\n" for number in range(20)))
        values = {"queue": queue, "id": job.id if job else "", "file": str(file)}
        self.arguments = [word.format(**values) for word in case.line.split()]

    def outcome(self) -> dict[str, Any]:
        """Return what a second effect would change: jobs with their versions, the queue, the schedules."""
        for operation, _ in zip(self._client.operations.list(), range(2), strict=False):
            operation.wait(timeout=20)
        names = (self._queue, f"{self._queue}-other")
        jobs = [(job.state, job.version, job.priority) for name in names for job in self._client.list(queue=name)]
        queue = next((found.raw for found in self._client.queues() if found.name == self._queue), None)
        schedules = [
            {name: found.raw[name] for name in ("paused", "version", "counts", "every")}
            for found in self._client.schedules.list(queue=self._queue)
        ]
        return {
            "jobs": sorted(jobs, key=str),
            "queue": queue and (queue["paused"], queue["pause"] and queue["pause"]["reason"], queue["settings"]),
            "schedules": schedules,
        }


def _job(queue: str, number: int) -> dict[str, Any]:
    return {"kind": "echo", "delay": 3_600, "queue": queue, "params": {"n": number}}


def _schedule(queue: str, number: int) -> dict[str, Any]:
    return {"name": f"{queue}-{number}", "every": 60, "paused": True, "job": {"kind": "echo", "queue": queue}}


@pytest.fixture(scope="module")
def outcomes() -> dict[str, Any]:
    """What each command does over a connection that holds, once it has been seen."""
    return {}


@pytest.mark.parametrize("cut", Cut)
@pytest.mark.parametrize("name", REPEATED)
def test_command_is_done_once_over_a_cut(
    erelong: Erelong,
    client: Client,
    proxy: CuttingProxy,
    outcomes: dict[str, Any],
    tmp_path: Path,
    queue: str,
    name: str,
    cut: Cut,
) -> None:
    case = REPEATED[name]
    if name not in outcomes:
        stage = Stage(client=client, queue=f"{queue}-whole", folder=tmp_path, case=case)
        assert erelong(*stage.arguments).code == 0
        outcomes[name] = stage.outcome()
    stage = Stage(client=client, queue=queue, folder=tmp_path, case=case)
    proxy.requests.clear()
    proxy.cuts.append(cut)

    ended = erelong(*stage.arguments, "--url", proxy.url)

    assert not proxy.cuts
    assert ended.code == 0, ended.err
    assert stage.outcome() == outcomes[name]


@pytest.mark.parametrize("cut", Cut)
@pytest.mark.parametrize("name", ONCE)
def test_command_that_cannot_be_repeated_says_that_it_may_be_done(
    erelong: Erelong, client: Client, proxy: CuttingProxy, tmp_path: Path, queue: str, name: str, cut: Cut
) -> None:
    stage = Stage(client=client, queue=queue, folder=tmp_path, case=ONCE[name])
    before = stage.outcome()
    proxy.cuts.append(cut)

    ended = erelong(*stage.arguments, "--url", proxy.url)

    is_done = stage.outcome() != before
    assert is_done == (cut not in UNDONE)
    if cut is Cut.AFTER_ANSWER:
        assert ended.code == 0
    else:
        assert ended.code == 69
        assert "the change may have been made: check before you repeat it" in ended.err


def test_commands_that_write_are_all_cut() -> None:
    """Commands that are not here change nothing, or nothing in the service."""
    reading = {
        *("get", "list", "wait", "explain", "errors", "export", "queues", "schedules", "kinds", "status", "due", "top"),
        *("tail", "open", "work", "schema", "listen", "login", "logout", "whoami", "completion", "help", "operations"),
    }
    cut = {case.line.split()[0] for case in [*REPEATED.values(), *ONCE.values()]}

    assert {name for name, command in COMMANDS.items() if command.module != SERVICE} == reading | cut
