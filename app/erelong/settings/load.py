"""Reads the settings from defaults, config.toml and the environment, and reports every problem with its source."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from erelong.settings.names import in_words, names_at
from erelong.settings.section import ConfigError
from erelong.settings.sections import Config, LimitsSection
from erelong.settings.sources import PREFIX, Sources
from erelong.telemetry.redact import redacted

DEFAULT_FILE: Final = Path("config.toml")
PORT_ADDRESSES: Final = ("tcp://", "udp://", "sctp://")
SECRETS: Final = (("store", "url"), ("webhooks", "proxy"), ("webhooks", "secrets"), ("webhooks", "signing_secrets"))
RENAMED: Final = {("http",): "[webhooks]"} | {("server", name): f"limits.{name}" for name in LimitsSection.model_fields}
"""Former names of settings."""


def load(path: Path | None, env: Mapping[str, str], *, data: Path | None = None) -> Config:
    """Read the settings: defaults, then the file, then ERELONG_ variables, then `data`.

    Without a path, read config.toml in the working directory if it exists. `data` is the directory for all files that
    the service writes. Raise ConfigError with all problems.
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


def find_near_misses(env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that have one underscore where a setting has two, each with the setting's variable.

    Leave out those with the address of a port as value, since Kubernetes makes them for services.
    """
    settings = {"_".join(path).upper(): "__".join(path).upper() for path in _settings(Config) if len(path) > 1}
    misses = {}
    for variable, value in env.items():
        name = variable.upper().removeprefix(PREFIX)
        file = "_FILE" if name.endswith("_FILE") else ""
        setting = settings.get(name.removesuffix(file))
        if setting is not None and variable.upper().startswith(PREFIX) and not value.startswith(PORT_ADDRESSES):
            misses[variable] = f"{PREFIX}{setting}{file}"
    return misses


def _settings(model: type[BaseModel], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the paths of all settings and sections with fixed names."""
    for name, field in model.model_fields.items():
        yield (*path, name)
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from _settings(field.annotation, (*path, name))


def _checked(sources: Sources) -> Config:
    try:
        return Config.model_validate(sources.tree)
    except ValidationError as error:
        text_paths = {fault["loc"] for fault in error.errors() if fault["type"] in ("string_type", "path_type")}
        if not sources.use_texts(text_paths):
            raise
    return Config.model_validate(sources.tree)


def _problem(fault: ErrorDetails, sources: Sources) -> str:
    path = tuple(str(part) for part in fault["loc"] if part != "[key]")
    where = f"{sources.source_of(path)}: {_dotted(path)}"
    if fault["type"] == "extra_forbidden":
        return f"{where}: no such setting; {_advice(path)}"
    if fault["type"] == "missing":
        return f"{where}: is required"
    value = sources.value(path)
    is_secret = sources.is_secret(path) or path[-1:] == ("sha256",) or _is_secret(path)
    has_value = fault["type"] == "duration"  # its text quotes the value
    assigned = "" if is_secret or has_value or value is None or isinstance(value, dict) else f" = {_shown(value)}"
    return f"{where}{assigned}: {_remedy(fault, path, value)}"


def _remedy(fault: ErrorDetails, path: tuple[str, ...], value: object) -> str:
    """Describe the values that the setting accepts."""
    match fault["type"]:
        case "string_pattern_mismatch" if words := in_words(fault["ctx"]["pattern"]):
            return words
        case "model_type" if path[-1] == "rate" and type(value) in (int, float):
            return f"should be a table: write rate = {{ per_second = {value} }}"
        case "model_type" | "dict_type":
            return "should be a table"
        case _:
            return fault["msg"].removeprefix("Input ")


def _is_secret(path: tuple[str, ...]) -> bool:
    """Whether the value at this path is a secret, or contains one."""
    return any(path[: len(secret)] == secret[: len(path)] for secret in SECRETS)


def _dotted(path: tuple[str, ...]) -> str:
    return ".".join(part if part.replace("_", "").replace("-", "").isalnum() else json.dumps(part) for part in path)


def _advice(path: tuple[str, ...]) -> str:
    if path in RENAMED:
        return f"its name is {RENAMED[path]}"
    known = names_at(Config, path[:-1])
    close = difflib.get_close_matches(path[-1], known, n=2)
    return (f"did you mean {' or '.join(close)}? " if close else "") + f"known here: {', '.join(known)}"


def _shown(value: object) -> str:
    text = redacted(json.dumps(value, default=str, ensure_ascii=False))
    return text if len(text) <= 100 else f"{text[:97]}..."
