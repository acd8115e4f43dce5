"""Listings of jobs over HTTP."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from erelong.api import conditions
from erelong.api.shapes.listing_views import count_view, listed_view
from erelong.api.shapes.queries import ListIn
from erelong.model.query import Order
from erelong.service.overview.listings import EMPTY, NONE, Page
from erelong.web.auth import caller_of
from erelong.web.response import Reply, json_reply

if TYPE_CHECKING:
    from aiohttp import web

    from erelong.clock.instants import Now
    from erelong.model.query import Query
    from erelong.service.services import Services
    from erelong.settings.sections import Config

Views = list[dict[str, Any]]


class ListingRoutes:
    """The handler of `GET /v1/jobs`."""

    def __init__(self, *, services: Services, config: Config, now: Now) -> None:
        self._services = services
        self._max_horizon = config.jobs.max_horizon
        self._now = now

    async def jobs(self, request: web.Request) -> Reply:
        caller = caller_of(request)
        context = {"now": self._now(), "max_horizon": self._max_horizon}
        fields = conditions.read_query(request, ListIn, context=context)
        queues = [queue for queue in fields.queue or sorted(caller.queues) if caller.may_use(queue)]
        filters = fields.model_dump(exclude={"limit", "cursor", "view", "count"}) | {"queue": queues}
        query = replace(
            fields.to_query(queues),
            order=Order(fields.order),
            after=conditions.read_cursor(fields.cursor, filters) if fields.cursor else None,
            limit=fields.limit,
            is_line=fields.view == "line",
        )
        is_hidden = bool(fields.queue) and not queues  # this key may see none of them: as if they were empty
        found = EMPTY if is_hidden else await self._services.listings.page(query)
        views, after = await self._views(query, found, fields.view)
        cursor = conditions.write_cursor(filters, after) if after else None
        body: dict[str, Any] = {"jobs": views, "next": cursor}
        if found.after and len(found.jobs) < query.limit:
            body["scanned"] = found.scanned
        if fields.count == "true":
            body["count"] = count_view(NONE if is_hidden else await self._services.listings.count(query))
        reply = json_reply(body)
        if cursor:
            reply.headers["Link"] = f'<{request.rel_url.update_query(cursor=cursor)}>; rel="next"'
        return reply

    async def _views(self, query: Query, found: Page, view: str) -> tuple[Views, tuple[int, int] | None]:
        """Return the jobs of a page as JSON, and the position after them. A page of large jobs ends early."""
        jobs, count = found.jobs, len(found.jobs)
        if view == "full":
            jobs, count = await self._services.jobs.read_page(found.jobs)
        after = query.position(found.jobs[count - 1]) if count < len(found.jobs) else found.after
        now, blockers = self._now(), self._services.blockers
        return [listed_view(job, blockers.waiting_for(job, now), view) for job in jobs], after
