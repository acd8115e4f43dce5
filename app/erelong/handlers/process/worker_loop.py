"""The calls of a worker process: each runs one function with its params, and what came of it goes back."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NoReturn

import orjson
from pydantic import ValidationError

from erelong.attempt import Attempt, GiveUp
from erelong.handlers.base import AttemptFailed
from erelong.handlers.param_errors import find_faults, invalid
from erelong.handlers.process.framing import framed, receive
from erelong.handlers.python.loading import failure_of, import_function, text_of
from erelong.handlers.python.signature import Signature, Unfit, read_signature

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from socket import socket

MAX_MESSAGE: Final = 10_000
LEAVING: Final = 128 + signal.SIGTERM

_PAGE: Final = os.sysconf("SC_PAGE_SIZE")


class WorkerLoop:
    """The functions of some kinds, and the line on which their calls come."""

    def __init__(self, *, line: socket) -> None:
        self._line = line
        self._pid = os.getpid()
        self._functions: dict[str, tuple[Callable[..., Any], Signature]] = {}
        self._max_result = 0
        self._memory = os.open("/proc/self/statm", os.O_RDONLY)
        self._is_leaving = False

    def serve(self, functions: Mapping[str, str], max_result: int) -> None:
        """Import the functions, and answer calls until the service hangs up."""
        os.register_at_fork(before=_hold, after_in_parent=_let_go, after_in_child=_obey)
        self._max_result = max_result
        problem = self._import(functions)
        self._line.sendall(framed(orjson.dumps({"problem": problem})))
        while problem is None and (head := receive(self._line)) is not None:
            params = receive(self._line)
            if params is None:
                return
            signal.signal(signal.SIGTERM, self._leave)  # the last function may have thought of something else
            self._line.sendall(framed(*self._answer(orjson.loads(head), params)))

    def _leave(self, *_: object) -> NoReturn:
        """Told to end: what runs gets to hear it as SystemExit, and its `finally` clauses and managers their turn."""
        self._is_leaving = True
        raise SystemExit(LEAVING)

    def _import(self, functions: Mapping[str, str]) -> str | None:
        """Import every function; what is wrong with one comes back."""
        for kind, path in functions.items():
            try:
                function = import_function(path)
                self._functions[kind] = (function, read_signature(function))
            except Unfit as error:
                return f'kinds.{kind}.python = "{path}": {_clean(str(error))}'
        return None

    def _answer(self, head: dict[str, Any], params: bytes) -> tuple[bytes, bytes]:
        result, failure, is_spent = self._outcome(head, params)
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):  # the function may have closed it, or put something else there
                stream.flush()
        answer = {
            "failure": failure,
            "has_result": result is not None,
            "memory": int(os.pread(self._memory, 100, 0).split()[1]) * _PAGE,
            "is_spent": is_spent or _has_children(),
        }
        return orjson.dumps(answer), (result or b"")[: self._max_result + 1]

    def _outcome(self, head: dict[str, Any], params: bytes) -> tuple[bytes | None, dict[str, Any] | None, bool]:
        """The result, or what failed; and whether it took all the memory there is."""
        try:
            result = self._call(head, params)
        except BaseException as error:  # noqa: BLE001 - around a handler: it is the attempt's
            self._end_copy(1)
            return None, _failure_of(error), isinstance(error, MemoryError)
        self._end_copy(0)
        return result, None, False

    def _call(self, head: dict[str, Any], params: bytes) -> bytes | None:
        function, signature = self._functions[head["kind"]]
        try:
            values = signature.check(params)
        except ValidationError as error:  # the function has changed since the submit
            known = signature.params_schema.get("properties", ())
            detail = invalid(head["kind"], find_faults(error, params, known)).detail
            raise AttemptFailed("exception", detail, retryable=False) from None
        positional, named = signature.arguments(values, Attempt(**head["attempt"]))
        return signature.dump(function(*positional, **named))

    def _end_copy(self, code: int) -> None:
        """A function that forks may return twice; the copy must not answer, nor take calls."""
        if os.getpid() != self._pid:
            for stream in (sys.stdout, sys.stderr):
                with suppress(Exception):
                    stream.flush()
            os._exit(code)
        if self._is_leaving:
            sys.exit(LEAVING)


def _hold() -> None:
    """Keep SIGTERM back while a function forks: at its beginning a child forgets those that Python has noted."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})


def _let_go() -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})


def _obey() -> None:
    """Let what functions fork end at SIGTERM at once, as whoever starts processes is used to."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _let_go()


def _failure_of(error: BaseException) -> dict[str, Any]:
    match error:
        case AttemptFailed():
            failure = error
        case GiveUp():
            failure = AttemptFailed("give_up", text_of(error) or "the function gave up", retryable=False)
        case _:
            failure = failure_of(error)
            with suppress(Exception):
                sys.stderr.write(failure.output)  # among what the function wrote
    return {
        "type": failure.type,
        "message": _clean(failure.message[:MAX_MESSAGE]),
        "retryable": failure.retryable,
        "delay": failure.delay,
        "backoff": failure.backoff,
    }


def _clean(text: str) -> str:
    """Without half surrogate pairs, which are no JSON."""
    return text.encode(errors="replace").decode()


def _has_children() -> bool:
    """Reap what the function did not wait for; tell whether something that it started still runs."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True
