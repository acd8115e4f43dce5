"""The executor: how many futures it may have, its thread, and its end."""

from __future__ import annotations

import secrets
import threading
import weakref
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar, Unpack

from erelong.client.calls.jobs import MAX_WAITED
from erelong.client.executor.follower import Follower
from erelong.client.executor.future import JobFuture, cancel_all, has_begun
from erelong.client.executor.submitting import Submitter
from erelong.client.sync.client import Client

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from erelong.client.batches import Ticket
    from erelong.client.drafts import Draft, Options
    from erelong.client.errors import Refused
    from erelong.client.kinds import Kind
    from erelong.client.records import JobRecord

R = TypeVar("R")

LABEL: Final = "executor"


class Executor(Submitter):
    """Runs calls as jobs. `submit` takes a kind and arguments, a draft, or the name of a kind and params.

    A job outlives the process that submitted it: leaving the executor waits for its futures, and dropping a future
    cancels nothing. Jobs have the label `executor` with the `id`, by which `attach` finds them in another process.
    While `max_pending` futures are unfinished, `submit` blocks. A given client is not closed.
    """

    def __init__(self, client: Client | None = None, *, id: str | None = None, max_pending: int = 10_000) -> None:
        self.id = id or secrets.token_hex(8)
        self.futures: list[JobFuture[Any]] = []
        """The futures that `attach` has found, in the order of their submits."""
        self._client = client or Client()
        self._owned = None if client else self._client
        self._max_pending = max_pending
        self._unfinished = 0
        self._submits = 0  # in progress
        self._changed = threading.Condition()
        self._is_shut = False
        self._follower = Follower(client=self._client)
        self._thread: threading.Thread | None = None
        weakref.finalize(self, self._follower.close)

    @classmethod
    def attach(
        cls,
        id: str,
        client: Client | None = None,
        *,
        kinds: Iterable[Kind[..., Any, Any]] = (),
        max_pending: int = 10_000,
    ) -> Self:
        """Return an executor whose `futures` are those of all jobs that executors with this id have submitted.

        Results of `kinds` have the types of their functions; those of others are plain data.
        """
        pool = cls(client, id=id, max_pending=max_pending)
        returns = {kind.name: kind.returns for kind in kinds}
        found = reversed([*pool._client.list(label={LABEL: id})])  # they are listed newest first
        pool.futures = [pool._future_of(job, returns.get(job.kind, Any)) for job in found]
        with pool._changed:
            pool._unfinished += len(pool.futures)
        pool._follow(pool.futures)
        return pool

    def options(self, **options: Unpack[Options]) -> OptionsView:
        """Return a view that submits to this executor with these options: `pool.options(delay="2h").submit(…)`."""
        return OptionsView(pool=self, options=options)

    def start(self, draft: Draft[R]) -> JobFuture[R]:
        with self._submitting(1):
            job = self._client.submit(self._labelled(draft))
            future: JobFuture[R] = self._future_of(job, draft.returns)
            self._follow([future])
        return future

    def start_many(self, drafts: Sequence[Draft[Any]]) -> list[JobFuture[Any] | Refused]:
        started: list[JobFuture[Any] | Refused] = []
        size = min(MAX_WAITED, self._max_pending)
        for first in range(0, len(drafts), size):
            batch = [self._labelled(draft) for draft in drafts[first : first + size]]
            with self._submitting(len(batch)):
                futures = [
                    ticket.problem or self._future_of_ticket(ticket, draft.returns)
                    for draft, ticket in zip(batch, self._client.submit_many(batch), strict=True)
                ]
                self._follow([future for future in futures if isinstance(future, JobFuture)])
                self._leave(sum(not isinstance(future, JobFuture) for future in futures))
            started += futures
        return started

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more calls. Jobs run on in any case: `wait` waits for them, `cancel_futures` cancels waiting ones."""
        with self._changed:
            self._is_shut = True
            self._changed.notify_all()
            while self._submits and (wait or cancel_futures):
                self._changed.wait()
            self._close_if_over()
        if cancel_futures:
            cancel_all(self._follower.unsettled())
        if wait and self._thread is not None:
            self._thread.join()

    @contextmanager
    def _submitting(self, size: int) -> Iterator[None]:
        """Take room for new futures, and wait for it unless this is their own thread, which makes room."""
        with self._changed:
            while self._unfinished + size > self._max_pending and not self._is_shut and not self._is_own_thread():
                self._changed.wait()
            if self._is_shut:
                raise RuntimeError("cannot schedule new futures after shutdown")
            self._unfinished += size
            self._submits += 1
        try:
            yield
        except BaseException:
            self._leave(size)
            raise
        finally:
            with self._changed:
                self._submits -= 1
                self._close_if_over()
                self._changed.notify_all()

    def _is_own_thread(self) -> bool:
        return threading.current_thread() is self._thread

    def _leave(self, size: int) -> None:
        with self._changed:
            self._unfinished -= size
            self._changed.notify_all()

    def _close_if_over(self) -> None:
        if self._is_shut and not self._submits:
            self._follower.close()
            if self._thread is None and self._owned is not None:
                self._owned.close()

    def _labelled(self, draft: Draft[R]) -> Draft[R]:
        return draft.with_options(labels={**draft.options.get("labels", {}), LABEL: self.id})

    def _future_of(self, job: JobRecord, returns: Any) -> JobFuture[Any]:
        version = job.version if job.state == "scheduled" and not has_begun(job) else None
        return JobFuture(client=self._client, job_id=job.id, returns=returns, version=version)

    def _future_of_ticket(self, ticket: Ticket, returns: Any) -> JobFuture[Any]:
        version = 1 if ticket.created else None
        return JobFuture(client=self._client, job_id=ticket.id, returns=returns, version=version)

    def _follow(self, futures: Sequence[JobFuture[Any]]) -> None:
        """Let the thread settle futures. It is started with the first ones."""
        for future in futures:
            future.add_done_callback(self._ended)
        self._follower.add(futures)
        with self._changed:
            if self._thread is None and futures:
                self._thread = threading.Thread(
                    target=_run, args=(self._follower, self._owned), name="erelong-executor", daemon=True
                )
                self._thread.start()

    def _ended(self, future: Any) -> None:
        self._follower.remove(future)
        self._leave(1)


class OptionsView(Submitter):
    """Submits to an executor with options of its own."""

    def __init__(self, *, pool: Executor, options: Options) -> None:
        self._pool = pool
        self._options = options

    def options(self, **options: Unpack[Options]) -> OptionsView:
        """Return a view with further options."""
        return OptionsView(pool=self._pool, options={**self._options, **options})

    def start(self, draft: Draft[R]) -> JobFuture[R]:
        return self._pool.start(draft.with_options(**self._options))

    def start_many(self, drafts: Sequence[Draft[Any]]) -> list[JobFuture[Any] | Refused]:
        return self._pool.start_many([draft.with_options(**self._options) for draft in drafts])

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Shut the executor down, not only this view."""
        self._pool.shutdown(wait, cancel_futures=cancel_futures)


def _run(follower: Follower, owned: Client | None) -> None:
    """Settle futures. This knows nothing of the executor, so that one that nobody uses any more is dropped."""
    follower.run()
    if owned is not None:
        owned.close()
