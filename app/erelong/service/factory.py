"""Jobs as they are asked for: what is checked, and what their kind, their queue and the settings fill in."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Required, TypedDict

import orjson

from erelong.errors import Fault, Invalid, WrongState
from erelong.model import job as jobs
from erelong.model.ids import draw_tokens
from erelong.model.job import Job, State
from erelong.model.retry import read_policy
from erelong.settings.queues import merged

if TYPE_CHECKING:
    from erelong.clock.instants import Instant
    from erelong.handlers.kinds import Kind, Kinds
    from erelong.lanes.lanes import Lanes
    from erelong.settings.queues import QueueSettings, RetryPatch
    from erelong.settings.sections import Config

DEFAULT_QUEUE = "default"
MAX_TERMS = 1_000  # each PUT of a queue makes settings of its own, and the old ones must not stay for ever


class Submission(TypedDict, total=False):
    """A job as somebody asks for it; what is absent or None falls to the kind, the queue, the defaults."""

    kind: Required[str]
    params: dict[str, Any] | None
    queue: str | None
    execute_at: Instant
    delay: float
    priority: int | None
    timeout: float | None
    retry: RetryPatch | None
    expires_after: float | None
    labels: dict[str, str] | None
    key: str | None
    on_conflict: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What a PATCH asks for: only the given names are touched; None clears what can be cleared."""

    given: frozenset[str] = field(default_factory=frozenset)
    execute_at: Instant | None = None
    delay: float | None = None
    priority: int = 0
    params: bytes = jobs.NOTHING
    labels: bytes | None = None
    timeout: float | None = None
    expires_after: float | None = None
    retry: RetryPatch | None = None


class Terms(NamedTuple):
    """What a job of a kind gets where these settings hold, unless it asks for other."""

    settings: QueueSettings
    timeout: float
    retry: bytes


class Template(NamedTuple):
    """A job of which others differ in params and time alone; good for as long as these settings hold."""

    job: Job
    kind: Kind
    settings: QueueSettings


class JobFactory:
    """Makes jobs of what is asked, or raises `Invalid` naming each field that cannot be."""

    def __init__(self, *, lanes: Lanes, kinds: Kinds, config: Config) -> None:
        self._lanes = lanes
        self._kinds = kinds
        self._config = config
        self._max_params = config.limits.max_params
        self._made_terms: dict[tuple[str, int], Terms] = {}
        self._tokens = draw_tokens()

    def make(self, asked: Submission, now: Instant) -> Job:
        kind, queue = asked["kind"], queue_of(asked)
        declared = self._kinds.get(kind)
        if declared is None:
            raise Invalid("the job cannot be taken", faults=[Fault("/kind", self._no_kind(kind))])
        params = orjson.dumps(asked["params"]) if asked.get("params") else jobs.NOTHING
        self._check_params(declared, params)
        terms = self._terms(kind, self._lanes.settings(queue))
        delay, timeout = asked.get("delay"), asked.get("timeout")
        retry, labels = asked.get("retry"), asked.get("labels")
        return jobs.new(
            kind=kind,
            queue=queue,
            now=now,
            execute_at=asked.get("execute_at", now) if delay is None else now + round(delay * jobs.SECOND),
            timeout=terms.timeout if timeout is None else self._timeout(timeout),
            retry=terms.retry if retry is None else self._policy(kind, terms.settings, retry),
            params=params,
            key=asked.get("key"),
            labels=orjson.dumps(labels) if labels else None,
            priority=asked.get("priority") or 0,
            expires_after=asked.get("expires_after"),
            token=next(self._tokens),
        )

    def template(self, job: Job) -> Template:
        """Return what it takes to make others like a new job."""
        return Template(job._replace(params=jobs.NOTHING), self._kinds[job.kind], self._lanes.settings(job.queue))

    def from_template(
        self, template: Template, params: dict[str, Any] | None, execute_at: Instant, now: Instant
    ) -> Job | None:
        """Make a job like another; return None if the template is outdated or the params do not fit."""
        job, kind, settings = template
        text = orjson.dumps(params) if params else jobs.NOTHING
        if len(text) > self._max_params or self._lanes.settings(job.queue) is not settings:
            return None
        try:
            kind.params.check(text)
        except Invalid:
            return None
        return job.alike(params=text, execute_at=execute_at, now=now, token=next(self._tokens))

    def change(self, job: Job, change: Change, now: Instant) -> Job:
        """Lay a change over a scheduled job; nothing given changes nothing."""
        if job.state is not State.SCHEDULED:
            raise WrongState(f"cannot change job {job.id}", state=job.state.word, job=job)
        if not change.given:
            return job
        after = job.rewrite(**self._rewritten(job, change))
        if "expires_after" in change.given:
            after = after.expire_after(change.expires_after, now)
        if change.execute_at is not None:
            after = after.move(change.execute_at, now)
        elif change.delay is not None:
            after = after.move(now + round(change.delay * jobs.SECOND), now)
        return after._replace(version=job.version + 1)

    def _rewritten(self, job: Job, change: Change) -> dict[str, Any]:
        given, terms = change.given, self._terms(job.kind, self._lanes.settings(job.queue))
        if "params" in given:
            self._check_params(self._kinds.get(job.kind), change.params)
        timeout = terms.timeout if change.timeout is None else self._timeout(change.timeout)
        return {
            "params": change.params if "params" in given else job.params,
            "labels": change.labels if "labels" in given else job.labels,
            "priority": change.priority if "priority" in given else job.priority,
            "timeout": timeout if "timeout" in given else job.timeout,
            "retry": _changed_policy(job, terms, change.retry) if "retry" in given else job.retry,
        }

    def _check_params(self, kind: Kind | None, params: bytes) -> None:
        limit = self._max_params
        if len(params) > limit:
            detail = (
                f"{len(params)} bytes of JSON; at most {limit} are taken. Store large data elsewhere and pass its name"
            )
            raise Invalid("params are too large", faults=[Fault("/params", detail)])
        if kind is None:
            return
        try:
            kind.params.check(params)
        except Invalid as invalid:
            raise Invalid(invalid.what, faults=[fault.under("/params") for fault in invalid.faults]) from None

    def _no_kind(self, kind: str) -> str:
        known = ", ".join(self._kinds)
        close = difflib.get_close_matches(kind, self._kinds, n=1)
        return f"no kind {kind!r}; known kinds: {known}" + (f". Did you mean {close[0]!r}?" if close else "")

    def _terms(self, kind: str, settings: QueueSettings) -> Terms:
        """Made once for all jobs of a kind under the same settings, and their policy is the same object."""
        terms = self._made_terms.get((kind, id(settings)))
        if terms is None:
            declared = self._config.kinds.get(kind)
            timeout = (declared.timeout if declared else None) or settings.timeout or self._config.jobs.timeout
            terms = Terms(settings, timeout, self._policy(kind, settings, None))
            if len(self._made_terms) >= MAX_TERMS:
                self._made_terms.clear()
            self._made_terms[kind, id(settings)] = terms  # which keeps the id from being another's
        return terms

    def _timeout(self, asked: float) -> float:
        limit = self._config.jobs.max_timeout
        if asked > limit:
            raise Invalid("the job cannot be taken", faults=[Fault("/timeout", f"{asked:g} s; at most {limit:g} s")])
        return asked

    def _policy(self, kind: str, settings: QueueSettings, asked: RetryPatch | None) -> bytes:
        """The whole retry policy as JSON."""
        declared = self._config.kinds.get(kind)
        of_kind = declared.retry if declared else None
        return merged(self._config.jobs.retry.policy, settings.retry, of_kind, asked).to_json()


def queue_of(asked: Submission) -> str:
    return asked.get("queue") or DEFAULT_QUEUE


def _changed_policy(job: Job, terms: Terms, patch: RetryPatch | None) -> bytes:
    """Lay a patch over the policy of a job; what it names as null goes back to what a new job would get."""
    if patch is None:
        return terms.retry
    nulls = {name for name in patch.model_fields_set if getattr(patch, name) is None}
    fallback = read_policy(terms.retry)._asdict()
    return merged(job.policy._replace(**{name: fallback[name] for name in nulls}), patch).to_json()
