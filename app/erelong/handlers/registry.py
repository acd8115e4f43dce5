"""The handlers by kind: those built in and one for each kind that the settings declare."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from erelong.clock.instants import Now
    from erelong.handlers.base import Handler
    from erelong.settings.sections import Config

__all__ = ["make_handlers"]


def make_handlers(config: Config, *, folders: Sequence[Path] = (), now: Now | None = None) -> dict[str, Handler]:
    """Make the handler of every kind, by name in order; functions are found in `folders` too.

    Raise ConfigError with a line for each kind that cannot be made.
    """
    from erelong.clock import instants as clock
    from erelong.handlers.declared import DeclaredKinds
    from erelong.handlers.echo import EchoHandler
    from erelong.handlers.http.runner import HttpHandler
    from erelong.handlers.python.signature import Unfit
    from erelong.settings.section import ConfigError

    _search_in(folders)
    handlers: dict[str, Handler] = {
        "echo": EchoHandler(),
        "http": HttpHandler(config=config.http, now=now or clock.now),
    }
    declared = DeclaredKinds(config=config)
    problems = []
    for name, kind in config.kinds.items():
        if name in handlers:
            continue
        try:
            handlers[name] = declared.make(name, kind)
        except Unfit as error:
            runs = "pull" if kind.pull else "command" if kind.command else f'python = "{kind.python}"'
            problems.append(f"kinds.{name}.{runs}: {error}")
    if problems:
        raise ConfigError(problems)
    return dict(sorted(handlers.items()))


def _search_in(folders: Sequence[Path]) -> None:
    """Let modules be imported from here; last, so that a file named like a library does not take its place."""
    for folder in map(str, (folder.resolve() for folder in folders)):
        if folder not in sys.path:
            sys.path.append(folder)
