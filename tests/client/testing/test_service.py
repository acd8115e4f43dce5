"""`erelong.testing`: a service whose clock a test moves, and its fixtures."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from erelong import Draft
from erelong.testing import Service
from tests.support import SOURCE

pytestmark = pytest.mark.timeout(60)

TESTS = """
pytest_plugins = ["erelong.testing"]

def test_reminder_is_sent_next_month(erelong_service):
    job = erelong_service.client.submit("echo", {"order": 7}, delay="31d")
    before = erelong_service.now()
    assert erelong_service.advance("31d").ended == {"succeeded": 1}
    assert job.result(timeout=1) == {"order": 7}
    assert (erelong_service.now() - before).days == 31

def test_next_test_begins_without_jobs(erelong_service):
    assert list(erelong_service.client.list()) == []
    erelong_service.client.submit("echo", delay="1h")
"""

CONFIG = """
import pytest

@pytest.fixture(scope="session")
def erelong_config():
    return "[kinds.mine]\\npull = true\\n"
"""

KINDS = """
def test_kind_is_declared(erelong_service):
    assert "mine" in [kind.name for kind in erelong_service.client.kinds()]
"""


@pytest.fixture(autouse=True)
def _from_source(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(SOURCE))


def test_clock_moves_and_jobs_run(tmp_path: Path) -> None:
    with Service(at=datetime(2027, 1, 1, tzinfo=UTC), folder=tmp_path) as service:
        service.client.schedules.put("daily", Draft("echo"), cron="0 9 * * *")
        moved = service.move_to(datetime(2027, 1, 4, tzinfo=UTC))
        service.clear()

        assert moved.ended == {"succeeded": 3}
        assert service.now() == datetime(2027, 1, 4, tzinfo=UTC)
        assert service.run_until_idle().ended == {}
        assert [*service.client.list()] == []

    assert list(tmp_path.iterdir()) == []


def test_bad_settings_are_reported(tmp_path: Path) -> None:
    with (
        pytest.raises(RuntimeError, match=r"port = 70000"),
        Service(config="[server]\nport = 70000\n", folder=tmp_path),
    ):
        pass


def test_fixtures_work_as_a_plugin(tmp_path: Path) -> None:
    (tmp_path / "test_reminder.py").write_text(TESTS)

    assert "2 passed" in run_tests(tmp_path)


@pytest.mark.parametrize("place", ["conftest.py", "test_kinds.py"])
def test_settings_of_a_conftest_apply_wherever_the_plugin_is_loaded(tmp_path: Path, place: str) -> None:
    (tmp_path / "conftest.py").write_text(CONFIG)
    (tmp_path / "test_kinds.py").write_text(KINDS)
    with (tmp_path / place).open("a") as file:
        file.write('pytest_plugins = ["erelong.testing"]\n')

    assert "1 passed" in run_tests(tmp_path)


def run_tests(folder: Path) -> str:
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(folder)],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
    )
    return ended.stdout
