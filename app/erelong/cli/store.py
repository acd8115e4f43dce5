"""Commands that copy the store and put a copy back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from erelong.cli.options import load_settings
from erelong.settings.section import ConfigError

if TYPE_CHECKING:
    import argparse
    from pathlib import Path


def backup(asked: argparse.Namespace) -> int:
    from erelong.stores.sqlite.backup import back_up

    copy = back_up(_store_path(asked), asked.file)
    print(f"{asked.file} holds {copy.jobs} jobs in {copy.bytes} bytes, read back and found sound")
    return 0


def restore(asked: argparse.Namespace) -> int:
    from erelong.stores.sqlite.backup import restore as put_back

    path = _store_path(asked)
    copy, aside = put_back(path, asked.file)
    print(f"{path} holds the {copy.jobs} jobs of {asked.file}")
    if aside is not None:
        print(f"what was there is kept as {aside}")
    print("what was submitted since the copy was made is not in it; what ran since then may run again")
    return 0


def _store_path(asked: argparse.Namespace) -> Path:
    store = load_settings(asked).store
    if store.kind != "sqlite":
        raise ConfigError([f'store.kind = "{store.kind}" keeps nothing in a file: there is nothing to copy'])
    return store.path
