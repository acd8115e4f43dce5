"""What operators and machines ask: kinds, health, metrics, the OpenAPI document, the page that shows it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aiohttp import web

from erelong.api.docs_page import read_page
from erelong.errors import Forbidden
from erelong.telemetry.metrics import CONTENT_TYPE
from erelong.web.auth import caller_of
from erelong.web.body import JSON
from erelong.web.response import Reply, json_reply

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from erelong.handlers.base import Handler
    from erelong.telemetry.metrics import Metrics


class OpsRoutes:
    """`checks` names each part of the service with "ok" or what ails it; `may_see` says whether who asks is told."""

    def __init__(
        self,
        *,
        handlers: Mapping[str, Handler],
        metrics: Metrics,
        checks: Callable[[], dict[str, str]],
        document: Callable[[], bytes],
        may_see: Callable[[web.Request], bool],
    ) -> None:
        self._handlers = handlers
        self._metrics = metrics
        self._checks = checks
        self._document = document
        self._may_see = may_see

    async def kinds(self, _: web.Request) -> Reply:
        return json_reply({"kinds": [_kind_view(name, handler) for name, handler in self._handlers.items()]})

    async def livez(self, _: web.Request) -> Reply:
        return json_reply({"live": True})

    async def readyz(self, request: web.Request) -> Reply:
        checks = self._checks()
        is_ready = all(state.startswith("ok") for state in checks.values())
        detail = {"checks": checks} if self._may_see(request) else {}
        return json_reply({"ready": is_ready, **detail}, status=200 if is_ready else 503)

    async def metrics(self, request: web.Request) -> Reply:
        caller = caller_of(request)
        if caller.queues:
            raise Forbidden(f"metrics are of all queues, and key {caller.name!r} is limited to some")
        await self._metrics.refresh()
        return Reply(body=self._metrics.page(), headers={"Content-Type": CONTENT_TYPE})

    async def openapi(self, _: web.Request) -> Reply:
        return Reply(body=self._document(), headers={"Content-Type": JSON})

    async def docs(self, _: web.Request) -> Reply:
        page, headers = read_page()
        return Reply(body=page, headers={**headers})


def _kind_view(name: str, handler: Handler) -> dict[str, Any]:
    return {
        "name": name,
        "type": handler.type,
        "isolation": handler.isolation,
        "stop": handler.stop,
        "params_schema": handler.params_schema,
        "result_schema": handler.result_schema,
    }
