"""Listings of jobs over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from erelong.api import conditions
from erelong.api.shapes.listing_views import count_view, listed_view
from erelong.api.shapes.queries import NEXT, ListIn
from erelong.errors import Fault, Invalid
from erelong.model.query import Order
from erelong.service.overview.listings import EMPTY, NONE, Page
from erelong.service.overview.upcoming import EMPTY as NO_UPCOMING
from erelong.web.auth import caller_of
from erelong.web.response import Reply, json_reply

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from aiohttp import web

    from erelong.clock.instants import Now
    from erelong.model.job import Job
    from erelong.model.query import Query
    from erelong.service.overview.listings import Count
    from erelong.service.services import Services
    from erelong.settings.sections import Config

SHOWN_AT_ONCE: Final = 100
"""Jobs shown before others use the loop."""
Views = list[dict[str, Any]]
Filters = Mapping[str, Any]
Listed = tuple[dict[str, Any], str | None]
"""The body of a page, and the cursor of the next."""


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
        asked = fields.queue or sorted(caller.queues)
        queues = [queue for queue in asked if caller.may_use(queue)]
        filters = fields.model_dump(exclude={"limit", "cursor", "view", "count"}) | {"queue": queues}
        is_next = fields.order == NEXT
        _check_order(fields, asked)
        query = replace(
            fields.to_query(queues),
            order=Order.DUE if is_next else Order(fields.order),
            limit=fields.limit,
            is_line=fields.view == "line",
            is_full=is_next and fields.view == "full",
        )
        is_hidden = bool(fields.queue) and not queues  # this key may see none of them: as if they were empty
        listing = self._upcoming if is_next else self._page
        body, cursor = await listing(query, fields, filters, is_hidden=is_hidden)
        if fields.count == "true":
            body["count"] = count_view(NONE if is_hidden else await self._count(query, is_next=is_next))
        reply = json_reply(body)
        if cursor:
            reply.headers["Link"] = f'<{request.rel_url.update_query(cursor=cursor)}>; rel="next"'
        return reply

    async def _page(self, query: Query, fields: ListIn, filters: Filters, *, is_hidden: bool) -> Listed:
        query = replace(query, after=conditions.read_cursor(fields.cursor, filters) if fields.cursor else None)
        found = EMPTY if is_hidden else await self._services.listings.page(query)
        views, after = await self._views(query, found, fields.view)
        cursor = conditions.write_cursor(filters, after) if after else None
        body: dict[str, Any] = {"jobs": views, "next": cursor}
        if found.after and len(found.jobs) < query.limit:
            body["scanned"] = found.scanned
        return body, cursor

    async def _upcoming(self, query: Query, fields: ListIn, filters: Filters, *, is_hidden: bool) -> Listed:
        after = conditions.read_entries(fields.cursor, filters) if fields.cursor else []
        upcoming, is_reverse = self._services.upcoming, fields.reverse == "true"
        found = NO_UPCOMING if is_hidden else await upcoming.page(query, after, is_reverse=is_reverse)
        cursor = conditions.write_entries(filters, found.after) if found.after else None
        body: dict[str, Any] = {
            "jobs": await self._listed(found.jobs, fields.view),
            "next": cursor,
            "complete": found.is_complete,
        }
        if found.after and len(found.jobs) < query.limit:
            body["scanned"] = found.scanned
        return body, cursor

    async def _count(self, query: Query, *, is_next: bool) -> Count:
        if is_next:
            end = self._now() + 1
            query = replace(query, due_before=end if query.due_before is None else min(end, query.due_before))
        return await self._services.listings.count(query)

    async def _views(self, query: Query, found: Page, view: str) -> tuple[Views, tuple[int, int] | None]:
        """Return the jobs of a page as JSON, and the position after them. A page of large jobs ends early."""
        jobs, count = found.jobs, len(found.jobs)
        if view == "full":
            jobs, count = await self._services.jobs.read_page(found.jobs)
        after = query.position(found.jobs[count - 1]) if count < len(found.jobs) else found.after
        return await self._listed(jobs, view), after

    async def _listed(self, jobs: Sequence[Job], view: str) -> Views:
        views: Views = []
        for start in range(0, len(jobs), SHOWN_AT_ONCE):
            now, blockers = self._now(), self._services.blockers
            part = jobs[start : start + SHOWN_AT_ONCE]
            views += [listed_view(job, blockers.waiting_for(job, now), view) for job in part]
            await asyncio.sleep(0)
        return views


def _check_order(fields: ListIn, queues: Collection[str]) -> None:
    """Refuse what does not go with the order."""
    faults: list[Fault] = []
    if fields.order == NEXT and len({*queues}) != 1:
        given = ", ".join(sorted({*queues})) or "none"
        faults.append(Fault("/queue", f"order={NEXT} lists the due jobs of one queue, and given: {given}; name one"))
    if fields.order != NEXT and fields.reverse == "true":
        faults.append(Fault("/reverse", f"is for order={NEXT}, and the order is {fields.order}; leave it out"))
    if faults:
        raise Invalid("the query is not valid", faults=faults)
