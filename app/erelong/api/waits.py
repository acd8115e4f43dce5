"""Waiting for many jobs over HTTP: one response at the end, or a stream of jobs as they end."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import orjson
from aiohttp import web
from pydantic import ValidationError

from erelong.api.schemas import WaitIn
from erelong.model.caller import Scope
from erelong.model.job import Job
from erelong.model.reports.job_view import job_view
from erelong.service.overview.listings import MAX_PAGE
from erelong.service.waits import SLICE, end_of
from erelong.web.auth import caller_of
from erelong.web.body import NDJSON
from erelong.web.connection import client_of
from erelong.web.problems import STREAM, invalid, stream_headers
from erelong.web.response import AnyReply, json_reply

if TYPE_CHECKING:
    from collections.abc import Sequence

    from erelong.service.services import Services
    from erelong.service.waits import News, Watch
    from erelong.settings.sections import LimitsSection
    from erelong.web.auth import KeyGate
    from erelong.web.body import Bodies

MAX_STREAM_WAIT: Final = 3_600.0
SILENCE: Final = 15.0  # seconds after which an empty line shows that the stream is alive


class WaitRoutes:
    """The handler of `/v1/jobs/wait`."""

    def __init__(self, *, services: Services, bodies: Bodies, gate: KeyGate, limits: LimitsSection) -> None:
        self._services = services
        self._bodies = bodies
        self._gate = gate
        self._max_wait = limits.max_wait

    async def jobs(self, request: web.Request) -> AnyReply:
        try:
            body = WaitIn.model_validate(await self._bodies.json(request))
        except ValidationError as error:
            raise invalid(error, WaitIn) from None
        watching = self._services.waits.watch(
            body.jobs, until=body.until, caller=caller_of(request), client=client_of(request)
        )
        with watching as watch:
            if NDJSON in request.headers.get("Accept", ""):
                return await self._stream(request, watch, body)
            return await self._collect(watch, body)

    async def _collect(self, watch: Watch, body: WaitIn) -> AnyReply:
        clock, ended, missing = asyncio.get_running_loop().time, list[Job](), list[str]()
        until = clock() + min(body.wait, self._max_wait)
        news = await watch.read()
        while True:
            ended += news.ended
            missing += news.missing
            if watch.is_over or (left := until - clock()) <= 0:
                break
            news = await watch.wait(left)
        ended.sort(key=end_of)
        views, size = [], 0
        for start in range(0, len(ended), SLICE):
            jobs = await self._read(ended[start : start + SLICE], is_full=body.view == "full" and size < MAX_PAGE)
            size += sum(
                len(job.params) + len(job.result or b"") + len(job.attempts) for job, is_full in jobs if is_full
            )
            views += [job_view(job, None, is_full=is_full) for job, is_full in jobs]
        return json_reply({"done": watch.is_done, "ended": views, "pending": [*watch.pending], "missing": missing})

    async def _stream(self, request: web.Request, watch: Watch, body: WaitIn) -> web.StreamResponse:
        response = web.StreamResponse(headers=stream_headers(request, NDJSON))
        await response.prepare(request)
        request[STREAM] = response
        clock = asyncio.get_running_loop().time
        until = clock() + min(body.wait, MAX_STREAM_WAIT)
        written_at, news = clock(), await watch.read()
        while True:
            watch.caller = self._gate.recheck(request, Scope.READ)  # a stream may outlive its key
            if news.ended or news.missing or clock() >= written_at + SILENCE:
                await self._write_news(response, news, is_full=body.view == "full")
                written_at = clock()
            if watch.is_over or (left := until - clock()) <= 0:
                break
            news = await watch.wait(min(left, max(0.0, written_at + SILENCE - clock())))
        await _write(response, {"done": watch.is_done, "pending": [*watch.pending]})
        await response.write_eof()
        return response

    async def _write_news(self, response: web.StreamResponse, news: News, *, is_full: bool) -> None:
        """Write a line for each job, or an empty one if there is none."""
        for start in range(0, len(news.ended), SLICE):
            jobs = await self._read(news.ended[start : start + SLICE], is_full=is_full)
            await _write(response, *({"job": job_view(job, None, is_full=is_whole)} for job, is_whole in jobs))
        if news.missing or not news.ended:
            await _write(response, *({"missing": id} for id in news.missing))

    async def _read(self, jobs: Sequence[Job], *, is_full: bool) -> list[tuple[Job, bool]]:
        """Return the jobs, each with whether it is full."""
        await asyncio.sleep(0)  # a thousand views take some milliseconds
        full = await self._services.waits.read_full(jobs) if is_full else {}
        return [(full.get(job.seq, job), job.seq in full) for job in jobs]


async def _write(response: web.StreamResponse, *lines: dict[str, Any]) -> None:
    """Send lines, or an empty one if there are none. The connection of a client that does not read is closed."""
    await response.write(b"\n".join(map(orjson.dumps, lines)) + b"\n")
