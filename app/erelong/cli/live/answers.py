"""The statuses with which a receiver of webhooks answers: `503x2,200` fails twice, then accepts."""

from __future__ import annotations

import argparse
import re
import threading
from collections import OrderedDict
from typing import Final

MAX_KNOWN: Final = 10_000  # webhooks that are remembered
MAX_TIMES: Final = 1_000
_PART: Final = re.compile(r"([2-5]\d\d)(?:x(\d+))?")


def plan(text: str) -> list[int]:
    """Read a list of statuses, each with how often it is used; raise ArgumentTypeError."""
    statuses = []
    for part in text.split(","):
        match = _PART.fullmatch(part.strip())
        times = int(match[2] or 1) if match else 0
        if match is None or not 1 <= times <= MAX_TIMES:
            raise argparse.ArgumentTypeError(
                f"{text!r}: write statuses from 200 to 599, such as 503x2,200: twice 503, then 200"
            )
        statuses += [int(match[1])] * times
    return statuses


class Answers:
    """The next status of each webhook: its retries go on in the plan, whose last status is used from then on."""

    def __init__(self, statuses: list[int]) -> None:
        self._statuses = statuses
        self._used: OrderedDict[str, int] = OrderedDict()
        self._lock = threading.Lock()

    def next_for(self, id: str) -> int:
        with self._lock:
            used = self._used.pop(id, 0)
            self._used[id] = used + 1
            if len(self._used) > MAX_KNOWN:
                self._used.popitem(last=False)
        return self._statuses[min(used, len(self._statuses) - 1)]
