"""The loop of a worker process: receives calls, runs their functions and sends the outcomes."""

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
from erelong.handlers.python.signature import InvalidKind, Signature, read_signature

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from socket import socket

MAX_MESSAGE: Final = 10_000
LEAVING: Final = 128 + signal.SIGTERM

_PAGE: Final = os.sysconf("SC_PAGE_SIZE")


class WorkerLoop:
    """The functions of some kinds, and the connection that their calls arrive on."""

    def __init__(self, *, connection: socket) -> None:
        self._connection = connection
        self._pid = os.getpid()
        self._functions: dict[str, tuple[Callable[..., Any], Signature]] = {}
        self._max_result = 0
        self._memory = os.open("/proc/self/statm", os.O_RDONLY)
        self._is_leaving = False

    def serve(self, functions: Mapping[str, str], max_result: int) -> None:
        """Import the functions, and answer calls until the service closes the connection."""
        os.register_at_fork(before=_block_sigterm, after_in_parent=_unblock_sigterm, after_in_child=_reset_sigterm)
        self._max_result = max_result
        problem = self._import(functions)
        self._connection.sendall(framed(orjson.dumps({"problem": problem})))
        while problem is None and (head := receive(self._connection)) is not None:
            params = receive(self._connection)
            if params is None:
                return
            signal.signal(signal.SIGTERM, self._leave)  # the last function may have replaced the handler
            self._connection.sendall(framed(*self._answer(orjson.loads(head), params)))

    def _leave(self, *_: object) -> NoReturn:
        """Raise SystemExit in the running function, so that its `finally` clauses and context managers run."""
        self._is_leaving = True
        raise SystemExit(LEAVING)

    def _import(self, functions: Mapping[str, str]) -> str | None:
        """Import every function; return the problem of the first that fails."""
        for kind, path in functions.items():
            try:
                function = import_function(path)
                self._functions[kind] = (function, read_signature(function))
            except InvalidKind as error:
                return f'kinds.{kind}.python = "{path}": {_clean(str(error))}'
        return None

    def _answer(self, head: dict[str, Any], params: bytes) -> tuple[bytes, bytes]:
        result, failure, is_spent = self._outcome(head, params)
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):  # the function may have closed or replaced it
                stream.flush()
        answer = {
            "failure": failure,
            "has_result": result is not None,
            "memory": int(os.pread(self._memory, 100, 0).split()[1]) * _PAGE,
            "is_spent": is_spent or _has_children(),
        }
        return orjson.dumps(answer), (result or b"")[: self._max_result + 1]

    def _outcome(self, head: dict[str, Any], params: bytes) -> tuple[bytes | None, dict[str, Any] | None, bool]:
        """Return the result, the failure, and whether memory ran out."""
        try:
            result = self._call(head, params)
        except BaseException as error:  # noqa: BLE001 - any exception of a handler fails its attempt
            self._end_copy(1)
            return None, _failure_of(error), isinstance(error, MemoryError)
        self._end_copy(0)
        return result, None, False

    def _call(self, head: dict[str, Any], params: bytes) -> bytes | None:
        function, signature = self._functions[head["kind"]]
        try:
            values = signature.check(params)
        except ValidationError as error:  # the function changed after the submit
            known = signature.params_schema.get("properties", ())
            detail = invalid(head["kind"], find_faults(error, params, known)).detail
            raise AttemptFailed("exception", detail, retryable=False) from None
        positional, named = signature.arguments(values, Attempt(**head["attempt"]))
        return signature.dump(function(*positional, **named))

    def _end_copy(self, code: int) -> None:
        """Exit in a forked copy of this process, which must neither answer nor take calls."""
        if os.getpid() != self._pid:
            for stream in (sys.stdout, sys.stderr):
                with suppress(Exception):
                    stream.flush()
            os._exit(code)
        if self._is_leaving:
            sys.exit(LEAVING)


def _block_sigterm() -> None:
    """Block SIGTERM during a fork: a new child drops the signals that Python has noted but not handled."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})


def _unblock_sigterm() -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})


def _reset_sigterm() -> None:
    """Restore the default action, so that processes that functions fork end at SIGTERM."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _unblock_sigterm()


def _failure_of(error: BaseException) -> dict[str, Any]:
    match error:
        case AttemptFailed():
            failure = error
        case GiveUp():
            failure = AttemptFailed("give_up", text_of(error) or "the function gave up", retryable=False)
        case _:
            failure = failure_of(error)
            with suppress(Exception):
                sys.stderr.write(failure.output)  # in order with the function's own output
    return {
        "type": failure.type,
        "message": _clean(failure.message[:MAX_MESSAGE]),
        "retryable": failure.retryable,
        "delay": failure.delay,
        "backoff": failure.backoff,
    }


def _clean(text: str) -> str:
    """Replace lone surrogates, which JSON cannot hold."""
    return text.encode(errors="replace").decode()


def _has_children() -> bool:
    """Reap the function's dead children; return whether any child still runs."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True
