"""The virtual clock in a real process: a year in seconds, kill -9 in the middle, the mark of its file."""

from __future__ import annotations

import http.client
import json
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from tests.support.process import NotReadyError, ServiceProcess
from tests.system.stepped_clock import SteppedClock, build

YEAR = 365 * 86_400
START = "2027-01-01T00:00:00Z"
NEXT_YEAR = "2028-01-01T00:00:00Z"
NINE = datetime.min.time().replace(hour=9)
WEEKDAYS = {"cron": "0 9 * * MON-FRI", "zone": "Europe/Berlin", "job": {"kind": "echo"}}
KEPT = '[queues.default]\nretention = { succeeded = "1000d" }\n'

MakeService = Callable[..., ServiceProcess]

pytestmark = pytest.mark.timeout(120)


def call(service: ServiceProcess, path: str, body: Any = None, method: str | None = None) -> Any:
    data = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
    media = "application/x-ndjson" if isinstance(body, bytes) else "application/json"
    request = urllib.request.Request(service.url + path, data, {"Content-Type": media}, method=method)
    with urllib.request.urlopen(request, timeout=90) as response:
        text = response.read()
        assert response.headers["X-Erelong-Clock"] == "virtual"
    return None if isinstance(body, bytes) else json.loads(text)


def submit(service: ServiceProcess, number: int) -> None:
    """Submit jobs spread over a year, in no order."""
    delays = [(index * 7_919 % number) * YEAR / number + 1 for index in range(number)]
    lines = [json.dumps({"kind": "echo", "delay": round(delay, 3)}).encode() for delay in delays]
    call(service, "/v1/jobs/batch", b"\n".join(lines))


def jobs(service: ServiceProcess) -> Iterator[dict[str, Any]]:
    page = call(service, "/v1/jobs?limit=1000")
    yield from page["jobs"]
    while page["next"]:
        page = call(service, f"/v1/jobs?limit=1000&cursor={page['next']}")
        yield from page["jobs"]


def assert_all_ran_on_the_dot(service: ServiceProcess, number: int, *, lost: int = 0) -> None:
    """Check every job; at most `lost` of them ran a second time, after a kill during the first."""
    found = [*jobs(service)]
    assert len(found) == number
    assert {(job["state"], job["late_by"]) for job in found} == {("succeeded", 0.0)}
    assert sum(job["attempt"] - 1 for job in found) <= lost
    assert all(job["started_at"] == job["finished_at"] == job["execute_at"] for job in found)


@pytest.fixture
def make_service(tmp_path: Path) -> Iterator[MakeService]:
    made: list[ServiceProcess] = []

    def make(*options: str, **given: Any) -> ServiceProcess:
        made.append(ServiceProcess(folder=tmp_path, config=KEPT, options=options, **given))
        return made[-1]

    yield make
    for service in made:
        service.kill()


def test_ten_thousand_jobs_of_a_year_run_on_the_dot(make_service: MakeService) -> None:
    service = make_service(f"--virtual-clock={START}", has_data=False)
    service.start()
    submit(service, 10_000)

    moved = call(service, "/v1/clock", {"advance": YEAR + 2})

    assert (moved["settled"], moved["started"], moved["ended"]) == (True, 10_000, {"succeeded": 10_000})
    assert_all_ran_on_the_dot(service, 10_000)


def test_kills_in_the_middle_of_a_move_change_nothing(make_service: MakeService) -> None:
    service = make_service(f"--virtual-clock={START}")
    service.start()
    submit(service, 1_000)
    target = {"set": "2028-01-02T00:00:00Z"}

    for _ in range(3):
        moving = threading.Thread(target=move_until_killed, args=(service, target))
        moving.start()
        wait_for_more(service)
        service.kill()
        moving.join()
        stood_at = service.events("clock_virtual")[0]["now"]
        service.start()
        assert service.events("clock_virtual")[0]["now"] > stood_at
    moved = call(service, "/v1/clock", target)

    assert (moved["settled"], moved["now"]) == (True, "2028-01-02T00:00:00.000Z")
    assert_all_ran_on_the_dot(service, 1_000, lost=3)


def test_year_of_a_schedule_takes_seconds(make_service: MakeService) -> None:
    service = make_service(f"--virtual-clock={START}", has_data=False)
    service.start()
    call(service, "/v1/schedules/report", WEEKDAYS, method="PUT")

    moved = call(service, "/v1/clock", {"set": NEXT_YEAR, "wait": 5})

    assert (moved["settled"], moved["started"], moved["next_at"]) == (True, 261, "2028-01-03T08:00:00.000Z")
    assert_each_weekday_ran_once(service)


def test_restarts_kills_and_clock_steps_change_nothing_in_a_year_of_a_schedule(
    make_service: MakeService, tmp_path: Path
) -> None:
    clock = SteppedClock(library=build(tmp_path), file=tmp_path / "off")
    service = make_service(f"--virtual-clock={START}", environment=clock.environment)
    service.start()
    call(service, "/v1/schedules/report", WEEKDAYS, method="PUT")
    target = {"set": NEXT_YEAR}

    for _ in range(3):
        moving = threading.Thread(target=move_until_killed, args=(service, target))
        moving.start()
        wait_for_more(service, 10)
        clock.step(86_400 * 40, service)
        wait_for_more(service, 10)
        clock.step(-86_400 * 80, service)
        wait_for_more(service, 10)
        service.kill()
        moving.join()
        service.start()
    call(service, "/v1/clock", {"advance": "20d"})
    service.stop()
    service.start()
    moved = call(service, "/v1/clock", target)

    assert (moved["settled"], moved["now"]) == (True, "2028-01-01T00:00:00.000Z")
    assert_each_weekday_ran_once(service, lost=3)


def assert_each_weekday_ran_once(service: ServiceProcess, *, lost: int = 0) -> None:
    """Check that a job ran at nine in Berlin on every weekday of 2027, on the dot."""
    assert_all_ran_on_the_dot(service, 261, lost=lost)
    days = [date(2027, 1, 1) + timedelta(day) for day in range(365)]
    nines = [datetime.combine(day, NINE, ZoneInfo("Europe/Berlin")) for day in days if day.weekday() < 5]
    starts = sorted(job["started_at"] for job in jobs(service))
    assert starts == [nine.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z") for nine in nines]
    counts = call(service, "/v1/schedules/report")["counts"]
    assert counts == {"made": 261, "skipped": 0, "missed": 0}


def move_until_killed(service: ServiceProcess, target: Any) -> None:
    with suppress(OSError, http.client.HTTPException):
        call(service, "/v1/clock", target)


def wait_for_more(service: ServiceProcess, number: int = 20) -> None:
    """Wait until the move has run some jobs, but not all."""
    before = succeeded(service)
    while succeeded(service) < before + number:
        time.sleep(0.005)


def succeeded(service: ServiceProcess) -> int:
    queues = call(service, "/v1/queues")["queues"]
    return sum(queue["counts"]["succeeded"] for queue in queues)


def test_restart_continues_where_the_clock_stood(make_service: MakeService) -> None:
    service = make_service("--virtual-clock=2027-01-01T00:00:00Z")
    service.start()
    call(service, "/v1/clock", {"advance": "1d"})
    service.stop()
    service.start()
    assert call(service, "/v1/clock")["now"] == "2027-01-02T00:00:00.000Z"
    service.stop()

    service.options = ["--virtual-clock=2027-02-01T00:00:00Z"]
    service.start()

    assert call(service, "/v1/clock")["now"] == "2027-02-01T00:00:00.000Z"


def test_file_of_the_other_clock_is_refused(make_service: MakeService) -> None:
    service = make_service("--virtual-clock")
    service.start()
    service.stop()
    service.options = []
    with pytest.raises(NotReadyError, match=r"ended with 65 .*was made under a virtual clock; add --virtual-clock"):
        service.start()


def test_file_of_real_time_is_refused(make_service: MakeService) -> None:
    service = make_service()
    service.start()
    service.stop()
    service.options = ["--virtual-clock"]
    with pytest.raises(NotReadyError, match=r"ended with 65 .*holds jobs of real time; remove --virtual-clock"):
        service.start()
