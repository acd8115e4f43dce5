"""The settings of a queue: limits, rate, retry policy, retention; and how layers of them are merged."""

from __future__ import annotations

import math
from typing import Annotated, Any, Final, Literal

from pydantic import Field, model_validator

from erelong.model.retry import RetryPolicy
from erelong.settings.section import Count, Name, Section
from erelong.settings.types import Duration, PositiveDuration


class Rate(Section):
    """How many jobs of a queue may start, or requests of a key come, in a second."""

    per_second: float = Field(gt=0, description="Jobs started a second, on average; 0.1 is one in ten seconds.")
    burst: float = Field(
        default_factory=lambda: 1.0,  # never called, as below fills it in; but so it is optional, of no fixed default
        ge=1,
        description="Jobs that may start at once after a quiet time; default max(1, per_second).",
    )

    @model_validator(mode="before")
    @classmethod
    def _burst_by_rate(cls, given: Any) -> Any:
        if not isinstance(given, dict) or "burst" in given:
            return given
        rate = given.get("per_second")
        return given | {"burst": rate if isinstance(rate, (int, float)) and 1 < rate < math.inf else 1.0}


MaxAttempts = Annotated[int, Field(ge=1, le=1_000)]
Factor = Annotated[float, Field(ge=1)]
Jitter = Annotated[float, Field(ge=0, le=1)]

_ATTEMPTS: Final = "Attempts in all, the first included: 1 is without retries."
_DELAY: Final = "Seconds between the first attempt and the second."
_FACTOR: Final = "What the delay is multiplied by after each attempt; 1 leaves it as it is."
_MAX_DELAY: Final = "Seconds the delay does not grow beyond."
_JITTER: Final = "Share by which each delay is varied at random: 0.2 is ± 20 %, 0 is none."


class Retry(Section):
    """What follows a failed attempt: after the n-th a wait of delay × factor^(n-1), at most max_delay, ± jitter."""

    max_attempts: MaxAttempts = Field(5, description=_ATTEMPTS)
    delay: Duration = Field(5.0, description=_DELAY)
    factor: Factor = Field(3.0, description=_FACTOR)
    max_delay: Duration = Field(3_600.0, description=_MAX_DELAY)
    jitter: Jitter = Field(0.2, description=_JITTER)

    @property
    def policy(self) -> RetryPolicy:
        return RetryPolicy(**self.model_dump())


class RetryPatch(Section):
    """Any part of a retry policy; what is not given, or null, comes from the kind, the queue or the defaults."""

    max_attempts: MaxAttempts | None = Field(None, description=_ATTEMPTS)
    delay: Duration | None = Field(None, description=_DELAY)
    factor: Factor | None = Field(None, description=_FACTOR)
    max_delay: Duration | None = Field(None, description=_MAX_DELAY)
    jitter: Jitter | None = Field(None, description=_JITTER)


class LabelConcurrency(Section):
    """How many jobs with the same value of a label may run at once."""

    label: Name = Field(description="The name of the label, such as tenant.")
    limit: Count = Field(description="Running jobs for each value of it.")


class Retention(Section):
    """How long jobs that are over are kept."""

    succeeded: Duration = Field(604_800.0, description="Seconds a succeeded job is kept.")
    other: Duration = Field(2_592_000.0, description="Seconds a failed, cancelled or expired job is kept.")


class QueueSettings(Section):
    """What one queue allows; what is not given falls back to the configuration and the defaults."""

    concurrency: int = Field(100, ge=1, le=100_000, description="Jobs of the queue that run at once.")
    rate: Rate | None = Field(None, description="Jobs that start a second; null: as many as can.")
    label_concurrency: LabelConcurrency | None = Field(None, description="Running jobs per value of a label.")
    max_backlog: int = Field(10_000_000, ge=0, description="Jobs that may wait; 0: any number.")
    overflow: Literal["reject", "drop_oldest", "wait"] = Field(
        "reject", description="What a submit meets when max_backlog jobs wait: 429, room made by force, or a wait."
    )
    timeout: PositiveDuration | None = Field(None, description="Seconds of one attempt, for jobs that give none.")
    retry: RetryPatch | None = Field(None, description="Retry policy of jobs that give none.")
    retention: Retention = Field(Retention(), description="How long jobs that are over are kept.")


def layered(config: QueueSettings | None, override: QueueSettings | None) -> QueueSettings:
    """Lay what the override gives over what the config gives, over the defaults, field by field."""
    layers = [layer for layer in (config, override) if layer is not None]
    given = {name: getattr(layer, name) for layer in layers for name in layer.model_fields_set}
    return QueueSettings().model_copy(update=given)


def merged(base: RetryPolicy, *patches: RetryPatch | None) -> RetryPolicy:
    """Lay patches over a policy; the later wins, and null leaves a field as it is."""
    present = [patch for patch in patches if patch is not None]
    return base._replace(**{name: value for patch in present for name, value in patch if value is not None})
