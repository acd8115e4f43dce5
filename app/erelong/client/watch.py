"""Decides how to wait for many jobs: which ids to ask for next, and for how long. Without I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from erelong.client.calls import jobs as calls
from erelong.client.calls.jobs import MAX_WAITED, WAIT

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from erelong.client.requests import Request

ROUND: Final = 1.0  # seconds for one look at all batches, if there are several


class Watch:
    """The jobs that have not ended yet, asked for in batches in turn."""

    def __init__(self, ids: Iterable[str] = ()) -> None:
        self.pending = dict.fromkeys(ids)
        self._is_moving = True  # the last round found a job that had ended
        self._found = False
        self._left: list[list[str]] = []  # batches of this round

    def add(self, *ids: str) -> None:
        self.pending.update(dict.fromkeys(ids))

    def remove(self, id: str) -> None:
        self.pending.pop(id, None)

    def next_request(self, until: str = "first", at_most: float = WAIT) -> Request:
        """Return the request for the next batch. It is held only as long as no other batch is neglected."""
        if not self._left:
            ids = [*self.pending]
            self._left = [ids[start : start + MAX_WAITED] for start in range(0, len(ids), MAX_WAITED)]
            self._is_moving, self._found = self._found or len(self._left) == 1, False
        batches = -(-len(self.pending) // MAX_WAITED)
        batch = self._left.pop(0)
        if batches == 1:
            return calls.wait(batch, until, max(min(WAIT, at_most), 0.0))
        wait = 0.0 if self._is_moving else ROUND / batches
        return calls.wait(batch, "first", max(min(wait, at_most), 0.0))

    def take(self, answer: Mapping[str, Any]) -> tuple[list[Mapping[str, Any]], list[str]]:
        """Return the jobs of an answer that have ended, and the ids of those that do not exist; they are done with."""
        ended = [job for job in answer["ended"] if job["id"] in self.pending]
        missing = [id for id in answer["missing"] if id in self.pending]
        for id in [*(job["id"] for job in ended), *missing]:
            del self.pending[id]
        self._found |= bool(ended or missing)
        return ended, missing
