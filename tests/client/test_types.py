"""What a type checker tells users: results have the type of their function, and wrong arguments are errors."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import SOURCE

USER = """
from dataclasses import dataclass

from erelong import AsyncClient, Attempt, Client, Draft, Executor, JobFailed, Worker, kind
from erelong.testing import Recorder

worker = Worker(concurrency=3)


@kind("remind")
def remind(user: int, text: str) -> str:
    return text


@kind("resize", queue="images")
async def resize(attempt: Attempt, path: str, width: int = 800) -> list[int]:
    return [width]


@dataclass
class Size:
    width: int


@worker.kind("measure", timeout="2m", retry={"max_attempts": 3})
def measure(attempt: Attempt, path: str) -> Size:
    attempt.check()
    return Size(attempt.number)


def use(client: Client) -> None:
    reveal_type(client.submit(remind.job(user=7, text="hi"), delay="2h"))
    reveal_type(client.submit(remind.job(7, "hi")).result(timeout=60))
    reveal_type(client.submit(resize.job("a.png")).result())
    reveal_type(client.submit("http", {"url": "x"}))
    reveal_type(remind(7, "hi"))
    reveal_type([job.result() for job in client.as_completed([client.submit(remind.job(1, "a"))])])
    reveal_type(client.get("x").state)
    reveal_type(client.get("x").due_at)
    drafts = [Draft("echo"), Draft("echo", delay=3)]
    remind.job(user="7", text="hi")  # wrong
    resize.job(None, "a.png", 3)  # wrong
    client.submit("echo", dealy="2h")  # wrong


async def use_async(client: AsyncClient) -> None:
    reveal_type(await (await client.submit(remind.job(7, "hi"))).result())
    async for job in client.list(state="failed"):
        reveal_type(job)


def use_more(client: Client) -> None:
    with client.defaults(queue="mail") as mail:
        reveal_type(mail.submit(measure.job("a.png")).result())
    with Executor(client) as pool:
        reveal_type(pool.submit(measure, "a.png"))
        reveal_type(pool.options(delay="2h").submit(measure, path="a.png").result(timeout=3))
        reveal_type(list(pool.map(resize, ["a.png"])))
        pool.submit(measure, 3)  # wrong
        pool.submit(print, 3)  # wrong
    recorder = Recorder(measure, remind)
    reveal_type(recorder.run_due(advance="2h")[0].state)
    try:
        client.operations.retry(state="failed", at_most=10, spread="10m").wait()
    except JobFailed as error:
        reveal_type(error.output)
    client.operations.retry(state="failed")  # wrong
    client.submit("echo", retry={"attempts": 3})  # wrong
    client.kind(measure).put(timeout="2m")
"""


@pytest.mark.timeout(120)
def test_users_get_typed_results(tmp_path: Path) -> None:
    (tmp_path / "user.py").write_text(USER)

    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache"), "user.py"],
        cwd=tmp_path,
        env=os.environ | {"MYPYPATH": str(SOURCE)},
        capture_output=True,
        text=True,
    )

    revealed = [
        line.split('Revealed type is "')[1].rstrip('"') for line in checked.stdout.splitlines() if "Reveal" in line
    ]
    errors = [line for line in checked.stdout.splitlines() if "error:" in line]
    assert revealed == [
        "erelong.client.sync.jobs.Job[str]",
        "str",
        "list[int]",
        "erelong.client.sync.jobs.Job[Any]",
        "str",
        "list[str]",
        "str",
        "datetime.datetime | None",
        "str",
        "erelong.client.aio.jobs.AsyncJob[Any]",
        "user.Size",
        "erelong.client.executor.future.JobFuture[user.Size]",
        "user.Size",
        "list[list[int]]",
        "str",
        "str | None",
    ]
    wrong = [str(number) for number, line in enumerate(USER.splitlines(), 1) if line.endswith("# wrong")]
    assert sorted({line.split(":")[1] for line in errors}) == wrong, errors
