"""Answers the requests of a client from recorded jobs, in place of a service."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import parse_qs, unquote, urlsplit

from erelong.client.records import FINAL
from erelong.client.requests import Answer, Request
from erelong.testing.recorded import Problem

if TYPE_CHECKING:
    from erelong.testing.recorded import Raw, Recorded

FILTERS = frozenset({"state", "queue", "kind", "key"})
IGNORED = frozenset({"view", "limit", "wait"})


class Answering:
    """The calls about single jobs. Others raise NotImplementedError, which names what has them."""

    def __init__(self, *, jobs: Recorded) -> None:
        self._jobs = jobs
        self._replays: dict[str, Answer] = {}
        self._seconds = 0.0

    def answer(self, request: Request) -> Answer:
        key = request.headers.get("Idempotency-Key")
        if key in self._replays:
            return self._replays[key]
        try:
            status, body = self._do(request)
        except Problem as problem:
            status, body = problem.status, problem.body
        except ValueError as error:
            status, body = 422, {"status": 422, "code": "invalid", "detail": str(error)}
        answer = Answer(status, {}, b"" if body is None else json.dumps(body).encode())
        if key is not None and status < 300:
            self._replays[key] = answer
        return answer

    def tick(self) -> float:
        return self._seconds

    def pass_time(self, seconds: float) -> None:
        self._seconds += seconds

    def _do(self, request: Request) -> tuple[int, Any]:
        url = urlsplit(request.path)
        query = parse_qs(url.query)
        parts = [unquote(part) for part in url.path.removeprefix("/v1/").split("/")]
        body = json.loads(request.body) if request.body else {}
        match request.method, *parts:
            case "POST", "jobs":
                return self._jobs.submit(body)
            case "POST", "jobs", "batch":
                return 201, {"jobs": [self._ticket(draft) for draft in body["jobs"]]}
            case "GET", "jobs":
                return 200, {"jobs": self._listed(query), "next": None}
            case "POST", "jobs", "wait":
                return 200, self._waited(body)
            case _, "jobs", name, *action:
                return self._one(request, self._jobs.find(name, *query.get("queue", [])), action, body, query)
        return _refuse(request)

    def _one(
        self, request: Request, job: Raw, action: list[str], body: Mapping[str, Any], query: Mapping[str, list[str]]
    ) -> tuple[int, Any]:
        match = request.headers.get("If-Match")
        version = None if match is None else int(match.strip('"'))
        match request.method, *action:
            case ("GET",):
                if "wait" in query and job["state"] not in FINAL:
                    _refuse_to_wait([job])
                return 200, job
            case ("PATCH",):
                return 200, self._jobs.change(job, body, version)
            case ("DELETE",):
                self._jobs.delete(job, version)
                return 204, None
            case "POST", "cancel":
                return 200, self._jobs.cancel(job, body.get("reason"), version)
            case "POST", "run":
                return 200, self._jobs.run(job, version)
            case "POST", "retry":
                return 200, self._jobs.retry(job, body, version)
        return _refuse(request)

    def _ticket(self, draft: Mapping[str, Any]) -> Raw:
        status, job = self._jobs.submit(draft)
        return {name: job[name] for name in ("id", "state", "execute_at")} | {"created": status == 201}

    def _listed(self, query: Mapping[str, list[str]]) -> list[Raw]:
        found = [*reversed(self._jobs.jobs.values())]
        for name, values in query.items():
            if name.startswith("label."):
                found = [job for job in found if job["labels"].get(name.removeprefix("label.")) in values]
            elif name in FILTERS:
                found = [job for job in found if job[name] in values]
            elif name not in IGNORED:
                raise NotImplementedError(f"a Recorder cannot list by {name!r}; use erelong.testing.Service")
        return found

    def _waited(self, body: Mapping[str, Any]) -> Raw:
        known = {id: self._jobs.jobs.get(id) for id in body["jobs"]}
        missing = [id for id, job in known.items() if job is None]
        ended = [job for job in known.values() if job is not None and job["state"] in FINAL]
        pending = [job for job in known.values() if job is not None and job["state"] not in FINAL]
        has_failure = bool(missing) or any(job["state"] != "succeeded" for job in ended)
        is_first = body["until"] == "first" and bool(ended or missing)
        is_done = not pending or is_first or (body["until"] == "first_failure" and has_failure)
        if not is_done and body["wait"]:
            _refuse_to_wait(pending)
        return {"done": is_done, "ended": ended, "pending": [job["id"] for job in pending], "missing": missing}


class Transport:
    """The network of a blocking client."""

    def __init__(self, *, answering: Answering) -> None:
        self._answering = answering

    def send(self, request: Request, timeout: float) -> Answer:
        return self._answering.answer(request)

    def stream(self, request: Request, silence: float) -> AbstractContextManager[Iterator[bytes]]:
        return _refuse(request)

    def tick(self) -> float:
        return self._answering.tick()

    def sleep(self, seconds: float) -> None:
        self._answering.pass_time(seconds)

    def close(self) -> None:
        pass


class AsyncTransport:
    """The network of a client for asyncio."""

    def __init__(self, *, answering: Answering) -> None:
        self._answering = answering

    async def send(self, request: Request, timeout: float) -> Answer:
        return self._answering.answer(request)

    def stream(self, request: Request, silence: float) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        return _refuse(request)

    def tick(self) -> float:
        return self._answering.tick()

    async def sleep(self, seconds: float) -> None:
        self._answering.pass_time(seconds)

    async def close(self) -> None:
        pass


def _refuse(request: Request) -> NoReturn:
    raise NotImplementedError(
        f"a Recorder has no {request.method} {request.path.partition('?')[0]}: it keeps jobs alone; "
        "use erelong.testing.Service for the rest of the API"
    )


def _refuse_to_wait(jobs: list[Raw]) -> NoReturn:
    job = jobs[0]
    raise RuntimeError(
        f"job {job['id']} of kind {job['kind']} waits until {job['due_at']}, and a Recorder runs nothing by itself: "
        "call run_due() first, with advance=… if the job is due later, and give the Recorder the function of its kind"
    )
