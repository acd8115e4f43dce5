"""The handlers by kind: those built in and one for each kind that the settings declare."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from app import clock
from app.config import ConfigError
from app.handlers.base import Attempt, GiveUp
from app.handlers.echo import EchoHandler
from app.handlers.http import HttpHandler
from app.handlers.python import make_python_handler
from app.handlers.signature import Unfit

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from app.clock import Now
    from app.config import Config
    from app.handlers.base import Handler

__all__ = ["Attempt", "GiveUp", "make_handlers"]


def make_handlers(config: Config, *, folders: Sequence[Path] = (), now: Now = clock.now) -> dict[str, Handler]:
    """Make the handler of every kind, by name in order; functions are found in `folders` too.

    Raise ConfigError with a line for each kind that cannot be made.
    """
    _search_in(folders)
    handlers: dict[str, Handler] = {"echo": EchoHandler(), "http": HttpHandler(config=config.http, now=now)}
    problems = []
    for name, kind in config.kinds.items():
        if kind.python is None:
            continue
        try:
            handlers[name] = make_python_handler(name=name, path=kind.python, isolation=kind.isolation)
        except Unfit as error:
            problems.append(f'kinds.{name}.python = "{kind.python}": {error}')
    if problems:
        raise ConfigError(problems)
    return dict(sorted(handlers.items()))


def _search_in(folders: Sequence[Path]) -> None:
    """Let modules be imported from here; last, so that a file named like a library does not take its place."""
    for folder in map(str, (folder.resolve() for folder in folders)):
        if folder not in sys.path:
            sys.path.append(folder)
