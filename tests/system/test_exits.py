"""A service that cannot start or go on exits with a reason in its last line, and without a traceback."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.process import ServiceProcess

pytestmark = [pytest.mark.real_loop, pytest.mark.timeout(30)]

MakeService = Callable[..., ServiceProcess]


def assert_ended_with(service: ServiceProcess, code: int, why: str) -> None:
    service.launch()

    assert service.wait().code == code
    last = service.log_text().splitlines()[-1]
    assert last.startswith("erelong: ")
    assert why in last
    assert "Traceback" not in service.log_text()


def test_wrong_settings_exit_78(make_service: MakeService) -> None:
    assert_ended_with(make_service(config="[server]\nport = 'x'\n"), 78, 'server.port = "x"')


def test_foreign_data_exit_65(make_service: MakeService) -> None:
    service = make_service()
    service.data.mkdir()
    (service.data / "erelong.db").write_bytes(b"x" * 10_000)

    assert_ended_with(service, 65, "cannot be read as a database of erelong")


def test_data_that_cannot_be_opened_exit_74(make_service: MakeService) -> None:
    service = make_service()
    (service.data / "erelong.db").mkdir(parents=True)

    assert_ended_with(service, 74, "check the disk and the permissions")


def test_data_of_another_process_exit_75(make_service: MakeService) -> None:
    owner = make_service()
    owner.start()
    service = make_service()
    service.data = owner.data

    assert_ended_with(service, 75, "the store is in use by process")
