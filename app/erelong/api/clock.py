"""The virtual clock over HTTP: where it stands, and moves of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import ValidationError

from erelong.api.shapes.clock import MAX_WAIT, ClockIn, clock_view, move_view
from erelong.web.connection import client_of
from erelong.web.problems import invalid
from erelong.web.response import json_reply

if TYPE_CHECKING:
    from aiohttp import web

    from erelong.clock.instants import Now
    from erelong.service.clock import Clock, Move
    from erelong.settings.sections import Config
    from erelong.web.body import Bodies
    from erelong.web.response import Reply

WITHIN = 30 * 86_400.0


class ClockRoutes:
    """The handlers of `/v1/clock`, which exist only with `--virtual-clock`."""

    def __init__(self, *, clock: Clock, bodies: Bodies, config: Config, now: Now) -> None:
        self._clock = clock
        self._bodies = bodies
        self._max_horizon = config.jobs.max_horizon
        self._now = now

    async def read(self, _: web.Request) -> Reply:
        return json_reply(clock_view(await self._clock.read()))

    async def move(self, request: web.Request) -> Reply:
        body = await self._bodies.json(request)
        try:
            fields = ClockIn.model_validate(body, context={"now": self._now(), "max_horizon": self._max_horizon})
        except ValidationError as error:
            raise invalid(error, ClockIn, "the move is not valid") from None
        return json_reply(move_view(await self._move(fields, request)))

    async def _move(self, fields: ClockIn, request: web.Request) -> Move:
        wait, client = min(fields.wait, MAX_WAIT), client_of(request)
        if fields.set is not None:
            return await self._clock.set(fields.set, wait=wait, client=client)
        if fields.advance is not None:
            return await self._clock.advance(fields.advance, wait=wait, client=client)
        if fields.frozen is not None:
            return await self._clock.freeze(fields.frozen, wait=wait, client=client)
        within = WITHIN if fields.within is None else fields.within
        return await self._clock.run_until_idle(within, wait=wait, client=client)
