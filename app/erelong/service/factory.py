"""Makes jobs from submissions: checks them and fills in the defaults of kind, queue and settings."""

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
MAX_DEFAULTS = 1_000  # each PUT of a queue makes new settings; old entries must not accumulate


class Submission(TypedDict, total=False):
    """The fields of a submitted job; for absent ones and None the kind, queue and global defaults apply."""

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
    """The fields of a PATCH: only the `given` ones change; None clears an optional one."""

    given: frozenset[str] = field(default_factory=frozenset)
    execute_at: Instant | None = None
    delay: float | None = None
    priority: int = 0
    params: bytes = jobs.NOTHING
    labels: bytes | None = None
    timeout: float | None = None
    expires_after: float | None = None
    retry: RetryPatch | None = None


class JobDefaults(NamedTuple):
    """Defaults for jobs of one kind under the same queue settings."""

    settings: QueueSettings
    timeout: float
    retry: bytes


class Template(NamedTuple):
    """A job for making others that differ only in params and time; outdated when the settings change."""

    job: Job
    kind: Kind
    settings: QueueSettings


class JobFactory:
    """Makes jobs from submissions; raises `Invalid` with each bad field."""

    def __init__(self, *, lanes: Lanes, kinds: Kinds, config: Config) -> None:
        self._lanes = lanes
        self._kinds = kinds
        self._config = config
        self._max_params = config.limits.max_params
        self._made_defaults: dict[tuple[str, int], JobDefaults] = {}
        self._tokens = draw_tokens()

    def make(self, submission: Submission, now: Instant) -> Job:
        kind, queue = submission["kind"], queue_of(submission)
        declared = self._kinds.get(kind)
        if declared is None:
            raise Invalid("the job cannot be taken", faults=[Fault("/kind", self._no_kind(kind))])
        params = orjson.dumps(submission["params"]) if submission.get("params") else jobs.NOTHING
        self._check_params(declared, params)
        defaults = self._defaults(kind, self._lanes.settings(queue))
        delay, timeout = submission.get("delay"), submission.get("timeout")
        retry, labels = submission.get("retry"), submission.get("labels")
        return jobs.new(
            kind=kind,
            queue=queue,
            now=now,
            execute_at=submission.get("execute_at", now) if delay is None else now + round(delay * jobs.SECOND),
            timeout=defaults.timeout if timeout is None else self._timeout(timeout),
            retry=defaults.retry if retry is None else self._policy(kind, defaults.settings, retry),
            params=params,
            key=submission.get("key"),
            labels=orjson.dumps(labels) if labels else None,
            priority=submission.get("priority") or 0,
            expires_after=submission.get("expires_after"),
            token=next(self._tokens),
        )

    def template(self, job: Job) -> Template:
        """Return a template for making jobs like this one."""
        return Template(job._replace(params=jobs.NOTHING), self._kinds[job.kind], self._lanes.settings(job.queue))

    def from_template(
        self, template: Template, params: dict[str, Any] | None, execute_at: Instant, now: Instant
    ) -> Job | None:
        """Make a job from a template; return None if the template is outdated or the params are invalid."""
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
        """Apply a change to a scheduled job; return it as it is if nothing is given."""
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
        given, defaults = change.given, self._defaults(job.kind, self._lanes.settings(job.queue))
        if "params" in given:
            self._check_params(self._kinds.get(job.kind), change.params)
        timeout = defaults.timeout if change.timeout is None else self._timeout(change.timeout)
        return {
            "params": change.params if "params" in given else job.params,
            "labels": change.labels if "labels" in given else job.labels,
            "priority": change.priority if "priority" in given else job.priority,
            "timeout": timeout if "timeout" in given else job.timeout,
            "retry": _changed_policy(job, defaults, change.retry) if "retry" in given else job.retry,
        }

    def _check_params(self, kind: Kind | None, params: bytes) -> None:
        limit = self._max_params
        if len(params) > limit:
            detail = f"{len(params)} bytes of JSON; at most {limit} are taken; store large data in another system"
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

    def _defaults(self, kind: str, settings: QueueSettings) -> JobDefaults:
        """Return the defaults, one object for all jobs of a kind under the same settings."""
        defaults = self._made_defaults.get((kind, id(settings)))
        if defaults is None:
            declared = self._config.kinds.get(kind)
            timeout = (declared.timeout if declared else None) or settings.timeout or self._config.jobs.timeout
            defaults = JobDefaults(settings, timeout, self._policy(kind, settings, None))
            if len(self._made_defaults) >= MAX_DEFAULTS:
                self._made_defaults.clear()
            self._made_defaults[kind, id(settings)] = (
                defaults  # keeps the settings alive, so that their id stays unique
            )
        return defaults

    def _timeout(self, seconds: float) -> float:
        limit = self._config.jobs.max_timeout
        if seconds > limit:
            raise Invalid("the job cannot be taken", faults=[Fault("/timeout", f"{seconds:g} s; at most {limit:g} s")])
        return seconds

    def _policy(self, kind: str, settings: QueueSettings, patch: RetryPatch | None) -> bytes:
        """Return the whole retry policy as JSON."""
        declared = self._config.kinds.get(kind)
        kind_patch = declared.retry if declared else None
        return merged(self._config.jobs.retry.policy, settings.retry, kind_patch, patch).to_json()


def queue_of(submission: Submission) -> str:
    return submission.get("queue") or DEFAULT_QUEUE


def _changed_policy(job: Job, defaults: JobDefaults, patch: RetryPatch | None) -> bytes:
    """Apply a patch to the retry policy of a job; null resets a part to the default of a new job."""
    if patch is None:
        return defaults.retry
    nulls = {name for name in patch.model_fields_set if getattr(patch, name) is None}
    fallback = read_policy(defaults.retry)._asdict()
    return merged(job.policy._replace(**{name: fallback[name] for name in nulls}), patch).to_json()
