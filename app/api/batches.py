"""Many jobs in one request: a JSON batch, all or nothing; or a stream of lines, each for itself."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson
from aiohttp import web
from pydantic import ValidationError

from app.api import headers
from app.api.bodies import JSON, NDJSON, check_type
from app.api.errors import invalid, problem_body
from app.api.jobs import json_response, taken
from app.api.schemas import BatchIn
from app.api.views import ticket_view
from app.errors import BacklogFull, Fault, Invalid, JobNotFound, KeyTaken, Problem, TooLarge
from app.stores.base import Added, Fate, Offer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from app.api.bodies import Bodies
    from app.api.jobs import JobRoutes
    from app.clock import Instant, Now
    from app.config import ServerSection
    from app.service import Service

MAX_LINES = 500  # a group: parsing more would keep others waiting


class Line(NamedTuple):
    """A line of a stream: the job it asks for, or what is wrong with it."""

    offer: Offer | None
    problem: Problem | None


class BatchRoutes:
    """What `/v1/jobs/batch` answers."""

    def __init__(self, *, service: Service, bodies: Bodies, jobs: JobRoutes, limits: ServerSection, now: Now) -> None:
        self._service = service
        self._bodies = bodies
        self._jobs = jobs
        self._limits = limits
        self._now = now

    async def create(self, request: web.Request) -> web.StreamResponse:
        self._service.refuse_when_draining()
        check_type(request, (JSON, NDJSON))
        if request.content_type == NDJSON:
            return await self._stream(request)
        body = await self._bodies.json(request, max_size=self._limits.max_batch_body)
        now = self._now()
        offers = await self._offers(body, now)
        memo = headers.idempotency_memo(request, body)
        try:
            receipt = await self._service.add(offers, now=now, is_whole=True, memo=memo)
        except BacklogFull as problem:
            raise BacklogFull(problem.detail, faults=_full(offers, problem), queue=problem.queue) from None
        entries = [entry for entry in receipt.entries if entry is not None]
        if len(entries) < len(receipt.entries):
            raise JobNotFound("jobs that this Idempotency-Key made have been deleted; take a new key to make others")
        if not receipt.replayed:
            _refuse_conflicts(entries)
        views = [ticket_view(entry.job, entry.fate is Fate.ADDED) for entry in entries]
        response = json_response({"jobs": views}, status=200 if receipt.replayed else 201)
        if receipt.replayed:
            response.headers["Idempotency-Replayed"] = "true"
        return response

    async def _offers(self, body: Any, now: Instant) -> list[Offer]:
        try:
            asked = BatchIn.model_validate(body)
        except ValidationError as error:
            raise invalid(error, "the batch cannot be taken") from None
        limit = self._limits.max_batch_jobs
        if len(asked.jobs) > limit:
            raise TooLarge(f"{len(asked.jobs)} jobs; at most {limit} in a JSON batch. A stream of lines has no limit")
        faults: list[Fault] = []
        offers = []
        for index, item in enumerate(asked.jobs):
            try:
                offers.append(self._offer(item, now))
            except Invalid as problem:
                faults += [fault.under(f"/jobs/{index}") for fault in problem.faults]
            if index % MAX_LINES == MAX_LINES - 1:
                await asyncio.sleep(0)
        if faults:
            raise Invalid("nothing of the batch was taken", faults=faults)
        return offers

    def _offer(self, item: Any, now: Instant) -> Offer:
        asked = self._jobs.shape(item, now).to_submission()
        return Offer(self._service.draft(asked, now), asked.on_conflict)

    # streams

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        """Answer each group of lines when it is on the disk, while the next ones come in."""
        request_id: str = request["id"]
        response = web.StreamResponse(headers={"Content-Type": NDJSON, "X-Request-Id": request_id, "Server": "erelong"})
        await response.prepare(request)
        try:
            async for texts in self._bodies.lines(request):
                for start in range(0, len(texts), MAX_LINES):
                    lines = self._read(texts[start : start + MAX_LINES])
                    await response.write(b"".join(await self._take(lines, request_id)))
                    await asyncio.sleep(0)
        except Problem as problem:
            await response.write(_problem_line(problem, request_id))
            response.force_close()
        await response.write_eof()
        return response

    def _read(self, texts: Sequence[bytes | None]) -> list[Line]:
        now = self._now()
        return [self._line(text, now) for text in texts if text is None or text.strip()]

    def _line(self, text: bytes | None, now: Instant) -> Line:
        try:
            if text is None:
                raise TooLarge(f"the line is longer than {self._limits.max_body} bytes")
            return Line(self._offer(self._bodies.parse(text), now), None)
        except Problem as problem:
            return Line(None, problem)

    async def _take(self, lines: list[Line], request_id: str) -> list[bytes]:
        """Store what can be, and say for each line what became of it, in order."""
        offers = [line.offer for line in lines if line.offer is not None]
        answers = iter(await self._add(offers) if offers else ())
        return [
            _entry_line(next(answers), request_id) if line.problem is None else _problem_line(line.problem, request_id)
            for line in lines
        ]

    async def _add(self, offers: list[Offer]) -> Sequence[Added | Problem | None]:
        try:
            return (await self._service.add(offers, now=self._now())).entries
        except BacklogFull as problem:
            if len(offers) == 1:
                return [problem]
            return [answer for offer in offers for answer in await self._add([offer])]
        except Problem as problem:
            return [problem] * len(offers)


def _refuse_conflicts(entries: Sequence[Added]) -> None:
    conflicts = [(index, entry.job) for index, entry in enumerate(entries) if entry.fate is Fate.CONFLICT]
    if conflicts:
        faults = [Fault(f"/jobs/{index}/key", taken(job).detail) for index, job in conflicts]
        raise KeyTaken("nothing of the batch was taken: keys are held", faults=faults, job=conflicts[0][1])


def _full(offers: Sequence[Offer], problem: BacklogFull) -> list[Fault]:
    return [
        Fault(f"/jobs/{index}/queue", problem.detail)
        for index, offer in enumerate(offers)
        if offer.job.queue == problem.queue
    ]


def _entry_line(entry: Added | Problem | None, request_id: str) -> bytes:
    if isinstance(entry, Problem):
        return _problem_line(entry, request_id)
    assert entry is not None
    if entry.fate is Fate.CONFLICT:
        return _problem_line(taken(entry.job), request_id)
    return orjson.dumps({"id": entry.job.id, "created": entry.fate is Fate.ADDED}) + b"\n"


def _problem_line(problem: Problem, request_id: str) -> bytes:
    return orjson.dumps({"problem": problem_body(problem, request_id)}) + b"\n"
