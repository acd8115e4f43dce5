"""The log: a line an event, for people or as JSON, written by a thread so that a slow reader stalls nothing."""

from __future__ import annotations

import json
import logging
import queue
import sys
import threading
import traceback
from datetime import UTC, datetime
from typing import Final, Literal, TextIO

import orjson

from app.access import redacted

MAX_QUEUED: Final = 10_000  # lines that wait for a slow reader; more are dropped, counted and told of
MAX_FIELD: Final = 4_000  # characters of one field


class Logger:
    """Logs events: a name to search for, and fields; `exc_info` adds the traceback as the field `exception`."""

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

    def _log(self, level: int, event: str, fields: dict[str, object], exc_info: BaseException | bool = False) -> None:
        if self._logger.isEnabledFor(level):
            self._logger.log(level, event, extra={"fields": fields}, exc_info=exc_info or None)


get_logger = Logger


def setup(level: str, format: Literal["console", "json"], stream: TextIO | None = None) -> None:
    """Send what the process and its libraries log to the stream (stderr); `logging.shutdown`, at exit, the rest."""
    writer = _Writer(stream or sys.stderr)
    writer.setFormatter(_Json() if format == "json" else _Console())
    logging.basicConfig(level=level.upper(), handlers=[writer], force=True)


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        head = {"time": _time(record), "level": record.levelname.lower(), "logger": record.name}
        return orjson.dumps({**head, "event": _plain(record.getMessage()), **_fields(record)}).decode()


class _Console(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        event = str(_plain(record.getMessage()))
        fields = "".join(f" {name}={_quoted(str(value))}" for name, value in _fields(record).items())
        return f"{_time(record)} {record.levelname:<7} {event if event.isprintable() else json.dumps(event)}{fields}"


class _Writer(logging.Handler):
    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._stream = stream
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._dropped = 0
        self._thread = threading.Thread(target=self._write, name="log", daemon=True)
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            if self._lines.qsize() >= MAX_QUEUED:
                self._dropped += 1
                return
            dropped, self._dropped = self._dropped, 0
            if dropped:
                fields = {
                    "name": __name__,
                    "levelname": "ERROR",
                    "msg": "log_lines_dropped",
                    "fields": {"lines": dropped},
                }
                self._lines.put(self.format(logging.makeLogRecord(fields)))
            self._lines.put(self.format(record))
        except Exception:  # noqa: BLE001 - a log call that cannot be formatted must not fail its caller
            self.handleError(record)

    def close(self) -> None:
        self._lines.put(None)
        self._thread.join(timeout=1.0)  # a reader that has stopped may keep the process this long and no longer
        super().close()

    def _write(self) -> None:
        while (line := self._lines.get()) is not None:
            try:
                self._stream.write(f"{line}\n")
                if self._lines.empty():
                    self._stream.flush()
            except (OSError, ValueError):  # nobody reads any more, and there is nowhere else to say so
                continue


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).strftime("%Y-%m-%dT%H:%M:%S") + f".{int(record.msecs):03d}Z"


def _fields(record: logging.LogRecord) -> dict[str, object]:
    fields = {name: _plain(value) for name, value in getattr(record, "fields", {}).items()}
    if record.exc_info and record.exc_info[1]:
        text = redacted("".join(traceback.format_exception(record.exc_info[1])))  # or a cut might hide what is a key
        fields["exception"] = _plain(text[-MAX_FIELD:])
    return fields


def _plain(value: object) -> object:
    if value is None or isinstance(value, (bool, float)) or (isinstance(value, int) and abs(value) < 2**63):
        return value
    text = redacted(str(value)).encode(errors="backslashreplace").decode()  # a path may hold half a surrogate pair
    return text if len(text) <= MAX_FIELD else f"{text[:MAX_FIELD]}…"


def _quoted(text: str) -> str:
    if text and text.isprintable() and not any(mark in text for mark in ' "='):
        return text
    return json.dumps(text, ensure_ascii=not text.isprintable())
