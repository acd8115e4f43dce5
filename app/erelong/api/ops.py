"""Routes for operators and probes: health, metrics, the OpenAPI document and its page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from erelong.api.docs_page import read_page
from erelong.errors import Forbidden
from erelong.model.caller import Scope
from erelong.telemetry.metrics import CONTENT_TYPE
from erelong.web.auth import caller_of
from erelong.web.body import JSON
from erelong.web.response import Reply, json_reply

if TYPE_CHECKING:
    from aiohttp import web

    from erelong.api.openapi import Document
    from erelong.monitoring.gauges import Gauges
    from erelong.monitoring.health import Health
    from erelong.telemetry.metrics import Metrics
    from erelong.web.auth import KeyGate


class OpsRoutes:
    """The handlers of `/livez`, `/readyz`, `/metrics`, `/openapi.json` and `/docs`."""

    def __init__(self, *, health: Health, gauges: Gauges, metrics: Metrics, document: Document, gate: KeyGate) -> None:
        self._health = health
        self._gauges = gauges
        self._metrics = metrics
        self._document = document
        self._gate = gate

    async def livez(self, _: web.Request) -> Reply:
        return json_reply({"live": True})

    async def readyz(self, request: web.Request) -> Reply:
        checks = self._health.checks()
        is_ready = all(state.startswith("ok") for state in checks.values())
        detail = {"checks": checks} if self._gate.has_scope(request, Scope.READ) else {}
        return json_reply({"ready": is_ready, **detail}, status=200 if is_ready else 503)

    async def metrics(self, request: web.Request) -> Reply:
        caller = caller_of(request)
        if caller.queues:
            raise Forbidden(
                f"metrics cover all queues, and API key {caller.name!r} is limited to some; use one without queues"
            )
        await self._gauges.refresh()
        return Reply(body=self._metrics.page(), headers={"Content-Type": CONTENT_TYPE})

    async def openapi(self, _: web.Request) -> Reply:
        return Reply(body=self._document.text(), headers={"Content-Type": JSON})

    async def docs(self, _: web.Request) -> Reply:
        page, headers = read_page()
        return Reply(body=page, headers={**headers})
