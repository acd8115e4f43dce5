"""Jobs to submit: their kind, params and options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final, Generic, TypeAlias, TypedDict, TypeVar, Unpack, cast

from erelong.client.times import Duration, Instant, Zone, write_duration, write_instant, write_local_time, write_zone

R_co = TypeVar("R_co", covariant=True)


class RetryPolicy(TypedDict, total=False):
    """When a failed attempt is repeated. What is not given comes from the kind, the queue or the defaults."""

    max_attempts: int
    delay: Duration
    factor: float
    max_delay: Duration
    jitter: float


class OnFinish(TypedDict, total=False):
    """The callback that reports the end of the job."""

    url: str
    headers: Mapping[str, str]
    states: list[str]
    queue: str


class Options(TypedDict, total=False):
    """The fields of a submit besides kind and params. Without `at`, `delay` and `local_time` the job is due now."""

    at: Instant
    delay: Duration
    local_time: datetime | str
    zone: Zone
    spread: Duration
    queue: str
    priority: int
    timeout: Duration
    retry: RetryPolicy
    expires_after: Duration
    labels: Mapping[str, str]
    key: str
    on_conflict: str
    on_finish: OnFinish


class Changes(TypedDict, total=False):
    """The fields of a change. None clears a field that may be empty."""

    params: Mapping[str, Any]
    at: Instant
    delay: Duration
    local_time: datetime | str | None
    zone: Zone | None
    spread: Duration | None
    priority: int
    timeout: Duration
    retry: RetryPolicy
    expires_after: Duration | None
    labels: Mapping[str, str]
    on_finish: OnFinish | None


Words: TypeAlias = str | Sequence[str]


class Selection(TypedDict, total=False):
    """Which jobs an operation changes: all conditions must hold. Times are `after` ≤ t < `before`."""

    all: bool
    state: Words
    queue: Words
    kind: Words
    schedule: Words
    jobs: Sequence[str]
    key: str
    cause: str
    label: Mapping[str, str]
    labels: Mapping[str, str]
    due_after: Instant
    due_before: Instant
    created_after: Instant
    created_before: Instant
    finished_after: Instant
    finished_before: Instant


class Filters(TypedDict, total=False):
    """Which jobs a listing has, in which order, and how much of each: `view="full"` has params and results."""

    state: Words
    queue: Words
    kind: Words
    error: Words
    key: str
    cause: str
    label: Mapping[str, str]
    labels: Mapping[str, str]
    schedule: str
    occurrence: Instant
    attempt_min: int
    due_after: Instant
    due_before: Instant
    created_after: Instant
    created_before: Instant
    finished_after: Instant
    finished_before: Instant
    order: str
    reverse: bool
    view: str
    limit: int


class Timing(TypedDict, total=False):
    """When a schedule makes jobs, and what happens to missed and overlapping occurrences."""

    cron: str
    every: Duration
    anchor: Instant
    zone: Zone
    gap: str
    fold: str
    starts_at: Instant
    ends_at: Instant
    spread: Duration
    missed: str
    catchup: Duration
    overlap: str


DURATIONS: Final = frozenset({"delay", "spread", "timeout", "expires_after", "max_delay"})


def write_fields(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options as fields of a request; None means null."""
    return {"execute_at" if name == "at" else name: _write(name, value) for name, value in options.items()}


def _write(name: str, value: Any) -> Any:
    if value is None:
        return None
    if name == "at":
        return write_instant(value, "at")
    if name == "local_time":
        return write_local_time(value)
    if name == "retry":
        return write_fields(value)
    if name == "zone":
        return write_zone(value)
    return write_duration(value) if name in DURATIONS else value


WHEN: Final = frozenset({"at", "delay", "local_time"})  # options that exclude one another


def merged(defaults: Options, options: Options) -> Options:
    """Return options over defaults. Labels are merged, and one way to give a time replaces the others."""
    hidden = WHEN | {"zone"} if WHEN & options.keys() else frozenset()
    kept = {name: value for name, value in defaults.items() if name not in hidden}
    labels = {**defaults.get("labels", {}), **options.get("labels", {})}
    return cast(Options, {**kept, **options, **({"labels": labels} if labels else {})})


class Draft(Generic[R_co]):
    """A job to submit: `Draft("http", {"url": "https://app.example"}, delay="2h")`. It never changes."""

    __slots__ = ("kind", "options", "params", "returns")

    def __init__(
        self: Draft[Any],
        kind: str,
        params: Mapping[str, Any] | None = None,
        *,
        returns: Any = Any,
        **options: Unpack[Options],
    ) -> None:
        self.kind = kind
        self.params: Mapping[str, Any] = params or {}
        self.options = options
        self.returns = returns

    def __repr__(self) -> str:
        return f"Draft({self.kind!r}, {self.params!r}, **{self.options!r})"

    def with_options(self, **options: Unpack[Options]) -> Draft[R_co]:
        """Return the same draft with other options."""
        merged: Options = {**self.options, **options}
        return Draft(self.kind, self.params, returns=self.returns, **merged)

    def with_defaults(self, defaults: Options) -> Draft[R_co]:
        """Return the same draft with these options where it has none of its own; labels are merged."""
        return self.with_options(**merged(defaults, self.options)) if defaults else self

    def body(self) -> dict[str, Any]:
        """Return the body of its submit."""
        return {"kind": self.kind, "params": self.params, **write_fields(self.options)}


def draft_of(what: Any, params: Mapping[str, Any] | None = None, **options: Unpack[Options]) -> Draft[Any]:
    """Return what a submit was given as a draft. A TypeError says what to write instead."""
    if isinstance(what, str):
        return Draft(what, params, **options)
    if isinstance(what, Draft) and params is None:
        return what.with_options(**options) if options else what
    if isinstance(what, Draft):
        raise TypeError(f"the draft of {what.kind} has params already: give them when you make it")
    if hasattr(what, "erelong_function"):
        name = getattr(what.function, "__name__", what.name)
        raise TypeError(f"{name} is a kind: write {name}.job(…) with its arguments, which makes a draft")
    if callable(what):
        raise TypeError(not_a_kind(what))
    raise TypeError(f'{what!r} is not a draft: write Draft("echo", {{"text": "hi"}}), with its kind and params')


def not_a_kind(function: Any) -> str:
    """Return what to write if a plain function was given in place of a kind."""
    name = getattr(function, "__name__", "")
    if not name.isidentifier():  # such as a lambda
        return f"{name or repr(function)} is not a kind: define a function, decorate it with @kind, and give its draft"
    return f'{name} is not a kind: decorate it with @kind("{name}"), and let a service or worker run it'
