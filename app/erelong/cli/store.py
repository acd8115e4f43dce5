"""Commands that back up and restore the store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from erelong.cli.options import load_settings
from erelong.settings.section import ConfigError

if TYPE_CHECKING:
    import argparse
    from pathlib import Path


def backup(options: argparse.Namespace) -> int:
    from erelong.stores.sqlite.backup import back_up

    copy = back_up(_store_path(options), options.file)
    print(f"{options.file} holds {copy.jobs} jobs in {copy.bytes} bytes and passed the integrity check")
    return 0


def restore(options: argparse.Namespace) -> int:
    from erelong.stores.sqlite.backup import restore as restore_store

    path = _store_path(options)
    copy, old_store = restore_store(path, options.file)
    print(f"{path} holds the {copy.jobs} jobs of {options.file}")
    if old_store is not None:
        print(f"the old store is kept as {old_store}")
    print("jobs submitted since the backup are missing, and jobs that ran since then may run again")
    return 0


def _store_path(options: argparse.Namespace) -> Path:
    store = load_settings(options).store
    if store.kind == "postgres":
        raise ConfigError(['store.kind = "postgres" has no file: use pg_dump and pg_restore of PostgreSQL'])
    if store.kind != "sqlite":
        raise ConfigError([f'store.kind = "{store.kind}" has no file: there is nothing to back up or restore'])
    return store.path
