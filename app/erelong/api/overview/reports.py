"""Overviews over HTTP: who calls, and what happens."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

import orjson

from erelong.api import conditions
from erelong.api.shapes.overview_queries import DueIn, ErrorsIn, StatsIn
from erelong.api.shapes.overview_views import cause_view, causes_view, due_view, me_view, stats_view
from erelong.clock.instants import format_instant
from erelong.model.query import Query
from erelong.service.overview.causes import FAILED
from erelong.web.auth import caller_of
from erelong.web.body import JSON
from erelong.web.response import Reply, json_reply

if TYPE_CHECKING:
    from aiohttp import web

    from erelong.clock.instants import Instant, Now
    from erelong.model.caller import Caller
    from erelong.monitoring.statistics.stats import Statistics, Stats
    from erelong.service.overview.causes import Causes
    from erelong.service.services import Services
    from erelong.settings.sections import Config
    from erelong.web.auth import KeyGate


CAUSES_AT_ONCE = 100
"""Causes shown before others use the loop."""
NO_KIND = frozenset({""})
"""Kinds of no job."""


class Rendered(NamedTuple):
    """A reading as all clients get it, after `now`."""

    rest: bytes
    tag: str


class OverviewRoutes:
    """The handlers of `/v1/me`, `/v1/stats`, `/v1/due` and `/v1/jobs/errors`."""

    def __init__(self, *, services: Services, gate: KeyGate, statistics: Statistics, config: Config, now: Now) -> None:
        self._services = services
        self._now = now
        self._max_horizon = config.jobs.max_horizon
        self._gate = gate
        self._statistics = statistics
        self._rendered: dict[str, WeakKeyDictionary[Stats, Rendered]] = {
            "full": WeakKeyDictionary(),
            "brief": WeakKeyDictionary(),
        }
        self._causes: WeakKeyDictionary[Causes, bytes] = WeakKeyDictionary()

    async def me(self, request: web.Request) -> Reply:
        caller = caller_of(request)
        return json_reply(me_view(caller, self._gate.rate_of(caller)))

    async def stats(self, request: web.Request) -> Reply:
        query = conditions.read_query(request, StatsIn)
        stats = await self._statistics.read(query.span, frozenset(query.queue), caller_of(request))
        now = format_instant(self._now()).encode()
        known = self._rendered[query.view]
        rendered = known.get(stats)
        if rendered is None:
            rendered = known[stats] = _render(stats, now, is_brief=query.view == "brief")
        headers = {"Content-Type": JSON, "ETag": rendered.tag}
        if conditions.has_tag(request, rendered.tag):
            return Reply(status=304, headers=headers)
        return Reply(body=b'{"now":"%b",%b' % (now, rendered.rest), headers=headers)

    async def due(self, request: web.Request) -> Reply:
        context = {"now": self._now(), "max_horizon": self._max_horizon}
        fields = conditions.read_query(request, DueIn, context=context)
        start: Instant | None = getattr(fields, "from")  # a keyword of Python
        queues = _queues_of(fields.queue, caller_of(request))
        kinds = frozenset(fields.kind) if queues is not None else NO_KIND
        query = Query(queues=queues or frozenset(), kinds=kinds, labels=fields.label)
        return json_reply(due_view(await self._services.due.read(start, fields.step, fields.bins, query)))

    async def errors(self, request: web.Request) -> Reply:
        context = {"now": self._now(), "max_horizon": self._max_horizon}
        fields = conditions.read_query(request, ErrorsIn, context=context)
        queues = _queues_of(fields.queue, caller_of(request))
        query = fields.to_query(queues or ())
        query = replace(query, states=query.states or FAILED, kinds=query.kinds if queues is not None else NO_KIND)
        causes = await self._services.failures.read(query, fields.last)
        body = self._causes.get(causes)
        if body is None:
            body = self._causes[causes] = await _render_causes(causes)
        return Reply(body=body, headers={"Content-Type": JSON})


def _queues_of(asked: list[str], caller: Caller) -> frozenset[str] | None:
    """Return the queues that are asked for and that the caller may use; None if there is none of them."""
    queues = frozenset(queue for queue in asked or caller.queues if caller.may_use(queue))
    return None if (asked or caller.queues) and not queues else queues


async def _render_causes(causes: Causes) -> bytes:
    """Return a reading as JSON, as all clients get it."""
    shown: list[dict[str, Any]] = []
    for start in range(0, len(causes.causes), CAUSES_AT_ONCE):
        shown += map(cause_view, causes.causes[start : start + CAUSES_AT_ONCE])
        await asyncio.sleep(0)
    return orjson.dumps(causes_view(causes, shown))


def _render(stats: Stats, now: bytes, *, is_brief: bool) -> Rendered:
    rest = orjson.dumps(stats_view(stats, is_brief=is_brief)).removeprefix(b"{")
    return Rendered(rest, f'"{blake2b(now + rest, digest_size=9).hexdigest()}"')
