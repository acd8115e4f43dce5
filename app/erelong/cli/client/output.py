"""Writes results: tables for people, tab-separated lines for pipes, JSON on request."""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

COLOURS: Final = {"succeeded": "32", "failed": "31", "running": "36", "cancelled": "90", "expired": "33"}
SAMPLE: Final = 200  # rows whose width decides the columns; a longer listing is printed as it arrives


class Output:
    """Prints objects as rows. A pipe gets all of each value, absolute times, and no header."""

    def __init__(self, *, is_json: bool, fields: Sequence[str] | None, is_quiet: bool, is_utc: bool) -> None:
        self._is_json = is_json
        self._fields = fields
        self._is_quiet = is_quiet
        self._is_utc = is_utc
        self.is_terminal = sys.stdout.isatty()
        colours = os.environ.get("CLICOLOR_FORCE", "0") != "0" or self.is_terminal
        self._has_colours = colours and not os.environ.get("NO_COLOR")

    def rows(self, objects: Iterable[Mapping[str, Any]], columns: Sequence[str], *, name: str = "id") -> None:
        """Print objects; `columns` are fields of the API, nested by dots, and `name` is what --quiet prints."""
        shown = self._fields or columns
        if self._is_json or self._is_quiet or not self.is_terminal:
            for item in objects:
                print(self._line(item, shown, name))
            return
        rows = iter(objects)
        sample = [[self._cell(item, column) for column in shown] for _, item in zip(range(SAMPLE), rows, strict=False)]
        if not sample:
            print("none", file=sys.stderr)
            return
        widths = [max(len(column), *(len(row[n]) for row in sample)) for n, column in enumerate(shown)]
        print(self._aligned([column.upper().rpartition(".")[2] for column in shown], widths))
        for row in sample:
            print(self._aligned(row, widths))
        for item in rows:
            print(self._aligned([self._cell(item, column) for column in shown], widths))

    def item(self, item: Mapping[str, Any], *, name: str = "id") -> None:
        """Print one object with all of its fields."""
        if self._is_json or self._is_quiet or self._fields:
            print(self._line(item, self._fields or (), name))
            return
        shown = {field: value for field, value in item.items() if value not in (None, [], {})}
        width = max(map(len, shown), default=0)
        for field, value in shown.items():
            print(f"{field:{width}}  {self._text(value, field)}" if self.is_terminal else f"{field}\t{_plain(value)}")

    def _line(self, item: Mapping[str, Any], columns: Sequence[str], name: str) -> str:
        if self._is_quiet:
            return str(item.get(name, ""))
        if not self._is_json:
            return "\t".join(_plain(_find(item, column)) for column in columns)
        kept = {column: _find(item, column) for column in self._fields} if self._fields else item
        return json.dumps(kept, separators=(",", ":"), ensure_ascii=False)

    def _aligned(self, row: Sequence[str], widths: Sequence[int]) -> str:
        line = "  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
        with suppress(OSError):  # colours can be forced on a pipe
            line = line[: os.get_terminal_size().columns or None]
        colour = next((COLOURS[cell] for cell in row if cell in COLOURS), None) if self._has_colours else None
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


def duration(seconds: float) -> str:
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def _find(item: Mapping[str, Any], column: str) -> Any:
    value: Any = item
    for part in column.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def _plain(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value.replace("\t", " ").replace("\n", " ").replace("\x1b", "?")
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
