"""The future of a job."""

from __future__ import annotations

import threading
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar

from erelong.client.calls import jobs as calls
from erelong.client.errors import Changed, NoAnswer, NotFound, WrongState
from erelong.client.records import JobRecord
from erelong.client.results import result_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from erelong.client.sync.client import Client

R = TypeVar("R")

AT_ONCE: Final = 16  # cancels
CHANCES: Final = 3  # tries to cancel a waiting job that somebody edits meanwhile


class JobFuture(Future[R]):
    """The future of a job. `job_id` names the job, which runs whether or not anybody waits for it."""

    def __init__(self, *, client: Client, job_id: str, returns: Any, version: int | None = None) -> None:
        super().__init__()
        self.job_id = job_id
        self._client = client
        self._returns = returns
        self._version = version  # in which the job waits, as far as is known
        self._lock = threading.Lock()
        self._cancels = 0  # calls of `cancel` in progress, or with an unknown result
        self._is_claimed = False

    def cancel(self) -> bool:
        """Cancel the job if it has not begun, and return whether it is cancelled. Raise NoAnswer if that is unknown."""
        if self.done():
            return self.cancelled()
        self._count_cancel(1)
        try:
            is_cancelled = self._cancel_job()
            if is_cancelled and self._claim():
                super().cancel()
                self.set_running_or_notify_cancel()
        except NoAnswer as error:
            self._count_cancel(0 if error.maybe_done else -1)  # the follower will see whether the job is cancelled
            raise
        except BaseException:
            self._count_cancel(-1)
            raise
        self._count_cancel(-1)
        if is_cancelled:
            with suppress(CancelledError):  # the follower may have been quicker, and is about to settle the future
                super().exception()
        return self.cancelled()

    def stop(self, reason: str | None = None) -> None:
        """Ask the job to stop, even if it runs."""
        self._client.cancel(self.job_id, reason=reason)

    def running(self) -> bool:
        """Return whether the job has begun and not ended. A job that waits for a retry has begun."""
        return not self.done() and has_begun(self._client.get(self.job_id))

    # for the follower

    def settle(self, job: JobRecord) -> None:
        """Set the result or the exception of a job that has ended."""
        with self._lock:
            if self._is_claimed:
                return
            self._is_claimed, is_cancelling = True, self._cancels > 0
        if is_cancelling and job.state == "cancelled" and not has_begun(job):  # the cancel has yet to get its answer
            super().cancel()
        if not self.set_running_or_notify_cancel():
            return
        try:
            value = result_of(job, self._returns)
        except Exception as error:  # noqa: BLE001 - the class of a result may raise anything
            self.set_exception(error)
        else:
            self.set_result(value)

    def fail(self, error: Exception) -> None:
        """Set an exception other than that of the job."""
        if self._claim() and self.set_running_or_notify_cancel():
            self.set_exception(error)

    def _count_cancel(self, by: int) -> None:
        with self._lock:
            self._cancels += by

    def _claim(self) -> bool:
        """Return whether the caller is the first to settle this future, and may."""
        with self._lock:
            is_first, self._is_claimed = not self._is_claimed, True
        return is_first

    def _cancel_job(self) -> bool:
        """Cancel the job in the version in which it waits, so that an attempt that begins meanwhile wins."""
        version = self._version
        try:
            for _ in range(CHANCES):
                if version is None:
                    job = self._client.get(self.job_id)
                    if job.state != "scheduled" or has_begun(job):
                        return job.state == "cancelled" and not has_begun(job)
                    version = job.version
                with suppress(Changed, WrongState):
                    cancelled = self._client.send(calls.cancel(self.job_id, None, version, None))
                    return bool(cancelled["state"] == "cancelled")
                version = None
        except NotFound:
            return False
        return False


def has_begun(job: JobRecord) -> bool:
    """Return whether a job has ever been started."""
    return job.state == "running" or job.attempt > 0 or bool(job.raw.get("attempts"))


def cancel_all(futures: Sequence[JobFuture[Any]]) -> None:
    """Cancel the jobs that have not begun, some at a time: the service stores changes that arrive together at once."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for _ in pool.map(JobFuture.cancel, futures):
            pass
