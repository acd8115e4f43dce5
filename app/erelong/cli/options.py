"""The options that commands share: where the settings are, and what is laid over them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from erelong.settings.load import DEFAULT_FILE, load

if TYPE_CHECKING:
    import argparse

    from erelong.settings.sections import Config


def load_settings(asked: argparse.Namespace) -> Config:
    settings = load(asked.config, os.environ, data=asked.data)
    if "host" not in asked:
        return settings
    given = {"host": asked.host, "port": asked.port}
    server = settings.server.model_copy(update={name: value for name, value in given.items() if value is not None})
    return settings.model_copy(update={"server": server})


def folders(asked: argparse.Namespace) -> list[Path]:
    """Where modules of declared kinds are looked for: beside the settings, then here."""
    return [(asked.config or DEFAULT_FILE).resolve().parent, Path.cwd()]
