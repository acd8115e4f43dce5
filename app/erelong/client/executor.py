"""An executor of concurrent.futures whose calls are durable jobs."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from concurrent import futures
from concurrent.futures import Future
from typing import Any, Final, ParamSpec, TypeVar, overload

from erelong.client.calls.jobs import MAX_WAITED
from erelong.client.drafts import Draft
from erelong.client.errors import Busy, Changed, ErelongError, NoAnswer, NotFound, WrongState, job_error
from erelong.client.kinds import Kind
from erelong.client.records import JobRecord
from erelong.client.sync.client import Client
from erelong.client.values import load
from erelong.client.watch import Watch

P = ParamSpec("P")
R = TypeVar("R")

POLL: Final = 0.25  # seconds after which a new future is watched, while the service holds a request for older ones
PAUSE: Final = 1.0  # seconds after a failed request


class JobFuture(Future[R]):
    """The future of a job. `job_id` names the job, which runs whether or not anybody waits."""

    def __init__(self, client: Client, job_id: str, returns: Any) -> None:
        super().__init__()
        self._client = client
        self._returns = returns
        self._is_cancelling = False
        self.job_id = job_id

    def cancel(self) -> bool:
        """Cancel the job if it has not begun, and return whether it is cancelled."""
        if self.done():
            return self.cancelled()
        self._is_cancelling = True  # the watch may see the end of the job before the answer arrives here
        self._is_cancelling = self._cancel_job()
        return self._is_cancelling and (super().cancel() or self.cancelled())

    def _cancel_job(self) -> bool:
        for _ in range(3):  # somebody may edit the job meanwhile
            job = self._client.get(self.job_id)
            if job.state != "scheduled":
                return job.state == "cancelled"
            try:
                return self._client.cancel(job, if_unchanged=True).state == "cancelled"
            except (Changed, WrongState):
                continue
        return False

    def stop(self, reason: str | None = None) -> None:
        """Ask the job to stop, even if it runs."""
        self._client.cancel(self.job_id, reason=reason)

    def running(self) -> bool:
        """Return whether an attempt runs now."""
        return not self.done() and self._client.get(self.job_id).state == "running"

    def settle(self, job: JobRecord) -> None:
        """Set the result or the exception of a job that has ended."""
        if job.state == "cancelled" and self._is_cancelling:
            super().cancel()
        if not self.set_running_or_notify_cancel():
            return
        if job.state != "succeeded":
            self.set_exception(job_error(job))
            return
        try:
            value = load(self._returns, job.raw.get("result"))
        except (TypeError, ValueError) as error:
            self.set_exception(error)
        else:
            self.set_result(value)

    def fail(self, error: ErelongError) -> None:
        if self.set_running_or_notify_cancel():
            self.set_exception(error)


class Executor(futures.Executor):
    """Runs calls as jobs. `submit` takes a kind and arguments, a draft, or the name of a kind and params.

    A job outlives the process that submitted it: leaving the executor waits for its futures, and dropping a future
    cancels nothing. While `max_pending` futures are unfinished, `submit` blocks. A given client is not closed.
    """

    def __init__(self, client: Client | None = None, *, max_pending: int = 10_000) -> None:
        self._client = client or Client()
        self._owns_client = client is None
        self._room = threading.BoundedSemaphore(max_pending)
        self._watch = Watch()
        self._futures: dict[str, JobFuture[Any]] = {}
        self._changed = threading.Condition()
        self._is_shut = False
        self._thread: threading.Thread | None = None

    @overload  # type: ignore[override]  # kinds alone: code is never sent
    def submit(self, fn: Draft[R], /) -> JobFuture[R]: ...

    @overload
    def submit(self, fn: Kind[P, R, Any], /, *args: P.args, **kwargs: P.kwargs) -> JobFuture[R]: ...

    @overload
    def submit(self, fn: str, /, **params: Any) -> JobFuture[Any]: ...

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> JobFuture[Any]:
        """Submit a job and return its future, once the job is on the disk of the service."""
        draft = _draft(fn, args, kwargs)
        self._refuse_if_shut()
        self._room.acquire()
        try:
            job = self._client.submit(draft)
        except BaseException:
            self._room.release()
            raise
        return self._follow(job.id, draft.returns)

    def map(  # type: ignore[override]  # as submit
        self, fn: Kind[..., R, Any], *iterables: Iterable[Any], timeout: float | None = None, chunksize: int = 500
    ) -> Iterator[R]:
        """Submit a job for each set of arguments, in batches of `chunksize`, and yield the results in order."""
        self._refuse_if_shut()
        drafts = [_draft(fn, arguments, {}) for arguments in zip(*iterables, strict=False)]
        tick = self._client.tick
        deadline = None if timeout is None else tick() + timeout
        mapped = []
        for ticket in self._client.submit_many(drafts, batch=min(chunksize, MAX_WAITED)):
            self._room.acquire()
            mapped.append(self._follow(ticket.id, fn.returns))

        def results() -> Iterator[R]:
            for future in mapped:
                yield future.result(None if deadline is None else deadline - tick())

        return results()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more calls. Jobs run on in any case: `wait` waits for them, `cancel_futures` cancels waiting ones."""
        with self._changed:
            self._is_shut = True
            unsettled = [*self._futures.values()]
            self._changed.notify_all()
        for future in unsettled if cancel_futures else ():
            if future.cancel():
                self._forget(future)
        if wait and self._thread is not None:
            self._thread.join()
            if self._owns_client:
                self._client.close()

    def _refuse_if_shut(self) -> None:
        if self._is_shut:
            raise RuntimeError("cannot schedule new futures after shutdown")

    def _follow(self, id: str, returns: Any) -> JobFuture[Any]:
        future: JobFuture[Any] = JobFuture(self._client, id, returns)
        with self._changed:
            self._futures[id] = future
            self._watch.add(id)
            if self._thread is None:
                self._thread = threading.Thread(target=self._settle_all, name="erelong-executor", daemon=True)
                self._thread.start()
            self._changed.notify_all()
        future.add_done_callback(lambda _: self._room.release())
        return future

    def _forget(self, future: JobFuture[Any]) -> None:
        with self._changed:
            self._watch.remove(future.job_id)
            self._futures.pop(future.job_id, None)

    # the thread

    def _settle_all(self) -> None:
        """Settle futures until the executor is shut and none is left."""
        while (request := self._next_request()) is not None:
            try:
                answer = self._client.send(request)
            except (NoAnswer, Busy):  # the jobs are safe: ask again
                with self._changed:
                    self._changed.wait(PAUSE)
            except ErelongError as error:
                self._fail_all(error)
            else:
                self._settle(answer)

    def _next_request(self) -> Any:
        with self._changed:
            while not self._watch.pending:
                if self._is_shut:
                    return None
                self._changed.wait()
            return self._watch.next_request(at_most=POLL)

    def _settle(self, answer: Any) -> None:
        with self._changed:
            ended, missing = self._watch.take(answer)
            settled = [(self._futures.pop(raw["id"]), raw) for raw in ended]
            gone = [self._futures.pop(id) for id in missing]
        for future, raw in settled:
            future.settle(JobRecord(raw))
        for future in gone:
            detail = f"job {future.job_id} was deleted before its result was read"
            future.fail(NotFound(404, {"code": "job_not_found", "detail": detail}))

    def _fail_all(self, error: ErelongError) -> None:
        with self._changed:
            unsettled, self._futures, self._watch = [*self._futures.values()], {}, Watch()
        for future in unsettled:
            future.fail(error)


def _draft(fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Draft[Any]:
    if isinstance(fn, Kind):
        draft: Draft[Any] = fn.job(*args, **kwargs)
        return draft
    if isinstance(fn, Draft) and not args and not kwargs:
        return fn
    if isinstance(fn, str) and not args:
        return Draft(fn, kwargs)
    if callable(fn):
        name = getattr(fn, "__name__", fn)
        raise TypeError(f'{name} is not a kind: decorate it with @kind("{name}"), and let a service or worker run it')
    raise TypeError(f"{fn!r} with {args or kwargs} is no call: give a kind and arguments, or its name and params")
