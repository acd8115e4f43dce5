"""The options that commands share: the settings file and the overrides."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from erelong.settings.load import DEFAULT_FILE, load

if TYPE_CHECKING:
    import argparse

    from erelong.settings.sections import Config


def load_settings(options: argparse.Namespace) -> Config:
    settings = load(options.config, os.environ, data=options.data)
    if "host" not in options:
        return settings
    given = {"host": options.host, "port": options.port}
    server = settings.server.model_copy(update={name: value for name, value in given.items() if value is not None})
    return settings.model_copy(update={"server": server})


def settings_file(options: argparse.Namespace) -> Path | None:
    """Return the file that `load_settings` reads, if there is one."""
    file = options.config or DEFAULT_FILE
    return file.resolve() if file.exists() else None


def folders(options: argparse.Namespace) -> list[Path]:
    """Return the folders to search for modules of declared kinds: beside the settings, then the working directory."""
    return [(options.config or DEFAULT_FILE).resolve().parent, Path.cwd()]
