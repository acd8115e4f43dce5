"""The kinds that the settings declare, and whether each says clearly what runs."""

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


def kind_faults(kinds: Mapping[str, KindSettings]) -> Iterator[InitErrorDetails]:
    for name, kind in kinds.items():
        given = {key for key in kind.model_fields_set if getattr(kind, key) is not None}
        for key, reason in _reserved(name, given) if name in BUILT_IN_KINDS else _unclear(kind, given):
            yield setting_fault(reason, "kinds", name, *([key] if key else []))


def _reserved(name: str, given: set[str]) -> Iterator[tuple[str, str]]:
    for key in sorted(given - {"timeout", "retry"}):
        yield key, f"{name} is built in and takes only timeout and retry"


def _unclear(kind: KindSettings, given: set[str]) -> Iterator[tuple[str, str]]:
    runs = [key for key in ("python", "command", "pull") if key in given]
    if not runs:
        what = 'python = "module:function", command = ["/path/to/program"] or pull = true'
        yield "", f"does not say what runs: give {what}"
    elif len(runs) > 1:
        yield runs[1], f"says what runs twice: give {runs[0]} or {runs[1]}, not both"
    else:
        yield from _misplaced(kind, given)


def _misplaced(kind: KindSettings, given: set[str]) -> Iterator[tuple[str, str]]:
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
