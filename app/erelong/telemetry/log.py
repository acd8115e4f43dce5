"""The log: one line per event, as text or JSON. A thread writes it, so that a slow reader stalls nothing."""

from __future__ import annotations

import json
import logging
import queue
import sys
import threading
import traceback
from collections import Counter
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, Literal, Protocol, TextIO

import orjson

from erelong.telemetry.redact import redacted

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_QUEUED: Final = 10_000  # lines waiting for a slow reader; more are dropped, counted and reported
MAX_FIELD: Final = 4_000  # characters of one field
MAX_PARTS: Final = 20  # items of a mapping such as labels; a larger one is logged as text
MAX_PER_SECOND: Final = 100  # lines of one event or library, except debug; more are dropped, counted and reported


class Attempted(Protocol):
    """The running job that a line belongs to."""

    @property
    def id(self) -> str: ...
    @property
    def attempt(self) -> int: ...


# The request and the running job that a line belongs to, also in the threads and tasks that they start.
current_request: ContextVar[str | None] = ContextVar("current_request", default=None)
current_job: ContextVar[Attempted | None] = ContextVar("current_job", default=None)


class Logger:
    """Logs events, each a name and fields. `exc_info` adds the traceback as the field `exception`."""

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)

    def debug(self, event: str, /, **fields: object) -> None:
        self._log(logging.DEBUG, event, fields)

    def info(self, event: str, /, **fields: object) -> None:
        self._log(logging.INFO, event, fields)

    def warning(self, event: str, /, *, exc_info: BaseException | bool = False, **fields: object) -> None:
        self._log(logging.WARNING, event, fields, exc_info)

    def error(self, event: str, /, *, exc_info: BaseException | bool = False, **fields: object) -> None:
        self._log(logging.ERROR, event, fields, exc_info)

    @property
    def has_debug(self) -> bool:
        return self._logger.isEnabledFor(logging.DEBUG)

    def _log(self, level: int, event: str, fields: dict[str, object], exc_info: BaseException | bool = False) -> None:
        if self._logger.isEnabledFor(level):
            self._logger.log(level, event, extra={"fields": fields}, exc_info=exc_info or None)


get_logger = Logger


def setup(level: str, format: Literal["console", "json"], stream: TextIO | None = None) -> None:
    """Log the process and its libraries to the stream (default: stderr); `logging.shutdown` flushes it at exit."""
    writer = _Writer(stream or sys.stderr)
    writer.setFormatter(_Json() if format == "json" else _Console())
    logging.basicConfig(level=level.upper(), handlers=[writer], force=True)


def take_failures() -> None:
    """Log what Python would print: warnings, and uncaught errors of the main thread, threads and finalizers."""
    log = Logger(__name__)
    logging.captureWarnings(True)
    sys.excepthook = lambda _kind, error, _trace: log.error("service_crashed", exc_info=error)
    threading.excepthook = lambda args: log.error(
        "thread_crashed", exc_info=args.exc_value or False, thread=args.thread.name if args.thread else None
    )
    sys.unraisablehook = lambda args: log.error(
        "unraisable", exc_info=args.exc_value or False, where=getattr(args.object, "__qualname__", type(args.object))
    )


def lost() -> dict[str, int]:
    """Return how many lines were not written, by reason."""
    writers = [handler for handler in logging.getLogger().handlers if isinstance(handler, _Writer)]
    return {reason: sum(writer.lost[reason] for writer in writers) for reason in ("slow_reader", "flood")}


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        head = {"time": _time(record), "level": record.levelname.lower(), "logger": record.name}
        return orjson.dumps({**head, "event": _plain(record.getMessage()), **_fields(record)}).decode()


class _Console(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        event = str(_plain(record.getMessage()))
        fields = "".join(f" {name}={_quoted(_text(value))}" for name, value in _fields(record).items())
        return f"{_time(record)} {record.levelname:<7} {event if event.isprintable() else json.dumps(event)}{fields}"


class _Writer(logging.Handler):
    """Takes records from any thread; its own thread writes the lines."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self.lost: Counter[str] = Counter()
        self._stream = stream
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._dropped = 0
        self._flood = _Flood()
        self._thread: threading.Thread | None = None

    def emit(self, record: logging.LogRecord) -> None:
        try:
            for event, lines in self._flood.over(int(record.created)):
                self._put(_own_record("log_lines_suppressed", of=event, lines=lines))
            if self._flood.admits(record):
                self._put(record)
            else:
                self.lost["flood"] += 1
        except Exception:  # noqa: BLE001 - a log call that cannot be formatted must not fail its caller
            self.handleError(record)

    def close(self) -> None:
        if self._thread is not None:
            self._lines.put(None)
            self._thread.join(timeout=1.0)  # bounds how long a stalled reader can delay the exit
            self._thread = None
        super().close()

    def _put(self, record: logging.LogRecord) -> None:
        if self._lines.qsize() >= MAX_QUEUED:
            self._dropped += 1
            self.lost["slow_reader"] += 1
            return
        if self._thread is None:  # the first line, or a line after close, such as a crash
            self._thread = threading.Thread(target=self._write, name="log", daemon=True)
            self._thread.start()
        dropped, self._dropped = self._dropped, 0
        if dropped:
            self._lines.put(self.format(_own_record("log_lines_dropped", lines=dropped)))
        self._lines.put(self.format(record))

    def _write(self) -> None:
        while (line := self._lines.get()) is not None:
            try:
                self._stream.write(f"{line}\n")
                if self._lines.empty():
                    self._stream.flush()
            except (OSError, ValueError):  # the reader is gone, and with it the only place to report this
                continue


class _Flood:
    """Rate limit for log lines: admits `MAX_PER_SECOND` of each event."""

    def __init__(self) -> None:
        self._second = 0
        self._counts: Counter[str] = Counter()

    def over(self, second: int) -> Iterable[tuple[str, int]]:
        """Start a new second; return the lines suppressed in the last one, by event."""
        if second == self._second:
            return ()
        suppressed = [
            (event, lines - MAX_PER_SECOND) for event, lines in self._counts.items() if lines > MAX_PER_SECOND
        ]
        self._second, self._counts = second, Counter()
        return suppressed

    def admits(self, record: logging.LogRecord) -> bool:
        if record.levelno <= logging.DEBUG:
            return True
        event = record.msg if hasattr(record, "fields") else record.name  # a library varies its messages
        self._counts[event] += 1
        return self._counts[event] <= MAX_PER_SECOND


def _own_record(event: str, **fields: object) -> logging.LogRecord:
    return logging.makeLogRecord({"name": __name__, "levelname": "WARNING", "msg": event, "fields": fields})


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).strftime("%Y-%m-%dT%H:%M:%S") + f".{int(record.msecs):03d}Z"


def _fields(record: logging.LogRecord) -> dict[str, object]:
    fields = {name: _plain(value) for name, value in getattr(record, "fields", {}).items()}
    if record.exc_info and record.exc_info[1]:
        # Redacted before the cut, which could hide the prefix of a key.
        text = redacted("".join(traceback.format_exception(record.exc_info[1])))
        fields["exception"] = _plain(text[-MAX_FIELD:])
    if (request := current_request.get()) is not None:
        fields.setdefault("request", request)
    if (job := current_job.get()) is not None:
        fields.setdefault("job", job.id)
        fields.setdefault("attempt", job.attempt)
    return fields


def _plain(value: object) -> object:
    if isinstance(value, dict) and len(value) <= MAX_PARTS:
        return {str(_plain(name)): _plain(str(part)) for name, part in value.items()}
    if value is None or isinstance(value, (bool, float)) or (isinstance(value, int) and abs(value) < 2**63):
        return value
    text = redacted(str(value)).encode(errors="backslashreplace").decode()  # a path may hold lone surrogates
    return text if len(text) <= MAX_FIELD else f"{text[:MAX_FIELD]}…"


def _text(value: object) -> str:
    return orjson.dumps(value).decode() if isinstance(value, dict) else str(value)


def _quoted(text: str) -> str:
    if text and text.isprintable() and not any(char in text for char in ' "='):
        return text
    return json.dumps(text, ensure_ascii=not text.isprintable())
