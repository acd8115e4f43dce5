"""Fixtures for the tests of the image: an engine, the image, and temporary containers and volumes."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.container.boxes import Box
from tests.container.engines import CannotRunError, Engine, find_engine
from tests.support import ROOT

IMAGE = "erelong-test"
FIGURES = pytest.StashKey[list[str]]()
OPEN = {"ERELONG_AUTH__ALLOW_ANONYMOUS": "true", "ERELONG_LOG__FORMAT": "json"}


@pytest.fixture(scope="session")
def engine(tmp_path_factory: pytest.TempPathFactory, figure: Callable[[str, object], None]) -> Iterator[Engine]:
    began = time.monotonic()
    try:
        engine = find_engine(tmp_path_factory.mktemp("containers"))
    except CannotRunError as reason:
        pytest.skip(f"THE IMAGE IS NOT TESTED: {reason}")
    figure("seconds until there was an engine and a base", f"{time.monotonic() - began:.1f}")
    yield engine
    engine.close()


@pytest.fixture(scope="session")
def image(engine: Engine, figure: Callable[[str, object], None]) -> str:
    began = time.monotonic()
    engine.build(IMAGE, ROOT)
    figure("seconds to build the image", f"{time.monotonic() - began:.1f}")
    return IMAGE


@pytest.fixture
def volume(engine: Engine) -> Iterator[str]:
    name = f"erelong-test-{uuid.uuid4().hex[:12]}"
    engine.ask("volume", "create", name)
    yield name
    engine.ask("volume", "rm", name)


@pytest.fixture
def make_box(engine: Engine, image: str, volume: str) -> Iterator[Callable[..., Box]]:
    """Return a function that makes open containers on one volume; remove them after the test."""
    made: list[Box] = []

    def make(**given: Any) -> Box:
        settings: dict[str, Any] = {"engine": engine, "image": image, "volume": volume, "environment": OPEN}
        made.append(Box(**settings | given))
        return made[-1]

    yield make
    for box in made:
        box.remove()


@pytest.fixture
def box(make_box: Callable[..., Box]) -> Box:
    """Return a healthy container."""
    box = make_box()
    box.start()
    return box


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a world-readable folder with settings and their module, as an operator mounts it."""
    tmp_path.chmod(0o755)
    module = Path(__file__).with_name("functions.py").read_text()
    (tmp_path / "functions.py").write_text(module)
    (tmp_path / "config.toml").write_text(
        '[kinds.thread]\npython = "functions:leave_orphan"\n'
        '[kinds.process]\npython = "functions:leave_orphan"\nisolation = "process"\n'
    )
    return tmp_path


@pytest.fixture(scope="session")
def figure(request: pytest.FixtureRequest) -> Callable[[str, object], None]:
    """Return a function that records a measured value for the summary after the last test."""
    figures = request.config.stash.setdefault(FIGURES, [])
    return lambda what, value: figures.append(f"{what}: {value}")


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    if figures := config.stash.get(FIGURES, []):
        terminalreporter.section("figures of the image")
        for line in figures:
            terminalreporter.write_line(line)
