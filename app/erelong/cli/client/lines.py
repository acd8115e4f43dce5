"""Reads files of jobs, NDJSON or CSV, plain or gzip, as batches that are cut the same on every run."""

from __future__ import annotations

import csv
import gzip
import io
import json
import sys
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, NamedTuple

from erelong.cli.client.options import json_or_text, nested

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

MAX_BYTES: Final = 4 << 20
JSON_SUFFIX: Final = ":json"
TEXTS: Final = frozenset({"kind", "queue", "key", "execute_at", "delay", "on_conflict", "zone", "local_time"})


class Batch(NamedTuple):
    """Some lines: the number of the first, its offset in the file, and each line with its number."""

    offset: int
    lines: list[tuple[int, bytes]]
    size: int

    def body(self) -> bytes:
        return b'{"jobs":[%b]}' % b",".join([line for _, line in self.lines])


def open_jobs(path: str) -> IO[bytes]:
    """Open a file, or standard input for `-`; raise OSError."""
    if path == "-":
        return sys.stdin.buffer
    if path.endswith(".gz"):
        return io.BufferedReader(gzip.open(path))
    return Path(path).open("rb", buffering=1 << 20)


def batches(file: IO[bytes], *, count: int, is_csv: bool, defaults: Mapping[str, Any]) -> Iterator[Batch]:
    """Return the lines of a file in batches of at most `count` lines and 4 MiB, without blank lines.

    `defaults` are fields for jobs that lack them.
    """
    lines: Iterator[bytes] = _csv_lines(file) if is_csv else iter(file)
    number, offset = 1, 0
    while part := _some(lines, count):
        size = sum(map(len, part))
        kept = [(number + n, line) for n, line in enumerate(part) if not line.isspace()]
        if defaults:
            kept = [(n, _with_defaults(line, defaults)) for n, line in kept]
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


def _with_defaults(line: bytes, defaults: Mapping[str, Any]) -> bytes:
    try:
        job = json.loads(line)
    except ValueError:
        return line  # the service names the fault
    if not isinstance(job, dict):
        return line
    labels = {**defaults.get("labels", {}), **job.get("labels", {})}
    merged = {**defaults, **job, **({"labels": labels} if labels else {})}
    return json.dumps(merged, separators=(",", ":")).encode()


def _csv_lines(file: IO[bytes]) -> Iterator[bytes]:
    """Turn rows into lines of JSON. Headers with dots nest, `:json` ends those of JSON, blank cells are left out."""
    text = io.TextIOWrapper(file, encoding="utf-8-sig", newline="")
    try:
        for row in csv.DictReader(text):
            pairs = [(name, _cell(name, cell)) for name, cell in row.items() if name and cell]
            job = nested([(name.removesuffix(JSON_SUFFIX), value) for name, value in pairs])
            yield json.dumps(job, separators=(",", ":")).encode() + b"\n"
    finally:
        text.detach()  # the code that opened the file closes it


def _cell(name: str, text: str) -> Any:
    """Return a value: text for labels and fields of text, JSON where it is JSON otherwise."""
    is_text = name in TEXTS or name.startswith("labels.")
    return text if is_text and not name.endswith(JSON_SUFFIX) else json_or_text(text)
