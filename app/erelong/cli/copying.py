"""The command that copies a store to another database."""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from erelong.cli.options import load_settings
from erelong.errors import Exit
from erelong.settings.section import ConfigError
from erelong.stores.copying.copy import copy_store
from erelong.stores.copying.tables import JOBS
from erelong.telemetry import log

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from erelong.settings.sections import StoreSection
    from erelong.stores.copying.tables import Source, Target

URLS: Final = ("postgresql://", "postgres://")
WIDTH: Final = 30
REPORTS: Final = {True: 0.2, False: 5.0}
"""Seconds between two reports, on a terminal and in a file or pipe."""


def copy(options: argparse.Namespace) -> int:
    settings = load_settings(options)
    log.setup("warning", settings.log.format)
    source, target = _make_source(settings.store), _make_target(options.target, settings.store)
    bar = Bar()
    try:
        copied = copy_store(source, target, bar, skips_damaged=options.skip_damaged)
    except KeyboardInterrupt:
        bar.end()
        print("interrupted: nothing was copied", file=sys.stderr)
        raise
    finally:
        bar.end()
    others = sum(copied.rows.values()) - copied.rows[JOBS]
    print(f"{target} holds {copied.rows[JOBS]} jobs and {others} other rows, which are equal to those of {source}")
    if copied.missing:
        print(f"{copied.missing} jobs could not be read and are missing")
    print("start the service on one of the two stores only, or their jobs run twice")
    return 0


class Bar:
    """Reports how far a copy has come: in place on a terminal, else by lines."""

    def __init__(self) -> None:
        self._is_terminal = sys.stderr.isatty()
        self._pause = REPORTS[self._is_terminal]
        self._is_open = False
        self._shown_at = 0.0

    def begin(self, phase: str, total: int) -> None:
        self.end()
        self._phase, self._total, self._rows = phase, total, 0
        self._began_at = time.monotonic()
        self._show()

    def advance(self, rows: int) -> None:
        self._rows += rows
        if time.monotonic() - self._shown_at >= self._pause:
            self._show()

    def end(self) -> None:
        """Report the end of a phase."""
        if self._is_open and self._total:
            self._show()
        if self._is_open and self._is_terminal:
            print(file=sys.stderr)
        self._is_open = False

    def _show(self) -> None:
        self._shown_at, self._is_open = time.monotonic(), True
        begin, end = ("\r\x1b[K", "") if self._is_terminal else ("", "\n")
        print(f"{begin}{self._line()}", end=end, file=sys.stderr, flush=True)

    def _line(self) -> str:
        if not self._total:
            return f"{self._phase} …"
        share = min(self._rows / self._total, 1.0)
        full = round(share * WIDTH)
        seconds = time.monotonic() - self._began_at
        pace = self._rows / seconds if seconds else 0.0
        left = f", {(self._total - self._rows) / pace:,.0f} s left" if pace else ""
        bar = f"[{'#' * full}{'.' * (WIDTH - full)}] {share:4.0%}"
        return f"{self._phase:9} {bar}  {self._rows:,} of {self._total:,} rows, {pace:,.0f}/s{left}"


def _make_source(section: StoreSection) -> Source:
    match section.kind:
        case "sqlite":
            from erelong.stores.copying.sqlite.source import SqliteSource

            return SqliteSource(path=Path(section.path))
        case "postgres":
            with _driver():
                from erelong.stores.copying.postgres.source import PostgresSource
            return PostgresSource(url=section.url.get_secret_value(), durability=section.durability)
        case _:
            raise ConfigError([f'store.kind = "{section.kind}" has nothing to copy'])


def _make_target(text: str, section: StoreSection) -> Target:
    """Make the target of a URL, a file that has one (@file), or a path."""
    if text.startswith("@"):
        try:
            text = Path(text[1:]).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise Exit(f"{text[1:]} cannot be read: {error}; name a file with the URL of a database") from error
        if not text.startswith(URLS):
            raise Exit("the file holds no URL of a database; write it as postgresql://user@host/database")
    if text.startswith(URLS):
        with _driver():
            from erelong.stores.copying.postgres.target import PostgresTarget
        return PostgresTarget(url=text, durability=section.durability)
    if "://" in text:
        raise Exit("the target is not a PostgreSQL URL; write it as postgresql://user@host/database, or name a file")
    from erelong.stores.copying.sqlite.target import SqliteTarget

    return SqliteTarget(path=Path(text))


@contextmanager
def _driver() -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        raise ConfigError([f"{error.name} is not installed: pip install 'erelong[server,postgres]'"]) from error
