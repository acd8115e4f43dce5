"""The runs of jobs as their functions recorded them."""

from __future__ import annotations

from collections.abc import Collection
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

from tests.support.process import ServiceProcess

FUNCTIONS = [Path(__file__).with_name(name) for name in ("functions.py", "process_functions.py")]


class Run(NamedTuple):
    """One attempt at a job, begun at a wall-clock instant in microseconds."""

    id: str
    attempt: int
    began_at: int
    has_ended: bool


def install(service: ServiceProcess) -> None:
    """Copy the functions beside the settings, where kinds name them as "functions:<name>"."""
    for functions in FUNCTIONS:
        (service.folder / functions.name).write_text(functions.read_text())


def read_book(service: ServiceProcess) -> list[Run]:
    book = service.folder / "book.txt"
    lines = [line.split() for line in book.read_text().splitlines()] if book.exists() else []
    ended = {(id, number) for id, number, event, _ in lines if event == "end"}
    return [
        Run(id, int(number), int(instant) // 1000, (id, number) in ended)
        for id, number, event, instant in lines
        if event == "begin"
    ]


def most_at_once(service: ServiceProcess, ids: Collection[str]) -> int:
    """Return the largest number of these jobs that ran at once."""
    lines = [line.split() for line in (service.folder / "book.txt").read_text().splitlines()]
    steps = sorted((int(instant), 1 if event == "begin" else -1) for id, _, event, instant in lines if id in ids)
    return max(accumulate(step for _, step in steps))
