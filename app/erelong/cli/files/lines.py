"""Reads files of jobs, NDJSON or CSV, plain or gzip, as batches that are cut the same on every run."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import json
import sys
from itertools import chain, islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Container, Iterator

    from erelong.cli.files.fields import Fields

MAX_BYTES: Final = 4 << 20
MARK: Final = b"\xef\xbb\xbf"  # that some programs put at the beginning of UTF-8

Line = tuple[int, bytes]
"""The number of a line in its file, and the job on it."""


class Row(bytes):
    """A row of CSV as a job, or the reason why it is none."""

    number: int
    fault: str

    @classmethod
    def made(cls, job: bytes, number: int, fault: str = "") -> Row:
        row = cls(job)
        row.number, row.fault = number, fault
        return row


class Batch(NamedTuple):
    """Some lines, and where the first of their batch begins.

    `path` says which part of the batch this is, and `rounds` how often lines of it were rejected.
    """

    offset: int
    lines: list[Line]
    size: int
    path: str = ""
    rounds: int = 0

    def without(self, positions: Container[int]) -> Batch:
        """Return the next round: the lines that are not at these positions."""
        kept = [line for position, line in enumerate(self.lines) if position not in positions]
        return self._replace(lines=kept, rounds=self.rounds + 1)

    def halves(self) -> tuple[Batch, Batch]:
        middle = len(self.lines) // 2
        first, second = self.lines[:middle], self.lines[middle:]
        return (
            self._replace(lines=first, path=f"{self.path}a", rounds=0),
            self._replace(lines=second, path=f"{self.path}b", rounds=0),
        )

    def body(self) -> bytes:
        return b'{"jobs":[%b]}' % b",".join([line for _, line in self.lines])


def open_lines(path: str) -> IO[bytes]:
    """Open a file, or standard input for `-`; raise OSError."""
    if path == "-":
        if sys.stdin.isatty():
            print("erelong: reading lines from the terminal until Ctrl-D", file=sys.stderr)
        return sys.stdin.buffer
    if path.endswith(".gz"):
        return io.BufferedReader(gzip.open(path))
    return Path(path).open("rb", buffering=1 << 20)


def refuse_other_forms(path: str, file: IO[bytes], *, is_csv: bool) -> None:
    """Raise ValueError, with the command that converts it, for a file that has no lines of JSON or CSV in UTF-8."""
    start = file.peek(1)[:64] if isinstance(file, io.BufferedReader) else b""
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise ValueError(f"{path} is in UTF-16: convert it with: iconv -f UTF-16 -t UTF-8 {path}")
    if not is_csv and start.removeprefix(MARK).lstrip().startswith(b"["):
        raise ValueError(f"{path} is a JSON array, not one object per line: convert it with: jq -c '.[]' {path}")


def batches(file: IO[bytes], *, count: int, is_csv: bool, fields: Fields) -> Iterator[Batch]:
    """Return the lines of a file in batches of at most `count` lines and 4 MiB, without blank lines."""
    lines: Iterator[bytes] = _rows(file, fields) if is_csv else iter(file)
    make = None if is_csv or fields.is_plain else fields.of_line
    number, offset = 1, 0
    while part := _some(lines, count):
        size = sum(map(len, part))
        if is_csv:
            kept: list[Line] = [(row.number, row) for row in part if isinstance(row, Row)]
        else:
            part[0] = part[0].removeprefix(MARK) if offset == 0 else part[0]
            kept = [(number + n, line) for n, line in enumerate(part) if line and not line.isspace()]
        if make is not None:
            kept = [(n, make(line)) for n, line in kept]
        if kept:
            yield Batch(offset, kept, size)
        number, offset = number + len(part), offset + size


def _some(lines: Iterator[bytes], count: int) -> list[bytes]:
    part = [*islice(lines, 256)]
    size = sum(map(len, part))
    while part and len(part) < count and size < MAX_BYTES and (more := [*islice(lines, min(256, count - len(part)))]):
        size += sum(map(len, more))
        part += more
    return part


def _rows(file: IO[bytes], fields: Fields) -> Iterator[bytes]:
    text = io.TextIOWrapper(file, encoding="utf-8-sig", newline="")
    try:
        header = text.readline()
        is_semicolon = ";" in header and "," not in header  # as Excel writes it in many countries
        reader = csv.DictReader(chain([header], text), restkey="", delimiter=";" if is_semicolon else ",")
        fields.require_columns(reader.fieldnames or ())
        for row in reader:
            try:
                yield Row.made(fields.of_row(row), reader.line_num)
            except ValueError as error:
                yield Row.made(json.dumps(row).encode(), reader.line_num, str(error))
    except UnicodeDecodeError as error:
        raise ValueError(f"the file is not UTF-8: {error.reason}; convert it, for example with iconv") from None
    finally:
        text.detach()  # the code that opened the file closes it
