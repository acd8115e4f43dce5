"""The sections of the settings, with their defaults and bounds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, SecretStr, ValidationError, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

from erelong.model.caller import Caller, Scope
from erelong.settings.api_keys import is_fingerprint
from erelong.settings.kinds import KindSettings, kind_faults
from erelong.settings.queues import QueueSettings, Rate, Retry, long_waits
from erelong.settings.section import Count, Name, PathName, Section, setting_fault
from erelong.settings.types import (
    Duration,
    NetworkSetting,
    Origin,
    PositiveDuration,
    PostgresUrl,
    Proxy,
    SecretText,
    SigningSecrets,
)


class ServerSection(Section):
    host: str = Field("127.0.0.1", min_length=1)
    port: int = Field(8080, ge=0, le=65_535)
    loop: Literal["uvloop", "asyncio"] = "uvloop"
    header_timeout: PositiveDuration = 5.0
    idle_timeout: PositiveDuration = 75.0
    body_timeout: PositiveDuration = 10.0
    drain_timeout: Duration = 25.0


class LimitsSection(Section):
    max_connections: Count = 1_000
    max_header: int = Field(8_192, ge=1_024)
    max_body: Count = 262_144
    max_batch_body: Count = 16_777_216
    max_batch_jobs: Count = 10_000
    max_params: Count = 65_536
    max_depth: int = Field(32, ge=1, le=200)  # pydantic's own parser fails on deeper JSON
    max_result: Count = 65_536
    max_wait: Duration = 60.0
    max_waiters: int = Field(800, ge=0)
    max_streams: int = Field(100, ge=0)
    max_events: int = Field(50_000, ge=1_000)


class StoreSection(Section):
    kind: Literal["sqlite", "postgres", "memory"] = "sqlite"
    path: Path = Field(Path("data/erelong.db"), strict=False)
    url: PostgresUrl = SecretStr("")
    must_exist: bool = False
    durability: Literal["full", "normal"] = "full"
    reserve: int = Field(33_554_432, ge=0)
    timeout: PositiveDuration = 30.0
    retention_interval: PositiveDuration = 60.0

    @model_validator(mode="after")
    def _needs_a_url(self) -> Self:
        if self.kind == "postgres" and not self.url.get_secret_value():
            reason = 'of kind "postgres" needs a `url`, such as postgresql://user@host/database'
            raise PydanticCustomError("config", "{reason}", {"reason": reason})
        return self


class ClusterSection(Section):
    lead: bool = True
    ttl: Annotated[Duration, Field(ge=1, le=60)] = 2.0
    hold: Annotated[Duration, Field(le=60)] = 8.0


def _fingerprint(text: str) -> str:
    if not is_fingerprint(text):
        reason = "should be <id>:<SHA-256 in hex>, as new-key prints it, not the key itself"
        raise PydanticCustomError("config", "{reason}", {"reason": reason})
    return text


class ApiKey(Section):
    """An API key: its permissions, and its id and SHA-256 as `new-key` prints them."""

    sha256: Annotated[str, AfterValidator(_fingerprint)] = Field(repr=False)
    scopes: list[Annotated[Scope, Field(strict=False)]] = Field(min_length=1)
    queues: list[Name] | None = Field(None, min_length=1)
    rate: Rate | None = None

    def caller(self, name: str) -> Caller:
        return Caller(name=name, scopes=frozenset(self.scopes), queues=frozenset(self.queues or ()))


class AuthSection(Section):
    allow_anonymous: bool = False
    open_metrics: bool = True
    keys: dict[Name, ApiKey] = Field({})


class JobsSection(Section):
    timeout: PositiveDuration = 60.0
    max_timeout: PositiveDuration = 86_400.0
    max_horizon: PositiveDuration = 315_360_000.0
    aging: Duration = 60.0
    window: Annotated[Duration, Field(ge=1)] = 600.0
    window_jobs: Count = 1_000_000
    retry: Retry = Retry()


class SchedulesSection(Section):
    max: int = Field(10_000, ge=0)


class WorkersSection(Section):
    concurrency: int = Field(1_000, ge=1, le=100_000)
    grace: Duration = 2.0
    processes: int = Field(0, ge=0, le=1_000)
    max_unsaved: Count = 10_000


class WebhookSecret(Section):
    """A secret that headers name by {secret:name}, and the origins that may receive it."""

    value: SecretText
    origins: list[Origin] = Field(min_length=1)


class WebhooksSection(Section):
    connect_timeout: PositiveDuration = 5.0
    max_connections: Count = 1_000
    per_host: Count = 100
    max_response: Count = 65_536
    keep_response: int = Field(4_096, ge=0)
    allow_networks: list[NetworkSetting] = Field([])
    proxy: Proxy = SecretStr("")
    signing_secrets: SigningSecrets = Field([])
    secrets: dict[Name, WebhookSecret] = Field({})


class LogSection(Section):
    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["console", "json"] = "console"
    watchdog: Duration = 1.0


class Config(Section):
    server: ServerSection = ServerSection()
    limits: LimitsSection = LimitsSection()
    store: StoreSection = StoreSection()
    cluster: ClusterSection = ClusterSection()
    auth: AuthSection = AuthSection()
    jobs: JobsSection = JobsSection()
    schedules: SchedulesSection = SchedulesSection()
    workers: WorkersSection = WorkersSection()
    webhooks: WebhooksSection = WebhooksSection()
    log: LogSection = LogSection()
    kinds: dict[PathName, KindSettings] = Field({})
    queues: dict[PathName, QueueSettings] = Field({})

    @model_validator(mode="after")
    def _check_sections(self) -> Self:
        faults = [
            *kind_faults(self.kinds),
            *_timeout_faults(self),
            *_retry_faults(self),
            *_key_faults(self.auth.keys),
            *_cluster_faults(self),
        ]
        if faults:
            raise ValidationError.from_exception_data("Config", faults)
        return self


def _timeout_faults(config: Config) -> Iterator[InitErrorDetails]:
    limit = config.jobs.max_timeout
    reason = f"should be at most jobs.max_timeout, {limit:.12g}"
    if config.jobs.timeout > limit:
        yield setting_fault(reason, "jobs", "timeout")
    for table, parts in (("kinds", config.kinds), ("queues", config.queues)):
        for name, part in parts.items():
            if part.timeout is not None and part.timeout > limit:
                yield setting_fault(reason, table, name, "timeout")


def _retry_faults(config: Config) -> Iterator[InitErrorDetails]:
    limit = config.jobs.max_horizon
    reason = f"should be at most jobs.max_horizon, {limit:.12g}"
    for name, _ in long_waits(limit, config.jobs.retry):
        yield setting_fault(reason, "jobs", "retry", name)
    for table, parts in (("kinds", config.kinds), ("queues", config.queues)):
        for name, part in parts.items():
            for wait, _ in long_waits(limit, part.retry):
                yield setting_fault(reason, table, name, "retry", wait)


def _key_faults(keys: Mapping[str, ApiKey]) -> Iterator[InitErrorDetails]:
    names: dict[str, str] = {}
    for name, key in keys.items():
        id = key.sha256.partition(":")[0]
        other = names.setdefault(id, name)
        if other != name:
            reason = f"has the same id as auth.keys.{other}: make a new key with new-key"
            yield setting_fault(reason, "auth", "keys", name, "sha256")


def _cluster_faults(config: Config) -> Iterator[InitErrorDetails]:
    if not config.cluster.lead and config.store.kind != "postgres":
        reason = f'should be true with store.kind = "{config.store.kind}", which only this process has open'
        yield setting_fault(reason, "cluster", "lead")
