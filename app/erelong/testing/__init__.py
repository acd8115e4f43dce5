"""For the tests of an application: a real service in a process, on a clock that the test moves, or a recorder.

`pytest_plugins = ["erelong.testing"]` in a conftest.py gives tests the fixture `erelong_service`. A fixture
`erelong_config` with the scope of the session may return the text of a config.toml. Elsewhere, use
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
    def _erelong_session(request: pytest.FixtureRequest) -> Iterator[Service]:
        with Service(config=_config_of(request)) as service:
            yield service

    @pytest.fixture
    def erelong_service(_erelong_session: Service) -> Iterator[Service]:
        """A service without jobs, shared by the tests of a session; its clock only moves forward."""
        yield _erelong_session
        _erelong_session.clear()

    def _config_of(request: pytest.FixtureRequest) -> str:
        """Return what the fixture `erelong_config` of the application returns.

        The plugin has no such fixture of its own: loaded by a test module, it would hide that of a conftest.py.
        """
        try:
            config: str = request.getfixturevalue("erelong_config")
        except pytest.FixtureLookupError as error:
            if error.argname != "erelong_config":
                raise
            return ""
        return config


__all__ = ["Move", "Recorder", "Service"]
