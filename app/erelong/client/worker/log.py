"""The log of a worker: events with fields, as text or as JSON."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import Any

_log = logging.getLogger("erelong.worker")


def info(event: str, **fields: Any) -> None:
    _write(logging.INFO, event, fields)


def warning(event: str, cause: BaseException | None = None, **fields: Any) -> None:
    _write(logging.WARNING, event, fields, cause)


def error(event: str, cause: BaseException | None = None, **fields: Any) -> None:
    _write(logging.ERROR, event, fields, cause)


def _write(level: int, event: str, fields: dict[str, Any], cause: BaseException | None = None) -> None:
    if _log.isEnabledFor(level):
        words = [event, *(f"{name}={_short(value)}" for name, value in fields.items())]
        _log.log(level, "%s", " ".join(words), exc_info=cause, extra={"erelong_event": {"event": event, **fields}})


def _short(value: Any) -> str:
    return f"{value:.3f}" if isinstance(value, float) else str(value).replace("\n", "\\n")


class JsonFormatter(logging.Formatter):
    """Formats each record as one line of JSON; those of a worker with their fields."""

    def format(self, record: logging.LogRecord) -> str:
        fields = getattr(record, "erelong_event", {"event": "message", "message": record.getMessage()})
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        line = {"time": time, "level": record.levelname.lower(), "logger": record.name, **fields}
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)
