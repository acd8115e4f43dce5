"""Many jobs in one request: a JSON batch, stored all or not at all, or a stream of independent lines."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import orjson
from aiohttp import web
from pydantic import ValidationError

from erelong.api import conditions
from erelong.api.dry_runs import HEADERS as DRY
from erelong.api.dry_runs import as_dry_run, is_dry_run, without_id
from erelong.api.jobs import key_taken
from erelong.api.schemas import BatchIn
from erelong.api.views import ticket_view
from erelong.errors import BacklogFull, BadHeader, Fault, Forbidden, Invalid, JobNotFound, KeyTaken, Problem, TooLarge
from erelong.model.caller import Scope
from erelong.model.ids import write_id
from erelong.model.submission import ADDED, CONFLICT, AddResult, NewJob
from erelong.service.rehearsal import Rehearsal, is_rehearsed
from erelong.web.auth import caller_of
from erelong.web.body import JSON, MAX_NARROW, NDJSON, refuse_many_names
from erelong.web.connection import client_of
from erelong.web.problems import REQUEST_ID, STREAM, invalid, problem_line, stream_headers
from erelong.web.response import AnyReply, json_reply

if TYPE_CHECKING:
    from collections.abc import Sequence

    from erelong.api.jobs import JobRoutes
    from erelong.api.submit_parser import SubmitParser
    from erelong.clock.instants import Instant, Now
    from erelong.duties.waiters import Client
    from erelong.model.caller import Caller
    from erelong.service.jobs import Jobs
    from erelong.service.services import Services
    from erelong.settings.sections import LimitsSection
    from erelong.web.auth import KeyGate
    from erelong.web.body import Bodies

MAX_GROUP = 1_000  # lines that are stored and answered together
MAX_LINES = 250  # lines to parse at once without blocking the loop for too long
PAUSE = 0.001  # seconds after a group with nothing to store: a loop that never waits starves the store's threads
MAX_BATCH_FAULTS = 1_000  # a batch reports this many faults in full, then one per job
MAX_UNREAD = 1 << 24  # bytes of responses kept for a client that sends its whole stream before it reads
AS_LINES = f"send more as {NDJSON}, one job per line, without a limit"
WRAPPING = 2  # levels of a JSON batch around a job

_CREATED, _EXISTING = b'{"id":"%b","created":true}\n', b'{"id":"%b","created":false}\n'  # hot: stream
_NEW, _NOT_NEW = b'{"id":null,"created":true}\n', b'{"id":null,"created":false}\n'

RenderProblem = Callable[[Problem], bytes]
"""Renders a problem as a line."""

ProblemLines = dict[int, bytes]
"""Lines with problems, by their positions in the response."""


class BatchRoutes:
    """The handler of `/v1/jobs/batch`."""

    def __init__(
        self,
        *,
        services: Services,
        parser: SubmitParser,
        bodies: Bodies,
        jobs: JobRoutes,
        gate: KeyGate,
        limits: LimitsSection,
        timeout: float,
        now: Now,
    ) -> None:
        self._services = services
        self._parser = parser
        self._bodies = bodies
        self._jobs = jobs
        self._gate = gate
        self._limits = limits
        self._timeout = timeout
        self._now = now

    async def create(self, request: web.Request) -> AnyReply:
        self._services.lifecycle.refuse_work()
        is_dry = is_dry_run(request)
        if request.content_type == NDJSON:
            return await self._stream(request, is_dry)
        body = await self._read_body(request)
        now, caller = self._now(), caller_of(request)
        new_jobs = await self._read_all(body, now, caller)
        record = conditions.idempotency_record(request, body, caller)
        try:
            client = client_of(request)
            jobs = self._services.jobs.rehearsal() if is_dry else self._services.jobs
            receipt = await jobs.add(new_jobs, now=now, is_whole=True, record=record, client=client)
        except BacklogFull as problem:
            raise BacklogFull(problem.detail, faults=_full_faults(new_jobs, problem), queue=problem.queue) from None
        entries = [entry for entry in receipt.entries if entry is not None]
        if len(entries) < len(receipt.entries):
            raise JobNotFound("jobs that this Idempotency-Key made have been deleted; send a new one to submit others")
        if not receipt.replayed:
            _refuse_conflicts(entries)  # conflicts mean that nothing was stored
        views = [ticket_view(entry.job, entry.status is ADDED) for entry in entries]
        if is_dry:
            named = [without_id(view, entry.job) for view, entry in zip(views, entries, strict=True)]
            return as_dry_run(json_reply({"jobs": named}))
        response = json_reply({"jobs": views}, status=200 if receipt.replayed else 201)
        if receipt.replayed:
            response.headers["Idempotency-Replayed"] = "true"
        return response

    async def _read_body(self, request: web.Request) -> Any:
        limit = self._limits.max_batch_body
        try:
            return await self._bodies.json(request, max_size=limit, types=(JSON, NDJSON), wrapped=WRAPPING)
        except TooLarge as problem:
            raise TooLarge(f"{problem.detail}; {AS_LINES}", headers=problem.headers) from None

    async def _read_all(self, body: Any, now: Instant, caller: Caller) -> list[NewJob]:
        try:
            batch = BatchIn.model_validate(body)
        except ValidationError as error:
            raise invalid(error, BatchIn, "the batch is not valid") from None
        limit = self._limits.max_batch_jobs
        if len(batch.jobs) > limit:
            detail = f"{len(batch.jobs)} jobs; at most {limit} in a JSON batch; {AS_LINES}"
            raise Invalid("the batch is not valid", faults=[Fault("/jobs", detail)])
        foreign: str | None = None
        faults: list[Fault] = []
        new_jobs = []
        for index, item in enumerate(batch.jobs):
            try:
                self._refuse_large(item)
                new_jobs.append(self._parser.read(item, now, caller))
            except (Invalid, Forbidden) as problem:
                if foreign is None and isinstance(problem, Forbidden):
                    foreign = problem.detail
                reported = problem.faults if len(faults) < MAX_BATCH_FAULTS else problem.faults[:1]
                faults += [fault.under(f"/jobs/{index}") for fault in reported]
                await asyncio.sleep(0)  # a batch can have very many faults
            if index % MAX_LINES == MAX_LINES - 1:
                await asyncio.sleep(0)
        if faults:
            what = "no job of the batch was stored"
            raise Invalid(what, faults=faults) if foreign is None else Forbidden(f"{what}: {foreign}", faults=faults)
        return new_jobs

    def _refuse_large(self, item: Any) -> None:
        """Refuse a job that would be too large as a single body or as a line."""
        size, limit = len(orjson.dumps(item)), self._limits.max_body
        if size > limit:
            raise Invalid("the job is not valid", faults=[Fault("", f"{size} bytes; send at most {limit}")])
        if size > MAX_NARROW:
            refuse_many_names(item)

    # streams

    async def _stream(self, request: web.Request, is_dry: bool) -> web.StreamResponse:
        """Answer each group of lines once it is on disk, while the next ones arrive."""
        if "Idempotency-Key" in request.headers:
            raise BadHeader("Idempotency-Key: a stream does not support it; give its jobs keys, or send a JSON batch")
        request_id = request[REQUEST_ID]
        render: RenderProblem = partial(problem_line, request_id=request_id, show=self._jobs.view)
        jobs: Jobs | Rehearsal = self._services.jobs.rehearsal() if is_dry else self._services.jobs
        headers = stream_headers(request, NDJSON)
        response = web.StreamResponse(headers=headers | DRY if is_dry else headers)
        await response.prepare(request)
        request[STREAM] = response
        if request.transport is not None:
            request.transport.set_write_buffer_limits(high=MAX_UNREAD)
        async for texts in self._bodies.lines(request):
            for start in range(0, len(texts), MAX_GROUP):
                caller = self._gate.recheck(request, Scope.SUBMIT)  # a stream may outlive its key
                new_jobs, problems = await self._read(texts[start : start + MAX_GROUP], caller, render)
                answers = await self._store(jobs, new_jobs, problems, render, client_of(request))
                await self._write(request, response, b"".join(answers))
                await asyncio.sleep(0 if new_jobs else PAUSE)
        await response.write_eof()
        if request.transport is not None:
            request.transport.set_write_buffer_limits(high=0)
        return response

    async def _write(self, request: web.Request, response: web.StreamResponse, text: bytes) -> None:
        """Send a response. Close the connection of a client that sends without reading."""
        try:
            async with asyncio.timeout(self._timeout):
                await response.write(text)
        except TimeoutError:
            if request.transport is not None:
                request.transport.abort()
            raise ConnectionResetError(f"the client has not read {MAX_UNREAD} bytes of responses") from None

    async def _read(
        self, texts: Sequence[bytes | None], caller: Caller, render: RenderProblem
    ) -> tuple[list[NewJob], ProblemLines]:
        """Return the jobs of the lines, and the problems of invalid lines. Skip empty lines."""
        new_jobs: list[NewJob] = []
        problems: ProblemLines = {}
        for start in range(0, len(texts), MAX_LINES):
            if start:
                await asyncio.sleep(0)
            self._read_some(texts[start : start + MAX_LINES], caller, render, new_jobs, problems)
        return new_jobs, problems

    def _read_some(
        self,
        texts: Sequence[bytes | None],
        caller: Caller,
        render: RenderProblem,
        new_jobs: list[NewJob],
        problems: ProblemLines,
    ) -> None:
        now, parse, read = self._now(), self._bodies.parse, self._parser.read
        for text in texts:
            try:
                if text is None:
                    raise TooLarge(f"the line is longer than {self._limits.max_body} bytes")
                if text.strip():
                    new_jobs.append(read(parse(text, 0, "line"), now, caller))
            except Problem as problem:  # rendered at once: a kept exception would hold its frames until collected
                problems[len(new_jobs) + len(problems)] = render(problem)

    async def _store(
        self,
        jobs: Jobs | Rehearsal,
        new_jobs: list[NewJob],
        problems: ProblemLines,
        render: RenderProblem,
        client: Client,
    ) -> list[bytes]:
        """Store the jobs, and return one line per job or problem, in order."""
        results = await self._add(jobs, new_jobs, client) if new_jobs else ()
        line_of = _dry_line_of if isinstance(jobs, Rehearsal) else _line_of
        answers = [line_of(result, render) for result in results]
        for index, line in problems.items():  # ascending, so all earlier lines are in
            answers.insert(index, line)
        return answers

    async def _add(
        self, jobs: Jobs | Rehearsal, new_jobs: list[NewJob], client: Client
    ) -> Sequence[AddResult | Problem | None]:
        try:
            return (await jobs.add(new_jobs, now=self._now(), client=client)).entries
        except BacklogFull as problem:
            return [problem] if len(new_jobs) == 1 else await self._add_each(jobs, new_jobs, client)
        except Problem as problem:
            return [problem] * len(new_jobs)

    async def _add_each(
        self, jobs: Jobs | Rehearsal, new_jobs: list[NewJob], client: Client
    ) -> list[AddResult | Problem | None]:
        """Add jobs one by one. Once a queue is full, try only its jobs with a key, which may need no room."""
        full: dict[str, Problem] = {}
        answers: list[AddResult | Problem | None] = []
        for new_job in new_jobs:
            problem = full.get(new_job.job.queue) if new_job.job.key is None else None
            answer = problem or (await self._add(jobs, [new_job], client))[0]
            if isinstance(answer, BacklogFull):
                full[new_job.job.queue] = answer
            answers.append(answer)
        return answers


def _line_of(answer: AddResult | Problem | None, render: RenderProblem) -> bytes:
    if isinstance(answer, AddResult):
        status, job, _ = answer
        if status is not CONFLICT:
            return (_CREATED if status is ADDED else _EXISTING) % write_id(job.seq, job.token).encode()
        answer = key_taken(job)
    assert answer is not None  # None is for replays, and a stream has none
    return render(answer)


def _dry_line_of(answer: AddResult | Problem | None, render: RenderProblem) -> bytes:
    """Return the line of a dry stream: a new job has no id, also when a later line keeps or changes it."""
    if isinstance(answer, AddResult) and answer.status is not CONFLICT and is_rehearsed(answer.job):
        return _NEW if answer.status is ADDED else _NOT_NEW
    return _line_of(answer, render)


def _refuse_conflicts(entries: Sequence[AddResult]) -> None:
    """Raise `KeyTaken` that names the jobs whose keys are held by stored jobs or by earlier jobs of the batch."""
    first = {entry.job.seq: index for index, entry in reversed([*enumerate(entries)]) if entry.status is ADDED}
    faults, holders = [], []
    for index, entry in enumerate(entries):
        if entry.status is not CONFLICT:
            continue
        if entry.job.seq in first:
            detail, holder = f"/jobs/{first[entry.job.seq]} has the job key {entry.job.key!r} as well", None
        else:
            detail, holder = key_taken(entry.job).detail, entry.job.id
            holders.append(entry.job)
        faults.append(Fault(f"/jobs/{index}/key", detail, holder))
    if faults:
        job = holders[0] if holders else None
        raise KeyTaken("no job of the batch was stored: job keys are held", faults=faults, job=job)


def _full_faults(new_jobs: Sequence[NewJob], problem: BacklogFull) -> list[Fault]:
    return [
        Fault(f"/jobs/{index}/queue", problem.detail)
        for index, new_job in enumerate(new_jobs)
        if new_job.job.queue == problem.queue
    ]
