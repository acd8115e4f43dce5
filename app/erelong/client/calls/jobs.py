"""Requests about jobs."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from erelong.client.drafts import write_fields
from erelong.client.requests import Repeat, Request, get, segment, send
from erelong.client.times import write_instant

if TYPE_CHECKING:
    from erelong.client.drafts import Draft

MAX_WAITED: Final = 1_000  # ids of one request
WAIT: Final = 30.0  # seconds that one request is held
NEW_KEY: Final = "new"
"""Stands for an idempotency key of its own."""

_INSTANTS = frozenset(f"{what}_{side}" for what in ("due", "created", "finished") for side in ("before", "after")) | {
    "occurrence"
}


def new_key() -> str:
    return f"py-{os.urandom(16).hex()}"


def submit(draft: Draft[Any], idempotency_key: str | None = NEW_KEY) -> Request:
    """Return a submit. Its idempotency key stays the same over all tries, so none of them makes a second job."""
    return with_key(send("POST", "/v1/jobs", draft.body()), idempotency_key)


def submit_batch(bodies: Sequence[bytes], idempotency_key: str = NEW_KEY) -> Request:
    """Return the submit of several jobs, which are stored all or not at all."""
    request = Request(
        method="POST",
        path="/v1/jobs/batch",
        body=b'{"jobs":[%b]}' % b",".join(bodies),
        headers={"Content-Type": "application/json"},
        repeat=Repeat.SAFE,
    )
    return with_key(request, idempotency_key)


def with_key(request: Request, idempotency_key: str | None) -> Request:
    key = new_key() if idempotency_key == NEW_KEY else idempotency_key
    if key is None:
        return request._replace(repeat=Repeat.UNBEGUN)
    return request._replace(headers={**request.headers, "Idempotency-Key": key})


def read(id: str, *, wait: float = 0.0, queue: str | None = None) -> Request:
    return get(_path(id), {"wait": wait or None, "queue": queue}, wait=wait)


def explain(id: str, *, queue: str | None = None) -> Request:
    return get(_path(id, "/explain"), {"queue": queue})


def page(filters: Mapping[str, Any], cursor: str | None = None) -> Request:
    """Return the request for one page of a listing. `labels={"tenant": "t1"}`, or `label`, selects by labels."""
    query: dict[str, Any] = {}
    for name, value in filters.items():
        if name in ("label", "labels"):
            query |= {f"label.{label}": text for label, text in (value or {}).items()}
        else:
            query[name] = write_instant(value, name) if name in _INSTANTS and value is not None else value
    return get("/v1/jobs", query | {"cursor": cursor})


def edit(id: str, changes: Mapping[str, Any], version: int | None, queue: str | None) -> Request:
    body = write_fields(changes)
    return send("PATCH", _path(id), body, query={"queue": queue}, headers=_match(version), repeat=Repeat.UNBEGUN)


def cancel(id: str, reason: str | None, version: int | None, queue: str | None) -> Request:
    body = {} if reason is None else {"reason": reason}
    return send("POST", _path(id, "/cancel"), body, query={"queue": queue}, headers=_match(version))


def run(id: str, version: int | None, queue: str | None) -> Request:
    headers, repeat = _match(version), Repeat.UNBEGUN
    return send("POST", _path(id, "/run"), query={"queue": queue}, headers=headers, repeat=repeat)


def retry(id: str, changes: Mapping[str, Any], version: int | None) -> Request:
    body = write_fields(changes) or None
    return send("POST", _path(id, "/retry"), body, headers=_match(version), repeat=Repeat.UNBEGUN)


def delete(id: str, version: int | None, queue: str | None) -> Request:
    return send("DELETE", _path(id), query={"queue": queue}, headers=_match(version))


def wait(ids: Sequence[str], until: str, seconds: float, view: str = "full") -> Request:
    body = {"jobs": ids, "until": until, "wait": seconds, "view": view}
    return send("POST", "/v1/jobs/wait", body, repeat=Repeat.READ, wait=seconds)


def only_in(version: int, request: Request) -> Request:
    """Return a change that is refused if the job is in another version."""
    return request._replace(headers={**request.headers, **_match(version)})


def _path(id: str, action: str = "") -> str:
    return f"/v1/jobs/{segment(id)}{action}"


def _match(version: int | None) -> dict[str, str]:
    return {} if version is None else {"If-Match": f'"{version}"'}
