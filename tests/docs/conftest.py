"""Services for the programs of the guide, stopped after each test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.process import ServiceProcess


@pytest.fixture
def make_service(tmp_path: Path) -> Iterator[Callable[..., ServiceProcess]]:
    """Make a service on the folder of the test."""
    made: list[ServiceProcess] = []

    def make(**given: Any) -> ServiceProcess:
        made.append(ServiceProcess(**{"folder": tmp_path, **given}))
        return made[-1]

    yield make
    for service in made:
        service.kill()
