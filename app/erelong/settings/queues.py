"""The settings of a queue: limits, rate limit, retry policy and retention, and the merging of layers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Annotated, Any, Final, Literal

from pydantic import Field, model_validator

from erelong.model.retry import RetryPolicy
from erelong.settings.section import Count, Name, Section
from erelong.settings.types import Duration, PositiveDuration


class Rate(Section):
    """A rate limit: the jobs of a queue that may start per second, or the requests of an API key."""

    per_second: float = Field(gt=0, description="Average jobs started per second; 0.1 is one every ten seconds.")
    burst: float = Field(
        default_factory=lambda: 1.0,  # never called: it makes the field optional without a default in the schema
        ge=1,
        description="Jobs that may start at once after an idle period; default max(1, per_second).",
    )

    @model_validator(mode="before")
    @classmethod
    def _default_burst(cls, fields: Any) -> Any:
        if not isinstance(fields, dict) or "burst" in fields:
            return fields
        rate = fields.get("per_second")
        return fields | {"burst": rate if isinstance(rate, (int, float)) and 1 < rate < math.inf else 1.0}


MaxAttempts = Annotated[int, Field(ge=1, le=1_000)]
Factor = Annotated[float, Field(ge=1)]
Jitter = Annotated[float, Field(ge=0, le=1)]

_ATTEMPTS: Final = "Total attempts, including the first; 1 means no retries."
_DELAY: Final = "Seconds between the first attempt and the second."
_FACTOR: Final = "Factor by which the delay grows after each attempt; 1 keeps it constant."
_MAX_DELAY: Final = "Maximum delay in seconds."
_JITTER: Final = "Random variation of each delay, as a share of it: 0.2 means ± 20 %, 0 none."


class Retry(Section):
    """A retry policy: the wait after attempt n is delay × factor^(n-1), at most max_delay, ± jitter."""

    max_attempts: MaxAttempts = Field(5, description=_ATTEMPTS)
    delay: Duration = Field(5.0, description=_DELAY)
    factor: Factor = Field(3.0, description=_FACTOR)
    max_delay: Duration = Field(3_600.0, description=_MAX_DELAY)
    jitter: Jitter = Field(0.2, description=_JITTER)

    @property
    def policy(self) -> RetryPolicy:
        return RetryPolicy(**self.model_dump())


class RetryPatch(Section):
    """Part of a retry policy. Missing and null fields come from the kind, the queue or the defaults."""

    max_attempts: MaxAttempts | None = Field(None, description=_ATTEMPTS)
    delay: Duration | None = Field(None, description=_DELAY)
    factor: Factor | None = Field(None, description=_FACTOR)
    max_delay: Duration | None = Field(None, description=_MAX_DELAY)
    jitter: Jitter | None = Field(None, description=_JITTER)


def long_waits(max_horizon: float, retry: Retry | RetryPatch | None) -> Iterator[tuple[str, float]]:
    """Yield the delays that a retry policy sets beyond the horizon."""
    for name in ("delay", "max_delay"):
        if retry is not None and name in retry.model_fields_set:
            seconds = getattr(retry, name)
            if seconds is not None and seconds > max_horizon:
                yield name, seconds


class LabelConcurrency(Section):
    """A limit on running jobs with the same value of a label."""

    label: Name = Field(description="Name of the label, such as tenant.")
    limit: Count = Field(description="Maximum running jobs per value of the label.")


class Retention(Section):
    """How long finished jobs are kept."""

    succeeded: Duration = Field(604_800.0, description="Seconds to keep a succeeded job.")
    other: Duration = Field(2_592_000.0, description="Seconds to keep a failed, cancelled or expired job.")


class QueueSettings(Section):
    """The settings of one queue. A missing field falls back to the configuration, then to the defaults."""

    concurrency: int = Field(100, ge=1, le=100_000, description="Maximum running jobs of the queue.")
    rate: Rate | None = Field(None, description="Jobs started per second; null: no limit.")
    label_concurrency: LabelConcurrency | None = Field(None, description="Maximum running jobs per value of a label.")
    max_backlog: int = Field(10_000_000, ge=0, description="Maximum waiting jobs; 0: no limit.")
    overflow: Literal["reject", "drop_oldest", "wait"] = Field(
        "reject", description="At max_backlog, reject a submit with 429, drop the job due first, or wait for room."
    )
    timeout: PositiveDuration | None = Field(None, description="Timeout of an attempt, for jobs without their own.")
    retry: RetryPatch | None = Field(None, description="Retry policy, for jobs without their own.")
    retention: Retention = Field(Retention(), description="How long finished jobs are kept.")


def layered(config: QueueSettings | None, override: QueueSettings | None) -> QueueSettings:
    """Merge the settings of a queue by field: the override wins over the config, the config over the defaults."""
    layers = [layer for layer in (config, override) if layer is not None]
    fields = {name: getattr(layer, name) for layer in layers for name in layer.model_fields_set}
    return QueueSettings().model_copy(update=fields)


def merged(base: RetryPolicy, *patches: RetryPatch | None) -> RetryPolicy:
    """Apply patches to a policy in order; null leaves a field unchanged."""
    present = [patch for patch in patches if patch is not None]
    return base._replace(**{name: value for patch in present for name, value in patch if value is not None})
