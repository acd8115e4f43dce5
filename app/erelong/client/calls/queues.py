"""Requests about queues and the service itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from erelong.client.drafts import write_fields
from erelong.client.requests import Request, get, segment, send

if TYPE_CHECKING:
    from collections.abc import Mapping


def read(name: str) -> Request:
    return get(_path(name))


def every() -> Request:
    return get("/v1/queues")


def put(name: str, settings: Mapping[str, Any]) -> Request:
    return send("PUT", _path(name), write_fields(settings))


def reset(name: str) -> Request:
    return send("DELETE", _path(name))


def pause(name: str, reason: str | None) -> Request:
    return send("POST", _path(name, "/pause"), {} if reason is None else {"reason": reason})


def resume(name: str) -> Request:
    return send("POST", _path(name, "/resume"))


def purge(name: str) -> Request:
    return send("POST", _path(name, "/purge"))


def _path(name: str, action: str = "") -> str:
    return f"/v1/queues/{segment(name)}{action}"


def me() -> Request:
    return get("/v1/me")


def stats(span: str, queue: str | None) -> Request:
    return get("/v1/stats", {"span": span, "queue": queue})


def read_clock() -> Request:
    return get("/v1/clock")


def move_clock(move: Mapping[str, Any], wait: float) -> Request:
    return send("POST", "/v1/clock", {**move, "wait": wait}, wait=wait)
