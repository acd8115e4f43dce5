"""A client without a service: it records submits, and runs the functions of kinds when a test says so."""

from __future__ import annotations

import asyncio
import traceback
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from erelong.attempt import Attempt, GiveUp, RetryAfter
from erelong.client.kinds import Kind
from erelong.client.sync.client import Client
from erelong.client.sync.jobs import Job
from erelong.client.times import read_instant, write_duration, write_instant
from erelong.client.values import plain
from erelong.clock.instants import SECOND, now, parse_duration, parse_start
from erelong.testing.answering import Answering, AsyncTransport, Transport
from erelong.testing.recorded import Recorded

if TYPE_CHECKING:
    from erelong.client.aio.client import AsyncClient
    from erelong.client.times import Duration, Instant
    from erelong.testing.recorded import Raw

URL: Final = "http://recorder"
MAX_ATTEMPTS: Final = 10_000  # of one run


class Recorder:
    """Records jobs in memory, without a service, a process or a thread.

    `client` and `async_client` work as usual for single jobs. `run_due` calls the functions of these kinds for the jobs
    that are due, here and now. The clock stands at `at` until `run_due(advance=…)` moves it.
    """

    def __init__(self, *kinds: Kind[..., Any, Any], at: Instant | None = None) -> None:
        self._kinds = {kind.name: kind for kind in kinds}
        self._jobs = Recorded(now=now() if at is None else parse_start(_text(at)))
        self._answering = Answering(jobs=self._jobs)
        self.client = Client(URL, key="", transport=Transport(answering=self._answering))

    @property
    def async_client(self) -> AsyncClient:
        """A client for asyncio; needs `erelong[async]`."""
        from erelong.client.aio.client import AsyncClient

        return AsyncClient(URL, key="", transport=AsyncTransport(answering=self._answering))

    @property
    def submitted(self) -> list[Job[Any]]:
        """The jobs as they are now, in the order of their submits."""
        return [self._job(raw) for raw in self._jobs.jobs.values()]

    @property
    def now(self) -> datetime:
        """The instant at which the clock stands."""
        return datetime.fromtimestamp(self._jobs.now / SECOND, UTC)

    def run_due(self, advance: Duration = 0) -> list[Job[Any]]:
        """Move the clock, run what becomes due on the way in the order of the due times, and return what has run.

        Failures are retried after the delays of their policy, without jitter. Jobs of kinds without a function wait.
        """
        until = self._jobs.now + round(parse_duration(write_duration(advance)) * SECOND)
        ran: list[Raw] = []
        while (job := self._jobs.next_due(until, self._kinds)) is not None:
            if len(ran) == MAX_ATTEMPTS:
                raise RuntimeError(f"{MAX_ATTEMPTS} attempts have run: does a job submit itself without a delay?")
            self._jobs.now = max(self._jobs.now, round(read_instant(job["due_at"]).timestamp() * SECOND))
            self._run(job)
            ran.append(job)
        self._jobs.now = until
        return [self._job(raw) for raw in {raw["id"]: raw for raw in ran}.values()]

    def _run(self, job: Raw) -> None:
        """Run one attempt, and do with the job what a service does after it."""
        self._jobs.begin(job)
        kind = self._kinds[job["kind"]]
        try:
            positional, named = kind.arguments(job["params"], self._attempt(job))
        except Exception as error:  # noqa: BLE001 - classes of params may raise anything
            self._fail(job, error, is_final=True)
            return
        try:
            result = kind.function(*positional, **named)
            result = _awaited(result) if kind.is_async else result
        except Exception as error:  # noqa: BLE001 - so may a function
            self._fail(job, error, is_final=isinstance(error, GiveUp))
            return
        try:
            written = plain(result)
        except (TypeError, ValueError) as error:
            self._fail(job, error, is_final=True)
            return
        self._jobs.note(job, "succeeded", None, None)
        self._jobs.end(job, "succeeded", result=written, error=None, late_by=0.0)

    def _attempt(self, job: Raw) -> Attempt:
        return Attempt(
            seq=int(job["id"][:10], 16),
            token=job["id"][10:],
            kind=job["kind"],
            queue=job["queue"],
            number=job["attempt"],
            due_at=self._jobs.now,
            started_at=self._jobs.now,
            timeout=job["timeout"],
        )

    def _fail(self, job: Raw, error: Exception, *, is_final: bool) -> None:
        policy = job["retry"]
        about = {
            "type": "give_up" if isinstance(error, GiveUp) else "exception",
            "message": str(error),
            "retryable": not is_final,
        }
        output = None if isinstance(error, GiveUp | RetryAfter) else "".join(traceback.format_exception(error))
        self._jobs.note(job, "error", about, output)
        if is_final or job["attempt"] >= policy["max_attempts"]:
            self._jobs.end(job, "failed", error=about)
        elif isinstance(error, RetryAfter):
            self._jobs.again(job, parse_duration(error.delay), about)
        else:
            delay = policy["delay"] * policy["factor"] ** (job["attempt"] - 1)
            self._jobs.again(job, min(delay, policy["max_delay"]), about)

    def _job(self, raw: Raw) -> Job[Any]:
        kind = self._kinds.get(raw["kind"])
        return Job({**raw}, self.client, Any if kind is None else kind.returns)


def _awaited(coroutine: Any) -> Any:
    """Run a coroutine to its end, in a thread of its own where a loop runs already."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(coroutine)
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, coroutine).result()


def _text(at: Instant) -> str:
    written = write_instant(at, "at")
    return written if isinstance(written, str) else datetime.fromtimestamp(written, UTC).isoformat()
