"""Makes the callbacks of jobs that end, for the commit that ends them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from erelong.model.ids import draw_tokens
from erelong.model.reports.callback import KIND, is_unreadable, make_callback, on_finish_of
from erelong.telemetry.log import get_logger

if TYPE_CHECKING:
    from collections.abc import Iterable

    from erelong.clock.instants import Now
    from erelong.lanes.lanes import Lanes
    from erelong.model.job import Job
    from erelong.settings.defaults import Defaults
    from erelong.stores.base import Also

log = get_logger(__name__)


class Callbacks:
    """Decides for each write which callbacks it adds."""

    def __init__(self, *, lanes: Lanes, defaults: Defaults, now: Now) -> None:
        self._lanes = lanes
        self._defaults = defaults
        self._now = now
        self._tokens = draw_tokens()

    def of(self, written: Iterable[tuple[int, Job]]) -> Also:
        """Return the callbacks of the written jobs that have ended, each with the index of its job."""
        callbacks = []
        for index, job in written:
            if (on_finish := on_finish_of(job)) is not None:
                callbacks.append((index, self._make(job, on_finish["queue"])))
            elif job.is_final and is_unreadable(job):
                report_skipped(job)
        return callbacks

    def _make(self, job: Job, queue: str) -> Job:
        defaults = self._defaults.of(KIND, self._lanes.settings(queue))
        token, now = next(self._tokens), self._now()
        return make_callback(job, queue, timeout=defaults.timeout, retry=defaults.retry, token=token, now=now)


def report_skipped(job: Job) -> None:
    """Log that a job ends and calls nobody, since it cannot be read."""
    log.warning("callback_skipped", job=job.id, kind=job.kind, queue=job.queue)
