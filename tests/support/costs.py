"""The exact cost of a request or job: calls of our Python functions, and SQL statements."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any

import apsw

from tests.support import SOURCE

OURS = f"{SOURCE}/"


class Costs:
    """Counts while `counted` is open, in all threads started under `watching`."""

    def __init__(self) -> None:
        self.calls: Counter[CodeType] = Counter()
        self.statements: list[str] = []
        self._is_open = False

    @contextmanager
    def watching(self) -> Iterator[None]:
        threading.setprofile(self._note)
        sys.setprofile(self._note)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)

    def watch_statements(self, *connections: apsw.Connection) -> None:
        for connection in connections:
            connection.trace_v2(apsw.SQLITE_TRACE_STMT, self._note_statement)

    @contextmanager
    def counted(self) -> Iterator[None]:
        self.begin_again()
        self._is_open = True
        try:
            yield
        finally:
            self._is_open = False

    def begin_again(self) -> None:
        """Reset the counts."""
        self.calls.clear()
        self.statements.clear()

    @property
    def total(self) -> int:
        return self.calls.total()

    def table(self) -> str:
        """Return the calls by function, to find added ones."""
        named = {f"{code.co_filename.removeprefix(OURS)}:{code.co_qualname}": n for code, n in self.calls.items()}
        return "\n".join(f"{number:4} {name}" for name, number in sorted(named.items()))

    def _note(self, frame: FrameType, event: str, _: object) -> None:
        if self._is_open and event == "call" and frame.f_code.co_filename.startswith(OURS):
            self.calls[frame.f_code] += 1

    def _note_statement(self, event: dict[str, Any]) -> None:
        if self._is_open and not event["trigger"]:
            self.statements.append(" ".join(event["sql"].split())[:60])
