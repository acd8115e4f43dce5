"""The client of a service: jobs, and the way to everything else."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar, Unpack, overload

from erelong.client import doubts
from erelong.client.batches import Ticket, Unsent, batches_of, tickets_of, without_bad
from erelong.client.calls import jobs as calls
from erelong.client.calls import kinds as kind_calls
from erelong.client.calls import queues as queue_calls
from erelong.client.calls.jobs import NEW_KEY, WAIT
from erelong.client.drafts import Changes, Draft, Filters, Options, draft_of, merged, write_fields
from erelong.client.errors import Changed, NoAnswer, NotFound, Refused
from erelong.client.outages import Outage
from erelong.client.profile import find_profile
from erelong.client.records import Event, JobRecord, KindRecord, QueueRecord
from erelong.client.requests import Answer, Cut, Request, with_query
from erelong.client.retries import Tries, read_json
from erelong.client.streams import SILENCE, EventReader
from erelong.client.sync.jobs import Job, Waited
from erelong.client.sync.kinds import ServiceKind
from erelong.client.sync.operations import Operations
from erelong.client.sync.queues import Queue
from erelong.client.sync.schedules import Schedules
from erelong.client.sync.sender import Sender
from erelong.client.sync.transport import Transport
from erelong.client.times import Duration, seconds_of, shown
from erelong.client.tracing import with_trace
from erelong.client.watch import Watch

if TYPE_CHECKING:
    from erelong.client.kinds import Kind

R = TypeVar("R")
Which = JobRecord | Ticket | str
"""A job, a ticket, an id, or `~` and the key of a live job."""

IsDone = Callable[[JobRecord, JobRecord], bool]
"""Says of a job, as it was before and as it is now, whether a change was made."""

BATCH: Final = 1_000


class Client:
    """A client of one service. Use one for the whole program, and close it at the end, or use it as a context manager.

    `url` and `key` come from ERELONG_URL and ERELONG_KEY (or ERELONG_KEY_FILE), a profile, or are http://127.0.0.1:8080
    and no key. `timeout` covers a call with all its tries. A request that fails is repeated where that is safe, unless
    `retries` is off. Every submit carries an idempotency key, so a repeated one never makes a second job.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        key: str | None = None,
        profile: str | None = None,
        timeout: Duration = 30.0,
        retries: bool = True,
        headers: Mapping[str, str] | None = None,
        transport: Sender | None = None,
    ) -> None:
        found = find_profile(url, key, profile)
        self.url = found.url
        self.timeout = seconds_of(timeout)
        self._is_retrying = retries
        self._transport = transport or Transport(url=found.url, headers={**found.headers(), **(headers or {})})
        self._outage = Outage()
        self._defaults: Options = {}
        self._is_view = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections, unless this is a view of another client."""
        if not self._is_view:
            self._transport.close()

    def defaults(self, **options: Unpack[Options]) -> Self:
        """Return a view of this client whose submits have these options unless they have their own.

        `with client.defaults(queue="mail", labels={"tenant": "t1"}) as mail: mail.submit(…)`. Labels are merged.
        """
        view = copy(self)
        view._defaults, view._is_view = merged(self._defaults, options), True
        return view

    @property
    def schedules(self) -> Schedules:
        return Schedules(self)

    @property
    def operations(self) -> Operations:
        return Operations(self)

    def send(self, request: Request, *, timeout: float | None = None) -> Any:
        """Send a request of `erelong.client.calls`, repeat it where that is safe, and return the JSON of its answer."""
        return read_json(self.ask(request, timeout=timeout))

    def ask(self, request: Request, *, timeout: float | None = None) -> Answer:
        """Send a request as `send` does, and return its answer, which may have any content."""
        seconds = self.timeout if timeout is None else timeout
        request = with_trace(request)
        tries = Tries(request, now=self.tick(), timeout=seconds, is_retrying=self._is_retrying)
        while True:
            try:
                answer = self._transport.send(request, tries.left(self.tick()))
            except Cut as cut:
                pause = tries.after_cut(cut, self.tick())
                if self._outage.is_news(cut, self.tick()):
                    self.warn(f"{cut}; retrying")
            else:
                self._outage.end()
                final = tries.after_answer(answer, self.tick())
                if final is None:
                    return tries.checked(answer)
                pause = final
            self._transport.sleep(pause)

    def tick(self) -> float:
        """Return the seconds of the clock by which timeouts are measured."""
        return self._transport.tick()

    def warn(self, text: str) -> None:
        """Write a warning to the log of Python."""
        import logging  # a tenth of the start of a command

        logging.getLogger("erelong.client").warning("%s", text)

    # one job

    @overload
    def submit(
        self, draft: Draft[R], /, *, idempotency_key: str | None = ..., **options: Unpack[Options]
    ) -> Job[R]: ...

    @overload
    def submit(
        self,
        kind: str,
        params: Mapping[str, Any] | None = ...,
        /,
        *,
        idempotency_key: str | None = ...,
        **options: Unpack[Options],
    ) -> Job[Any]: ...

    def submit(
        self,
        what: Draft[Any] | str,
        params: Mapping[str, Any] | None = None,
        /,
        *,
        idempotency_key: str | None = NEW_KEY,
        **options: Unpack[Options],
    ) -> Job[Any]:
        """Submit a job, and return it once it is on the disk of the service.

        `client.submit("http", {"url": "https://app.example/remind"}, delay="2h")`, or a draft of a kind:
        `client.submit(remind.job(user=7), at=…)`.
        """
        draft = draft_of(what, params, **options).with_defaults(self._defaults)
        return Job(self.send(calls.submit(draft, idempotency_key)), self, draft.returns)

    def get(self, job: Which, *, wait: Duration = 0.0, queue: str | None = None) -> Job[Any]:
        """Return a job. With `wait`, return it when it has ended, or after this time."""
        return Job(self.send(calls.read(_id(job), wait=seconds_of(wait), queue=queue)), self)

    def explain(self, job: Which, *, queue: str | None = None) -> Mapping[str, Any]:
        """Return what keeps a job from starting, and when it is likely to."""
        explanation: Mapping[str, Any] = self.send(calls.explain(_id(job), queue=queue))
        return explanation

    def edit(
        self, job: Which, *, if_unchanged: bool = False, queue: str | None = None, **changes: Unpack[Changes]
    ) -> Job[Any]:
        """Change a waiting job. With `if_unchanged`, raise Changed if it is not as in `job` any more."""
        request = calls.edit(_id(job), changes, _version(job, if_unchanged), queue)
        wish = partial(doubts.is_edited, changes=write_fields(changes))
        return self._change(job, request, wish)

    def cancel(
        self, job: Which, *, reason: str | None = None, if_unchanged: bool = False, queue: str | None = None
    ) -> Job[Any]:
        """Cancel a job. A running one is asked to stop: it is `cancel_requested` until it has."""
        request = calls.cancel(_id(job), reason, _version(job, if_unchanged), queue)
        return self._change(job, request, doubts.is_cancelled)

    def run(self, job: Which, *, if_unchanged: bool = False, queue: str | None = None) -> Job[Any]:
        """Make a waiting job due now."""
        return self._change(job, calls.run(_id(job), _version(job, if_unchanged), queue), doubts.is_run)

    def retry(self, job: Which, *, if_unchanged: bool = False, **changes: Unpack[Changes]) -> Job[Any]:
        """Run a failed, cancelled or expired job again."""
        request = calls.retry(_id(job), changes, _version(job, if_unchanged))
        return self._change(job, request, partial(doubts.is_retried, changes=write_fields(changes)))

    def delete(self, job: Which, *, if_unchanged: bool = False, queue: str | None = None) -> None:
        """Delete a job that is not running."""
        self.send(calls.delete(_id(job), _version(job, if_unchanged), queue))

    def _change(self, job: Which, request: Request, is_done: IsDone) -> Job[Any]:
        """Send a change. If its answer is lost, compare `job`, as it was read before, with the job as it is now.

        A change that was not made is sent again, on condition that this remains so.
        """
        deadline = self.tick() + self.timeout
        while True:
            try:
                return Job(self.send(request, timeout=deadline - self.tick()), self)
            except (NoAnswer, Changed) as error:
                if not (error.maybe_done and self._is_retrying and isinstance(job, JobRecord)):
                    raise
                try:
                    found = Job[Any](self.send(calls.read(job.id), timeout=deadline - self.tick()), self)
                except (NoAnswer, Refused):
                    raise error from None  # that of the read would not say that the change may have been made
                if is_done(job, found):
                    return found
                if found.version != job.version:
                    raise
                request = calls.only_in(job.version, request)

    # many jobs

    def submit_many(self, drafts: Iterable[Draft[Any]], *, batch: int = BATCH) -> Iterator[Ticket]:
        """Submit drafts in batches, and yield a ticket for each as soon as its batch is on disk.

        Nothing is sent before you iterate. Each batch has an idempotency key of its own. A draft that the service
        refuses becomes a ticket with its `problem`; the others of its batch are stored.
        """
        return self._submit_many(drafts, batch, Unsent())

    def _submit_many(self, drafts: Iterable[Draft[Any]], batch: int, unsent: Unsent) -> Iterator[Ticket]:
        unsent.begin()
        for lines in batches_of((draft_of(draft).with_defaults(self._defaults) for draft in drafts), batch):
            tickets: list[Ticket] = []
            while lines:
                try:
                    answer = self.send(calls.submit_batch([body for _, body in lines]))
                except Refused as problem:
                    lines, refused = without_bad(lines, problem)
                    tickets += refused
                else:
                    tickets += tickets_of(lines, answer)
                    break
            for ticket in sorted(tickets, key=lambda ticket: ticket.index):
                yield ticket

    def list(self, **filters: Unpack[Filters]) -> Iterator[Job[Any]]:
        """Yield the jobs that match, page by page. `limit` is the size of a page."""
        cursor = None
        while True:
            page = self.send(calls.page(filters, cursor))
            for raw in page["jobs"]:
                yield Job(raw, self)
            cursor = page.get("next")
            if cursor is None:
                return

    def wait(self, jobs: Iterable[Which] | Which, *, until: str = "all", timeout: Duration | None = None) -> Waited:
        """Wait until all jobs have ended, the `first` has, or the `first_failure`; or for `timeout`."""
        watch, done, missing = Watch(_id(job) for job in _each(jobs)), [], []
        deadline = None if timeout is None else self.tick() + seconds_of(timeout)
        while watch.pending:
            left = WAIT if deadline is None else deadline - self.tick()
            ended, gone = watch.take(self.send(watch.next_request(until, left)))
            done += [Job[Any](raw, self) for raw in ended]
            missing += gone
            has_failure = bool(gone) or any(raw["state"] != "succeeded" for raw in ended)
            is_first = until == "first" and (done or missing)
            if is_first or (until == "first_failure" and has_failure) or left <= 0:
                break
        return Waited(done, [*watch.pending], missing)

    @overload
    def as_completed(self, jobs: Iterable[Job[R]], *, timeout: Duration | None = ...) -> Iterator[Job[R]]: ...

    @overload
    def as_completed(self, jobs: Iterable[Which] | Which, *, timeout: Duration | None = ...) -> Iterator[Job[Any]]: ...

    def as_completed(self, jobs: Iterable[Which] | Which, *, timeout: Duration | None = None) -> Iterator[Job[Any]]:
        """Yield each job when it has ended; raise TimeoutError if some have not after `timeout`.

        Jobs that do not exist are a NotFound, raised after the others have ended.
        """
        given = {_id(job): job for job in _each(jobs)}
        watch, missing = Watch(given), []
        deadline = None if timeout is None else self.tick() + seconds_of(timeout)
        while watch.pending:
            left = WAIT if deadline is None else deadline - self.tick()
            ended, gone = watch.take(self.send(watch.next_request("first", left)))
            missing += gone
            for raw in ended:
                job = given[raw["id"]]
                yield Job(raw, self, job.returns if isinstance(job, Job) else Any)
            if left <= 0 and watch.pending:
                raise TimeoutError(f"{len(watch.pending)} of {len(given)} jobs have not ended within {shown(timeout)}")
        if missing:
            raise NotFound(404, {"code": "job_not_found", "detail": f"no jobs {', '.join(missing[:5])}"})

    def events(
        self,
        *,
        type: Iterable[str] = (),
        since: str | None = None,
        label: Mapping[str, str] | None = None,
        **filters: str | Sequence[str],
    ) -> Iterator[Event]:
        """Follow what happens, without end. After a lost connection it continues after the last event.

        An event of type `reset` says that events may be missing: read with `list` what you need, then go on.
        """
        labels = {f"label.{name}": value for name, value in (label or {}).items()}
        reader = EventReader(with_query("/v1/events", {**filters, "type": list(type), "since": since, **labels}))
        while True:
            for event in self._follow(reader):
                yield event
            self._transport.sleep(reader.pause)

    def _follow(self, reader: EventReader) -> Iterator[Event]:
        """Yield events until the connection is lost. Raise a refusal that will not pass."""
        try:
            with self._transport.stream(reader.request(), SILENCE) as lines:
                for line in lines:
                    if (event := reader.read(line)) is not None:
                        yield event
        except Cut as cut:
            if cut.is_lasting:
                raise NoAnswer(f"no events: {cut}", maybe_done=False) from cut
        except Refused as problem:
            if problem.retry_after is None:
                raise

    # the rest of the service

    def queue(self, name: str) -> Queue:
        """Return a queue to read or to change; this sends nothing."""
        return Queue(self, name)

    def queues(self) -> Sequence[QueueRecord]:
        return [QueueRecord(raw) for raw in (self.send(queue_calls.every()))["queues"]]

    def kind(self, kind: Kind[..., Any, Any] | str) -> ServiceKind:
        """Return a kind of the service, by its name or its function, to read or to declare; this sends nothing."""
        return ServiceKind(self, kind)

    def kinds(self) -> Sequence[KindRecord]:
        """Return the kinds of the service, with the schemas of their params."""
        return [KindRecord(raw) for raw in (self.send(kind_calls.every()))["kinds"]]

    def stats(self, *, span: str = "now", queue: str | None = None) -> Mapping[str, Any]:
        stats: Mapping[str, Any] = self.send(queue_calls.stats(span, queue))
        return stats

    def me(self) -> Mapping[str, Any]:
        """Return what this key may do."""
        me: Mapping[str, Any] = self.send(queue_calls.me())
        return me


def _each(jobs: Iterable[Which] | Which) -> Iterable[Which]:
    return [jobs] if isinstance(jobs, str | JobRecord | Ticket) else jobs


def _id(job: Which) -> str:
    if isinstance(job, str):
        return job
    if not isinstance(job, JobRecord | Ticket):
        raise TypeError(f"{job!r} is not a job, a ticket or an id")
    return job.id


def _version(job: Which, if_unchanged: bool) -> int | None:
    if not if_unchanged:
        return None
    if not isinstance(job, JobRecord):
        raise TypeError(f"if_unchanged needs a job that was read, not {job!r}: an id has no version")
    return job.version
