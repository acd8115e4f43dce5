"""What a type checker tells users: results have the type of their function, and wrong arguments are errors."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import SOURCE

USER = """
from collections.abc import AsyncIterator
from concurrent.futures import Future

from erelong import AsyncClient, Attempt, Client, Draft, Job, kind


@kind("remind")
def remind(user: int, text: str) -> str:
    return text


@kind("resize", queue="images")
async def resize(attempt: Attempt, path: str, width: int = 800) -> list[int]:
    return [width]


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
    remind.job(user="7", text="hi")  # line 28
    resize.job(None, "a.png", 3)  # line 29
    client.submit("echo", dealy="2h")  # line 30


async def use_async(client: AsyncClient) -> None:
    reveal_type(await (await client.submit(remind.job(7, "hi"))).result())
    async for job in client.list(state="failed"):
        reveal_type(job)
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
    ]
    assert {line.split(":")[1] for line in errors} == {"28", "29", "30"}, errors
