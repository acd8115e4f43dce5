"""Many jobs in one request: a JSON batch, all or nothing; or a stream of lines, each for itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import orjson
from aiohttp import web
from pydantic import ValidationError

from erelong.api import conditions
from erelong.api.jobs import taken
from erelong.api.schemas import BatchIn
from erelong.api.views import ticket_view
from erelong.errors import BacklogFull, BadHeader, Fault, Forbidden, Invalid, JobNotFound, KeyTaken, Problem, TooLarge
from erelong.model.caller import Scope
from erelong.model.ids import write_id
from erelong.model.submission import ADDED, CONFLICT, AddResult, NewJob
from erelong.web.auth import caller_of
from erelong.web.body import JSON, MAX_NARROW, NDJSON, refuse_many_names
from erelong.web.connection import client_of
from erelong.web.problems import REQUEST_ID, STREAM, invalid, problem_line
from erelong.web.response import AnyReply, json_reply

if TYPE_CHECKING:
    from collections.abc import Sequence

    from erelong.api.jobs import JobRoutes
    from erelong.api.submit_parser import SubmitParser
    from erelong.clock.instants import Instant, Now
    from erelong.duties.waiters import Client
    from erelong.model.caller import Caller
    from erelong.service.services import Services
    from erelong.settings.sections import LimitsSection
    from erelong.web.auth import KeyGate
    from erelong.web.body import Bodies

MAX_GROUP = 1_000  # lines that are stored and answered together
MAX_LINES = 250  # to read more at once would keep others waiting
BREATH = 0.001  # seconds after a group with nothing to store: a loop that never waits starves the threads of the store
MANY_FAULTS = 1_000  # told of a batch in full; of further jobs only the first
MAX_UNREAD = 1 << 24  # bytes of answers kept for a client that reads none before it has sent all
AS_LINES = f"send more as {NDJSON}, a job on each line, which has no limit"
WRAPPING = 2  # levels of a JSON batch around a job

_CREATED, _THERE = b'{"id":"%b","created":true}\n', b'{"id":"%b","created":false}\n'  # as JSON they take thrice as long

Tell = Callable[[Problem], bytes]
"""Makes the line that tells of a problem."""

Told = dict[int, bytes]
"""Lines that tell of problems, by their places among all answers."""


class BatchRoutes:
    """What `/v1/jobs/batch` answers."""

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
        if request.content_type == NDJSON:
            return await self._stream(request)
        body = await self._read_body(request)
        now, caller = self._now(), caller_of(request)
        new_jobs = await self._read_all(body, now, caller)
        record = conditions.idempotency_record(request, body, caller)
        try:
            client = client_of(request)
            receipt = await self._services.jobs.add(new_jobs, now=now, is_whole=True, record=record, client=client)
        except BacklogFull as problem:
            raise BacklogFull(problem.detail, faults=_full(new_jobs, problem), queue=problem.queue) from None
        entries = [entry for entry in receipt.entries if entry is not None]
        if len(entries) < len(receipt.entries):
            raise JobNotFound("jobs that this Idempotency-Key made have been deleted; take a new key to make others")
        if not receipt.replayed:
            _refuse_conflicts(entries)  # nothing is stored then
        views = [ticket_view(entry.job, entry.status is ADDED) for entry in entries]
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
            asked = BatchIn.model_validate(body)
        except ValidationError as error:
            raise invalid(error, BatchIn, "the batch cannot be taken") from None
        limit = self._limits.max_batch_jobs
        if len(asked.jobs) > limit:
            detail = f"{len(asked.jobs)} jobs; at most {limit} in a JSON batch; {AS_LINES}"
            raise Invalid("the batch cannot be taken", faults=[Fault("/jobs", detail)])
        refusal: type[Invalid | Forbidden] = Invalid
        faults: list[Fault] = []
        new_jobs = []
        for index, item in enumerate(asked.jobs):
            try:
                self._refuse_large(item)
                new_jobs.append(self._parser.read(item, now, caller))
            except (Invalid, Forbidden) as problem:
                refusal = Forbidden if isinstance(problem, Forbidden) else refusal
                told = problem.faults if len(faults) < MANY_FAULTS else problem.faults[:1]
                faults += [fault.under(f"/jobs/{index}") for fault in told]
                await asyncio.sleep(0)  # what is wrong can be wrong in very many places
            if index % MAX_LINES == MAX_LINES - 1:
                await asyncio.sleep(0)
        if faults:
            raise refusal("nothing of the batch was taken", faults=faults)
        return new_jobs

    def _refuse_large(self, item: Any) -> None:
        """What is too large alone, or as a line, is so in a batch."""
        size, limit = len(orjson.dumps(item)), self._limits.max_body
        if size > limit:
            raise Invalid("the job cannot be taken", faults=[Fault("", f"{size} bytes; at most {limit} are taken")])
        if size > MAX_NARROW:
            refuse_many_names(item)

    # streams

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        """Answer each group of lines when it is on the disk, while the next ones come in."""
        if "Idempotency-Key" in request.headers:
            raise BadHeader("Idempotency-Key: a stream takes none; give its jobs keys, or send a JSON batch")
        request_id = request[REQUEST_ID]
        tell: Tell = partial(problem_line, request_id=request_id, show=self._jobs.view)
        response = web.StreamResponse(headers={"Content-Type": NDJSON, "X-Request-Id": request_id, "Server": "erelong"})
        await response.prepare(request)
        request[STREAM] = response
        if request.transport is not None:
            request.transport.set_write_buffer_limits(high=MAX_UNREAD)
        async for texts in self._bodies.lines(request):
            for start in range(0, len(texts), MAX_GROUP):
                caller = self._gate.recheck(request, Scope.SUBMIT)  # a stream may outlive its key
                new_jobs, told = await self._read(texts[start : start + MAX_GROUP], caller, tell)
                answers = await self._take(new_jobs, told, tell, client_of(request))
                await self._write(request, response, b"".join(answers))
                await asyncio.sleep(0 if new_jobs else BREATH)
        await response.write_eof()
        if request.transport is not None:
            request.transport.set_write_buffer_limits(high=0)
        return response

    async def _write(self, request: web.Request, response: web.StreamResponse, text: bytes) -> None:
        """Send an answer, or end the connection of a client that goes on without reading any."""
        try:
            async with asyncio.timeout(self._timeout):
                await response.write(text)
        except TimeoutError:
            if request.transport is not None:
                request.transport.abort()
            raise ConnectionResetError(f"{MAX_UNREAD} bytes of answers wait and are not read") from None

    async def _read(self, texts: Sequence[bytes | None], caller: Caller, tell: Tell) -> tuple[list[NewJob], Told]:
        """What the lines ask for that are not empty; and what is told of the others."""
        new_jobs: list[NewJob] = []
        told: Told = {}
        for start in range(0, len(texts), MAX_LINES):
            if start:
                await asyncio.sleep(0)
            self._read_some(texts[start : start + MAX_LINES], caller, tell, new_jobs, told)
        return new_jobs, told

    def _read_some(
        self, texts: Sequence[bytes | None], caller: Caller, tell: Tell, new_jobs: list[NewJob], told: Told
    ) -> None:
        now, parse, read = self._now(), self._bodies.parse, self._parser.read
        for text in texts:
            try:
                if text is None:
                    raise TooLarge(f"the line is longer than {self._limits.max_body} bytes")
                if text.strip():
                    new_jobs.append(read(parse(text, 0, "line"), now, caller))
            except Problem as problem:  # kept, each would hold its frames until the garbage collector comes
                told[len(new_jobs) + len(told)] = tell(problem)

    async def _take(self, new_jobs: list[NewJob], told: Told, tell: Tell, client: Client) -> list[bytes]:
        """Store what can be, and say for each line what became of it, in order."""
        answers = [_line_of(one, tell) for one in await self._add(new_jobs, client)] if new_jobs else []
        for place, line in told.items():  # ascending, so those before it are in
            answers.insert(place, line)
        return answers

    async def _add(self, new_jobs: list[NewJob], client: Client) -> Sequence[AddResult | Problem | None]:
        try:
            return (await self._services.jobs.add(new_jobs, now=self._now(), client=client)).entries
        except BacklogFull as problem:
            return [problem] if len(new_jobs) == 1 else await self._add_each(new_jobs, client)
        except Problem as problem:
            return [problem] * len(new_jobs)

    async def _add_each(self, new_jobs: list[NewJob], client: Client) -> list[AddResult | Problem | None]:
        """Fill the room there is; when a queue has none, ask again only for jobs that may need none."""
        full: dict[str, Problem] = {}
        answers: list[AddResult | Problem | None] = []
        for new_job in new_jobs:
            problem = full.get(new_job.job.queue) if new_job.job.key is None else None
            answer = problem or (await self._add([new_job], client))[0]
            if isinstance(answer, BacklogFull):
                full[new_job.job.queue] = answer
            answers.append(answer)
        return answers


def _line_of(answer: AddResult | Problem | None, tell: Tell) -> bytes:
    if isinstance(answer, AddResult):
        status, job, _ = answer
        if status is not CONFLICT:
            return (_CREATED if status is ADDED else _THERE) % write_id(job.seq, job.token).encode()
        answer = taken(job)
    assert answer is not None  # None is for replays, and a stream has none
    return tell(answer)


def _refuse_conflicts(entries: Sequence[AddResult]) -> None:
    """Name the lines whose keys are held: by stored jobs, or by lines before them that are now not stored either."""
    first = {entry.job.seq: index for index, entry in reversed([*enumerate(entries)]) if entry.status is ADDED}
    faults, holders = [], []
    for index, entry in enumerate(entries):
        if entry.status is not CONFLICT:
            continue
        if entry.job.seq in first:
            detail = f"/jobs/{first[entry.job.seq]} has the key {entry.job.key!r} as well"
        else:
            detail = taken(entry.job).detail
            holders.append(entry.job)
        faults.append(Fault(f"/jobs/{index}/key", detail))
    if faults:
        holder = holders[0] if holders else None
        raise KeyTaken("nothing of the batch was taken: keys are held", faults=faults, job=holder)


def _full(new_jobs: Sequence[NewJob], problem: BacklogFull) -> list[Fault]:
    return [
        Fault(f"/jobs/{index}/queue", problem.detail)
        for index, new_job in enumerate(new_jobs)
        if new_job.job.queue == problem.queue
    ]
