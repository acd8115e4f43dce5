"""Proxies that make a service seem newer or older than it is."""

from __future__ import annotations

import json
from typing import Any, Final

from tests.support.cuts import CuttingProxy

ADDED: Final = {"horizon": {"moons": [1, 2]}, "aura": "violet"}


class SkewedProxy(CuttingProxy):
    """Passes requests on, and changes their JSON."""

    async def _ask(self, request: bytes) -> bytes:
        head, _, body = request.partition(b"\r\n\r\n")
        method, path, _ = head.partition(b"\r\n")[0].decode().split(" ")
        refusal = self.refusal_of(method, path.partition("?")[0], json.loads(body) if body else {})
        if refusal is not None:
            return _answer(b"HTTP/1.1 %d Refused" % refusal["status"], refusal)
        answer = await super()._ask(request)
        head, _, body = answer.partition(b"\r\n\r\n")
        return _answer(head, self.changed(json.loads(body))) if body else answer

    def refusal_of(self, method: str, path: str, body: Any) -> dict[str, Any] | None:
        """Return the problem with which a request is refused."""
        return None

    def changed(self, value: Any) -> Any:
        """Return the JSON of an answer as the other service would send it."""
        return value


class NewerProxy(SkewedProxy):
    """Adds fields everywhere, shows waiting jobs in a new state, and has new words for errors."""

    def changed(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self.changed(item) for item in value]
        if not isinstance(value, dict):
            return value
        changed = {
            name: self.changed(part) if name not in ("params", "result") else part for name, part in value.items()
        }
        if changed.get("state") == "scheduled":
            changed |= {"state": "parked", "waiting_for": "moonrise"}
        if "retryable" in changed:
            changed["type"] = "meteor"
        if changed.get("code") == "wrong_state":
            changed["code"] = "wrong_phase"
        is_map = all(isinstance(part, str) for part in changed.values())  # labels, for example
        return changed if is_map else changed | ADDED


class OlderProxy(SkewedProxy):
    """Lacks calls and fields, and refuses the fields that it does not know."""

    LACKS: Final = ("/v1/jobs/wait", "/v1/operations", "/v1/me")
    OMITS: Final = frozenset({"labels", "waiting_for", "late_by", "cancel_requested", "retry", "counts", "next"})
    UNKNOWN: Final = frozenset({"output", "worker"})

    def refusal_of(self, method: str, path: str, body: Any) -> dict[str, Any] | None:
        if path in self.LACKS:
            return {"status": 404, "code": "no_such_route", "detail": "there is no such route"}
        if path.startswith("/v1/kinds/") and method == "PUT":
            return {"status": 405, "code": "method_not_allowed", "detail": "GET is allowed"}
        unknown = sorted(self.UNKNOWN & body.keys())
        faults = [{"pointer": f"/{name}", "detail": "is not a known field"} for name in unknown]
        return {"status": 422, "code": "invalid", "detail": "not valid", "errors": faults} if faults else None

    def changed(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self.changed(item) for item in value]
        if not isinstance(value, dict):
            return value
        return {name: self.changed(part) for name, part in value.items() if name not in self.OMITS}


def _answer(head: bytes, value: Any) -> bytes:
    """Return an answer with other JSON."""
    body = json.dumps(value).encode()
    lines = [line for line in head.split(b"\r\n") if not line.lower().startswith(b"content-length")]
    return b"\r\n".join([*lines, b"Content-Length: %d" % len(body), b"", body])
