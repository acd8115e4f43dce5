"""Runs plain functions in threads that may be left behind: nothing can stop a thread from outside."""

from __future__ import annotations

import threading
from concurrent import futures
from concurrent.futures import Future
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
T = TypeVar("T")


class ThreadPerCall(futures.Executor):
    """Starts a thread for each call. Its threads do not keep the process alive."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Start a call; raise RuntimeError if the system starts no more threads."""
        future: Future[T] = Future()

        def run() -> None:
            try:
                result = fn(*args, **kwargs)
            except StopIteration as error:  # which no awaited future can hold
                future.set_exception(RuntimeError(f"the function raised {error!r}"))
            except BaseException as error:  # noqa: BLE001 - a function may raise anything
                future.set_exception(_plain(error))
            else:
                future.set_result(result)

        threading.Thread(target=run, name="erelong-attempt", daemon=True).start()
        return future


def _plain(error: BaseException) -> Exception:
    """Return an error that ends no event loop, as SystemExit would."""
    return error if isinstance(error, Exception) else RuntimeError(f"the function raised {error!r}")
