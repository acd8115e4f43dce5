"""Requests about operations on many jobs."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from erelong.client.calls.jobs import NEW_KEY, with_key
from erelong.client.drafts import write_fields
from erelong.client.requests import Request, get, segment, send
from erelong.client.times import write_duration, write_instant

if TYPE_CHECKING:
    from collections.abc import Mapping

_LISTS = frozenset({"state", "queue", "kind", "schedule", "jobs"})


def start(
    action: str, filters: Mapping[str, Any], at_most: int | None, options: Mapping[str, Any], *, is_dry: bool = False
) -> Request:
    body = {"action": action, "filter": write_filter(filters), "at_most": at_most, **_write(options)}
    query = {"dry_run": True} if is_dry else {}
    request = send("POST", "/v1/operations", body, query=query)
    return request if is_dry else with_key(request, NEW_KEY)


def write_filter(filters: Mapping[str, Any]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for name, value in filters.items():
        if value is None:
            continue
        if name in ("label", "labels"):
            fields["labels"] = {**fields.get("labels", {}), **value}
        elif name in _LISTS:
            fields[name] = [value] if isinstance(value, str) else list(value)
        else:
            fields[name] = write_instant(value, name) if isinstance(value, datetime) else value
    return fields


def _write(options: Mapping[str, Any]) -> dict[str, Any]:
    fields = {name: value for name, value in options.items() if value is not None}
    if "spread" in fields:
        fields["spread"] = write_duration(fields["spread"])
    if "set" in fields:
        fields["set"] = write_fields(fields["set"])
    return fields


def read(id: str, wait: float = 0.0) -> Request:
    return get(_path(id), {"wait": wait or None}, wait=wait)


def page(filters: Mapping[str, Any], cursor: str | None) -> Request:
    return get("/v1/operations", {**filters, "cursor": cursor})


def cancel(id: str) -> Request:
    return send("POST", _path(id, "/cancel"))


def _path(id: str, action: str = "") -> str:
    return f"/v1/operations/{segment(id)}{action}"
