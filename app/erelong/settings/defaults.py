"""The timeout and the retry policy of jobs without their own: those of the kind, of the queue, then the global ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from erelong.settings.queues import merged

if TYPE_CHECKING:
    from collections.abc import Mapping

    from erelong.settings.queues import QueueSettings, RetryPatch
    from erelong.settings.sections import Config

MAX_DEFAULTS = 1_000  # each PUT of a queue makes new settings; old entries must not accumulate


class OwnDefaults(Protocol):
    """The defaults that a kind declares."""

    @property
    def timeout(self) -> float | None: ...

    @property
    def retry(self) -> RetryPatch | None: ...


class JobDefaults(NamedTuple):
    """Defaults for jobs of one kind under the same queue settings."""

    settings: QueueSettings
    kind: OwnDefaults | None
    timeout: float
    retry: bytes


class Defaults:
    """Makes defaults, one object for all jobs of a kind under the same settings. The kinds may change."""

    def __init__(self, *, config: Config, kinds: Mapping[str, OwnDefaults]) -> None:
        self._config = config
        self._kinds = kinds
        self._made: dict[tuple[str, int], JobDefaults] = {}

    def of(self, kind: str, settings: QueueSettings) -> JobDefaults:
        defaults, declared = self._made.get((kind, id(settings))), self._kinds.get(kind)
        if defaults is None or defaults.kind is not declared:
            timeout = (declared.timeout if declared else None) or settings.timeout or self._config.jobs.timeout
            defaults = JobDefaults(settings, declared, timeout, self.policy(kind, settings, None))
            if len(self._made) >= MAX_DEFAULTS:
                self._made.clear()
            self._made[kind, id(settings)] = defaults  # keeps the settings alive, so that their id stays unique
        return defaults

    def policy(self, kind: str, settings: QueueSettings, patch: RetryPatch | None) -> bytes:
        """Return the whole retry policy of a job with this patch as JSON."""
        declared = self._kinds.get(kind)
        kind_patch = declared.retry if declared else None
        return merged(self._config.jobs.retry.policy, settings.retry, kind_patch, patch).to_json()
