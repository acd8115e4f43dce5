"""Requests of pull workers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from erelong.client.requests import Repeat, Request, segment, send

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def lease(
    kinds: Sequence[str], queues: Sequence[str], max: int, wait: float, seconds: float, worker: str | None
) -> Request:
    """Return a request for jobs. If its answer is lost, the leases run out: it is not repeated blindly."""
    body: dict[str, Any] = {"kinds": kinds, "max": max, "wait": wait, "lease": seconds}
    body |= {"queues": queues} if queues else {}
    body |= {"worker": worker} if worker else {}
    return send("POST", "/v1/leases", body, repeat=Repeat.UNBEGUN, wait=wait)


def extend(token: str, seconds: float) -> Request:
    return send("POST", _path(token, "extend"), {"lease": seconds})


def finish(token: str, result: Any) -> Request:
    return send("POST", _path(token, "finish"), {"result": result})


def fail(token: str, body: Mapping[str, Any]) -> Request:
    return send("POST", _path(token, "fail"), body)


def release(token: str) -> Request:
    return send("POST", _path(token, "release"))


def _path(token: str, action: str) -> str:
    return f"/v1/leases/{segment(token)}/{action}"
