"""Writes results: tables for people, tab-separated lines for pipes, JSON on request."""

from __future__ import annotations

import json
import os
import re
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from erelong.cli.console.options import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

COLOURS: Final = {"succeeded": "32", "failed": "31", "running": "36", "cancelled": "90", "expired": "33"}
JSON_FIELDS: Final = ("params", "result")  # of the application: shown as it wrote them
SAMPLE: Final = 200  # rows whose width decides the columns; a longer listing is printed as it arrives
WIDTH: Final = 80
_CONTROLS: Final = re.compile("[\x00-\x1f\x7f-\x9f]")  # could move the cursor, or clear the screen


class Output:
    """Prints objects as rows. A pipe gets all of each value, absolute times, and no header."""

    def __init__(self, *, is_json: bool, fields: Sequence[str] | None, is_quiet: bool, is_utc: bool) -> None:
        self._is_json = is_json
        self._fields = fields
        self._is_quiet = is_quiet
        self._is_utc = is_utc
        self._widths: list[int] = []
        self.is_terminal = sys.stdout.isatty()
        self._has_colours = has_colours()
        self._known: dict[str, None] = {}

    def rows(self, objects: Iterable[Mapping[str, Any]], columns: Sequence[str], *, name: str = "id") -> None:
        """Print objects; `columns` are fields of the API, nested by dots, and `name` is what --quiet prints."""
        self._print_rows(self._noted(objects), self._fields or columns, name)
        self._warn_of_unknown()

    def _print_rows(self, rows: Iterator[Mapping[str, Any]], shown: Sequence[str], name: str) -> None:
        if self._is_json or self._is_quiet or not self.is_terminal:
            for item in rows:
                print(self._line(item, shown, name))
            return
        sample = [[self._cell(item, column) for column in shown] for _, item in zip(range(SAMPLE), rows, strict=False)]
        if not sample:
            print("none", file=sys.stderr)
            return
        headers = [column.upper().rpartition(".")[2] for column in shown]
        self._widths = [max(map(len, cells)) for cells in zip(headers, *sample, strict=True)]
        print(self._aligned(headers))
        for row in sample:
            print(self._aligned(row))
        for item in rows:
            print(self._aligned([self._cell(item, column) for column in shown]))

    def row(self, item: Mapping[str, Any], columns: Sequence[str]) -> None:
        """Print one more object under the table that `rows` has printed."""
        shown = self._fields or columns
        if self._is_json or self._is_quiet or not self.is_terminal:
            print(self._line(item, shown, "id"))
            return
        self._widths = self._widths or [len(column) for column in shown]
        print(self._aligned([self._cell(item, column) for column in shown]))

    def item(self, item: Mapping[str, Any], *, name: str = "id") -> None:
        """Print one object with all of its fields."""
        if self._is_json or self._is_quiet or self._fields:
            for noted in self._noted([item]):
                print(self._line(noted, self._fields or (), name))
            self._warn_of_unknown()
            return
        if not self.is_terminal:
            for field, value in item.items():
                if not _is_empty(value):
                    print(f"{field}\t{_plain(value)}")
            return
        rows = [*_spread_out(item)]
        width = max((len(field) for field, _ in rows), default=0)
        for field, value in rows:
            print(f"{field:{width}}  {self._text(value, field)}")

    def _noted(self, objects: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
        """Return objects, and note their fields if some were asked for by name."""
        for item in objects:
            if self._fields:
                self._known |= dict.fromkeys(item)
            yield item

    def _warn_of_unknown(self) -> None:
        """Warn of asked fields that no object has had."""
        for field in self._fields or () if self._known else ():
            first = field.partition(".")[0]
            if first not in self._known:
                close = did_you_mean(first, self._known)
                print(f"erelong: nothing here has a field {first!r}{close}", file=sys.stderr)

    def line(self, time: str, cells: Sequence[str]) -> None:
        """Print something that has just happened. The first cell may end in the state of a job: `job.failed`."""
        if not self.is_terminal:
            print("\t".join([time, *cells]).rstrip())
            return
        clock = f"{datetime.fromisoformat(time).astimezone(UTC if self._is_utc else None):%H:%M:%S}"
        state = cells[0].rpartition(".")[2]
        print(self._coloured("  ".join([clock, f"{cells[0]:14}", *cells[1:]]).rstrip(), [state]))

    def _line(self, item: Mapping[str, Any], columns: Sequence[str], name: str) -> str:
        if self._is_quiet:
            return printable(str(item.get(name, "")))
        if not self._is_json:
            cells = [_plain(_find(item, column)) for column in columns]
            return self._coloured("\t".join(cells), cells)
        return to_json({column: _find(item, column) for column in self._fields} if self._fields else item)

    def _aligned(self, row: Sequence[str]) -> str:
        line = "  ".join(f"{cell:{width}}" for cell, width in zip(row, self._widths, strict=True)).rstrip()
        width = width_of_terminal()
        return self._coloured(line if len(line) <= width else f"{line[: width - 1]}…", row)

    def _coloured(self, line: str, cells: Sequence[str]) -> str:
        colour = next((COLOURS[cell] for cell in cells if cell in COLOURS), None) if self._has_colours else None
        return f"\x1b[{colour}m{line}\x1b[0m" if colour else line

    def _cell(self, item: Mapping[str, Any], column: str) -> str:
        return self._text(_find(item, column), column)

    def _text(self, value: Any, field: str) -> str:
        if isinstance(value, str) and (field.endswith(("_at", "occurrence")) or field in ("time", "now")):
            return self.time(value)
        if isinstance(value, int) and not isinstance(value, bool):
            return f"{value:,}"
        return _plain(value)

    def time(self, text: str) -> str:
        """Return an instant as people read it: how far away it is, and its local time."""
        try:
            instant = datetime.fromisoformat(text)
        except ValueError:
            return text
        local = instant.astimezone(UTC if self._is_utc else None)
        away = (instant - datetime.now(UTC)).total_seconds()
        span = duration(abs(away))
        return f"{f'in {span}' if away > 0 else f'{span} ago'}, {local:%Y-%m-%d %H:%M:%S}"


def has_colours() -> bool:
    forced = os.environ.get("CLICOLOR_FORCE", "0") not in ("", "0")
    is_fit = sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
    return (forced or is_fit) and not os.environ.get("NO_COLOR")


def width_of_terminal() -> int:
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or WIDTH
    except (OSError, ValueError):  # no terminal, or one without a size
        return WIDTH


def to_json(value: Any) -> str:
    """Return compact JSON that no terminal takes for commands."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return _CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def printable(text: str) -> str:
    """Return text without control characters."""
    return _CONTROLS.sub(lambda found: " " if found[0] in "\t\n\r" else "?", text)


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: 1 job, 2 jobs."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def duration(seconds: float) -> str:
    """Return a span as two units at most: 45 s, 14 min, 2 h 14 min, 3 d 4 h."""
    if seconds < 119.5:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    larger, rest = divmod(minutes, 60) if minutes < 24 * 60 else divmod(round(minutes / 60), 24)
    units = ("h", "min") if minutes < 24 * 60 else ("d", "h")
    return f"{larger} {units[0]} {rest} {units[1]}" if rest else f"{larger} {units[0]}"


def _find(item: Mapping[str, Any], column: str) -> Any:
    value: Any = item
    for part in column.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def _plain(value: Any) -> str:
    if value is None:
        return ""
    return printable(value) if isinstance(value, str) else to_json(value)


def _is_empty(value: Any) -> bool:
    return value is None or value == [] or value == {}


def _spread_out(item: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Return the fields of an object, each field of an inner one and each item of a list in a row of its own."""
    for field, value in item.items():
        if isinstance(value, dict) and field not in JSON_FIELDS:
            yield from ((f"{field}.{name}", inner) for name, inner in value.items() if not _is_empty(inner))
        elif isinstance(value, list):
            yield from ((field if n == 0 else "", inner) for n, inner in enumerate(value))
        elif not _is_empty(value):
            yield field, value
