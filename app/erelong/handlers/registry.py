"""Makes all kinds: those built in and those that the settings declare."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from erelong.clock import instants
from erelong.handlers.declared import DeclaredKinds
from erelong.handlers.echo import make_echo
from erelong.handlers.examples import with_example
from erelong.handlers.http.runner import make_http
from erelong.handlers.kinds import Kind, Kinds
from erelong.handlers.python.loading import find_shadow
from erelong.handlers.python.signature import InvalidKind
from erelong.settings.section import ConfigError
from erelong.telemetry.log import get_logger

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from erelong.clock.instants import Now
    from erelong.settings.kinds import KindSettings
    from erelong.settings.sections import Config


SHADOWED = "imported from {0}, which shadows {1}: rename one of them"

log = get_logger(__name__)


def make_kinds(
    config: Config, *, folders: Sequence[Path] = (), now: Now = instants.now, is_virtual: bool = False
) -> Kinds:
    """Make every kind; import functions from `folders` too. `is_virtual`: the instants of jobs are not real time.

    Raise ConfigError with one line for each kind that cannot be made.
    """
    _search_in(folders)
    kinds: dict[str, Kind] = {
        "echo": make_echo(),
        "http": make_http(config=config.webhooks, now=now, is_virtual=is_virtual),
    }
    declared = DeclaredKinds(config=config)
    problems = []
    for name, kind in config.kinds.items():
        if name in kinds:
            continue
        try:
            kinds[name] = declared.make(name, kind)
        except InvalidKind as error:
            runs = "pull" if kind.pull else "command" if kind.command else f'python = "{kind.python}"'
            shadow = _shadow_of(kind, folders)
            problems.append(f"kinds.{name}.{runs}: {error}{f'; {SHADOWED.format(*shadow)}' if shadow else ''}")
        else:
            if shadow := _shadow_of(kind, folders):
                log.warning("kind_shadowed", kind=name, reason=SHADOWED.format(*shadow))
    if problems:
        raise ConfigError(problems)
    return Kinds(*(_with_defaults(kind, config.kinds.get(name)) for name, kind in kinds.items()))


def _with_defaults(kind: Kind, settings: KindSettings | None) -> Kind:
    if settings is not None:
        kind = replace(kind, timeout=settings.timeout, retry=settings.retry)
    return with_example(kind)


def _shadow_of(kind: KindSettings, folders: Sequence[Path]) -> tuple[str, str] | None:
    return None if kind.python is None else find_shadow(kind.python, folders)


def _search_in(folders: Sequence[Path]) -> None:
    """Add folders to the end of the import path, so that no file in them shadows a library."""
    for folder in map(str, (folder.resolve() for folder in folders)):
        if folder not in sys.path:
            sys.path.append(folder)
