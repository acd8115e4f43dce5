"""Makes jobs from submissions: checks them and fills in the defaults of kind, queue and settings."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Required, TypedDict

import orjson

from erelong.errors import Fault, Invalid, WrongState
from erelong.model import job as jobs
from erelong.model.extras import LOCAL, PATCHED, are_lost, patched, read_extras
from erelong.model.faults import hint
from erelong.model.ids import draw_tokens
from erelong.model.job import Job, State
from erelong.model.json_text import trimmed
from erelong.model.reports.callback import KIND, QUEUE, is_unreadable, make_on_finish
from erelong.model.retry import read_policy
from erelong.model.spec import DEFAULT_QUEUE
from erelong.model.submission import make_job
from erelong.service.local_times import LocalTimes
from erelong.settings.bounds import time_faults
from erelong.settings.defaults import Defaults
from erelong.settings.queues import merged

if TYPE_CHECKING:
    from collections.abc import Mapping

    from erelong.clock.instants import Instant
    from erelong.clock.zones import ZoneSource
    from erelong.handlers.kinds import Kind, Kinds
    from erelong.lanes.lanes import Lanes
    from erelong.model.extras import Extras, OnFinish
    from erelong.settings.defaults import JobDefaults
    from erelong.settings.queues import QueueSettings, RetryPatch
    from erelong.settings.sections import Config

MAX_SOUND = 1_000  # checked params that are kept
MAX_SHARED = 1_024  # bytes of those that are worth keeping

_SUBMITTED = frozenset(PATCHED)


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
    on_finish: dict[str, Any] | None
    key: str | None
    on_conflict: str | None
    spread: float | None
    local_time: str
    zone: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The fields of a PATCH: only the `given` ones change; None clears an optional one. `extras` has those given."""

    given: frozenset[str] = field(default_factory=frozenset)
    execute_at: Instant | None = None
    delay: float | None = None
    priority: int = 0
    params: bytes = jobs.NOTHING
    labels: bytes | None = None
    timeout: float | None = None
    expires_after: float | None = None
    retry: RetryPatch | None = None
    extras: Mapping[str, Any] = field(default_factory=dict)

    def starts_at(self, now: Instant) -> Instant | None:
        """Return the new time of the job, unless it is a local time; None if there is none."""
        return self.execute_at if self.delay is None else now + round(self.delay * jobs.SECOND)


NO_CHANGE: Final = Change()


class Own(NamedTuple):
    """The fields of a submission that jobs made from one template do not share. The labels are checked."""

    params: dict[str, Any] | None
    execute_at: Instant
    key: str | None
    labels: dict[str, str] | None


class Template(NamedTuple):
    """A job for making others with the same spec; outdated when the settings change."""

    job: Job
    kind: Kind
    settings: QueueSettings


class JobFactory:
    """Makes jobs from submissions; raises `Invalid` with each bad field."""

    def __init__(self, *, lanes: Lanes, kinds: Kinds, config: Config, zones: ZoneSource) -> None:
        self._lanes = lanes
        self._kinds = kinds
        self._config = config
        self._local_times = LocalTimes(zones=zones, max_horizon=config.jobs.max_horizon)
        self._max_params = config.limits.max_params
        self._defaults = Defaults(config=config, kinds=kinds)
        self._tokens = draw_tokens()
        self._sound: set[tuple[str, bytes]] = set()
        """Params that were checked, each with its kind and without the param that may have any value."""

    def make(self, submission: Submission, now: Instant, extras: Extras | None = None) -> Job:
        """Make a job; `extras` has those that clients cannot submit, such as its schedule."""
        kind, queue = submission["kind"], queue_of(submission)
        declared = self._kinds.get(kind)
        if declared is None:
            raise Invalid("the job is not valid", faults=[Fault("/kind", self._no_kind(kind))])
        params = orjson.dumps(submission["params"]) if submission.get("params") else jobs.NOTHING
        self._check_params(declared, params)
        defaults = self._defaults.of(kind, self._lanes.settings(queue))
        delay, timeout = submission.get("delay"), submission.get("timeout")
        retry, labels = submission.get("retry"), submission.get("labels")
        self._check_times(timeout, retry, "the job is not valid")
        execute_at = submission.get("execute_at", now) if delay is None else now + round(delay * jobs.SECOND)
        if not _SUBMITTED.isdisjoint(submission):
            submitted = {name: value for name, value in submission.items() if name in _SUBMITTED}
            extras = patched(extras or {}, self._with_callback(submitted, None))
            if not LOCAL.isdisjoint(extras):
                execute_at = self._local_times.resolve(extras, now, "the job is not valid")
        return make_job(
            kind=kind,
            queue=queue,
            now=now,
            execute_at=execute_at,
            timeout=defaults.timeout if timeout is None else timeout,
            retry=defaults.retry if retry is None else self._defaults.policy(kind, defaults.settings, retry),
            params=params,
            key=submission.get("key"),
            labels=orjson.dumps(labels) if labels else None,
            extras=extras,
            priority=submission.get("priority") or 0,
            expires_after=submission.get("expires_after"),
            token=next(self._tokens),
        )

    def template(self, job: Job) -> Template:
        """Return a template for making jobs like this one."""
        kind, settings = self._kinds[job.kind], self._lanes.settings(job.queue)
        return Template(job._replace(params=jobs.NOTHING), kind, settings)

    def is_current(self, template: Template) -> bool:
        """Return whether neither the kind nor the settings of the queue have changed since the template was made."""
        job, kind, settings = template
        return self._lanes.settings(job.queue) is settings and self._kinds.get(job.kind) is kind

    def from_template(self, template: Template, own: Own, now: Instant) -> Job | None:
        """Make a job from a template; return None if the template is outdated or the params are invalid."""
        job, kind, settings = template
        params, execute_at, key, labels = own
        text = orjson.dumps(params) if params else jobs.NOTHING
        if len(text) > self._max_params or self._lanes.settings(job.queue) is not settings:
            return None
        if self._kinds.get(job.kind) is not kind:
            return None
        shared = _without(kind.any_param, params) if kind.any_param and params else None
        if shared is None or (kind.name, shared) not in self._sound:
            try:
                kind.params.check(text)
            except Invalid:
                return None
            if shared is not None:
                self._keep_sound(kind.name, shared)
        return job.alike(
            params=text,
            execute_at=execute_at,
            now=now,
            token=next(self._tokens),
            key=key,
            labels=orjson.dumps(labels) if labels else None,
        )

    def _keep_sound(self, kind: str, shared: bytes) -> None:
        if len(self._sound) >= MAX_SOUND:
            self._sound.clear()
        if len(shared) <= MAX_SHARED:
            self._sound.add((kind, trimmed(shared)))

    def change(self, job: Job, change: Change, now: Instant) -> Job:
        """Apply a change to a scheduled job; return it as it is if nothing is given."""
        if job.state is not State.SCHEDULED:
            raise WrongState(f"cannot change job {job.id}", state=job.state.word, job=job)
        if not change.given:
            return job
        after = job.rewrite(**self._rewritten(job, change))
        execute_at = change.starts_at(now)
        if change.extras or job.extras is not None:
            _refuse_lost_extras(job, change)
            before = read_extras(job.extras)
            _refuse_callback_of_callback(before, change)
            on_finish = None if is_unreadable(job) else before.get("on_finish")
            extras = patched(before, self._with_callback(change.extras, on_finish))
            if execute_at is not None:
                extras = patched(extras, dict.fromkeys(LOCAL))
            elif not LOCAL.isdisjoint(change.extras):
                execute_at = self._local_times.resolve(extras, now, "the change is not valid")
            elif "spread" in change.extras and job.attempt == 0:  # a retry is not spread
                execute_at = job.execute_at
            after = after if extras == before else after.with_extras(extras)
        if "expires_after" in change.given:
            after = after.expire_after(change.expires_after, now)
        if execute_at is not None:
            after = after.move(execute_at, now)
        return after._replace(version=job.version + 1)

    def revive(self, job: Job, change: Change, now: Instant) -> Job:
        """Schedule a job again that did not succeed, and apply a change to it. Without a new time it is due now."""
        after = job.revive(now)
        return self.change(after, change, now)._replace(version=after.version) if change.given else after

    def _rewritten(self, job: Job, change: Change) -> dict[str, Any]:
        given, defaults = change.given, self._defaults.of(job.kind, self._lanes.settings(job.queue))
        if "params" in given:
            self._check_params(self._still_declared(job.kind), change.params)
        self._check_times(change.timeout, change.retry, "the change is not valid")
        timeout = defaults.timeout if change.timeout is None else change.timeout
        return {
            "params": change.params if "params" in given else job.params,
            "labels": change.labels if "labels" in given else job.labels,
            "priority": change.priority if "priority" in given else job.priority,
            "timeout": timeout if "timeout" in given else job.timeout,
            "retry": _changed_policy(job, defaults, change.retry) if "retry" in given else job.retry,
        }

    def _with_callback(self, changes: Mapping[str, Any], before: OnFinish | None) -> Mapping[str, Any]:
        """Check `on_finish` among changes of extras as the params of its http job, and complete it."""
        given = changes.get("on_finish")
        if given is None:
            return changes
        on_finish = make_on_finish(given, before)
        try:
            self._kinds[KIND].params.check(orjson.dumps({"url": on_finish["url"], "headers": on_finish["headers"]}))
        except Invalid as invalid:
            raise Invalid(
                "the callback cannot be made", faults=[fault.under("/on_finish") for fault in invalid.faults]
            ) from None
        return {**changes, "on_finish": on_finish}

    def _still_declared(self, name: str) -> Kind:
        kind = self._kinds.get(name)
        if kind is None:
            detail = f"cannot be checked, because the kind {name!r} of the job has gone; declare it again first"
            raise Invalid("the change is not valid", faults=[Fault("/params", detail)])
        return kind

    def _check_params(self, kind: Kind, params: bytes) -> None:
        limit = self._max_params
        if len(params) > limit:
            detail = f"{len(params)} bytes of JSON; at most {limit} are taken; store large data in another system"
            raise Invalid("params are too large", faults=[Fault("/params", detail)])
        try:
            kind.params.check(params)
        except Invalid as invalid:
            raise Invalid(invalid.what, faults=[fault.under("/params") for fault in invalid.faults]) from None

    def _no_kind(self, kind: str) -> str:
        return f"no kind {kind!r}; known kinds: {', '.join(self._kinds)}{hint(kind, (*self._kinds,))}"

    def _check_times(self, timeout: float | None, retry: RetryPatch | None, what: str) -> None:
        if faults := time_faults(self._config.jobs, timeout, retry):
            raise Invalid(what, faults=faults)


def _without(name: str, params: dict[str, Any]) -> bytes | None:
    """Return params as text, without the one of this name; None if they do not have it."""
    if name not in params:
        return None
    others = params.copy()
    del others[name]
    return orjson.dumps(others)


def queue_of(submission: Submission) -> str:
    return submission.get("queue") or DEFAULT_QUEUE


def callback_queue_of(on_finish: Mapping[str, Any]) -> str:
    return on_finish.get("queue") or QUEUE


def _refuse_lost_extras(job: Job, change: Change) -> None:
    """Refuse to change some of the extras of a job when the others are lost."""
    if change.extras and are_lost(job.extras):
        detail = f"cannot be changed, because the stored {', '.join(PATCHED)} of this job cannot be read"
        faults = [Fault(f"/{name}", f"{detail}; cancel it and submit another") for name in change.extras]
        raise Invalid("the change is not valid", faults=faults)


def _refuse_callback_of_callback(extras: Extras, change: Change) -> None:
    if "callback_of" in extras and change.extras.get("on_finish") is not None:
        detail = f"cannot be set, because this job is the callback of job {extras['callback_of']}; remove it"
        raise Invalid("the change is not valid", faults=[Fault("/on_finish", detail)])


def _changed_policy(job: Job, defaults: JobDefaults, patch: RetryPatch | None) -> bytes:
    """Apply a patch to the retry policy of a job; null resets a part to the default of a new job."""
    if patch is None:
        return defaults.retry
    nulls = {name for name in patch.model_fields_set if getattr(patch, name) is None}
    fallback = read_policy(defaults.retry)._asdict()
    return merged(job.policy._replace(**{name: fallback[name] for name in nulls}), patch).to_json()
