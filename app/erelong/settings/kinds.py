"""The settings of kinds, and checks that each declares exactly one way to run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import Field
from pydantic_core import InitErrorDetails

from erelong.settings.names import FUNCTION, TEXT
from erelong.settings.queues import RetryPatch
from erelong.settings.section import Section, Variable, setting_fault
from erelong.settings.types import PositiveDuration

BUILT_IN_KINDS: Final = frozenset({"echo", "http"})


class KindSettings(Section):
    """How jobs of one kind run: by `python`, by `command` or by `pull`."""

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


def kind_faults(kinds: Mapping[str, KindSettings]) -> Iterator[InitErrorDetails]:
    for name, kind in kinds.items():
        keys = {key for key in kind.model_fields_set if getattr(kind, key) is not None}
        for key, reason in _built_in_faults(name, keys) if name in BUILT_IN_KINDS else _declared_faults(kind, keys):
            yield setting_fault(reason, "kinds", name, *([key] if key else []))


def _built_in_faults(name: str, keys: set[str]) -> Iterator[tuple[str, str]]:
    for key in sorted(keys - {"timeout", "retry"}):
        yield key, f"{name} is built in and takes only timeout and retry"


def _declared_faults(kind: KindSettings, keys: set[str]) -> Iterator[tuple[str, str]]:
    runs = [key for key in ("python", "command", "pull") if key in keys]
    if not runs:
        yield "", 'has nothing to run: give python = "module:function", command = ["/path/to/program"] or pull = true'
    elif len(runs) > 1:
        yield runs[1], f"is one of two ways to run: give {runs[0]} or {runs[1]}, not both"
    else:
        yield from _misplaced(kind, keys)


def _misplaced(kind: KindSettings, keys: set[str]) -> Iterator[tuple[str, str]]:
    if kind.pull is False:
        yield "pull", "false is the default: remove it"
    for key in sorted(keys & {"params_schema"} if kind.pull is None else ()):
        yield key, "is for kinds with pull = true; a function uses its annotations, a command its params"
    for key in sorted(keys & {"params", "directory"} if kind.command is None else ()):
        yield key, "is for kinds with a command"
    for key in sorted(keys & {"isolation"} if kind.python is None else ()):
        yield key, "is for kinds with a python function; a command always runs in a process"
    has_process = kind.command is not None or kind.isolation == "process"
    for key in sorted(keys & {"environment", "memory"} if not has_process else ()):
        yield key, 'is for kinds with a command, or with isolation = "process"'
