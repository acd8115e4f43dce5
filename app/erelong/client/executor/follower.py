"""Follows jobs, and settles their futures when they end."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any, Final

from erelong.client.errors import NoAnswer, NotFound, Refused
from erelong.client.records import JobRecord
from erelong.client.watch import Watch

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from erelong.client.executor.future import JobFuture
    from erelong.client.requests import Request
    from erelong.client.sync.client import Client

    Future = JobFuture[Any]

log = logging.getLogger("erelong.executor")

POLL: Final = 0.25  # seconds after which a new future is followed, while the service holds a request for older ones
PAUSE: Final = 1.0  # seconds after a failed request
PASSING: Final = frozenset({408, 429})


class Follower:
    """Settles futures in the thread that calls `run`, until it is closed and none is left."""

    def __init__(self, *, client: Client) -> None:
        self._client = client
        self._watch = Watch()
        self._futures: dict[str, list[Future]] = {}  # several, if submits returned the live job of a key
        self._changed = threading.Condition()
        self._is_closed = False
        self._is_away = False

    def add(self, futures: Iterable[Future]) -> None:
        with self._changed:
            for future in futures:
                self._futures.setdefault(future.job_id, []).append(future)
                self._watch.add(future.job_id)
            self._changed.notify_all()

    def remove(self, future: Future) -> None:
        """Follow a future no longer."""
        with self._changed:
            others = self._futures.get(future.job_id, [])
            if future in others:
                others.remove(future)
            if not others:
                self._futures.pop(future.job_id, None)
                self._watch.remove(future.job_id)
            self._changed.notify_all()

    def unsettled(self) -> list[Future]:
        with self._changed:
            return [future for futures in self._futures.values() for future in futures]

    def close(self) -> None:
        """Let `run` return once all futures are settled."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def run(self) -> None:
        while (request := self._next_request()) is not None:
            try:
                answer = self._whole(self._client.send(request))
                self._is_away = False
                self._settle(answer)
            except Exception as error:  # noqa: BLE001 - a future that is never settled is worse than any error
                if _is_passing(error):  # the jobs are safe: ask again
                    self._pause(error)
                else:
                    self._fail_all(error)

    def _next_request(self) -> Request | None:
        with self._changed:
            while not self._watch.pending:
                if self._is_closed:
                    return None
                self._changed.wait()
            return self._watch.next_request(at_most=POLL)

    def _whole(self, answer: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer with the results of all jobs: a large answer leaves some out."""
        ended, missing = [], [*answer["missing"]]
        for raw in answer["ended"]:
            if "result" in raw:
                ended.append(raw)
                continue
            try:
                found = self._client.get(raw["id"])
            except NotFound:
                missing.append(raw["id"])
            else:
                ended += [found.raw] if found.is_final else []  # somebody may have retried it
        return {"ended": ended, "missing": missing}

    def _settle(self, answer: Mapping[str, Any]) -> None:
        with self._changed:
            ended, missing = self._watch.take(answer)
            settled = [(JobRecord(raw), self._futures.pop(raw["id"], [])) for raw in ended]
            gone = [future for id in missing for future in self._futures.pop(id, [])]
        for job, futures in settled:
            for future in futures:
                future.settle(job)
        for future in gone:
            detail = f"job {future.job_id} was deleted before its result was read"
            future.fail(NotFound(404, {"code": "job_not_found", "detail": detail}))

    def _pause(self, error: Exception) -> None:
        if not self._is_away:
            log.warning("service_away retry_in=%g futures=%d detail=%s", PAUSE, len(self.unsettled()), error)
        self._is_away = True
        with self._changed:
            self._changed.wait(PAUSE)

    def _fail_all(self, error: Exception) -> None:
        with self._changed:
            unsettled = self.unsettled()
            self._futures, self._watch = {}, Watch()
        for future in unsettled:
            future.fail(error)


def _is_passing(error: Exception) -> bool:
    """Return whether the same request may be answered later."""
    return isinstance(error, NoAnswer) or (
        isinstance(error, Refused) and (error.status >= 500 or error.status in PASSING)
    )
