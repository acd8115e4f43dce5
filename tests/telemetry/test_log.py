"""The log: one line per event, whatever its fields, and no delay from a stalled reader."""

from __future__ import annotations

import io
import json
import logging
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextvars import copy_context
from typing import Literal

import pytest

from erelong.telemetry import log as log_module
from erelong.telemetry.log import MAX_FIELD, current_job, current_request, get_logger, lost, setup, take_failures
from tests.support.builders import make_running

Format = Literal["console", "json"]
Read = Callable[[], list[str]]

log = get_logger("erelong.tested")


@pytest.fixture
def _logging() -> Iterator[None]:
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    yield
    for handler in root.handlers:
        handler.close()
    root.handlers, root.level = before, level
    logging.getLogger("erelong.tested").manager._clear_cache()  # type: ignore[attr-defined]  # as setLevel does


@pytest.fixture
def _hooks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for module, name in ((sys, "excepthook"), (sys, "unraisablehook"), (threading, "excepthook")):
        monkeypatch.setattr(module, name, getattr(module, name))
    yield
    logging.captureWarnings(False)


@pytest.fixture
def started(_logging: None) -> Callable[[Format], Read]:
    def start(format: Format, level: str = "info") -> Read:
        stream = io.StringIO()
        setup(level, format, stream)

        def read() -> list[str]:
            logging.getLogger().handlers[0].close()
            return stream.getvalue().removesuffix("\n").split("\n")

        return read

    return start


def test_json_line_holds_time_level_logger_event_and_fields(started: Callable[[Format], Read]) -> None:
    read = started("json")

    log.info("job_started", job="j1", lateness=0.25, attempt=1, queue=None, ok=True)

    (line,) = read()
    entry = json.loads(line)
    assert entry.pop("time").endswith("Z")
    assert entry == {
        "level": "info",
        "logger": "erelong.tested",
        "event": "job_started",
        "job": "j1",
        "lateness": 0.25,
        "attempt": 1,
        "queue": None,
        "ok": True,
    }


def test_console_line_reads_time_level_event_fields(started: Callable[[Format], Read]) -> None:
    read = started("console")

    log.warning("job_late", job="j1", reason="two words", empty="", share=0.5)

    (line,) = read()
    time, rest = line.split(" ", 1)
    assert len(time) == len("2026-12-01T09:00:00.000Z")
    assert rest == 'WARNING job_late job=j1 reason="two words" empty="" share=0.5'


@pytest.mark.parametrize("format", ["console", "json"])
def test_field_with_parts_is_an_object(format: Format, started: Callable[[Format], Read]) -> None:
    read = started(format)

    log.info("job_failed", labels={"tenant": 't"1\n', "\udcff": "erl_0123456789ab_secret"})

    (line,) = read()
    text = json.loads(line)["labels"] if format == "json" else json.loads(json.loads(line.partition("labels=")[2]))
    assert text == {"tenant": 't"1\n', "\\udcff": "erl_0123456789ab_…"}


@pytest.mark.parametrize("format", ["console", "json"])
@pytest.mark.parametrize(
    "value",
    ["a\nb", "a\r\x1b[2Jb", "a\u2028b", "\udcff", "x" * 1_000_000, 2**70, object(), b"\n", dict.fromkeys(range(9_999))],
)
def test_any_value_makes_one_bounded_line(format: Format, value: object, started: Callable[[Format], Read]) -> None:
    read = started(format)

    log.info("event", value=value)

    (line,) = read()
    assert line.isprintable() or format == "json"
    assert "event" in line
    assert len(line) < MAX_FIELD + 200


@pytest.mark.parametrize("format", ["console", "json"])
def test_exception_is_a_field_of_its_one_line(format: Format, started: Callable[[Format], Read]) -> None:
    read = started(format)

    try:
        raise ValueError("first\nsecond")
    except ValueError as error:
        log.error("failed", exc_info=error, job="j1")
        log.error("failed_too", exc_info=True)

    lines = read()
    assert len(lines) == 2
    assert all("exception" in line and "ValueError: first" in line and "test_log.py" in line for line in lines)


def test_event_below_the_level_is_not_written(started: Callable[..., Read]) -> None:
    read = started("console", "warning")

    log.info("quiet")
    log.debug("quieter")
    log.warning("loud")

    assert [line.split()[2] for line in read()] == ["loud"]


def test_lines_of_libraries_have_the_same_form(started: Callable[[Format], Read]) -> None:
    read = started("json")

    logging.getLogger("asyncio").error("Task was %s:\nbadly", "destroyed")

    entry = json.loads(read()[0])
    assert (entry["logger"], entry["event"]) == ("asyncio", "Task was destroyed:\nbadly")


def test_percent_sign_in_an_event_is_only_a_percent_sign(started: Callable[[Format], Read]) -> None:
    read = started("console")

    log.info("100%s")

    assert read()[0].endswith("100%s")


def test_log_call_that_cannot_be_formatted_does_not_fail_its_caller(
    started: Callable[[Format], Read], capsys: pytest.CaptureFixture[str]
) -> None:
    read = started("console")

    logging.getLogger("library").error("%d", "no number")
    log.info("after")

    assert len(read()) == 1
    assert "Logging error" in capsys.readouterr().err


class _Stuck(io.StringIO):
    """A stream whose reader is stalled until `is_reading` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.is_reading = threading.Event()
        self.is_stuck = threading.Event()

    def write(self, text: str) -> int:
        self.is_stuck.set()
        self.is_reading.wait()
        return super().write(text)


@pytest.mark.usefixtures("_logging")
def test_stalled_reader_loses_lines_without_delay_and_the_loss_is_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_module, "MAX_QUEUED", 5)
    stream = _Stuck()
    setup("info", "console", stream)

    log.info("taken")
    stream.is_stuck.wait()
    for number in range(8):
        log.info("queued", number=number)
    stream.is_reading.set()
    handler = logging.getLogger().handlers[0]
    while not handler._lines.empty():  # type: ignore[attr-defined]  # the writer's queue
        pass
    log.info("after")
    handler.close()

    lines = stream.getvalue().splitlines()
    assert len(lines) == 1 + 5 + 2
    assert "WARNING log_lines_dropped lines=3" in lines[-2]
    assert handler.lost == {"slow_reader": 3}  # type: ignore[attr-defined]  # of the writer


@pytest.mark.usefixtures("_logging")
def test_broken_stream_does_not_end_the_writer() -> None:
    stream = io.StringIO()
    setup("info", "console", stream)
    stream.close()

    log.info("lost")

    writer = logging.getLogger().handlers[0]
    assert lost() == {"slow_reader": 0, "flood": 0}
    assert writer._thread.is_alive()  # type: ignore[attr-defined]  # the thread that writes


# requests and attempts


@pytest.mark.parametrize("format", ["console", "json"])
def test_line_names_its_request_and_attempt(format: Format, started: Callable[[Format], Read]) -> None:
    read = started(format)

    def work() -> None:
        current_request.set("r1")
        current_job.set(make_running(seq=1)._replace(token="j1", attempt=3))
        log.info("ours")
        logging.getLogger("library").warning("theirs")
        log.info("of another", job="j2", attempt=1)

    copy_context().run(work)
    log.info("of none")

    ours, theirs, other, none = read()
    assert all("r1" in line and "j1" in line and "3" in line for line in (ours, theirs))
    assert "j2" in other
    assert "j1" not in other
    assert "r1" not in none


# floods


@pytest.fixture
def second(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Set the time of log lines; change the only item to advance it."""
    times = [1_000.25]
    make = logging.LogRecord.__init__

    def made(record: logging.LogRecord, *args: object, **kwargs: object) -> None:
        make(record, *args, **kwargs)  # type: ignore[arg-type]  # passed on unchanged
        record.created = times[0]

    monkeypatch.setattr(logging.LogRecord, "__init__", made)
    return times


def test_flood_of_one_event_is_suppressed_counted_and_logged(
    started: Callable[[Format], Read], second: list[float]
) -> None:
    read = started("console")

    for number in range(250):
        log.info("attempt_failed", number=number)
    log.info("other")
    second[0] += 1
    log.info("later")
    held_back = lost()

    lines = read()
    assert sum("attempt_failed number" in line for line in lines) == 100
    assert held_back == {"slow_reader": 0, "flood": 150}
    assert "other" in lines[100]
    assert "WARNING log_lines_suppressed of=attempt_failed lines=150" in lines[101]
    assert "later" in lines[102]


def test_flood_of_a_library_is_suppressed_despite_varying_messages(
    started: Callable[[Format], Read], second: list[float]
) -> None:
    read = started("console")

    for number in range(500):
        logging.getLogger("asyncio").error(f"socket.accept() out of system resource {number}")

    assert len(read()) == 100


def test_debug_lines_are_never_suppressed(started: Callable[..., Read], second: list[float]) -> None:
    read = started("console", "debug")

    for _ in range(150):
        log.debug("request")

    assert len(read()) == 150


# errors that Python would print


@pytest.mark.usefixtures("_hooks")
def test_uncaught_error_is_logged_even_after_close(started: Callable[[Format], Read]) -> None:
    read = started("json")
    take_failures()
    logging.getLogger().handlers[0].close()

    error = ValueError("nobody caught it")
    sys.excepthook(ValueError, error, None)

    (line,) = map(json.loads, read())
    assert (line["event"], line["level"]) == ("service_crashed", "error")
    assert "ValueError: nobody caught it" in line["exception"]


@pytest.mark.usefixtures("_hooks")
@pytest.mark.filterwarnings("always")
def test_thread_crash_finalizer_crash_and_warning_are_logged(started: Callable[[Format], Read]) -> None:
    read = started("json")
    take_failures()

    def crash() -> None:
        raise RuntimeError("in a thread")

    class Finalized:
        def __del__(self) -> None:
            raise RuntimeError("in a finalizer")

    thread = threading.Thread(target=crash, name="t1")
    thread.start()
    thread.join()
    Finalized()
    warnings.warn("an old way", DeprecationWarning, stacklevel=1)

    crashed, unraisable, warned = map(json.loads, read())
    assert (crashed["event"], crashed["thread"]) == ("thread_crashed", "t1")
    assert "in a thread" in crashed["exception"]
    assert (unraisable["event"], "in a finalizer" in unraisable["exception"]) == ("unraisable", True)
    assert (warned["logger"], warned["level"]) == ("py.warnings", "warning")
