"""Runs a command: its client, its output, and the exit code for every way it can end."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from erelong.cli.client.output import Output
from erelong.client.errors import (
    Busy,
    Changed,
    Conflict,
    ErelongError,
    Forbidden,
    JobError,
    NoAnswer,
    NotFound,
    Refused,
    Unauthenticated,
)
from erelong.client.sync.client import Client

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

REFUSED: Final = 1
USAGE: Final = 2
JOB_FAILED: Final = 3
NO_ACCESS: Final = 4
NOT_FOUND: Final = 5
CONFLICT: Final = 6
UNAVAILABLE: Final = 69
TIMED_OUT: Final = 124
INTERRUPTED: Final = 130


class Usage(Exception):
    """The arguments do not go together."""


def run(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> int:
    options = parser.parse_intermixed_args(arguments)
    try:
        code: int = options.call(options)
    except BrokenPipeError:
        raise
    except (Usage, ValueError, OSError) as error:
        if isinstance(error, TimeoutError):
            return report(error)
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return USAGE
    except ErelongError as error:
        return report(error)
    return code


def report(error: Exception, about: str = "") -> int:
    """Print an error; return its exit code."""
    code = f" ({error.code})" if isinstance(error, Refused) and error.code else ""
    print(f"erelong: {about}{': ' if about else ''}{error}{code}", file=sys.stderr)
    return exit_code(error)


def exit_code(error: Exception) -> int:
    codes: list[tuple[tuple[type[Exception], ...], int]] = [
        ((TimeoutError,), TIMED_OUT),
        ((NoAnswer,), UNAVAILABLE),
        ((Unauthenticated, Forbidden), NO_ACCESS),
        ((NotFound,), NOT_FOUND),
        ((Conflict, Changed), CONFLICT),
        ((JobError,), JOB_FAILED),
    ]
    if isinstance(error, Busy):
        return UNAVAILABLE if error.status != 429 else REFUSED
    return next((code for kinds, code in codes if isinstance(error, kinds)), REFUSED)


def client_of(options: argparse.Namespace) -> Client:
    key = None if options.key_file is None else options.key_file.read_text(encoding="utf-8").strip()
    return Client(options.url, key=key, profile=options.profile, timeout=options.request_timeout)


def output_of(options: argparse.Namespace) -> Output:
    return Output(is_json=options.json, fields=options.fields, is_quiet=options.quiet, is_utc=options.utc)
