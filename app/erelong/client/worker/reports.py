"""What a worker tells the service of an attempt, also to a service that is too old for some of its fields."""

from __future__ import annotations

import asyncio
import traceback
from typing import TYPE_CHECKING, Any, Final

from erelong.attempt import Cancelled, GiveUp, RetryAfter
from erelong.client.calls import leases as calls
from erelong.client.errors import ErelongError, Invalid, LeaseLost, NotFound
from erelong.client.worker import log

if TYPE_CHECKING:
    from collections.abc import Mapping

    from erelong.client.aio.client import AsyncClient
    from erelong.client.requests import Request

MAX_MESSAGE: Final = 2_000  # characters
MAX_OUTPUT: Final = 64 * 1024  # bytes


class Reports:
    """Sends outcomes. The service rejects those of a lost lease."""

    def __init__(self, *, client: AsyncClient, patience: float) -> None:
        self._client = client
        self._patience = patience
        self._unknown: set[str] = set()  # fields that this service does not know

    async def finished(self, token: str, result: Any) -> Exception | None:
        """Report a result. Return the error that fails the attempt instead, if the service cannot take the result."""
        try:
            await self._send(calls.finish(token, result))
        except (TypeError, ValueError, RecursionError) as error:  # it has no JSON form
            return error.with_traceback(None)
        except Invalid as problem:  # such as a result that is too large
            return problem.with_traceback(None)
        return None

    async def failed(
        self, token: str, error: BaseException, *, type: str | None = None, is_final: bool = False
    ) -> Mapping[str, Any]:
        """Report a failure, and return the job as it is then; nothing if the service did not take the report."""
        body: dict[str, Any] = {
            "error": {"type": type or type_of(error), "message": str(error)[:MAX_MESSAGE]},
            "retryable": not (is_final or isinstance(error, GiveUp)),
            "output": _output_of(error),
        }
        if isinstance(error, RetryAfter):
            body["delay"] = error.delay
        try:
            return await self._send(calls.fail(token, self.known(body)))
        except Invalid as problem:
            if not self.learn(problem):
                # the failure itself is not valid, such as its delay
                log.warning("report_refused", detail=problem)
                body = {"error": {"type": "exception", "message": f"{problem}"[:MAX_MESSAGE]}, "retryable": False}
            return await self._send(calls.fail(token, self.known(body)))

    async def released(self, token: str) -> None:
        await self._send(calls.release(token))

    def known(self, body: dict[str, Any]) -> dict[str, Any]:
        """Return the fields that the service knows and that say anything."""
        return {name: value for name, value in body.items() if name not in self._unknown and value is not None}

    def learn(self, problem: Invalid) -> bool:
        """Remember the optional fields that a refusal names; return whether there was one."""
        named = {error.get("pointer", "").lstrip("/") for error in problem.errors} & {"output", "worker"}
        self._unknown |= named
        return bool(named)

    async def _send(self, request: Request) -> Mapping[str, Any]:
        try:
            return await asyncio.shield(self._client.send(request, timeout=self._patience)) or {}
        except (LeaseLost, NotFound) as problem:
            log.warning("lease_lost", detail=problem)
        except Invalid:
            raise
        except ErelongError as error:
            log.warning("outcome_lost", detail=error)
        return {}


def type_of(error: BaseException) -> str:
    if isinstance(error, GiveUp):
        return "give_up"
    if isinstance(error, Cancelled | asyncio.CancelledError):
        return "cancelled"
    return "exception"


def _output_of(error: BaseException) -> str | None:
    """Return the traceback of a function that failed, without the frames of the worker."""
    trace = error.__traceback__
    if isinstance(error, GiveUp | RetryAfter | Cancelled) or trace is None:
        return None
    while trace.tb_next is not None and str(trace.tb_frame.f_globals.get("__package__")).startswith("erelong.client"):
        trace = trace.tb_next
    text = "".join(traceback.format_exception(error.with_traceback(trace)))
    return text.encode(errors="replace")[-MAX_OUTPUT:].decode(errors="ignore")
