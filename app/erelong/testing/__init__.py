"""For the tests of an application: a real service in a process, on a clock that the test moves, or a recorder.

`pytest_plugins = ["erelong.testing"]` in a conftest.py gives tests the fixture `erelong_service`. Elsewhere, use
`with Service() as service`. The service needs `erelong[server]`; a `Recorder` needs nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

from erelong.testing.recorder import Recorder
from erelong.testing.service import Move, Service

try:
    import pytest
except ModuleNotFoundError:  # other test frameworks use the class
    pass
else:

    @pytest.fixture(scope="session")
    def erelong_config() -> str:
        """Override this fixture to declare kinds: the text of a config.toml."""
        return ""

    @pytest.fixture(scope="session")
    def _erelong_session(erelong_config: str) -> Iterator[Service]:
        with Service(config=erelong_config) as service:
            yield service

    @pytest.fixture
    def erelong_service(_erelong_session: Service) -> Iterator[Service]:
        """A service without jobs, shared by the tests of a session; its clock only moves forward."""
        yield _erelong_session
        _erelong_session.clear()


__all__ = ["Move", "Recorder", "Service"]
