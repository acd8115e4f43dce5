"""Kinds can come from a user's own package called `app`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.process import ServiceProcess
from tests.system.client import Client

pytestmark = [pytest.mark.real_loop, pytest.mark.timeout(60)]

JOBS = """
from app.models import Order
from erelong import Attempt, GiveUp, RetryAfter


async def on_loop(number: int, attempt: Attempt) -> str:
    return Order(number).name


def in_thread(number: int) -> str:
    return Order(number).name


def in_process(number: int, attempt: Attempt) -> str:
    if attempt.number == 1:
        raise RetryAfter("10ms", "not yet")
    return Order(number).name


async def gives_up(number: int) -> None:
    raise GiveUp("no")
"""
MODELS = """
class Order:
    def __init__(self, number: int) -> None:
        self.name = f"order {number}"
"""
CONFIG = """
[kinds.on_loop]
python = "app.jobs:on_loop"

[kinds.in_thread]
python = "app.jobs:in_thread"

[kinds.in_process]
python = "app.jobs:in_process"
isolation = "process"
"""
KINDS = ("on_loop", "in_thread", "in_process")


@pytest.mark.parametrize("is_installed", [False, True], ids=["checkout", "another folder"])
@pytest.mark.parametrize("has_init", [True, False], ids=["package", "namespace"])
async def test_kinds_of_a_package_called_app_run(
    tmp_path: Path, make_client: Callable[[ServiceProcess], Client], has_init: bool, is_installed: bool
) -> None:
    package = tmp_path / "app"
    package.mkdir()
    (package / "jobs.py").write_text(JOBS)
    (package / "models.py").write_text(MODELS)
    if has_init:
        (package / "__init__.py").write_text("")
    service = ServiceProcess(folder=tmp_path, config=CONFIG, is_installed=is_installed)
    service.start()
    client = make_client(service)

    jobs = [await client.submit(kind=kind, params={"number": 7}) for kind in KINDS]
    ended = [(await client.ask("GET", f"/v1/jobs/{job['id']}?wait=20"))[1] for job in jobs]

    assert [(job["state"], job["result"]) for job in ended] == [("succeeded", "order 7")] * 3
    assert [len(job["attempts"]) for job in ended] == [1, 1, 2]
    assert ended[2]["attempts"][0]["error"]["message"] == "not yet"
    assert service.stop().code == 0
