"""What operators and machines ask: kinds, health, metrics, the OpenAPI document, the page that shows it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aiohttp import web

from app.api.bodies import JSON
from app.api.docs import read_page
from app.api.jobs import json_response
from app.metrics import CONTENT_TYPE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from app.handlers.base import Handler
    from app.metrics import Metrics


class OpsRoutes:
    """`checks` names each part of the service with "ok" or what ails it."""

    def __init__(
        self,
        *,
        handlers: Mapping[str, Handler],
        metrics: Metrics,
        checks: Callable[[], dict[str, str]],
        document: Callable[[], bytes],
    ) -> None:
        self._handlers = handlers
        self._metrics = metrics
        self._checks = checks
        self._document = document

    async def kinds(self, _: web.Request) -> web.Response:
        return json_response({"kinds": [_kind_view(name, handler) for name, handler in self._handlers.items()]})

    async def livez(self, _: web.Request) -> web.Response:
        return json_response({"live": True})

    async def readyz(self, _: web.Request) -> web.Response:
        checks = self._checks()
        is_ready = all(state.startswith("ok") for state in checks.values())
        return json_response({"ready": is_ready, "checks": checks}, status=200 if is_ready else 503)

    async def metrics(self, _: web.Request) -> web.Response:
        await self._metrics.refresh()
        return web.Response(body=self._metrics.page(), headers={"Content-Type": CONTENT_TYPE})

    async def openapi(self, _: web.Request) -> web.Response:
        return web.Response(body=self._document(), content_type=JSON)

    async def docs(self, _: web.Request) -> web.Response:
        page, headers = read_page()
        return web.Response(body=page, headers=headers)


def _kind_view(name: str, handler: Handler) -> dict[str, Any]:
    return {
        "name": name,
        "type": handler.type,
        "isolation": handler.isolation,
        "stop": handler.stop,
        "params_schema": handler.params_schema,
        "result_schema": handler.result_schema,
    }
