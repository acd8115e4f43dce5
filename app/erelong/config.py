"""Settings: frozen sections with their defaults and bounds, read from config.toml with the environment on top."""

from __future__ import annotations

import difflib
import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, ValidationError, model_validator
from pydantic_core import ErrorDetails, InitErrorDetails, PydanticCustomError

from erelong.access import Caller, Scope, is_fingerprint, redacted
from erelong.clock import Duration, PositiveDuration
from erelong.errors import Exit
from erelong.outgoing import NetworkSetting, Origin, Proxy, SecretText, SigningSecrets
from erelong.shapes import FUNCTION, NAME, TEXT, VARIABLE, in_words, names_at
from erelong.sources import Sources

DEFAULT_FILE: Final = Path("config.toml")
BUILT_IN_KINDS: Final = frozenset({"echo", "http"})
SECRETS: Final = (("http", "proxy"), ("http", "secrets"), ("http", "signing_secrets"))

Name = Annotated[str, Field(pattern=NAME)]
Count = Annotated[int, Field(ge=1)]
Variable = Annotated[str, Field(pattern=VARIABLE)]


class ConfigError(Exit):
    """The settings cannot be used; the text has a line for each thing wrong with them."""

    code: ClassVar[int] = 78

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


class Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class ServerSection(Section):
    host: str = Field("127.0.0.1", min_length=1)
    port: int = Field(8080, ge=0, le=65_535)
    loop: Literal["uvloop", "asyncio"] = "uvloop"
    max_connections: Count = 1_000
    header_timeout: PositiveDuration = 5.0
    idle_timeout: PositiveDuration = 75.0
    body_timeout: PositiveDuration = 10.0
    drain_timeout: Duration = 25.0
    max_header: int = Field(8_192, ge=1_024)
    max_body: Count = 262_144
    max_batch_body: Count = 16_777_216
    max_batch_jobs: Count = 10_000
    max_params: Count = 65_536
    max_depth: int = Field(32, ge=1, le=200)  # above, pydantic's parser gives up by itself
    max_result: Count = 65_536
    max_wait: Duration = 60.0
    max_waiters: int = Field(800, ge=0)


class StoreSection(Section):
    kind: Literal["sqlite", "memory"] = "sqlite"
    path: Path = Field(Path("data/erelong.db"), strict=False)
    durability: Literal["full", "normal"] = "full"
    reserve: int = Field(33_554_432, ge=0)
    timeout: PositiveDuration = 30.0
    retention_interval: PositiveDuration = 60.0


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


def _fingerprint(text: str) -> str:
    if not is_fingerprint(text):
        reason = "should be <id>:<SHA-256 in hex>, as new-key prints it; the key itself must not stand here"
        raise PydanticCustomError("config", "{reason}", {"reason": reason})
    return text


class ApiKey(Section):
    """What a key may do. The key itself is not here, only its id and SHA-256, as `new-key` prints them."""

    sha256: Annotated[str, AfterValidator(_fingerprint)] = Field(repr=False)
    scopes: list[Annotated[Scope, Field(strict=False)]] = Field(min_length=1)
    queues: list[Name] | None = Field(None, min_length=1)
    rate: Rate | None = None

    def caller(self, name: str) -> Caller:
        return Caller(name=name, scopes=frozenset(self.scopes), queues=frozenset(self.queues or ()))


class AuthSection(Section):
    allow_anonymous: bool = False
    open_metrics: bool = True
    keys: dict[Name, ApiKey] = {}


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


class RetryPatch(Section):
    """Any part of a retry policy; what is not given, or null, comes from the kind, the queue or the defaults."""

    max_attempts: MaxAttempts | None = Field(None, description=_ATTEMPTS)
    delay: Duration | None = Field(None, description=_DELAY)
    factor: Factor | None = Field(None, description=_FACTOR)
    max_delay: Duration | None = Field(None, description=_MAX_DELAY)
    jitter: Jitter | None = Field(None, description=_JITTER)


class JobsSection(Section):
    timeout: PositiveDuration = 60.0
    max_timeout: PositiveDuration = 86_400.0
    max_horizon: PositiveDuration = 315_360_000.0
    aging: Duration = 60.0
    retry: Retry = Retry()


class WorkersSection(Section):
    concurrency: int = Field(1_000, ge=1, le=100_000)
    grace: Duration = 2.0
    processes: int = Field(0, ge=0, le=1_000)
    max_unsaved: Count = 10_000


class HttpSecret(Section):
    """What headers may name by {secret:name}, and where it may be sent to."""

    value: SecretText
    origins: list[Origin] = Field(min_length=1)


class HttpSection(Section):
    connect_timeout: PositiveDuration = 5.0
    max_connections: Count = 1_000
    per_host: Count = 100
    max_response: Count = 65_536
    keep_response: int = Field(4_096, ge=0)
    allow_networks: list[NetworkSetting] = []
    proxy: Proxy = SecretStr("")
    signing_secrets: SigningSecrets = []
    secrets: dict[Name, HttpSecret] = {}


class Kind(Section):
    """How jobs of one kind are run; which key is given says by what."""

    python: str | None = Field(None, pattern=FUNCTION)
    isolation: Literal["async", "thread", "process"] | None = None
    command: list[Annotated[str, Field(min_length=1)]] | None = Field(None, min_length=1)
    params: dict[Variable, str] | None = None
    pull: bool | None = None
    params_schema: dict[str, Any] | Annotated[Path, Field(strict=False)] | None = None
    directory: Path | None = Field(None, strict=False)
    environment: dict[Variable, Annotated[str, Field(pattern=TEXT)]] | None = None
    memory: int | None = Field(None, ge=16_777_216)
    timeout: PositiveDuration | None = None
    retry: RetryPatch | None = None


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


class LogSection(Section):
    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["console", "json"] = "console"
    watchdog: Duration = 1.0


class Config(Section):
    server: ServerSection = ServerSection()
    store: StoreSection = StoreSection()
    auth: AuthSection = AuthSection()
    jobs: JobsSection = JobsSection()
    workers: WorkersSection = WorkersSection()
    http: HttpSection = HttpSection()
    log: LogSection = LogSection()
    kinds: dict[Name, Kind] = {}
    queues: dict[Name, QueueSettings] = {}

    @model_validator(mode="after")
    def _parts_fit(self) -> Self:
        faults = [*_kind_faults(self.kinds), *_timeout_faults(self), *_key_faults(self.auth.keys)]
        if faults:
            raise ValidationError.from_exception_data("Config", faults)
        return self


def load(path: Path | None, env: Mapping[str, str], *, data: Path | None = None) -> Config:
    """Read the settings: defaults, then the file, then ERELONG_ names of the environment, then `data`.

    Without a path, config.toml of the working directory is read if it is there. `data` is the directory for all that
    the service writes. Raise ConfigError with everything that is wrong.
    """
    sources = Sources()
    sources.read_file(path or DEFAULT_FILE, is_needed=path is not None)
    sources.read_environment(env)
    try:
        config = _checked(sources)
    except ValidationError as error:
        raise ConfigError([*sources.problems, *(_problem(fault, sources) for fault in error.errors())]) from None
    if sources.problems:
        raise ConfigError(sources.problems)
    if data is None:
        return config
    return config.model_copy(update={"store": config.store.model_copy(update={"path": data / "erelong.db"})})


def layered(config: QueueSettings | None, override: QueueSettings | None) -> QueueSettings:
    """Lay what the override gives over what the config gives, over the defaults, field by field."""
    layers = [layer for layer in (config, override) if layer is not None]
    given = {name: getattr(layer, name) for layer in layers for name in layer.model_fields_set}
    return QueueSettings().model_copy(update=given)


def merged(base: Retry, *patches: RetryPatch | None) -> Retry:
    """Lay patches over a policy; the later wins, and null leaves a field as it is."""
    present = [patch for patch in patches if patch is not None]
    return base.model_copy(update={name: value for patch in present for name, value in patch if value is not None})


def _kind_faults(kinds: Mapping[str, Kind]) -> Iterator[InitErrorDetails]:
    for name, kind in kinds.items():
        given = {key for key in kind.model_fields_set if getattr(kind, key) is not None}
        for key, reason in _reserved(name, given) if name in BUILT_IN_KINDS else _unclear(kind, given):
            yield _fault(reason, "kinds", name, *([key] if key else []))


def _reserved(name: str, given: set[str]) -> Iterator[tuple[str, str]]:
    for key in sorted(given - {"timeout", "retry"}):
        yield key, f"{name} is built in and takes only timeout and retry"


def _unclear(kind: Kind, given: set[str]) -> Iterator[tuple[str, str]]:
    runs = [key for key in ("python", "command", "pull") if key in given]
    if not runs:
        what = 'python = "module:function", command = ["/path/to/program"] or pull = true'
        yield "", f"does not say what runs: give {what}"
    elif len(runs) > 1:
        yield runs[1], f"says what runs twice: give {runs[0]} or {runs[1]}, not both"
    else:
        yield from _misplaced(kind, given)


def _misplaced(kind: Kind, given: set[str]) -> Iterator[tuple[str, str]]:
    if kind.pull is False:
        yield "pull", "false is what a kind is without it: leave it out"
    for key in sorted(given & {"params_schema"} if kind.pull is None else ()):
        yield key, "is for kinds with pull = true; those of a function are its annotations, of a command its params"
    for key in sorted(given & {"params", "directory"} if kind.command is None else ()):
        yield key, "is for kinds with a command"
    for key in sorted(given & {"isolation"} if kind.python is None else ()):
        yield key, "is for kinds with a python function; a command always is a process"
    has_process = kind.command is not None or kind.isolation == "process"
    for key in sorted(given & {"environment", "memory"} if not has_process else ()):
        yield key, 'is for kinds with a command, or with isolation = "process"'


def _timeout_faults(config: Config) -> Iterator[InitErrorDetails]:
    most = config.jobs.max_timeout
    reason = f"should be at most jobs.max_timeout, {most:g}"
    if config.jobs.timeout > most:
        yield _fault(reason, "jobs", "timeout")
    for table, parts in (("kinds", config.kinds), ("queues", config.queues)):
        for name, part in parts.items():
            if part.timeout is not None and part.timeout > most:
                yield _fault(reason, table, name, "timeout")


def _key_faults(keys: Mapping[str, ApiKey]) -> Iterator[InitErrorDetails]:
    names: dict[str, str] = {}
    for name, key in keys.items():
        id = key.sha256.partition(":")[0]
        other = names.setdefault(id, name)
        if other != name:
            yield _fault(f"has the id of auth.keys.{other}: make another with new-key", "auth", "keys", name, "sha256")


def _fault(reason: str, *place: str) -> InitErrorDetails:
    return InitErrorDetails(type=PydanticCustomError("config", "{reason}", {"reason": reason}), loc=place, input=None)


def _checked(sources: Sources) -> Config:
    try:
        return Config.model_validate(sources.tree)
    except ValidationError as error:
        wants_text = {fault["loc"] for fault in error.errors() if fault["type"] in ("string_type", "path_type")}
        if not sources.take_as_text(wants_text):
            raise
    return Config.model_validate(sources.tree)


def _problem(fault: ErrorDetails, sources: Sources) -> str:
    place = tuple(str(part) for part in fault["loc"] if part != "[key]")
    where = f"{sources.place(place)}: {_dotted(place)}"
    if fault["type"] == "extra_forbidden":
        return f"{where}: no such setting{_advice(place)}"
    if fault["type"] == "missing":
        return f"{where}: is needed and not given"
    value = sources.value(place)
    is_secret = sources.is_secret(place) or place[-1:] == ("sha256",) or _is_secret(place)
    is_told = fault["type"] == "duration"  # by the clock itself
    given = "" if is_secret or is_told or value is None or isinstance(value, dict) else f" = {_shown(value)}"
    wish = in_words(fault["ctx"]["pattern"]) if fault["type"] == "string_pattern_mismatch" else None
    return f"{where}{given}: {wish or fault['msg'].removeprefix('Input ')}"


def _is_secret(place: tuple[str, ...]) -> bool:
    """Whether a value at this place is a secret, or holds one."""
    return any(place[: len(secret)] == secret[: len(place)] for secret in SECRETS)


def _dotted(place: tuple[str, ...]) -> str:
    return ".".join(part if part.replace("_", "").replace("-", "").isalnum() else json.dumps(part) for part in place)


def _advice(place: tuple[str, ...]) -> str:
    known = names_at(Config, place[:-1])
    close = difflib.get_close_matches(place[-1], known, n=2)
    return (f"; did you mean {' or '.join(close)}?" if close else ";") + f" known here: {', '.join(known)}"


def _shown(value: object) -> str:
    text = redacted(json.dumps(value, default=str, ensure_ascii=False))
    return text if len(text) <= 100 else f"{text[:97]}..."
