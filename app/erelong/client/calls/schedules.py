"""Requests about schedules."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from erelong.client.calls.jobs import NEW_KEY, with_key
from erelong.client.drafts import draft_of, write_fields
from erelong.client.requests import Request, get, segment, send
from erelong.client.times import Instant, write_duration, write_instant, write_zone

if TYPE_CHECKING:
    from collections.abc import Mapping

    from erelong.client.drafts import Draft

_INSTANTS: Final = frozenset({"starts_at", "ends_at", "anchor"})
_DURATIONS: Final = frozenset({"every", "spread", "catchup"})


def put(name: str, job: Draft[Any], timing: Mapping[str, Any]) -> Request:
    return send("PUT", _path(name), {**_write(timing), "job": draft_of(job).body()})


def edit(name: str, changes: Mapping[str, Any], version: int | None) -> Request:
    headers = {} if version is None else {"If-Match": f'"{version}"'}
    return send("PATCH", _path(name), _write(changes), headers=headers)


def read(name: str) -> Request:
    return get(_path(name))


def page(filters: Mapping[str, Any], cursor: str | None) -> Request:
    return get("/v1/schedules", {**filters, "cursor": cursor})


def delete(name: str) -> Request:
    return send("DELETE", _path(name))


def pause(name: str, reason: str | None) -> Request:
    return send("POST", _path(name, "/pause"), {} if reason is None else {"reason": reason})


def resume(name: str) -> Request:
    return send("POST", _path(name, "/resume"))


def trigger(name: str, overlap: str | None) -> Request:
    return with_key(send("POST", _path(name, "/trigger"), {} if overlap is None else {"overlap": overlap}), NEW_KEY)


def backfill(name: str, start: Instant, end: Instant) -> Request:
    body = {"from": write_instant(start, "start"), "to": write_instant(end, "end")}
    return with_key(send("POST", _path(name, "/backfill"), body), NEW_KEY)


def preview(name: str, start: Instant | None, count: int) -> Request:
    return get(
        _path(name, "/preview"), {"from": None if start is None else write_instant(start, "start"), "count": count}
    )


def _write(timing: Mapping[str, Any]) -> dict[str, Any]:
    return {name: None if value is None else _write_field(name, value) for name, value in timing.items()}


def _write_field(name: str, value: Any) -> Any:
    if name in _DURATIONS:
        return write_duration(value)
    if name in _INSTANTS:
        return write_instant(value, name) if isinstance(value, datetime) else value
    if name == "zone":
        return write_zone(value)
    return write_fields(value) if name == "job" else value


def _path(name: str, action: str = "") -> str:
    return f"/v1/schedules/{segment(name)}{action}"
