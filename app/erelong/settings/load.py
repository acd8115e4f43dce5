"""Reads the settings: defaults, then config.toml, then the environment; says what is wrong and where."""

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
SECRETS: Final = (("webhooks", "proxy"), ("webhooks", "secrets"), ("webhooks", "signing_secrets"))
RENAMED: Final = {("http",): "[webhooks]"} | {("server", name): f"limits.{name}" for name in LimitsSection.model_fields}
"""Names that settings have had."""


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


def find_near_misses(env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that would name a setting with two underscores in place of one, each with that name.

    Kubernetes makes such variables for services: their values are the addresses of ports, and they are left out.
    """
    settings = {"_".join(place).upper(): "__".join(place).upper() for place in _settings(Config) if len(place) > 1}
    misses = {}
    for variable, value in env.items():
        name = variable.upper().removeprefix(PREFIX)
        file = "_FILE" if name.endswith("_FILE") else ""
        setting = settings.get(name.removesuffix(file))
        if setting is not None and variable.upper().startswith(PREFIX) and not value.startswith(PORT_ADDRESSES):
            misses[variable] = f"{PREFIX}{setting}{file}"
    return misses


def _settings(shape: type[BaseModel], place: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """List the places of all settings and sections that have names of their own."""
    for name, field in shape.model_fields.items():
        yield (*place, name)
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from _settings(field.annotation, (*place, name))


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
        return f"{where}: no such setting; {_advice(place)}"
    if fault["type"] == "missing":
        return f"{where}: is needed and not given"
    value = sources.value(place)
    is_secret = sources.is_secret(place) or place[-1:] == ("sha256",) or _is_secret(place)
    is_told = fault["type"] == "duration"  # by the clock itself
    given = "" if is_secret or is_told or value is None or isinstance(value, dict) else f" = {_shown(value)}"
    return f"{where}{given}: {_wish(fault, place, value)}"


def _wish(fault: ErrorDetails, place: tuple[str, ...], value: object) -> str:
    """Say what a value should be."""
    match fault["type"]:
        case "string_pattern_mismatch" if words := in_words(fault["ctx"]["pattern"]):
            return words
        case "model_type" if place[-1] == "rate" and type(value) in (int, float):
            return f"should be a table: write rate = {{ per_second = {value} }}"
        case "model_type" | "dict_type":
            return "should be a table"
        case _:
            return fault["msg"].removeprefix("Input ")


def _is_secret(place: tuple[str, ...]) -> bool:
    """Whether a value at this place is a secret, or holds one."""
    return any(place[: len(secret)] == secret[: len(place)] for secret in SECRETS)


def _dotted(place: tuple[str, ...]) -> str:
    return ".".join(part if part.replace("_", "").replace("-", "").isalnum() else json.dumps(part) for part in place)


def _advice(place: tuple[str, ...]) -> str:
    if place in RENAMED:
        return f"its name is {RENAMED[place]}"
    known = names_at(Config, place[:-1])
    close = difflib.get_close_matches(place[-1], known, n=2)
    return (f"did you mean {' or '.join(close)}? " if close else "") + f"known here: {', '.join(known)}"


def _shown(value: object) -> str:
    text = redacted(json.dumps(value, default=str, ensure_ascii=False))
    return text if len(text) <= 100 else f"{text[:97]}..."
