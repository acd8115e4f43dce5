"""Requests about kinds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from erelong.client.drafts import write_fields
from erelong.client.requests import Request, get, segment, send

if TYPE_CHECKING:
    from collections.abc import Mapping


def every() -> Request:
    return get("/v1/kinds")


def read(name: str) -> Request:
    return get(_path(name))


def put(name: str, declaration: Mapping[str, Any]) -> Request:
    return send("PUT", _path(name), write_fields(declaration))


def delete(name: str) -> Request:
    return send("DELETE", _path(name))


def _path(name: str) -> str:
    return f"/v1/kinds/{segment(name)}"
