"""What an executor and its views do alike: calls become drafts, and drafts futures."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections import deque
from concurrent import futures
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, overload

from erelong.client.drafts import Draft, not_a_kind
from erelong.client.errors import ErelongError
from erelong.client.executor.future import JobFuture, cancel_all
from erelong.client.kinds import Kind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from erelong.client.errors import Refused

P = ParamSpec("P")
R = TypeVar("R")


class Submitter(futures.Executor):
    """Submits calls of kinds as jobs."""

    @overload  # type: ignore[override]  # kinds alone: code is never sent
    def submit(self, fn: Draft[R], /) -> JobFuture[R]: ...

    @overload
    def submit(self, fn: Kind[P, R, Any], /, *args: P.args, **kwargs: P.kwargs) -> JobFuture[R]: ...

    @overload
    def submit(self, fn: str, /, **params: Any) -> JobFuture[Any]: ...

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> JobFuture[Any]:
        """Submit a job and return its future, once the job is on the disk of the service."""
        return self.start(make_draft(fn, args, kwargs))

    def map(  # type: ignore[override]  # as submit
        self,
        fn: Kind[..., R, Any],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int = 500,
        buffersize: int | None = None,
    ) -> Iterator[R]:
        """Submit a job for each set of arguments, in batches of `chunksize`, and yield the results in order.

        With `buffersize`, at most so many jobs are submitted whose results have not been yielded.
        """
        _check_size("chunksize", chunksize)
        if buffersize is not None:
            _check_size("buffersize", buffersize)
        drafts = (make_draft(fn, arguments, {}) for arguments in zip(*iterables, strict=False))
        deadline = None if timeout is None else time.monotonic() + timeout
        results = Results(submitter=self, drafts=drafts, chunk=chunksize, buffer=buffersize)
        results.fill()
        return results.read(deadline)

    @abstractmethod
    def start(self, draft: Draft[R]) -> JobFuture[R]:
        """Submit a draft."""

    @abstractmethod
    def start_many(self, drafts: Sequence[Draft[Any]]) -> list[JobFuture[Any] | Refused]:
        """Submit drafts in few requests. What the service refuses has its error in place of a future."""


class Results:
    """The results of `map`, in order."""

    def __init__(self, *, submitter: Submitter, drafts: Iterator[Draft[Any]], chunk: int, buffer: int | None) -> None:
        self._submitter = submitter
        self._drafts = drafts
        self._chunk = chunk if buffer is None else min(chunk, max(buffer // 2, 1))
        self._buffer = buffer
        self._started: deque[JobFuture[Any] | Refused] = deque()

    def fill(self) -> None:
        """Submit jobs in whole batches, until the buffer is full or no call is left."""
        while self._buffer is None or len(self._started) + self._chunk <= self._buffer:
            batch = [*islice(self._drafts, self._chunk)]
            if not batch:
                return
            self._started += self._submitter.start_many(batch)

    def read(self, deadline: float | None) -> Iterator[Any]:
        try:
            while self._started:
                yield self._next(deadline)
                if self._buffer is not None:
                    self.fill()
        finally:
            with suppress(ErelongError, RuntimeError):  # the jobs run on; why nobody wants them matters more
                cancel_all([future for future in self._started if isinstance(future, JobFuture)])

    def _next(self, deadline: float | None) -> Any:
        future = self._started[0]
        if not isinstance(future, JobFuture):
            self._started.popleft()
            raise future
        result = future.result(None if deadline is None else deadline - time.monotonic())
        self._started.popleft()
        return result


def make_draft(fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Draft[Any]:
    """Return a call as a draft. Raise TypeError if `fn` is not a kind, or does not take the arguments."""
    if isinstance(fn, Kind):
        draft: Draft[Any] = fn.job(*args, **kwargs)
        return draft
    if isinstance(fn, Draft) and not args and not kwargs:
        return fn
    if isinstance(fn, str) and not args:
        return Draft(fn, kwargs)
    if callable(fn):
        raise TypeError(not_a_kind(fn))
    raise TypeError(f"{fn!r} with {args or kwargs} is not a call: give a kind and arguments, or its name and params")


def _check_size(name: str, size: int) -> None:
    if size < 1:
        raise ValueError(f"{name} is {size}; give 1 or more")
